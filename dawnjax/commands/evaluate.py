"""`dawnjax evaluate`: a run's checkpoint on its evaluation split, or on another labelled set."""

import dataclasses
import datetime
import json
import math
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.config.config_json import to_json
from dawnjax.config.flag_tree import FlagTree
from dawnjax.config.run_options import RunOptions
from dawnjax.earlier_run import EarlierRun, add_run_flags, read_run, restore, run_argument
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.runs.directory import names_a_file
from dawnjax.runs.versions import installed
from dawnjax.tasks.task import LabelledSet, Setting, Task, find_metric
from dawnjax.text import escaped

SCHEMA_VERSION = 2

_USAGE = """dawnjax evaluate RUN_DIR [--FLAG=VALUE...]
       dawnjax evaluate RUN_DIR --data=PATH
       dawnjax evaluate RUN_DIR --data.source=FILE --data.target=FILE
       dawnjax evaluate RUN_DIR --task.decoding.num_beams=4"""
_DESCRIPTION = """
Restores the newest checkpoint that verifies and measures the whole evaluation split. Prints one
line of JSON: the step and the metrics.

With another labelled set it measures that, shows the drop against the run's own evaluation, and
writes RUN_DIR/evaluations/NAME-step<STEP>.json; the run's own result is not touched. A classifier
takes a prepared directory, a TFDS directory, class folders PATH/<class>/*, an .npz of images and
labels, or NAME_data.npy beside NAME_labels.npy; classes are matched by name. A translator takes two
files of text, plain or .gz, and reads them with its own vocabulary. What only an evaluation reads
of the task, such as a translator's beam, may differ from the run's; it is then in the file's name.
The flags of the run's own task show with RUN_DIR and --help.
"""
_OPTIONS = ("mesh", "data_placement", "processes", "checkpoint", "compile_cache_dir")
"""The run options that an evaluation has."""


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit status."""
    flag_values = flags.FlagValues()
    add_run_flags(flag_values)
    flags.DEFINE_string(
        "name",
        "",
        "What the other set is called; without it, as its file or folder.",
        flag_values=flag_values,
    )
    options = FlagTree(RunOptions, RunOptions(), argv, only=_OPTIONS)
    options.define(flag_values)
    run = run_argument(argv)  # the flags depend on its task
    changes = None
    if run is not None:
        task = run.experiment.task
        _refuse_other_flags(argv, run)
        for name, text in task.other_set_flags.items():
            flags.DEFINE_string(name, "", text, flag_values=flag_values)
        changes = FlagTree(type(task), task, argv, "task.", only=task.evaluation_fields)
        changes.define(flag_values)
    paths = command_line.parse("evaluate", flag_values, argv, _USAGE, _DESCRIPTION)
    if len(paths) != 1:
        raise ConfigError(f"one run directory is needed, {len(paths)} given")
    if run is None:
        run = read_run(Path(paths[0]))  # which says what is wrong with it
    changed, differences = _changed(run, changes, flag_values)
    given = {name: str(flag_values[name].value) for name in run.experiment.task.other_set_flags}
    other_set = _other_set(changed, given, str(flag_values["name"].value))
    return _evaluate(changed, other_set, options.value(flag_values), differences)


def _refuse_other_flags(argv: list[str], run: EarlierRun) -> None:
    """Refuses flags that name another set as another task takes it."""
    takes = run.experiment.task.other_set_flags
    for text in argv:
        name = text.lstrip("-").partition("=")[0]
        if text.startswith("-") and name.split(".")[0] == "data" and name not in takes:
            how = " and ".join(f"--{flag}" for flag in takes) or "no flag"
            raise ConfigError(f"--{name}: {run.experiment.name} takes another set by {how}")


def _changed(
    run: EarlierRun, changes: FlagTree | None, flag_values: flags.FlagValues
) -> tuple[EarlierRun, dict[str, Any]]:
    """The run with what was asked of its task's evaluation, and the flags that changed it."""
    if changes is None:
        return run, {}
    task: Task = changes.value(flag_values)
    experiment = dataclasses.replace(run.experiment, task=task)
    experiment.validate(run.spec)
    differences = {
        name.removeprefix("task."): flag_values[name].value
        for name in changes.flag_names()
        if flag_values[name].present
    }
    task.validate_evaluation(differences)
    if experiment == run.experiment:
        differences = {}
    return dataclasses.replace(run, experiment=experiment), differences


def _other_set(run: EarlierRun, given: dict[str, str], name: str) -> tuple[str, LabelledSet] | None:
    """The other set and its name, if one is asked for."""
    if not any(given.values()):
        if name:
            flag = next(iter(given), "data")
            raise ConfigError(f"--name is for another set, given by --{flag}")
        return None
    path = Path(next(value for value in given.values() if value)).expanduser()
    name = name or path.name.split(".")[0]
    if not names_a_file(name):
        raise ConfigError(
            f"--name={name!r} must be up to 80 letters, digits, '_', '.' and '-', and begin with a "
            "letter or digit: it names a file"
        )
    return name, run.experiment.task.read_other_set(given, run.setting)


def _evaluate(
    run: EarlierRun,
    other: tuple[str, LabelledSet] | None,
    options: RunOptions,
    differences: dict[str, Any],
) -> int:
    # Imported here: wrong use is answered before JAX is loaded to compute.
    import jax

    from dawnjax.cluster import processes
    from dawnjax.evaluation import EvaluationFeed, evaluate, reaches
    from dawnjax.feed import input_shapes
    from dawnjax.machine import compilation
    from dawnjax.machine.mesh import all_devices, make_mesh
    from dawnjax.programs import compile_evaluation
    from dawnjax.train import calls_in_flight
    from dawnjax.train_step import platform_of

    experiment = run.experiment
    compilation.configure(options.compile_cache_dir)
    processes.join(options.processes)
    mesh = make_mesh(options.mesh, all_devices())
    compilation.share_between_processes()
    recipe, restored = restore(run, mesh, options, "evaluate")

    def measure(setting: Setting, examples: Any) -> dict[str, Any]:
        measured = dataclasses.replace(recipe, setting=setting)
        shapes = input_shapes(measured.experiment, setting.spec, options, mesh)
        programs = compile_evaluation(measured, shapes, lambda *_: None)
        feed = EvaluationFeed(shapes, mesh, examples)
        in_flight = calls_in_flight(platform_of(mesh), 1)
        return evaluate(measured, programs, restored.state, feed, in_flight)

    if other is None:
        metrics = measure(recipe.setting, experiment.data.load("eval"))
        if jax.process_index() == 0:
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
            print(json.dumps({name: _plain(value) for name, value in row.items()}))
        return ExitStatus.DONE

    name, labelled = other
    if processes.same_text(labelled.fingerprint) != labelled.fingerprint:
        raise RunError(f"{name} is not the same on all hosts")
    # What process 0 has: only it writes results, and all must measure alike.
    recorded = None if differences else _recorded(run, restored.step)
    own_metrics = records.load_json(processes.same_text(json.dumps(recorded)))
    own_source = "recorded by the run" if own_metrics else "measured now"
    own_metrics = own_metrics or measure(recipe.setting, experiment.data.load("eval"))
    data = labelled.data or recipe.setting.data
    setting = dataclasses.replace(recipe.setting, spec=labelled.spec, data=data)
    metrics = measure(setting, labelled.examples)
    if jax.process_index() == 0:
        record = _record(run, other, restored.step, own_metrics, own_source, metrics)
        record["devices"] = {
            "kind": mesh.devices.flat[0].device_kind,
            "platform": platform_of(mesh),
            "num_devices": mesh.devices.size,
        }
        how = "".join(f"-{key.rpartition('.')[2]}{value}" for key, value in differences.items())
        file = run.directory.path / "evaluations" / f"{name}-step{restored.step}{how}.json"
        records.write_json(file, record, durable=True)
        print(escaped(_shown(record, experiment.task)))
        print(f"written: {file}")
    return ExitStatus.DONE


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _evaluation_fields(task: Task) -> dict[str, Any]:
    return {name: to_json(getattr(task, name)) for name in task.evaluation_fields}


def _recorded(run: EarlierRun, step: int) -> dict[str, Any] | None:
    """The metrics that the run recorded at a step, or None where it was not evaluated."""
    try:
        rows = records.read_json(run.directory.result_file, dict[str, Any])["evaluations"]
        row = [row for row in rows if row["step"] == step][-1]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    task = run.experiment.task
    return {
        name: value
        for name, value in row.items()
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
    from dawnjax.analysis.generalization import drops

    experiment, spec, (name, labelled) = run.experiment, run.spec, other
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.record["run_id"],
        "experiment": experiment.name,
        "identity": run.record["identity"],
        "seed": run.record["seed"],
        "step": step,
        "epoch": experiment.epoch_of_step(step, spec),
        "weights": experiment.evaluation.weights,
        "compute_dtype": experiment.compute_dtype,
        "evaluation_fields": _evaluation_fields(experiment.task),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": installed(),
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
    """The comparison as lines for a person."""
    sides = (record["own"], record["other"])
    names = [name for name in sides[0]["metrics"] if find_metric(task, name)]

    def text(name: str, value: float | None) -> str:
        metric = find_metric(task, name)
        return "-" if metric is None else metric.text(value)

    fields = json.dumps(record["evaluation_fields"]).strip("{}").replace('"', "")
    lines = [
        f"{record['experiment']}, seed {record['seed']}, step {record['step']} "
        f"(epoch {record['epoch']:.2f}), {record['weights']} weights, {fields}"
    ]
    rows = [("set", "examples", *names)]
    for side in sides:
        cells = (text(name, side["metrics"].get(name)) for name in names)
        rows.append((side["name"], f"{side['examples']:,}", *cells))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([first, *rest]))
    for name, drop in record["drop"].items():
        interval = drop["interval_95"]
        spread = (
            drop["reason"]
            if interval is None
            else f"95 % interval {text(name, interval[0])} to {text(name, interval[1])}"
        )
        lines.append(f"drop of {name}: {text(name, drop['value'])} ({spread})")
    return "\n".join(lines + [f"note: {note}" for note in record["notes"]])
