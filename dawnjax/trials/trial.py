"""One training run with one seed, ours or an official one: the record that everything reads.

`from_log` makes a trial of our log, an importer one of an official log. `result.json` is a trial.
"""

import dataclasses
import datetime
import itertools
import math
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.trials.origin import Made, Origin, System, origin_of
from dawnjax.trials.target import Target

SCHEMA_VERSION = 3
"""Version of `result.json`."""

Scalar = str | int | float | bool | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One evaluation of a trial.

    Attributes:
      epoch: Epochs trained before it, by the log's own label; None if it has none.
      seconds_since_run_start: When it ended; None where the log has no time for it.
      value: The target's first metric, in the target's unit; NaN where it is not a finite number.
      step: Steps trained before it; None where the log does not count them.
      tokens: Tokens trained before it; None where the log does not count them.
      flops: FLOPs spent before it: of ours the model FLOPs of the training examples; None where
        the log does not count them.
      metrics: Of ours: everything it measured, by name; NaN and infinities as text.
    """

    epoch: float | None
    seconds_since_run_start: float | None
    value: float = math.nan
    step: int | None = None
    tokens: float | None = None
    flops: float | None = None
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One training run with one seed. Times are seconds, fractions 0 to 1.

    Official logs fill few fields; a field that a log does not fill has its default.

    Attributes:
      name: Its run directory, or its log relative to the entry's source.
      reached: Whether an evaluation reached every target, however the last attempt ended.
      time_to_accuracy_seconds: From `run_start` to the end of the first evaluation that reached
        the target, without the gaps between attempts; None if not reached.
      clock_seconds: The same clock until the training ended, reached or not: the end of the last
        step or evaluation, before the last save and the profile. None if the clock never started.
      budget_seconds: What it would take on that clock to spend the whole budget at its own pace:
        the cost of a trial that never reaches. None if unknown.
      epochs: Epochs that the newest state was trained; None if the log does not tell.
      epochs_to_target: Epochs trained at the evaluation that first reached the target.
      status: How the last attempt ended: `reached`, `not_reached` (the budget is spent),
        `diverged`, `interrupted` (it can be resumed), `failed`, or `running` where the log has no
        end. Of official trials the suite's own word.
      seed: The trial's seed; None where none is recorded.
      evaluations: Step, epoch, seconds since `run_start` and metrics of each, in order of time.
      schema_version: Version of these fields.
      run_id: The trial's name, the same in all its attempts and copies.
      experiment: The experiment's name.
      identity: Hash of the mathematics, data, evaluation and target.
      overrides: Flags that changed the experiment.
      date: Day (UTC) on which it started, `YYYY-MM-DD`; empty if unknown.
      model: Tag of its model.
      num_params: Its parameters; None where the log does not tell.
      official: The official benchmark that the experiment names; empty if none.
      target: What was to be reached.
      target_note: How the target was chosen, where that could flatter the result.
      initialized_from: The run whose parameters it began with, whose training is in no time of
        this run; empty where it began anew.
      begins_by_the_rules: It took from that run what its MLPerf benchmark begins with.
      chooses: A search chose its recipe by this trial, which is then no result.
      metrics: What evaluations measure, each as it was declared: name, title, unit, range and
        direction of better values.
      example_unit: What an example is called, in the plural.
      data: What the data are, as the dataset declared it: `name`, `benchmark` (the published set
        that they are; empty for all others), `evidence`, counts and fingerprint.
      best: The best value of each target's metric over all evaluations.
      elapsed_seconds_to_accuracy: Time to accuracy with the gaps between attempts.
      total_seconds_to_accuracy: From the start of the first process, compilation included, without
        the gaps.
      total_seconds: Lifetimes of all attempts; the phases sum to it.
      time_uncertainty_seconds: By how much the times may be too short, because an attempt was
        killed after its last heartbeat: for each the second between two of them, which a busy disk
        or busy cores have been seen to double; None if a log was lost.
      train_seconds: The train phase alone, of all attempts.
      compile_seconds: The compile phase, of all attempts.
      compile_seconds_before_run_start: The part of it before the run's clock; None if the clock
        has not started, or the log does not tell.
      compile_seconds_in_time_to_accuracy: The part of it in `time_to_accuracy_seconds`, made by
        attempts after the one that started the clock; None if not reached.
      compile_cache: For each program of the compile phase whether it was `cold` (compiled), `tuned`
        (compiled, with a GPU's searches for kernels read back), `warm` (read back) or `off`
        (compiled, without a cache) when the run first had it.
      goodput: Fraction of wall time since the first start, including gaps between attempts, spent
        on steps that were kept.
      wall_seconds: The parts of that wall time; `steps` are the steps that were kept, `lost_steps`
        the steps that no save held. Empty where they are not known.
      interruptions: Attempts before the last one.
      phases: Seconds in each phase.
      first_losses: The losses of the first ten steps; NaN and infinities as text.
      losses: Training loss by step, as means over at most 120 stretches.
      steps: Steps of the newest state; fewer than an attempt made before, if it lost some.
      steps_made: Train steps of all attempts, those made again included: what
        `examples_per_second` is of.
      diverged_step: The first step with a NaN or infinite loss.
      examples_per_second: Examples of all train steps divided by `train_seconds`.
      global_batch_size: Examples a step; None where it changes in the run.
      stages: For each stage of a run whose images or batch change: its steps, what is particular to
        it, the steps made (those made again included), their seconds and examples a second. Empty
        where nothing changes.
      generations: Of a task that makes its examples: each generation's first step, seconds and
        figures. Empty for other tasks.
      platform: `cpu`, `gpu` or `tpu`.
      device_kind: What the devices call themselves.
      num_devices: Devices of all processes.
      num_processes: JAX processes.
      num_hosts: Machines.
      mesh: Axes of the mesh of devices, with their sizes.
      cores: Cores open to process 0 in the newest attempt; None if unknown.
      prices_per_hour_usd: Distinct prices an hour of the attempts' systems, all hosts together;
        None among them where an attempt has no price.
      cost_usd: `time_to_accuracy_seconds`, each attempt's part at its own price and number of
        hosts; None if one has no price.
      clock_cost_usd: The same of `clock_seconds`, reached or not.
      allocated_cost_usd: The same of `total_seconds`.
      hosts: For each process, what its host saw in the last attempt; `communication` and
        `utilization` say where the time of its steps went.
      load: What other work took from the machine that lost most, while the run used it:
        `others_fraction` (other processes) and `stolen_fraction` (other guests of its host) of all
        processors' time, and `limit_fraction`, above which their sum makes a trial disturbed. Empty
        where it is not known.
      straggler: The host that the others waited for in the profile, and what that cost each of them
        a step; None without one.
      versions: Python, jax and the other libraries of the last attempt; where an earlier one ran
        with others, a warning names them.
      run_options: How the last attempt was run.
      timed_options: Those of them, and of JAX's settings, that can change the time or the numbers
        and are not the default.
      reasons: Why a field is None.
      warnings: What a reader of the numbers should know.
      fields: Fields of its experiment, by dotted name. Not written.
      began_unix_seconds: Wall clock at its first event; None if unknown. Not written.
      directory: It was read from there. Not written.
    """

    name: str
    reached: bool
    time_to_accuracy_seconds: float | None = None
    clock_seconds: float | None = None
    budget_seconds: float | None = None
    epochs: float | None = None
    epochs_to_target: float | None = None
    status: str = ""
    seed: int | None = None
    evaluations: tuple[Evaluation, ...] = ()
    schema_version: int = SCHEMA_VERSION
    run_id: str = ""
    experiment: str = ""
    identity: str = ""
    overrides: dict[str, Any] = dataclasses.field(default_factory=dict)
    date: str = ""
    model: str = ""
    num_params: int | None = None
    official: str = ""
    target: Target = Target()
    target_note: str = ""
    initialized_from: str = ""
    begins_by_the_rules: bool = False
    chooses: bool = False
    metrics: tuple[dict[str, Any], ...] = ()
    example_unit: str = "examples"
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    best: dict[str, float] = dataclasses.field(default_factory=dict)
    elapsed_seconds_to_accuracy: float | None = None
    total_seconds_to_accuracy: float | None = None
    total_seconds: float = 0.0
    time_uncertainty_seconds: float | None = None
    train_seconds: float = 0.0
    compile_seconds: float = 0.0
    compile_seconds_before_run_start: float | None = None
    compile_seconds_in_time_to_accuracy: float | None = None
    compile_cache: dict[str, str] = dataclasses.field(default_factory=dict)
    goodput: float | None = None
    wall_seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    interruptions: int = 0
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    first_losses: tuple[float | str, ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    steps: int = 0
    steps_made: int = 0
    diverged_step: int | None = None
    examples_per_second: float | None = None
    global_batch_size: int | None = None
    stages: tuple[dict[str, Any], ...] = ()
    generations: tuple[dict[str, Any], ...] = ()
    platform: str = ""
    device_kind: str = ""
    num_devices: int = 0
    num_processes: int = 0
    num_hosts: int = 0
    mesh: dict[str, int] = dataclasses.field(default_factory=dict)
    cores: int | None = None
    prices_per_hour_usd: tuple[float | None, ...] = ()
    cost_usd: float | None = None
    clock_cost_usd: float | None = None
    allocated_cost_usd: float | None = None
    hosts: tuple[dict[str, Any], ...] = ()
    load: dict[str, float] = dataclasses.field(default_factory=dict)
    straggler: dict[str, Any] | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    run_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    timed_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    fields: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    began_unix_seconds: float | None = dataclasses.field(default=None, compare=False)
    directory: Path | None = dataclasses.field(default=None, compare=False)

    @property
    def seconds(self) -> float | None:
        """Time to accuracy, or the clock's time short of the target; None if unknown."""
        known = self.time_to_accuracy_seconds
        return self.clock_seconds if known is None else known

    @property
    def seconds_cost_usd(self) -> float | None:
        """Cost of `seconds`, each attempt's part at its own price; None if one has no price."""
        return self.clock_cost_usd if self.time_to_accuracy_seconds is None else self.cost_usd

    @property
    def compiled(self) -> str:
        """State of the compilation cache over all programs; empty if unknown.

        `cold` if any program was compiled from scratch; `tuned` if programs were compiled with a
        GPU's kernel searches from the cache; `warm` if every program came from the cache.
        """
        states = set(self.compile_cache.values())
        if states <= {"warm", "tuned"}:
            return max(states, key=["warm", "tuned"].index, default="")
        return "cold"

    @property
    def finite_losses(self) -> tuple[float, ...]:
        """First losses before one that is NaN or infinite, which are text as in the log."""
        known = itertools.takewhile(lambda loss: not isinstance(loss, str), self.first_losses)
        return tuple(map(float, known))

    @property
    def trained_on(self) -> bool:
        """True if training continued past the target: `epochs` and `train_seconds` include that."""
        reached = self.epochs_to_target
        return reached is not None and self.epochs is not None and self.epochs > reached

    @property
    def system(self) -> System:
        return System(
            platform=self.platform,
            kind=self.device_kind,
            num_devices=self.num_devices,
            num_processes=self.num_processes,
            num_hosts=self.num_hosts,
            mesh=tuple(sorted(self.mesh.items())),
            cores=self.cores if self.platform == "cpu" else None,
        )

    @property
    def origin(self) -> Origin:
        return origin_of(self.identity, self.timed_options)

    @property
    def made(self) -> Made:
        return Made(self.origin, self.system)

    def to_json(self) -> dict[str, Any]:
        """The trial as `result.json` has it, with an evaluation's metrics among its fields."""
        plain = records.plain(dataclasses.replace(self, directory=None, fields={}))
        for row in plain["evaluations"]:
            del row["value"]
            for name in _IF_KNOWN:
                if row[name] is None:
                    del row[name]
            row |= row.pop("metrics")
        return {name: value for name, value in plain.items() if name not in _NOT_WRITTEN}


_NOT_WRITTEN = ("name", "fields", "began_unix_seconds", "directory")
"""What says how it was read."""

_IF_KNOWN = ("tokens", "flops")
"""What an evaluation of `result.json` has where it is known."""


def schema() -> dict[str, Any]:
    """JSON schema of `result.json`."""
    trial, definitions = records.schema_of(Trial)
    fields = definitions["Trial"]
    for name in _NOT_WRITTEN:
        fields["properties"].pop(name)
    # Metrics stand beside the step, by their own names.
    definitions["Evaluation"]["properties"].pop("value")
    definitions["Evaluation"]["properties"].pop("metrics")
    for kind in definitions.values():
        kind["required"] = sorted(kind["properties"].keys() - _IF_KNOWN)
        del kind["description"]  # the page of the fields has each one's meaning
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **trial,
        "$defs": definitions,
    }


def day_of(unix_seconds: Any) -> str:
    """Day (UTC) of a Unix time, `YYYY-MM-DD`; empty for any other value."""
    return minute_of(unix_seconds)[:10]


def minute_of(unix_seconds: Any) -> str:
    """Minute (UTC) of a Unix time, `YYYY-MM-DD HH:MM`; empty for any other value."""
    try:
        moment = datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
    return moment.isoformat(" ", "minutes")[:16]
