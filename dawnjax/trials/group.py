"""The record that every analysis reads: an entry, ours or an official one.

An entry is several trials of one experiment on one system. A DAWNBench entry is one trial, an
MLPerf entry a folder of logs, ours the run directories of one experiment with several seeds. One
line of a JSON Lines file is one entry.
"""

import dataclasses
import datetime
import json
import math
import statistics
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.statistics.sample import Sample
from dawnjax.trials.trial_summary import Summary, summarize_trials

SCHEMA_VERSION = 3

_MOST_BYTES = 512 * 2**20
_MOST_LINE_BYTES = 64 * 2**20
_MOST_MARKS = 3_000_000
"""Of a file of entries. An evaluation has six commas and colons, all of MLPerf v0.5 200,000."""

MAX_SCALING_FACTOR = 2.0
"""Factor of an MLPerf score, above which it is a mistake; those of v2.0 to v5.1 are below 1.19."""

Scalar = str | int | float | bool | None

SUITES = ("dawnbench", "mlperf_training", "dawnjax")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FurtherTarget:
    """A quality to reach beside an entry's first one, in the same evaluation."""

    metric: str
    value: float
    direction: str = "at_least"

    def __str__(self) -> str:
        return f"{self.metric} {self.direction.replace('_', ' ')} {self.value:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntryTarget:
    """The quality to reach.

    Attributes:
      metric: The suite's own name of it, such as `top5Accuracy` or `eval_accuracy`.
      value: The threshold, in the unit of the evaluations.
      direction: `at_least` or `at_most`.
      unit: `fraction`, `percent`, `bleu` or another that the run declares; empty where the suite
        does not say.
      title: The metric's name on a page, as our run declares it; empty for official entries. It
        tells no targets apart.
      others: Further targets that the same evaluation must reach.
    """

    metric: str
    value: float | None
    direction: str = "at_least"
    unit: str = ""
    title: str = dataclasses.field(default="", compare=False)
    others: tuple[FurtherTarget, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TimedEvaluation:
    """One evaluation of a trial.

    Attributes:
      epoch: Epochs trained before it, by the log's own label; None if it has none.
      seconds_since_run_start: When it ended; None where the log has no time for it.
      value: The metric, in the target's unit.
    """

    epoch: float | None
    seconds_since_run_start: float | None
    value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One training run with one seed.

    Attributes:
      file: Its log or run directory, relative to the entry's source.
      reached: Whether it reached the target.
      time_to_accuracy_seconds: None if it did not.
      clock_seconds: How long it trained on the same clock, reached or not; None if not known.
      epochs: Epochs up to the target, or up to its end; None if the log does not tell.
      status: The suite's own word for its end, such as `success`, `aborted`, `diverged`.
      seed: None where no seed is recorded.
      first_losses: Of ours: the losses of its first steps. Trials of one seed with the same first
        losses are pairs when two entries are compared.
      interrupted: Whether its clock was put together from several attempts.
      compile_seconds_before_run_start: Compilation before the clock; None if not known.
      compile_cache: `cold` where at least one program of it was compiled, `warm` where all were
        read back from a cache, `tuned` where a GPU's searches for kernels were read back for those
        that were compiled, whose seconds are neither; empty if not known.
      cost_usd: Of ours: what its time to accuracy cost, or its `clock_seconds` if it did not reach;
        each attempt's part at its own price. None if not known.
      run_id: Of ours: the run's own name, the same in all its copies.
      inferred: Of official ones: what of its times or lines was read otherwise than they say, and
        on what evidence; empty if nothing was.
      evaluations: In the order of time.
    """

    file: str
    reached: bool
    time_to_accuracy_seconds: float | None
    clock_seconds: float | None = None
    epochs: float | None = None
    status: str = ""
    seed: int | None = None
    first_losses: tuple[float, ...] = ()
    interrupted: bool = False
    compile_seconds_before_run_start: float | None = None
    cost_usd: float | None = None
    run_id: str = ""
    compile_cache: str = ""
    inferred: str = ""
    evaluations: tuple[TimedEvaluation, ...] = ()

    @property
    def step_seconds(self) -> float | None:
        """Time between the evaluation that reached and the one before; None if there is none."""
        reached = self.time_to_accuracy_seconds
        ends = [row.seconds_since_run_start for row in self.evaluations]
        # A log may end its clock some seconds after the evaluation that reached.
        until = sorted(end for end in ends if end is not None and reached and end <= reached + 1e-3)
        return until[-1] - until[-2] if len(until) > 1 else None


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
    """Several trials of one experiment on one system; times are seconds.

    Attributes:
      source: Path of its folder or file, relative to what was imported, with `/`.
      suite: One of `SUITES`.
      round: The suite's round, such as `v0.5`; empty where it has none.
      kind: `training` or `inference`.
      benchmark: The task: `ImageNet`, `resnet`, or the name of our experiment.
      submitter: Who made it.
      system: The system's name.
      hardware: The accelerators, or the processors where there are none.
      processor_class: `GPU`, `TPU` or `CPU`; empty if not known.
      num_accelerators: Accelerators of the job; None if not known.
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
      scaling_factor: Factor of an MLPerf score by the review of its round; 1 where it stays.
      cost_per_hour_usd: Price of the whole system; None if not given, or not one for all trials.
      trials: In the order of their files; empty for inference.
      summary: The statistics of the trials; None for inference.
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
    target: EntryTarget
    scaling_factor: float = 1.0
    cost_per_hour_usd: float | None = None
    trials: tuple[Trial, ...] = ()
    summary: Summary | None = None
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

    @property
    def sample(self) -> Sample | None:
        """Times of the trials for statistics; None if a trial's length is unknown."""
        return Sample.of(
            [trial.time_to_accuracy_seconds for trial in self.trials],
            [trial.clock_seconds for trial in self.trials],
            [trial.seed for trial in self.trials],
            [trial.first_losses for trial in self.trials],
            steps=[trial.step_seconds for trial in self.trials],
        )

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

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


def reaches(value: float, threshold: float, direction: str = "at_least") -> bool:
    """True if a value reaches a threshold, both as float32.

    An accelerator's 21.8 is logged as 21.799999237060547.
    """
    if direction not in ("at_least", "at_most"):
        raise ValueError(f"direction is {direction!r}; choose at_least or at_most")
    value, threshold = _float32(value), _float32(threshold)
    return value >= threshold if direction == "at_least" else value <= threshold


def _float32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def summary_of(
    trials: Sequence[Trial],
    cost_per_hour_usd: float | None = None,
    drops: int = 1,
    scaling_factor: float = 1.0,
) -> Summary:
    """Statistics of trials; their cost is their own where each has one.

    `cost_per_hour_usd` is the whole system's price, for trials without a cost. The score omits
    `drops` trials at each end and is multiplied by `scaling_factor`.
    """
    summary = summarize_trials(
        [trial.time_to_accuracy_seconds for trial in trials],
        [trial.epochs for trial in trials],
        [trial.clock_seconds for trial in trials],
        cost_per_hour_usd,
        drops,
        scaling_factor,
    )
    summary = dataclasses.replace(summary, inferred=sum(bool(trial.inferred) for trial in trials))
    costs = [trial.cost_usd for trial in trials if trial.reached]
    known = [cost for cost in costs if cost is not None]
    if known and len(known) == len(costs):
        return dataclasses.replace(summary, cost_usd=statistics.fmean(known))
    return summary


def day_of(unix_seconds: Any) -> str:
    """Day (UTC) of a Unix time, `YYYY-MM-DD`; empty for any other value."""
    try:
        return datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC).date().isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


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
    """Yield the entries of a JSON Lines file; `RunError` names a line that is no entry."""
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
