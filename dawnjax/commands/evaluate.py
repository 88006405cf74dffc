"""`dawnjax evaluate`: a run's checkpoint on its evaluation split, or on another labelled set."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.checkpointed.earlier_run import EarlierRun, add_run_flags, read_run, run_argument
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.config.flag_tree import FlagTree
from dawnjax.config.run_options import RunOptions
from dawnjax.runs.directory import check_name
from dawnjax.tasks.task import LabelledSet, Task

_USAGE = """dawnjax evaluate RUN_DIR [--FLAG=VALUE...]
       dawnjax evaluate RUN_DIR --data=PATH
       dawnjax evaluate RUN_DIR --data.source=FILE --data.target=FILE
       dawnjax evaluate RUN_DIR --task.decoding.num_beams=4"""
_DESCRIPTION = """
Restores the newest checkpoint and measures the whole evaluation split.

Given another labelled set, it measures it, shows the drop from the run's own evaluation, and writes
RUN_DIR/evaluations/NAME-step<STEP>.json; the run's own result does not change. A classifier takes a
prepared directory, a TFDS directory, class folders PATH/<class>/*, an .npz of images and labels, or
NAME_data.npy beside NAME_labels.npy; classes are matched by name. A translator takes two text
files, plain or .gz, and reads them with its own vocabulary. Task flags that affect only an
evaluation, such as a translator's beam, may differ from the run's; the file's name then includes
them. RUN_DIR --help shows the flags of the run's task.
"""
_OPTIONS = ("mesh", "data_placement", "processes", "checkpoint", "compile_cache_dir")
"""The run options that an evaluation has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A labelled set and its metrics.

    Attributes:
      source: `recorded by the run` or `measured now`; empty for another set, measured now.
      kind: Form of another set; empty for the run's own.
      metrics: By name, in their own units: accuracies are fractions from 0 to 1.
    """

    name: str
    examples: int
    fingerprint: str
    metrics: dict[str, Any]
    source: str = ""
    kind: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drop:
    """Loss of quality on the other set.

    Attributes:
      value: Positive where the other set is harder; null where it cannot be computed.
      interval_95: Its 95 % interval, low and high, treating each set as a sample of its kind.
      reason: Why one of them is null.
    """

    value: float | None
    interval_95: tuple[float, float] | None
    reason: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A checkpoint, measured.

    Attributes:
      weights: `raw` parameters or their moving average, `ema`.
      own: The run's own evaluation split.
      other: The other labelled set; null where none was given.
      drop: Loss of quality on it, by metric.
      reached: Whether the run's own split reaches every target.
      evaluation_fields: Fields of the task that only an evaluation reads.
      file: The record that was written; null without another set.
      reasons: Why a field is null.
    """

    run_id: str
    experiment: str
    seed: int
    step: int
    epoch: float
    weights: str
    compute_dtype: str
    own: Measured
    other: Measured | None
    drop: dict[str, Drop]
    reached: bool | None
    evaluation_fields: dict[str, Any]
    notes: tuple[str, ...]
    reasons: dict[str, str]
    file: str | None = None


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    add_run_flags(flag_values)
    text = functools.partial(flags.DEFINE_string, flag_values=flag_values)
    text("name", "", "A name for the other set (default: its file or folder).")
    options = FlagTree(RunOptions, RunOptions(), argv, only=_OPTIONS)
    options.define(flag_values)
    run = run_argument(flag_values, argv)  # other flags depend on its task
    changes = None
    if run is not None:
        task = run.experiment.task
        for name, help_text in task.other_set_flags.items():
            text(name, "", help_text)
        changes = FlagTree(type(task), task, argv, "task.", only=task.evaluation_fields)
        changes.define(flag_values)
    paths = command_line.parse("evaluate", flag_values, argv, _USAGE, _DESCRIPTION)
    path = command_line.one(paths, "run directory")
    if run is None:
        run = read_run(Path(path))  # which says what is wrong with it
    changed, differences = _changed(run, changes, flag_values)
    given = {name: str(flag_values[name].value) for name in run.experiment.task.other_set_flags}
    other_set = _other_set(changed, given, str(flag_values["name"].value))
    # Imported here: wrong use is answered before JAX is loaded to compute.
    from dawnjax.checkpointed.evaluate import evaluate_run

    found = evaluate_run(changed, other_set, options.value(flag_values), differences)
    if found is None:
        return Answer()
    record, text = found
    return Answer(result=records.convert(record, Result, others=True), text=text)


def _changed(
    run: EarlierRun, changes: FlagTree | None, flag_values: flags.FlagValues
) -> tuple[EarlierRun, dict[str, Any]]:
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
    if experiment == run.experiment:
        differences = {}
    return dataclasses.replace(run, experiment=experiment), differences


def _other_set(run: EarlierRun, given: dict[str, str], name: str) -> tuple[str, LabelledSet] | None:
    if not any(given.values()):
        return None
    path = records.path_of(next(value for value in given.values() if value))
    name = name or path.name.split(".")[0]
    check_name("--name", name)
    return name, run.experiment.task.read_other_set(given, run.setting)
