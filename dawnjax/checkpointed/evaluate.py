"""A run's checkpoint evaluated again: on its own split, or on another labelled set."""

import dataclasses
import json
from typing import Any

import jax

from dawnjax import records
from dawnjax.analysis.generalization import drops
from dawnjax.checkpointed.earlier_run import EarlierRun, restore
from dawnjax.checkpoints.store import Restored
from dawnjax.cluster import processes
from dawnjax.config.config_json import to_json
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import RunError
from dawnjax.evaluation import EvaluationFeed, evaluate, reaches
from dawnjax.feed import input_shapes
from dawnjax.page.table import of_words
from dawnjax.page.words import counted
from dawnjax.programs import compile_evaluation
from dawnjax.runs.log import log_path, read_events
from dawnjax.session import joined
from dawnjax.stepper import calls_in_flight
from dawnjax.tasks.task import LabelledSet, Setting, Task, find_metric
from dawnjax.text import escaped
from dawnjax.train_step import Recipe, platform_of
from dawnjax.trials.from_log import trial_of

SCHEMA_VERSION = 2


def evaluate_run(
    run: EarlierRun,
    other: tuple[str, LabelledSet] | None,
    options: RunOptions,
    differences: dict[str, Any],
) -> tuple[dict[str, Any], str] | None:
    """Restore the newest checkpoint and measure its own split, or `other` beside it.

    Returns what was found and its text; None on all processes but the first. `differences` are
    fields of the task that only an evaluation reads and that differ from the run's.
    """
    session, watchdog = joined(run.experiment, run.spec, options)
    recipe, restored = restore(
        run, session.mesh, options, "evaluate", lambda: watchdog.report("restore", 0)
    )
    if other is not None:
        return _compare(run, other, options, differences, recipe, restored)
    experiment = run.experiment
    metrics = _measure(recipe, restored, options, recipe.setting, experiment.data.load("eval"))
    if jax.process_index() != 0:
        return None
    record = _record(run, restored.step, metrics, "measured now")
    if differences:
        record["reasons"] = {"reached": "the target is for the run's own evaluation"}
    else:
        record["reached"] = reaches(experiment.targets, metrics)
    return record, escaped(_shown(record, experiment.task))


def _compare(
    run: EarlierRun,
    other: tuple[str, LabelledSet],
    options: RunOptions,
    differences: dict[str, Any],
    recipe: Recipe,
    restored: Restored,
) -> tuple[dict[str, Any], str] | None:
    experiment, (name, labelled) = run.experiment, other
    if processes.same_text(labelled.fingerprint) != labelled.fingerprint:
        raise RunError(f"{name} is not the same on all hosts")
    # All processes must measure alike, and only process 0 has the result.
    recorded = None if differences else _recorded(run, restored.step)
    own_metrics = records.load_json(processes.same_text(json.dumps(recorded)))
    own_source = "recorded by the run" if own_metrics else "measured now"
    own_metrics = own_metrics or _measure(
        recipe, restored, options, recipe.setting, experiment.data.load("eval")
    )
    data = labelled.data or recipe.setting.data
    setting = dataclasses.replace(recipe.setting, spec=labelled.spec, data=data)
    metrics = _measure(recipe, restored, options, setting, labelled.examples)
    if jax.process_index() != 0:
        return None
    record = _record(run, restored.step, own_metrics, own_source)
    record |= _beside(run, other, own_metrics, metrics)
    record["reasons"] = {"reached": "the target is for the run's own evaluation"}
    record["devices"] = {
        "kind": recipe.mesh.devices.flat[0].device_kind,
        "platform": platform_of(recipe.mesh),
        "num_devices": recipe.mesh.devices.size,
    }
    how = "".join(f"-{key.rpartition('.')[2]}{value}" for key, value in differences.items())
    file = run.directory.path / "evaluations" / f"{name}-step{restored.step}{how}.json"
    records.write_json(file, record, durable=True)
    text = f"{escaped(_shown(record, experiment.task))}\nwritten: {file}"
    return {**record, "file": str(file)}, text


def _measure(
    recipe: Recipe, restored: Restored, options: RunOptions, setting: Setting, examples: Any
) -> dict[str, Any]:
    measured = dataclasses.replace(recipe, setting=setting)
    # The other set has its own number of examples, and so its own padding and program.
    shapes = input_shapes(measured.experiment, setting.spec, options, recipe.mesh)
    programs = compile_evaluation(measured, shapes, lambda *_: None)
    feed = EvaluationFeed(shapes, recipe.mesh, examples)
    return evaluate(measured, programs, restored.state, feed, calls_in_flight(measured, shapes, 1))


def _evaluation_fields(task: Task) -> dict[str, Any]:
    return {name: to_json(getattr(task, name)) for name in task.evaluation_fields}


def _recorded(run: EarlierRun, step: int) -> dict[str, Any] | None:
    # By the log, as every reader of a run: result.json is written for people.
    try:
        rows = trial_of(read_events(log_path(run.directory.path))).evaluations
    except RunError:
        return None
    row = next((row for row in rows if row.step == step), None)
    if row is None:
        return None
    task = run.experiment.task
    return {
        name: value
        for name, value in row.metrics.items()
        if isinstance(value, str) or (find_metric(task, name) and isinstance(value, int | float))
    }


def _record(
    run: EarlierRun, step: int, own_metrics: dict[str, Any], own_source: str
) -> dict[str, Any]:
    experiment, spec = run.experiment, run.spec
    return {
        "schema_version": SCHEMA_VERSION,
        **run.described(step),
        "epoch": experiment.epoch_of_step(step, spec),
        "evaluation_fields": _evaluation_fields(experiment.task),
        "own": {
            "name": _own_name(run),
            "examples": spec.num_eval_examples,
            "fingerprint": spec.fingerprint,
            "source": own_source,
            "metrics": own_metrics,
        },
        "other": None,
        "drop": {},
        "reached": None,
        "reasons": {},
        "notes": [],
    }


def _beside(
    run: EarlierRun,
    other: tuple[str, LabelledSet],
    own_metrics: dict[str, Any],
    metrics: dict[str, Any],
) -> dict[str, Any]:
    name, labelled = other
    return {
        "other": {
            "name": name,
            "kind": labelled.kind,
            "examples": labelled.spec.num_eval_examples,
            "fingerprint": labelled.fingerprint,
            "metrics": metrics,
        },
        "drop": drops(
            run.experiment.task.metrics,
            (own_metrics, run.spec.num_eval_examples),
            (metrics, labelled.spec.num_eval_examples),
        ),
        "notes": list(labelled.notes),
    }


def _own_name(run: EarlierRun) -> str:
    data: Any = run.experiment.data
    return f"{getattr(data, 'corpus', data.TAG)}, own evaluation split"


def _shown(record: dict[str, Any], task: Task) -> str:
    sides = [side for side in (record["own"], record["other"]) if side]
    names = [name for name in sides[0]["metrics"] if find_metric(task, name)]

    def text(name: str, value: float | None) -> str:
        metric = find_metric(task, name)
        return "-" if metric is None else metric.text(value)

    fields = json.dumps(record["evaluation_fields"]).strip("{}").replace('"', "")
    lines = [
        f"{record['experiment']}, seed {record['seed']}, step {record['step']} "
        f"(epoch {record['epoch']:.2f}), {record['weights']} weights" + (fields and f", {fields}")
    ]
    rows = []
    for side in sides:
        cells = (text(name, side["metrics"].get(name)) for name in names)
        rows.append((side["name"], f"{side['examples']:,}", *cells))
    lines.append(of_words(["set", "examples", *names], rows).to_text())
    for name, drop in record["drop"].items():
        interval = drop["interval_95"]
        spread = (
            drop["reason"]
            if interval is None
            else f"95 % interval {text(name, interval[0])} to {text(name, interval[1])}"
        )
        lines.append(f"drop of {name}: {text(name, drop['value'])} ({spread})")
    if record["other"] is None:
        words = {True: "reached", False: "not reached", None: record["reasons"].get("reached")}
        lines.append(f"target: {words[record['reached']]}")
    return "\n".join(lines + [f"note: {note}" for note in counted(record["notes"])])
