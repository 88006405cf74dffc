"""The result of a run, computed from its log."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.runs import goodput
from dawnjax.runs.clock import GENERATION_PHASES
from dawnjax.runs.log import LOSSES, SCHEMA_VERSION, Event
from dawnjax.runs.logged_run import (
    HEARTBEAT_SECONDS,
    NO_RUN_START,
    NOT_REACHED,
    LoggedAttempt,
    LoggedRun,
    events_of,
    last_event,
)
from dawnjax.runs.rows import evaluation_rows, generation_rows, spans_of, stage_rows
from dawnjax.runs.stages import examples_before
from dawnjax.runs.warnings import run_warnings

FIRST_LOSSES = 10
"""First losses that a result keeps: enough to distinguish two recipes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result of one trial, as `result.json` holds it. Times are seconds, fractions 0 to 1.

    Attributes:
      schema_version: Version of these fields.
      run_id: The trial's name, the same in all its attempts.
      experiment: The experiment's name.
      identity: Hash of the mathematics, data, evaluation and target.
      overrides: Flags that changed the experiment.
      seed: The trial's seed.
      status: How the last attempt ended: `reached`, `not_reached` (the budget is spent),
        `diverged`, `interrupted` (it can be resumed), `failed`, or `running` where the log has no
        end.
      reached: Whether an evaluation reached every target, however the last attempt ended.
      target: What was to be reached: metric, direction, value.
      target_note: How the target was chosen, where that could flatter the result.
      initialized_from: The run whose parameters it began with, whose training is in no time of
        this run; empty where it began anew.
      metrics: What evaluations measure, each as it was declared: name, title, unit, range and
        direction of better values.
      example_unit: What an example is called, in the plural.
      data: What the data are, as the dataset declared it: `name`, `benchmark` (the published set
        that they are; empty for all others), `evidence`, counts and fingerprint.
      best: The best value of each target's metric over all evaluations.
      time_to_accuracy_seconds: From `run_start` to the end of the first evaluation that reached
        the target, without the gaps between attempts; None if not reached.
      elapsed_seconds_to_accuracy: The same with the gaps.
      total_seconds_to_accuracy: From the start of the first process, compilation included, without
        the gaps.
      total_seconds: Lifetimes of all attempts; the phases sum to it.
      time_uncertainty_seconds: By how much the times may be too short, because an attempt was
        killed after its last heartbeat: for each the second between two of them, which a busy disk
        or busy cores have been seen to double; None if a log was lost.
      train_seconds: The train phase alone, of all attempts.
      compile_seconds: The compile phase, of all attempts.
      compile_seconds_before_run_start: The part of it before the run's clock; None if the clock
        has not started.
      compile_seconds_in_time_to_accuracy: The part of it in `time_to_accuracy_seconds`, made by
        attempts after the one that started the clock; None if not reached.
      compile_cache: For each program of the compile phase whether it was `cold` (compiled), `tuned`
        (compiled, with a GPU's searches for kernels read back), `warm` (read back) or `off`
        (compiled, without a cache) when the run first had it.
      goodput: Share of all wall time since the first start in which steps were made that count.
      wall_seconds: The parts of that wall time, gaps between attempts included; `steps` are those
        that count, `lost_steps` those that no save held. Empty where they are not known.
      interruptions: Attempts before the last one.
      phases: Seconds in each phase.
      first_losses: The losses of the first `FIRST_LOSSES` steps; NaN and infinities as text.
      epochs: Epochs that the newest state was trained.
      steps: Steps of the newest state; fewer than an attempt made before, if it lost some.
      steps_made: Train steps of all attempts, those made again included: what
        `examples_per_second` is of.
      diverged_step: The first step with a NaN or infinite loss.
      examples_per_second: Examples of all train steps made, over `train_seconds`.
      global_batch_size: Examples a step; None where it changes in the run.
      stages: For each stage of a run whose images or batch change: its steps, what is particular to
        it, the steps made (those made again included), their seconds and examples a second. Empty
        where nothing changes.
      generations: Of a task that makes its examples: each generation's first step, seconds and
        figures. Empty for other tasks.
      num_processes: JAX processes.
      num_devices: Devices of all processes.
      device_kind: What the devices call themselves.
      platform: `cpu`, `gpu` or `tpu`.
      cost_usd: `time_to_accuracy_seconds`, each attempt's part at its own price and number of
        hosts; None if one has no price.
      allocated_cost_usd: The same of `total_seconds`.
      evaluations: Step, epoch, seconds since `run_start` and metrics of each evaluation.
      hosts: For each process, what its host saw in the last attempt; `communication` and
        `utilization` say where the time of its steps went.
      straggler: The host that the others waited for in the profile, and what that cost each of them
        a step; None without one.
      versions: Python, jax and the other libraries of the last attempt; where an earlier one ran
        with others, a warning names them.
      run_options: How the last attempt was run.
      reasons: Why a field is None.
      warnings: What a reader of the numbers should know.
    """

    schema_version: int
    run_id: str
    experiment: str
    identity: str
    overrides: dict[str, Any]
    seed: int
    status: str
    reached: bool
    target: list[dict[str, Any]]
    target_note: str
    initialized_from: str
    metrics: list[dict[str, Any]]
    example_unit: str
    data: dict[str, Any]
    best: dict[str, float]
    time_to_accuracy_seconds: float | None
    elapsed_seconds_to_accuracy: float | None
    total_seconds_to_accuracy: float | None
    total_seconds: float
    time_uncertainty_seconds: float | None
    train_seconds: float
    compile_seconds: float
    compile_seconds_before_run_start: float | None
    compile_seconds_in_time_to_accuracy: float | None
    compile_cache: dict[str, str]
    goodput: float | None
    wall_seconds: dict[str, float]
    interruptions: int
    phases: dict[str, float]
    first_losses: list[float | str]
    epochs: float
    steps: int
    steps_made: int
    diverged_step: int | None
    examples_per_second: float | None
    global_batch_size: int | None
    stages: list[dict[str, Any]]
    generations: list[dict[str, Any]]
    num_processes: int
    num_devices: int
    device_kind: str
    platform: str
    cost_usd: float | None
    allocated_cost_usd: float | None
    evaluations: list[dict[str, Any]]
    hosts: list[dict[str, Any]]
    straggler: dict[str, Any] | None
    versions: dict[str, str]
    run_options: dict[str, Any]
    reasons: dict[str, str]
    warnings: list[str]

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
    def epochs_to_target(self) -> float | None:
        """Epochs trained at the evaluation that first reached the target; None if none did."""
        return self.epochs_at(self.time_to_accuracy_seconds)

    @property
    def trained_on(self) -> bool:
        """True if training continued past the target: `epochs` and `train_seconds` include that."""
        return self.epochs_to_target is not None and self.epochs > self.epochs_to_target

    def epochs_at(self, seconds: float | None) -> float | None:
        """Epochs trained at the evaluation that ended at a time of the run's clock."""
        epochs = (r["epoch"] for r in self.evaluations if r["seconds_since_run_start"] == seconds)
        return None if seconds is None else next(epochs, None)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


_ENDS = ("trained", "attempt_end")
"""The events that say how an attempt ended: before the profile, and after it."""

_LOST_LOG = (
    "an earlier log or its end was lost: how long its last attempt went on after its last "
    "checkpoint is not known"
)
_NOT_THE_FIRST = (
    "{} earlier runs of the same process imported the libraries and compiled programs: a total "
    "without that would be too short"
)


def summarize(events: Sequence[Event]) -> RunResult:
    """Compute the result of a run from the events of process 0."""
    run = LoggedRun.from_events(events)
    attempts, events = run.attempts, run.events
    record, devices = last_event(events, "experiment"), last_event(events, "devices")
    if record is None or devices is None:
        raise RunError("the log ends before the run described itself; nothing can be summarized")
    experiment = record["experiment"]
    evaluations = evaluation_rows(run)
    phases = _used({name: round(value, 6) for name, value in run.phase_seconds().items()})
    end = next((e for e in reversed(attempts[-1].events) if e["event"] in _ENDS), None)
    diverged = last_event(events, "diverged")
    steps = _newest_step(attempts)
    spans, stages = spans_of(record), stage_rows(record, run)
    sizes = {span.global_batch_size for span in spans}
    batch = sizes.pop() if len(sizes) == 1 else None
    examples = sum(row["steps_made"] * row["global_batch_size"] for row in stages)
    start = next((attempt.start for attempt in reversed(attempts) if attempt.start), {})
    host_summary = last_event(attempts[-1].events, "host_summary")
    wall, no_wall = goodput.wall_seconds(run)
    reasons: dict[str, str] = {}

    def known(name: str, value: float | None, reason: str, digits: int = 6) -> float | None:
        if value is None:
            reasons[name] = reason
        return None if value is None else round(value, digits)

    compiled_before = None if run.run_start is None else run.compile_seconds(run.run_start)
    allocated, allocated_reason = run.allocated_cost()
    reached = run.reached
    tta = elapsed = total = compiled_within = cost = None
    no_total = ""
    if reached is None:
        no_time, cost_reason = NOT_REACHED, allocated_reason or NOT_REACHED
    else:
        no_time = run.why_no_time(reached)
        tta, elapsed = run.run_seconds(reached), run.elapsed_seconds(reached)
        cost, cost_reason = run.run_cost(reached)
        runs_before = attempts[0].start.get("runs_before")
        if runs_before:
            no_total = _NOT_THE_FIRST.format(runs_before)
        else:
            total = run.total_seconds(reached)
        if tta is not None and compiled_before is not None:
            compiled_within = run.compile_seconds(reached) - compiled_before
    no_total = no_total or no_time
    # A killed attempt may have lived for a heartbeat after its last event.
    uncertainty = sum(not attempt.ended for attempt in attempts) * HEARTBEAT_SECONDS
    rate = examples / phases["train"] if examples > 0 and phases["train"] else None
    if batch is None:
        reasons["global_batch_size"] = "it changes in the run; stages has each"
    if host_summary is None:
        reasons["hosts"] = "the last attempt ended before the hosts were summed up"
    elif host_summary.get("no_straggler"):
        reasons["straggler"] = host_summary["no_straggler"]
    return RunResult(
        schema_version=SCHEMA_VERSION,
        run_id=start.get("run_id", ""),
        experiment=experiment["name"],
        identity=record["identity"],
        overrides=record["overrides"],
        seed=record["seed"],
        status="running" if end is None else end["status"],
        reached=reached is not None,
        target=experiment["targets"],
        target_note=experiment["target_note"],
        initialized_from=str(experiment.get("initial_state", "")),
        metrics=record["metrics"],
        example_unit=record["example_unit"],
        data=record["data"],
        best=_best(experiment["targets"], evaluations),
        time_to_accuracy_seconds=known("time_to_accuracy_seconds", tta, no_time),
        elapsed_seconds_to_accuracy=known("elapsed_seconds_to_accuracy", elapsed, no_time),
        total_seconds_to_accuracy=known("total_seconds_to_accuracy", total, no_total),
        total_seconds=round(sum(attempt.seconds for attempt in attempts), 6),
        time_uncertainty_seconds=known(
            "time_uncertainty_seconds", None if run.lost_log else uncertainty, _LOST_LOG
        ),
        train_seconds=phases["train"],
        compile_seconds=phases["compile"],
        compile_seconds_before_run_start=known(
            "compile_seconds_before_run_start", compiled_before, NO_RUN_START
        ),
        compile_seconds_in_time_to_accuracy=known(
            "compile_seconds_in_time_to_accuracy", compiled_within, no_time
        ),
        compile_cache=_compile_cache(attempts),
        goodput=known("goodput", goodput.share(wall) if wall else None, no_wall),
        wall_seconds=_used(wall),
        interruptions=len(attempts) - 1,
        phases=phases,
        first_losses=_first_losses(events),
        epochs=round(examples_before(spans, steps) / record["num_train_examples"], 6),
        steps=steps,
        steps_made=sum(row["steps_made"] for row in stages),
        diverged_step=None if diverged is None else diverged["step"],
        examples_per_second=known(
            "examples_per_second", rate, "the log has no train step with its time"
        ),
        global_batch_size=batch,
        stages=stages if len(stages) > 1 else [],
        generations=generation_rows(run),
        num_processes=devices["num_processes"],
        num_devices=devices["num_devices"],
        device_kind=devices["device_kind"],
        platform=devices["platform"],
        # A run of seconds on a cheap machine costs some millionths.
        cost_usd=known("cost_usd", cost, cost_reason, 9),
        allocated_cost_usd=known("allocated_cost_usd", allocated, allocated_reason, 9),
        evaluations=evaluations,
        hosts=[] if host_summary is None else host_summary["hosts"],
        straggler=None if host_summary is None else host_summary.get("straggler"),
        versions=start.get("versions", {}),
        run_options=record["run_options"],
        reasons=reasons,
        warnings=run_warnings(run),
    )


def summarize_log(events: Sequence[Event]) -> RunResult:
    """Compute the result of a log that may be damaged or made elsewhere, else `RunError`."""
    try:
        return summarize(events)
    except records.FORGED as error:
        raise RunError(of_another_kind(error)) from None


def of_another_kind(error: Exception) -> str:
    """Message for a log that an error at one of its fields made unreadable."""
    reason = " ".join(str(error).split())[:200]
    return f"a field of the log is missing or of another kind ({type(error).__name__}: {reason})"


def _newest_step(attempts: list[LoggedAttempt]) -> int:
    for attempt in reversed(attempts):
        for event in reversed(attempt.events):
            name, step = event["event"], event.get("step")
            # An attempt that fails before it has a state ends at step 0; the state is an older one.
            if name in _STATE_EVENTS or (name == "attempt_end" and step):
                return event["step"]
    return 0


_STATE_EVENTS = ("train", "evaluation", "restored", "checkpoint")


def _compile_cache(attempts: list[LoggedAttempt]) -> dict[str, str]:
    """State of each program of the compile phase when the run first had it."""
    states: dict[str, str] = {}
    for attempt in attempts:
        phase = ""
        for event in attempt.events:
            if event["event"] == "phase":
                phase = event["name"]
            elif event["event"] == "compiled" and phase == "compile":
                # The first state counts: what is compiled again comes from the cache.
                states.setdefault(event["program"], event["cache"])
    return states


def _best(targets: list[dict], evaluations: list[dict]) -> dict[str, float]:
    best = {}
    for target in targets:
        values = [row[target["metric"]] for row in evaluations if target["metric"] in row]
        # NaN and infinities are text in a log.
        values = [value for value in values if isinstance(value, int | float)]
        if values:
            choose = max if target["direction"] == "at_least" else min
            best[target["metric"]] = choose(values)
    return best


def _first_losses(events: Sequence[Event]) -> list[float | str]:
    losses: dict[int, float | str] = {}
    for event in events_of(events, LOSSES):
        for step, loss in zip(event["at_steps"][:FIRST_LOSSES], event["losses"], strict=False):
            losses.setdefault(step, loss)
    return [losses[step] for step in range(1, FIRST_LOSSES + 1) if step in losses]


def _used(seconds: dict[str, float]) -> dict[str, float]:
    """Seconds by phase, without those of generations where there are none."""
    return {n: value for n, value in seconds.items() if value or n not in GENERATION_PHASES}
