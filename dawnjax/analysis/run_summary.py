"""From the log of a run to its result; the log is the truth, and this is the one reading of it.

The clock of a run, over several attempts, is the sum of (last recorded moment - max(run_start,
start of the attempt)): a restart, a restore, compilation and work done again count, the gap between
two attempts does not. An attempt that was killed ends at its last event; a heartbeat bounds how
much later it may have died, and the result gives that bound. Where a log or its end was lost with
its disk, a checkpoint carries what it said up to the save, and stands in the place of the attempts
that it tells of; what the lost attempt did after that is not known.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from dawnjax.analysis import stage_rates
from dawnjax.analysis.history import (
    Event,
    History,
    attempt_starts,
    carried_history,
    damaged_run_start,
)
from dawnjax.errors import RunError
from dawnjax.run_log import SCHEMA_VERSION
from dawnjax.stages import examples_before

HEARTBEAT_SECONDS = 1.0
"""The time between two events of a living process, unless its disk or its cores are busy."""

PHASES = ("setup", "compile", "restore", "train", "eval", "checkpoint", "profile", "other")

# The statuses of a trial that has ended: a further attempt has nothing to go on with.
FINAL_STATUSES = ("reached", "not_reached", "diverged")


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
      reached: Whether an evaluation reached every target, however the last attempt ended. A log
        that ends in `reached` counts even if the line of that evaluation is damaged; then no time
        to the target is known.
      target: What was to be reached: metric, direction, value.
      target_note: How the target was chosen, where that could flatter the result.
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
        has not started, or if it was in a log that was lost.
      compile_seconds_in_time_to_accuracy: The part of it in `time_to_accuracy_seconds`, made by
        attempts after the one that started the clock; None if not reached or not known.
      compile_cache: For each program of the compile phase whether it was `cold` (compiled), `warm`
        (read back) or `off` (compiled, without a cache) when the run first had it.
      interruptions: Attempts before the last one.
      phases: Seconds in each phase.
      first_losses: The losses of the first ten steps.
      epochs: Epochs that the newest state was trained.
      steps: Steps of the newest state; fewer than an attempt made before, if it lost some.
      diverged_step: The first step with a NaN or infinite loss.
      examples_per_second: Examples of all train steps made, over `train_seconds`.
      global_batch_size: Examples a step; None where it changes in the run.
      stages: For each stage of a run whose images or batch change: its steps, what is particular to
        it, the steps made (those made again included), their seconds and examples a second. Empty
        where nothing changes.
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
    interruptions: int
    phases: dict[str, float]
    first_losses: list[float]
    epochs: float
    steps: int
    diverged_step: int | None
    examples_per_second: float | None
    global_batch_size: int | None
    stages: list[dict[str, Any]]
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
        """`cold` if a program or more was compiled, `warm` if all were read back; else empty."""
        states = set(self.compile_cache.values())
        return "" if not states else "warm" if states == {"warm"} else "cold"

    @property
    def epochs_to_target(self) -> float | None:
        """Epochs trained at the evaluation that first reached the target; None if none did."""
        seconds = self.time_to_accuracy_seconds
        found = (r["epoch"] for r in self.evaluations if r["seconds_since_run_start"] == seconds)
        return None if seconds is None else next(found, None)

    @property
    def trained_on(self) -> bool:
        """Whether training went on after the target: `epochs` and `train_seconds` hold that too."""
        return self.epochs_to_target is not None and self.epochs > self.epochs_to_target

    def to_json(self) -> dict[str, Any]:
        """Gives the result as plain JSON values."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class _Attempt:
    """One process lifetime, from the events of its log."""

    number: int
    events: list[Event]

    @property
    def start(self) -> Event:
        """The first event; empty if its line is damaged."""
        return _last(self.events, "attempt_start") or {}

    @property
    def seconds(self) -> float:
        return max(event["t"] for event in self.events)

    def phase_seconds(self, until: float | None = None) -> dict[str, float]:
        """Seconds of each phase up to a moment: from its beginning to the next one, or to the end.

        Args:
          until: The moment; the attempt's end if None.
        """
        end = self.seconds if until is None else until
        seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        name, begin = "setup", 0.0
        for event in self.events:
            if event["event"] == "phase" and event["t"] <= end:
                seconds[name] += event["t"] - begin
                name, begin = event["name"], event["t"]
        seconds[name] += end - begin
        return seconds

    def first_compiled(self) -> dict[str, str]:
        """Each program of the compile phase, and whether the cache had it."""
        found, phase = {}, ""
        for event in self.events:
            if event["event"] == "phase":
                phase = event["name"]
            elif event["event"] == "compiled" and phase == "compile":
                found.setdefault(event["program"], event["cache"])
        return found

    @property
    def ended(self) -> bool:
        return _last(self.events, "attempt_end") is not None

    @property
    def usd_per_hour(self) -> float | None:
        record, devices = _last(self.events, "experiment"), _last(self.events, "devices")
        if record is None or devices is None:
            return None
        price = record["run_options"].get("price_per_hour_usd")
        hosts = devices.get("num_hosts", devices["num_processes"])
        return price * hosts if _is_price(price) else None

    @property
    def refused_price(self) -> Any:
        """What stands for a price and is none; None if nothing does."""
        record = _last(self.events, "experiment")
        price = None if record is None else record["run_options"].get("price_per_hour_usd")
        return None if _is_price(price) else price


@dataclasses.dataclass(frozen=True)
class _Run:
    """The attempts of a log and the past that it carries, and the clocks over them.

    An attempt that the past tells of is in the past alone. A moment is an event of one of the
    attempts.
    """

    attempts: list[_Attempt]
    run_start: Event | None
    history: History

    @property
    def events(self) -> list[Event]:
        """The events of the attempts, in the order written."""
        return [event for attempt in self.attempts for event in attempt.events]

    def run_parts(self, moment: Event) -> list[tuple[_Attempt, float]] | None:
        """Gives each attempt's seconds on the run's clock up to a moment."""
        # All attempts after a past whose clock has started are restarts: each counts whole.
        start = None if self.history.run_started else self.run_start
        first = start["attempt"] if start is not None else self.attempts[0].number
        if moment["attempt"] < first or not (start is not None or self.history.run_started):
            return None
        parts = []
        for attempt in self.attempts:
            if not first <= attempt.number <= moment["attempt"]:
                continue
            begin = start["t"] if start is not None and attempt.number == first else 0.0
            end = moment["t"] if attempt.number == moment["attempt"] else attempt.seconds
            parts.append((attempt, end - begin))
        return parts

    def run_seconds(self, moment: Event) -> float | None:
        """Gives the seconds on the run's clock at a moment."""
        parts = self.run_parts(moment)
        if parts is None:
            return None
        return self.history.run_seconds + sum(seconds for _, seconds in parts)

    def total_seconds(self, moment: Event) -> float:
        """Gives the lifetimes of all attempts up to a moment."""
        before = sum(a.seconds for a in self.attempts if a.number < moment["attempt"])
        return self.history.total_seconds + before + moment["t"]

    def compile_seconds(self, moment: Event) -> float:
        """Gives the seconds of the compile phase of all attempts up to a moment."""
        seconds = self.history.phases.get("compile", 0.0)
        for attempt in self.attempts:
            if attempt.number < moment["attempt"]:
                seconds += attempt.phase_seconds()["compile"]
            elif attempt.number == moment["attempt"]:
                seconds += attempt.phase_seconds(moment["t"])["compile"]
        return seconds

    def compile_seconds_before_run_start(self) -> float | None:
        """Gives the part of it before the run's clock; None if that is not known."""
        if self.history.run_started:
            return self.history.compile_seconds_before_run_start
        return None if self.run_start is None else self.compile_seconds(self.run_start)

    def elapsed_seconds(self, moment: Event) -> float | None:
        """Gives the seconds from `run_start` to a moment with the gaps between attempts."""
        run_seconds, start = self.run_seconds(moment), self.run_start
        if run_seconds is None:
            return None
        if self.history.run_started:
            # What began the run was in the lost log: only the wall clocks are left to compare.
            return max(run_seconds, moment["unix_seconds"] - self.history.run_start_unix_seconds)
        assert start is not None
        if start["attempt"] == moment["attempt"]:
            return run_seconds
        boots = {attempt.number: attempt.start.get("boot_id") for attempt in self.attempts}
        one_boot = boots[start["attempt"]] == boots[moment["attempt"]] is not None
        if one_boot and None not in (start["boot_seconds"], moment["boot_seconds"]):
            return moment["boot_seconds"] - start["boot_seconds"]
        # Another boot or machine: as above.
        return max(run_seconds, moment["unix_seconds"] - start["unix_seconds"])

    def run_cost(self, moment: Event) -> tuple[float | None, str]:
        """Gives the cost of the run's clock up to a moment, or None and the reason."""
        parts = self.run_parts(moment)
        if parts is None:
            return None, _NO_RUN_START
        return _cost(self.history.cost_usd, parts)

    def allocated_cost(self) -> tuple[float | None, str]:
        """Gives the cost of all lifetimes, or None and the reason."""
        parts = [(attempt, attempt.seconds) for attempt in self.attempts]
        return _cost(self.history.allocated_cost_usd, parts)


_NO_RUN_START = "the log lacks run_start"
_NOT_REACHED = "no evaluation reached the target"
_DAMAGED_TARGET = (
    "the evaluation that reached the target is damaged in the log, which ends in `reached`"
)
_COMPILED_IN_LOST_LOG = "an earlier log was lost, and its checkpoint does not tell"


def summarize(events: Sequence[Event]) -> RunResult:
    """Gives the result of a run from the events of process 0.

    Args:
      events: The events in the order written, of all attempts.

    Raises:
      RunError: The log lacks what every run writes first.
    """
    run = _run(events)
    warnings = _warnings(events, run)  # those of all attempts
    attempts, history, events = run.attempts, run.history, run.events
    record = _last(events, "experiment")
    devices = _last(events, "devices")
    if record is None or devices is None:
        raise RunError("the log ends before the run described itself; nothing can be summarized")
    experiment = record["experiment"]
    evaluations = _evaluations(events, run)
    phases = _phases(attempts, history)
    end = _last(attempts[-1].events, "attempt_end")
    diverged = _last(events, "diverged")
    steps = _newest_step(attempts)
    spans = stage_rates.spans_of(experiment, record["num_train_examples"])
    sizes = {span.global_batch_size for span in spans}
    batch = sizes.pop() if len(sizes) == 1 else None
    stages = stage_rates.stage_rows(experiment, spans, [own.events for own in attempts])
    made: int | None = sum(row["steps_made"] * row["global_batch_size"] for row in stages)
    if batch is not None:
        made = batch * (sum(event["steps"] for event in _of(events, "train")) + history.steps_made)
    elif history.steps_made:
        made = None
    killed = sum(not attempt.ended for attempt in attempts)
    start = next((attempt.start for attempt in reversed(attempts) if attempt.start), {})
    host_summary = _last(attempts[-1].events, "host_summary")
    reached = next((event for event in _of(events, "evaluation") if event["reached"]), None)
    ends_reached = any(event["status"] == "reached" for event in _of(events, "attempt_end"))
    unknown = _NO_RUN_START
    if reached is None and not history.reached:
        unknown = _DAMAGED_TARGET if ends_reached else _NOT_REACHED
    allocated, allocated_reason = run.allocated_cost()
    compiled_before = run.compile_seconds_before_run_start()
    if history.reached:
        tta = history.time_to_accuracy_seconds
        elapsed = history.elapsed_seconds_to_accuracy
        total = history.total_seconds_to_accuracy
        compiled_within = history.compile_seconds_in_time_to_accuracy
        cost, cost_reason = _cost(history.cost_usd, [])
    elif reached is not None:
        tta, elapsed = run.run_seconds(reached), run.elapsed_seconds(reached)
        total = run.total_seconds(reached)
        compiled_within = None
        if tta is not None and compiled_before is not None:
            compiled_within = run.compile_seconds(reached) - compiled_before
        cost, cost_reason = run.run_cost(reached)
    else:
        tta = elapsed = total = compiled_within = cost = None
        cost_reason = allocated_reason or unknown
    reasons: dict[str, str] = {}
    for name, value in (
        ("time_to_accuracy_seconds", tta),
        ("elapsed_seconds_to_accuracy", elapsed),
        ("total_seconds_to_accuracy", total),
    ):
        if value is None:
            reasons[name] = unknown
    if cost is None:
        reasons["cost_usd"] = cost_reason
    if compiled_before is None:
        reasons["compile_seconds_before_run_start"] = (
            _COMPILED_IN_LOST_LOG if history.run_started else _NO_RUN_START
        )
    if compiled_within is None:
        reasons["compile_seconds_in_time_to_accuracy"] = (
            _COMPILED_IN_LOST_LOG if tta is not None else reasons["time_to_accuracy_seconds"]
        )
    if batch is None:
        reasons["global_batch_size"] = "it changes in the run; stages has each"
    if made is None:
        reasons["examples_per_second"] = "a log was lost, and with it which stage its steps were of"
    if allocated is None:
        reasons["allocated_cost_usd"] = allocated_reason
    if history.attempts:
        reasons["time_uncertainty_seconds"] = (
            "an earlier log or its end was lost: how long its last attempt went on after its last "
            "checkpoint is not known"
        )
    if host_summary is None:
        reasons["hosts"] = "the last attempt ended before the hosts were summed up"
    return RunResult(
        schema_version=SCHEMA_VERSION,
        run_id=start.get("run_id", ""),
        experiment=experiment["name"],
        identity=record["identity"],
        overrides=record["overrides"],
        seed=record["seed"],
        status="running" if end is None else end["status"],
        reached=history.reached or reached is not None or ends_reached,
        target=experiment["targets"],
        target_note=experiment["target_note"],
        best=_best(experiment["targets"], evaluations),
        time_to_accuracy_seconds=_rounded(tta),
        elapsed_seconds_to_accuracy=_rounded(elapsed),
        total_seconds_to_accuracy=_rounded(total),
        total_seconds=round(history.total_seconds + sum(a.seconds for a in attempts), 6),
        time_uncertainty_seconds=None if history.attempts else killed * HEARTBEAT_SECONDS,
        train_seconds=phases["train"],
        compile_seconds=phases["compile"],
        compile_seconds_before_run_start=_rounded(compiled_before),
        compile_seconds_in_time_to_accuracy=_rounded(compiled_within),
        compile_cache=_compile_cache(attempts, history),
        interruptions=len(attempts) - 1 + history.attempts,
        phases=phases,
        first_losses=_first_losses(events, history),
        epochs=round(examples_before(spans, steps) / record["num_train_examples"], 6),
        steps=steps,
        diverged_step=None if diverged is None else diverged["step"],
        examples_per_second=_rounded(
            made / phases["train"] if phases["train"] and made is not None else None
        ),
        global_batch_size=batch,
        stages=stages,
        num_processes=devices["num_processes"],
        num_devices=devices["num_devices"],
        device_kind=devices["device_kind"],
        platform=devices["platform"],
        cost_usd=_rounded(cost),
        allocated_cost_usd=_rounded(allocated),
        evaluations=evaluations,
        hosts=[] if host_summary is None else host_summary["hosts"],
        straggler=None if host_summary is None else host_summary.get("straggler"),
        versions=start.get("versions", {}),
        run_options=record["run_options"],
        reasons=reasons,
        warnings=warnings,
    )


class Spent(NamedTuple):
    """What a trial took, reached or not; an entry's expected time and cost are made of it.

    Attributes:
      seconds: On the run's clock until the training ended: the end of the last step or evaluation,
        before the last save and the profile. Of an attempt that was killed or failed while it
        trained, until its last event. None if the clock never started.
      cost_usd: Of the time to accuracy, or of `seconds` where the target was not reached; each
        attempt's part at its own price. None if that is not known.
      hourly_prices: What the systems of the attempts cost an hour, each once; None among them where
        an attempt has no price.
    """

    seconds: float | None
    cost_usd: float | None
    hourly_prices: tuple[float | None, ...]


def spent(events: Sequence[Event]) -> Spent:
    """Gives what a run took until its training ended."""
    run = _run(events)
    reached = next((event for event in _of(events, "evaluation") if event["reached"]), None)
    end = _training_end(run)
    if end is None:  # all of it is in a log that was lost
        seconds, cost = run.history.run_seconds, run.history.cost_usd
    else:
        seconds, cost = run.run_seconds(end), run.run_cost(end)[0]
    if run.history.reached:
        cost = run.history.cost_usd
    elif reached is not None:
        cost = run.run_cost(reached)[0]
    prices = dict.fromkeys(attempt.usd_per_hour for attempt in run.attempts)
    return Spent(_rounded(seconds), cost, tuple(prices))


def _training_end(run: _Run) -> Event | None:
    """Gives the moment at which training ended; None if that was in a log that was lost."""
    last = run.attempts[-1]
    trained = [
        event
        for attempt in run.attempts
        for event in attempt.events
        if event["event"] in ("train", "evaluation", "diverged")
    ]
    end = _last(last.events, "attempt_end")
    status = None if end is None else end["status"]
    profiled = any(event["name"] == "profile" for event in _of(last.events, "phase"))
    if trained and trained[-1]["attempt"] == last.number:
        ended = profiled or status not in (None, "failed")
    else:
        # It only took up what an earlier attempt had finished, or it did not come to train.
        ended = profiled or status in FINAL_STATUSES
    if not ended:
        return last.events[-1]
    if trained:
        return trained[-1]
    return None if run.history.run_started else last.events[-1]


def summarize_log(events: Sequence[Event]) -> RunResult:
    """Gives the result of a log that may be damaged or made elsewhere.

    Raises:
      RunError: It says too little, or a field is not of its kind.
    """
    try:
        refused = [one for one in _run(events).attempts if one.refused_price is not None]
        if refused:
            raise RunError(_price_refused(refused[0]))
        return summarize(events)
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(of_another_kind(error)) from None


def _price_refused(attempt: _Attempt) -> str:
    return (
        f"the price of attempt {attempt.number} is {attempt.refused_price!r}, no amount of dollars "
        "an hour"
    )


def of_another_kind(error: Exception) -> str:
    """Says that a log could not be read because of this error at one of its fields."""
    return f"a field of the log is missing or of another kind ({type(error).__name__}: {error})"


def run_started(events: Sequence[Event]) -> bool:
    """Tells whether the run's clock has started, in this log or in the past that it carries."""
    return bool(_of(events, "run_start")) or carried_history(events).run_started


def knows_more(past: dict[str, Any], events: Sequence[Event]) -> bool:
    """Tells whether a checkpoint knows more of the run's clock than the log does.

    Args:
      past: What the checkpoint carries, as `history_of` gave it.
      events: The events of the attempts before.
    """
    if not run_started(events):
        return True
    run, history = _run(events), History.from_json(past)
    starts = attempt_starts(events)
    last = max(run.attempts[-1].events, key=lambda event: event["t"])
    known = [
        seconds
        for attempt, seconds in run.run_parts(last) or []
        if starts[attempt.number] in history.attempt_starts
    ]
    return bool(known) and history.run_seconds > run.history.run_seconds + sum(known)


def history_of(events: Sequence[Event]) -> dict[str, Any]:
    """Gives what a checkpoint carries of a run's past, as the JSON of a `History`.

    Args:
      events: The events so far, of a run whose clock has started.
    """
    result, run = summarize(events), _run(events)
    now = run.attempts[-1].events[-1]
    cost = result.cost_usd
    if not result.reached:
        cost = _rounded(_cost(run.history.cost_usd, run.run_parts(now) or [])[0])
    start_unix_seconds = run.history.run_start_unix_seconds
    if run.run_start is not None:
        start_unix_seconds = run.run_start["unix_seconds"]
    return History(
        attempts=result.interruptions + 1,
        attempt_starts=list(attempt_starts(events).values()),
        run_started=run_started(events),
        run_seconds=run.run_seconds(now) or 0.0,
        total_seconds=result.total_seconds,
        steps_made=sum(e["steps"] for e in _of(run.events, "train")) + run.history.steps_made,
        run_start_unix_seconds=start_unix_seconds,
        phases=result.phases,
        first_losses=result.first_losses,
        evaluations=result.evaluations,
        reached=result.reached,
        time_to_accuracy_seconds=result.time_to_accuracy_seconds,
        elapsed_seconds_to_accuracy=result.elapsed_seconds_to_accuracy,
        total_seconds_to_accuracy=result.total_seconds_to_accuracy,
        compile_seconds_before_run_start=result.compile_seconds_before_run_start,
        compile_seconds_in_time_to_accuracy=result.compile_seconds_in_time_to_accuracy,
        compile_cache=result.compile_cache,
        cost_usd=cost,
        allocated_cost_usd=result.allocated_cost_usd,
        versions=result.versions,
    ).to_json()


def _run(events: Sequence[Event]) -> _Run:
    grouped: dict[int, list[Event]] = {}
    for event in events:
        grouped.setdefault(event["attempt"], []).append(event)
    if not grouped:
        raise RunError("the log holds no attempt; nothing can be summarized")
    attempts = [_Attempt(number, own) for number, own in grouped.items()]
    run_start = next(iter(_of(events, "run_start")), None)
    history = carried_history(events)
    if run_start is None and history.run_started:
        run_start = damaged_run_start(events, history)
        if run_start is not None:
            history = History()  # all of it is in this log
    starts = attempt_starts(events)
    attempts = [own for own in attempts if starts[own.number] not in history.attempt_starts]
    return _Run(attempts, run_start, history)


def _newest_step(attempts: list[_Attempt]) -> int:
    """Gives the step of the newest state: an attempt may go on from before the last one's end."""
    for attempt in reversed(attempts):
        for event in reversed(attempt.events):
            name, step = event["event"], event.get("step")
            # An attempt that fails before it has a state ends at step 0; the state is an older one.
            if name in _STATE_EVENTS or (name == "attempt_end" and step):
                return event["step"]
    return 0


_STATE_EVENTS = ("train", "evaluation", "restored", "checkpoint")


def _cost(carried: float | None, parts: list[tuple[_Attempt, float]]) -> tuple[float | None, str]:
    """Gives the cost of attempts' seconds and of the carried past, or None and the reason."""
    if carried is None:
        return None, "the past that a checkpoint carried has no price"
    cost, unpriced = carried, []
    for attempt, seconds in parts:
        hourly = attempt.usd_per_hour
        if hourly is not None:
            cost += hourly * seconds / 3600
        elif seconds:
            unpriced.append(attempt.number)
    if unpriced:
        numbers = ", ".join(map(str, unpriced))
        return None, f"no price given (--price_per_hour_usd) in attempt {numbers}"
    return cost, ""


_HIGHEST_PRICE = 1e9
"""USD an hour: far above every machine's, so that a number beyond is a damaged one."""


def _is_price(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= _HIGHEST_PRICE


def _phases(attempts: list[_Attempt], history: History) -> dict[str, float]:
    """Gives the seconds of each phase, of all attempts."""
    seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    for attempt in attempts:
        for name, own in attempt.phase_seconds().items():
            seconds[name] += own
    for name, carried in history.phases.items():
        seconds[name] += carried
    return {name: round(value, 6) for name, value in seconds.items()}


def _compile_cache(attempts: list[_Attempt], history: History) -> dict[str, str]:
    """Gives each program's state when the run first had it: a restart finds it in the cache."""
    states = dict(history.compile_cache)
    for attempt in attempts:
        states = attempt.first_compiled() | states
    return states


def _evaluations(events: Sequence[Event], run: _Run) -> list[dict[str, Any]]:
    """Gives one row a step: the first measurement, where an attempt did work again."""
    rows = {row["step"]: row for row in run.history.evaluations}
    for event in _of(events, "evaluation"):
        row = {
            "step": event["step"],
            "epoch": event["epoch"],
            "seconds_since_run_start": _rounded(run.run_seconds(event)),
            **event["metrics"],
        }
        rows.setdefault(event["step"], row)
    return [rows[step] for step in sorted(rows)]


def _best(targets: list[dict], evaluations: list[dict]) -> dict[str, float]:
    best = {}
    for target in targets:
        values = [row[target["metric"]] for row in evaluations if target["metric"] in row]
        values = [value for value in values if isinstance(value, int | float)]
        if values:
            choose = max if target["direction"] == "at_least" else min
            best[target["metric"]] = choose(values)
    return best


def _first_losses(events: Sequence[Event], history: History) -> list[float]:
    losses = dict(enumerate(history.first_losses))
    for event in _of(events, "first_losses"):
        for index, loss in enumerate(event["losses"], start=event["start_step"]):
            losses.setdefault(index, loss)
    return [losses[index] for index in range(len(losses)) if index in losses]


def _warnings(events: Sequence[Event], run: _Run) -> list[str]:
    messages = [event["message"] for event in _of(events, "warning")]
    if run.history.attempts:
        messages.append(
            "an earlier log or its end was lost and its past is that of a checkpoint: what its "
            "last attempt did after that checkpoint is in no time and no cost here"
        )
    for attempt in run.attempts:
        if not attempt.start:
            messages.append(
                f"the log lacks the start of attempt {attempt.number}, as if its line were "
                "damaged; its seconds count"
            )
        if attempt.refused_price is not None:
            messages.append(f"{_price_refused(attempt)}; it is ignored")
        first, last = attempt.events[0], attempt.events[-1]
        if None not in (first["boot_seconds"], last["boot_seconds"]):
            slept = (last["boot_seconds"] - first["boot_seconds"]) - (last["t"] - first["t"])
            if slept > HEARTBEAT_SECONDS:
                messages.append(
                    f"the machine was suspended for {slept:.0f} s in attempt "
                    f"{attempt.number}; no time here counts them"
                )
    messages += _differing_versions(events, run.history)
    metrics: dict[int, dict] = {}
    for event in _of(events, "evaluation"):
        if metrics.setdefault(event["step"], event["metrics"]) != event["metrics"]:
            messages.append(
                f"the evaluation at step {event['step']} was made again after a restart and gave "
                "other values; the first is reported"
            )
    return messages


def _differing_versions(events: Sequence[Event], history: History) -> list[str]:
    """Says which attempt ran with which version, for each that was not the same in all."""
    versions = {f"attempt {e['attempt']}": e["versions"] for e in _of(events, "attempt_start")}
    if history.versions and history.versions not in versions.values():
        versions = {"an attempt whose log was lost": history.versions, **versions}
    differences = []
    for name in dict.fromkeys(name for installed in versions.values() for name in installed):
        ran_with: dict[str, list[str]] = {}
        for attempt, installed in versions.items():
            ran_with.setdefault(installed.get(name, "none"), []).append(attempt)
        if len(ran_with) > 1:
            told = (f"{version} ({', '.join(who)})" for version, who in ran_with.items())
            differences.append(f"{name} {', '.join(told)}")
    if not differences:
        return []
    return [
        f"the attempts did not run with the same versions: {'; '.join(differences)}; the result "
        "names those of the last alone"
    ]


def _of(events: Sequence[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == name]


def _last(events: Sequence[Event], name: str) -> Event | None:
    return next((event for event in reversed(events) if event["event"] == name), None)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
