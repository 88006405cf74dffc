"""An entry: several trials of one experiment on one system, ours or official ones.

A DAWNBench entry is one trial, an MLPerf entry a folder of logs, ours the run directories of one
experiment with several seeds, another program's the logs at one path. One line of a JSON Lines file
is one entry.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.trials.figures import Figures, figures
from dawnjax.trials.target import Target
from dawnjax.trials.trial import Evaluation, Scalar, Trial

SCHEMA_VERSION = 4

_MOST_BYTES = 512 * 2**20
_MOST_LINE_BYTES = 64 * 2**20
_MOST_MARKS = 2_000_000
"""Limit of a file of entries. An evaluation has six commas and colons, all of MLPerf v0.5 "
"200,000."""

MAX_SCALING_FACTOR = 2.0
"""Factor of an MLPerf score, above which it is a mistake; those of v2.0 to v5.1 are below 1.19."""

OTHER = "other"
"""Suite of the logs of other programs, which stand among no other suite's."""

SUITES = ("dawnbench", "mlperf_training", "dawnjax", OTHER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inference:
    """Measurements of an inference entry of DAWNBench; one example at a time.

    Attributes:
      latency_milliseconds: Mean latency of one example.
      cost_usd: Cost of 10,000 examples; None if not given.
      quality: The model's metric, in the target's unit.
    """

    latency_milliseconds: float | None
    cost_usd: float | None
    quality: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """Several trials of one experiment on one system, with their header; times are seconds.

    Attributes:
      source: Path of its folder or file, relative to what was imported, with `/`.
      suite: One of `SUITES`.
      round: The suite's round, such as `v0.5`; empty where it has none.
      kind: `training` or `inference`.
      benchmark: The task: `ImageNet`, `resnet`, the name of our experiment, or of another program's
        logs the metric.
      submitter: Who made it.
      system: The system's name.
      hardware: The accelerators, or the processors where there are none.
      processor_class: `GPU`, `TPU` or `CPU`; empty if not known.
      num_accelerators: Accelerators of the job, of TPUs chips; None if not known.
      num_hosts: Hosts of the job; None if not known.
      framework: The framework as the entry names it.
      framework_family: The framework it counts as, such as `TensorFlow` for `tensorpack`.
      model: The model's name.
      date: `YYYY-MM-DD`; empty if not known.
      division: `closed`, `open` or empty.
      status: The suite's category, such as `cloud`, `onprem`, `research`; or empty.
      global_batch_size: Examples a step; None where the logs do not tell.
      global_batch_unit: What it counts: `examples`, or `tokens` where the logs count those; of
        ours what the task calls an example, such as `packed rows` of several sentence pairs.
      target: What was to be reached.
      drops: Trials that its MLPerf score leaves out at each end.
      scaling_factor: Factor of an MLPerf score by the review of its round; 1 where it stays.
      cost_per_hour_usd: Price of the whole system; None if not given, or not one for all trials.
      trials: In the order of their files; empty for inference.
      inference: The measurements of an inference entry; None for training.
      warnings: What is odd in the source and how it was read.
      reasons: Why a field is None, where that can be said; `rank`: why the entry is not ranked.
      data: Of ours: what it was trained on, as the run declares it, such as `CIFAR-10`; a sentence
        where the log does not say. Empty for official entries.
      published: Of ours: the published set that those data are, such as `CIFAR-10`; empty for all
        others.
      official: Of ours: the official benchmark that the experiment names, such as `llama31_8b`.
      identity: Of ours: the hash of the experiment that all trials share; empty for official ones.
      variant: Of ours: the flags that changed the experiment, in words; empty if none did.
      config: Of ours: values of the fields that a flag changed in any of the runs read with it, by
        name; None for a field that its experiment lacks. It tells no entries apart.
      distinction: What else tells it from entries of the same experiment and system, in words that
        its source ends with: of ours the run options that can change the time and are not the
        default, or the file it was read from. Empty where nothing must.
    """

    source: str
    suite: str
    round: str = ""
    kind: str = "training"
    benchmark: str
    submitter: str = ""
    system: str = ""
    hardware: str = ""
    processor_class: str = ""
    num_accelerators: int | None = None
    num_hosts: int | None = None
    framework: str = ""
    framework_family: str = ""
    model: str = ""
    date: str = ""
    division: str = ""
    status: str = ""
    global_batch_size: int | None = None
    global_batch_unit: str = "examples"
    target: Target
    drops: int = 1
    scaling_factor: float = 1.0
    cost_per_hour_usd: float | None = None
    trials: tuple[Trial, ...] = ()
    inference: Inference | None = None
    warnings: tuple[str, ...] = ()
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    data: str = ""
    published: str = ""
    official: str = ""
    identity: str = ""
    variant: str = ""
    config: dict[str, Scalar] = dataclasses.field(default_factory=dict, compare=False)
    distinction: str = ""
    schema_version: int = SCHEMA_VERSION

    @functools.cached_property
    def figures(self) -> Figures:
        """Statistics of its trials."""
        return figures(
            self.trials,
            cost_per_hour_usd=self.cost_per_hour_usd,
            drops=self.drops,
            scaling_factor=self.scaling_factor,
        )

    @property
    def has_target(self) -> bool:
        """False for logs of other programs read without `--target`: no trial could reach one."""
        return self.suite != OTHER or self.target.value is not None

    def to_json(self) -> dict[str, Any]:
        """The entry as a file of entries has it, without what has its default."""
        fields = _without_defaults(self, dataclasses.fields(self))
        fields["trials"] = [trial_json(trial) for trial in self.trials]
        return {**fields, "schema_version": self.schema_version}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Entry":
        """Make an entry of JSON values; `RunError` for a missing, unknown or mistyped field."""
        if value.get("schema_version") != SCHEMA_VERSION:
            raise RunError(
                f"an entry of schema {value.get('schema_version')!r}; this version reads "
                f"{SCHEMA_VERSION}: import the results again"
            )
        try:
            return records.convert(value, cls)
        except records.FieldError as error:
            source = str(value.get("source"))[:200]
            raise RunError(
                f"the entry {source!r} is damaged: {error}; correct it or leave the entry out"
            ) from None


_TRIAL_FIELDS = tuple(
    field
    for field in dataclasses.fields(Trial)
    if field.name
    in (
        "name",
        "reached",
        "time_to_accuracy_seconds",
        "clock_seconds",
        "budget_seconds",
        "epochs",
        "epochs_to_target",
        "status",
        "seed",
        "num_params",
        "evaluations",
        "run_id",
        "first_losses",
        "interruptions",
        "compile_seconds_before_run_start",
        "compile_cache",
        "cost_usd",
        "clock_cost_usd",
        "load",
    )
)
"""Fields of a trial in a file of entries, which describe the trial and not its machine."""


def trial_json(trial: Trial) -> dict[str, Any]:
    """A trial as a file of entries has it."""
    return _without_defaults(trial, _TRIAL_FIELDS)


def _without_defaults(value: Any, fields: Iterable[dataclasses.Field]) -> dict[str, Any]:
    written = {}
    for field in fields:
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        item = getattr(value, field.name)
        if item != default and field.name != "trials":
            written[field.name] = _plain(item)
    return written


def _plain(value: Any) -> Any:
    if isinstance(value, Evaluation):  # millions of them
        row = {
            "epoch": value.epoch,
            "seconds_since_run_start": value.seconds_since_run_start,
        }
        if value.value == value.value:  # JSON has no NaN
            row["value"] = value.value
        # Official logs count none of these.
        for name in ("step", "tokens", "flops"):
            if (count := getattr(value, name)) is not None:
                row[name] = count
        return row
    if dataclasses.is_dataclass(value):
        return _without_defaults(value, dataclasses.fields(value))
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    return value


def set_apart(entry: Entry, words: str) -> Entry:
    """Entry with words added to its source and distinction, which make it unique."""
    if not words:
        return entry
    return dataclasses.replace(
        entry,
        source=f"{entry.source} ({words})",
        distinction=", ".join(filter(None, [entry.distinction, words])),
    )


def write_entries(path: Path, entries: Iterable[Entry]) -> None:
    """Write entries to a JSON Lines file, whole or not at all."""
    lines = (json.dumps(entry.to_json(), allow_nan=False) + "\n" for entry in entries)
    records.write(path, "".join(lines))


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the entries of a JSON Lines file; `RunError` names a line that is not an entry."""
    marks = 0
    try:
        for number, line in enumerate(records.lines(path, _MOST_BYTES, _MOST_LINE_BYTES), start=1):
            marks += records.count_marks(line)
            if marks > _MOST_MARKS:
                raise RunError(f"{path}:{number}: its entries so far have too many values to read")
            if line.strip():
                yield _entry(line, f"{path}:{number}")
    except (OSError, records.BoundError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot read {path}: {reason}") from error


def _entry(line: bytes, where: str) -> Entry:
    try:
        value = records.load_json(line)
    except ValueError as error:
        raise RunError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RunError(f"{where} is not an entry but a {type(value).__name__}")
    try:
        return Entry.from_json(value)
    except RunError as error:
        raise RunError(f"{where}: {error}") from error
