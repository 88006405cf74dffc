"""A run's checkpoint evaluated again: on its own split, or on another labelled set."""

import dataclasses
import json
import math
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
) -> None:
    """Restore the newest checkpoint, measure its own split or `other`, and print the metrics.

    `differences` are fields of the task that only an evaluation reads and that differ from the
    run's.
    """
    session, watchdog = joined(run.experiment, run.spec, options)
    recipe, restored = restore(
        run, session.mesh, options, "evaluate", lambda: watchdog.report("restore", 0)
    )
    if other is not None:
        _compare(run, other, options, differences, recipe, restored)
        return
    experiment = run.experiment
    metrics = _measure(recipe, restored, options, recipe.setting, experiment.data.load("eval"))
    if jax.process_index() != 0:
        return
    row = {
        "step": restored.step,
        "examples": run.spec.num_eval_examples,
        **metrics,
        "reached": None if differences else reaches(experiment.targets, metrics),
    }
    if differences:
        row["evaluation_fields"] = _evaluation_fields(experiment.task)
        row["reached_reason"] = "the target is for the run's own evaluation"
    # JSON has no NaN.
    print(records.json_text({name: _plain(value) for name, value in row.items()}))


def _compare(
    run: EarlierRun,
    other: tuple[str, LabelledSet],
    options: RunOptions,
    differences: dict[str, Any],
    recipe: Recipe,
    restored: Restored,
) -> None:
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
        return
    record = _record(run, other, restored.step, own_metrics, own_source, metrics)
    record["devices"] = {
        "kind": recipe.mesh.devices.flat[0].device_kind,
        "platform": platform_of(recipe.mesh),
        "num_devices": recipe.mesh.devices.size,
    }
    how = "".join(f"-{key.rpartition('.')[2]}{value}" for key, value in differences.items())
    file = run.directory.path / "evaluations" / f"{name}-step{restored.step}{how}.json"
    records.write_json(file, record, durable=True)
    print(escaped(_shown(record, experiment.task)))
    print(f"written: {file}")


def _measure(
    recipe: Recipe, restored: Restored, options: RunOptions, setting: Setting, examples: Any
) -> dict[str, Any]:
    measured = dataclasses.replace(recipe, setting=setting)
    # The other set has its own number of examples, and so its own padding and program.
    shapes = input_shapes(measured.experiment, setting.spec, options, recipe.mesh)
    programs = compile_evaluation(measured, shapes, lambda *_: None)
    feed = EvaluationFeed(shapes, recipe.mesh, examples)
    return evaluate(measured, programs, restored.state, feed, calls_in_flight(measured, shapes, 1))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
    run: EarlierRun,
    other: tuple[str, LabelledSet],
    step: int,
    own_metrics: dict[str, Any],
    own_source: str,
    metrics: dict[str, Any],
) -> dict[str, Any]:
    experiment, spec, (name, labelled) = run.experiment, run.spec, other
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
        "other": {
            "name": name,
            "kind": labelled.kind,
            "examples": labelled.spec.num_eval_examples,
            "fingerprint": labelled.fingerprint,
            "metrics": metrics,
        },
        "drop": drops(
            experiment.task.metrics,
            (own_metrics, spec.num_eval_examples),
            (metrics, labelled.spec.num_eval_examples),
        ),
        "notes": list(labelled.notes),
    }


def _own_name(run: EarlierRun) -> str:
    data: Any = run.experiment.data
    return f"{getattr(data, 'corpus', data.TAG)}, own evaluation split"


def _shown(record: dict[str, Any], task: Task) -> str:
    sides = (record["own"], record["other"])
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
    return "\n".join(lines + [f"note: {note}" for note in record["notes"]])
