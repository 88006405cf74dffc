"""From the log of a run to its result; the log is the truth, and this is the one reading of it.

The clock of a run, over several attempts, is the sum of (last recorded moment - max(run_start,
start of the attempt)): a restart, a restore, compilation and work done again count, the gap between
two attempts does not. An attempt that was killed ends at its last event; a heartbeat bounds how
much later it may have died, and the result gives that bound.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dawnjax.errors import RunError
from dawnjax.run_log import SCHEMA_VERSION

Event = dict[str, Any]

HEARTBEAT_SECONDS = 1.0
"""The longest time between two events of a living process."""

PHASES = ("setup", "compile", "restore", "train", "eval", "checkpoint", "profile", "other")

# How a status came about, and whether a further attempt would go on with the run.
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
      status: `reached`, `not_reached` (the budget is spent), `diverged`, `interrupted` (it can be
        resumed), `failed`, or `running` where the log has no end.
      reached: Whether an evaluation reached every target.
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
        killed after its last heartbeat.
      train_seconds: The train phase alone, of all attempts.
      compile_seconds: The compile phase, of all attempts.
      compile_cache: For each program whether it was `cold` (compiled) or `warm` (read back).
      interruptions: Attempts before the last one.
      phases: Seconds in each phase.
      first_losses: The losses of the first ten steps.
      epochs: Epochs trained at the end.
      steps: Steps done at the end.
      diverged_step: The first step with a NaN or infinite loss.
      examples_per_second: Examples of all train steps made, over `train_seconds`.
      global_batch_size: Examples a step.
      num_processes: JAX processes.
      num_devices: Devices of all processes.
      device_kind: What the devices call themselves.
      platform: `cpu`, `gpu` or `tpu`.
      cost_usd: `time_to_accuracy_seconds` at the given price; None without one.
      allocated_cost_usd: `total_seconds` at the given price.
      evaluations: Step, epoch, seconds since `run_start` and metrics of each evaluation.
      hosts: For each process, what its host saw in the last attempt.
      versions: Python, jax and the other libraries.
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
    time_uncertainty_seconds: float
    train_seconds: float
    compile_seconds: float
    compile_cache: dict[str, str]
    interruptions: int
    phases: dict[str, float]
    first_losses: list[float]
    epochs: float
    steps: int
    diverged_step: int | None
    examples_per_second: float | None
    global_batch_size: int
    num_processes: int
    num_devices: int
    device_kind: str
    platform: str
    cost_usd: float | None
    allocated_cost_usd: float | None
    evaluations: list[dict[str, Any]]
    hosts: list[dict[str, Any]]
    versions: dict[str, str]
    run_options: dict[str, Any]
    reasons: dict[str, str]
    warnings: list[str]

    def to_json(self) -> dict[str, Any]:
        """Gives the result as plain JSON values."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class _Attempt:
    """One process lifetime, from the events of its log."""

    start: Event
    events: list[Event]

    @property
    def seconds(self) -> float:
        return max(event["t"] for event in self.events)

    @property
    def ended(self) -> bool:
        return self.events[-1]["event"] == "attempt_end"


def summarize(events: Sequence[Event]) -> RunResult:
    """Gives the result of a run from the events of process 0.

    Args:
      events: The events in the order written, of all attempts.

    Raises:
      RunError: The log lacks what every run writes first.
    """
    attempts = _attempts(events)
    record = _last(events, "experiment")
    devices = _last(events, "devices")
    if record is None or devices is None:
        raise RunError("the log ends before the run described itself; nothing can be summarized")
    experiment, options = record["experiment"], record["run_options"]
    history = _carried_history(events)
    run_start = next((event for event in events if event["event"] == "run_start"), None)
    evaluations = _evaluations(events, attempts, run_start, history)
    reached = next((event for event in _of(events, "evaluation") if event["reached"]), None)
    phases = _phases(attempts, history)
    end = _last(events, "attempt_end")
    status = end["status"] if end is not None and attempts[-1].ended else "running"
    if reached is not None and status != "reached":
        status = "reached"
    diverged = _last(events, "diverged")
    total_seconds = sum(attempt.seconds for attempt in attempts) + history["total_seconds"]
    tta = _run_seconds(attempts, run_start, reached, history)
    steps = max((event["step"] for event in events if "step" in event), default=0)
    made = sum(event["steps"] for event in _of(events, "train")) + history["steps_made"]
    batch = experiment["global_batch_size"]
    price = options.get("price_per_hour_usd")
    hourly = None if price is None else price * devices["num_processes"]
    killed = sum(not attempt.ended for attempt in attempts[:-1])
    killed += status == "running"
    host_summary = _last(attempts[-1].events, "host_summary")
    reasons: dict[str, str] = {}
    if reached is None:
        for name in ("time_to_accuracy", "elapsed", "total"):
            field = (
                f"{name}_seconds" if name == "time_to_accuracy" else f"{name}_seconds_to_accuracy"
            )
            reasons[field] = "no evaluation reached the target"
    if hourly is None:
        reasons["cost_usd"] = "no price given (--price_per_hour_usd)"
        reasons["allocated_cost_usd"] = reasons["cost_usd"]
    elif reached is None:
        reasons["cost_usd"] = "no evaluation reached the target"
    if host_summary is None:
        reasons["hosts"] = "the last attempt ended before the hosts were summed up"
    return RunResult(
        schema_version=SCHEMA_VERSION,
        run_id=attempts[-1].start["run_id"],
        experiment=experiment["name"],
        identity=record["identity"],
        overrides=record["overrides"],
        seed=record["seed"],
        status=status,
        reached=reached is not None,
        target=experiment["targets"],
        target_note=experiment["target_note"],
        best=_best(experiment["targets"], evaluations),
        time_to_accuracy_seconds=_rounded(tta),
        elapsed_seconds_to_accuracy=_rounded(_elapsed(attempts, run_start, reached, tta, history)),
        total_seconds_to_accuracy=_rounded(_total_to(attempts, reached, history)),
        total_seconds=round(total_seconds, 6),
        time_uncertainty_seconds=killed * HEARTBEAT_SECONDS,
        train_seconds=phases["train"],
        compile_seconds=phases["compile"],
        compile_cache={event["program"]: event["cache"] for event in _of(events, "compiled")},
        interruptions=len(attempts) - 1 + history["attempts"],
        phases=phases,
        first_losses=_first_losses(events, history),
        epochs=round(steps * batch / record["num_train_examples"], 6),
        steps=steps,
        diverged_step=None if diverged is None else diverged["step"],
        examples_per_second=_rounded(made * batch / phases["train"] if phases["train"] else None),
        global_batch_size=batch,
        num_processes=devices["num_processes"],
        num_devices=devices["num_devices"],
        device_kind=devices["device_kind"],
        platform=devices["platform"],
        cost_usd=_rounded(None if hourly is None or tta is None else hourly * tta / 3600),
        allocated_cost_usd=_rounded(None if hourly is None else hourly * total_seconds / 3600),
        evaluations=evaluations,
        hosts=[] if host_summary is None else host_summary["hosts"],
        versions=attempts[-1].start["versions"],
        run_options=options,
        reasons=reasons,
        warnings=_warnings(events, attempts),
    )


def history_of(events: Sequence[Event]) -> dict[str, Any]:
    """Gives what a checkpoint carries of a run's past, should the log be lost with its disk.

    Args:
      events: The events so far, of a run whose clock has started.
    """
    result = summarize(events)
    attempts = _attempts(events)
    run_start = next((event for event in events if event["event"] == "run_start"), None)
    now = {**attempts[-1].events[-1], "attempt": attempts[-1].start["attempt"]}
    carried = _carried_history(events)
    return {
        "attempts": result.interruptions + 1,
        "run_started": run_start is not None or carried["run_started"],
        "run_seconds": _run_seconds(attempts, run_start, now, carried) or 0.0,
        "total_seconds": result.total_seconds,
        "steps_made": sum(e["steps"] for e in _of(events, "train")) + carried["steps_made"],
        "run_start_unix_seconds": (
            run_start["unix_seconds"] if run_start else carried["run_start_unix_seconds"]
        ),
        "phases": result.phases,
        "first_losses": result.first_losses,
        "evaluations": result.evaluations,
    }


_NO_HISTORY: dict[str, Any] = {
    "attempts": 0,
    "run_started": False,
    "run_seconds": 0.0,
    "total_seconds": 0.0,
    "steps_made": 0,
    "run_start_unix_seconds": None,
    "phases": {},
    "first_losses": [],
    "evaluations": [],
}


def _carried_history(events: Sequence[Event]) -> dict[str, Any]:
    """Gives the past that the first attempt of this log read from a checkpoint, if it did."""
    if not events:
        return _NO_HISTORY
    first = events[0]["attempt"]
    for event in _of(events, "restored"):
        if event["attempt"] == first and event.get("history"):
            return {**_NO_HISTORY, **event["history"]}
    return _NO_HISTORY


def _attempts(events: Sequence[Event]) -> list[_Attempt]:
    grouped: dict[int, list[Event]] = {}
    for event in events:
        grouped.setdefault(event["attempt"], []).append(event)
    attempts = []
    for own in grouped.values():
        start = next((event for event in own if event["event"] == "attempt_start"), None)
        if start is not None:
            attempts.append(_Attempt(start, own))
    if not attempts:
        raise RunError("the log holds no attempt; nothing can be summarized")
    return attempts


def _run_seconds(
    attempts: list[_Attempt], run_start: Event | None, moment: Event | None, history: dict
) -> float | None:
    """Gives the seconds on the run's clock at a moment, an event of one of the attempts."""
    if moment is None:
        return None
    if history["run_started"]:
        return history["run_seconds"] + _total_to(attempts, moment, _NO_HISTORY)
    if run_start is None:
        return None
    seconds = 0.0
    for attempt in attempts:
        number = attempt.start["attempt"]
        if number < run_start["attempt"]:
            continue
        begin = run_start["t"] if number == run_start["attempt"] else 0.0
        if number == moment["attempt"]:
            return seconds + moment["t"] - begin
        seconds += attempt.seconds - begin
    return None


def _total_to(attempts: list[_Attempt], moment: Event | None, history: dict) -> Any:
    if moment is None:
        return None
    before = sum(a.seconds for a in attempts if a.start["attempt"] < moment["attempt"])
    return history["total_seconds"] + before + moment["t"]


def _elapsed(
    attempts: list[_Attempt],
    run_start: Event | None,
    reached: Event | None,
    run_seconds: float | None,
    history: dict,
) -> float | None:
    """Gives the seconds from `run_start` to the target with the gaps between attempts."""
    if reached is None or run_seconds is None:
        return None
    if run_start is None:
        return reached["unix_seconds"] - history["run_start_unix_seconds"]
    if run_start["attempt"] == reached["attempt"]:
        return run_seconds
    boots = {attempt.start["attempt"]: attempt.start["boot_id"] for attempt in attempts}
    one_boot = boots[run_start["attempt"]] == boots[reached["attempt"]] is not None
    if one_boot and None not in (run_start["boot_seconds"], reached["boot_seconds"]):
        return reached["boot_seconds"] - run_start["boot_seconds"]
    # Another boot or machine: only the wall clocks are left to compare.
    return max(run_seconds, reached["unix_seconds"] - run_start["unix_seconds"])


def _phases(attempts: list[_Attempt], history: dict) -> dict[str, float]:
    """Gives the seconds of each phase: from its beginning to the next, or to the attempt's end."""
    seconds = dict.fromkeys(PHASES, 0.0)
    for attempt in attempts:
        name, begin = "setup", 0.0
        for event in attempt.events:
            if event["event"] == "phase":
                seconds[name] += event["t"] - begin
                name, begin = event["name"], event["t"]
        seconds[name] += attempt.seconds - begin
    for name, carried in history["phases"].items():
        seconds[name] += carried
    return {name: round(value, 6) for name, value in seconds.items()}


def _evaluations(
    events: Sequence[Event], attempts: list[_Attempt], run_start: Event | None, history: dict
) -> list[dict[str, Any]]:
    """Gives one row a step: the first measurement, where an attempt did work again."""
    rows = {row["step"]: row for row in history["evaluations"]}
    for event in _of(events, "evaluation"):
        seconds = _run_seconds(attempts, run_start, event, history)
        row = {
            "step": event["step"],
            "epoch": event["epoch"],
            "seconds_since_run_start": _rounded(seconds),
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


def _first_losses(events: Sequence[Event], history: dict) -> list[float]:
    losses = dict(enumerate(history["first_losses"]))
    for event in _of(events, "first_losses"):
        for index, loss in enumerate(event["losses"], start=event["start_step"]):
            losses.setdefault(index, loss)
    return [losses[index] for index in range(len(losses)) if index in losses]


def _warnings(events: Sequence[Event], attempts: list[_Attempt]) -> list[str]:
    messages = [event["message"] for event in _of(events, "warning")]
    for attempt in attempts:
        first, last = attempt.events[0], attempt.events[-1]
        if None not in (first["boot_seconds"], last["boot_seconds"]):
            slept = (last["boot_seconds"] - first["boot_seconds"]) - (last["t"] - first["t"])
            if slept > HEARTBEAT_SECONDS:
                messages.append(
                    f"the machine was suspended for {slept:.0f} s in attempt "
                    f"{attempt.start['attempt']}; no time here counts them"
                )
    metrics: dict[int, dict] = {}
    for event in _of(events, "evaluation"):
        if metrics.setdefault(event["step"], event["metrics"]) != event["metrics"]:
            messages.append(
                f"the evaluation at step {event['step']} was made again after a restart and gave "
                "other values; the first is reported"
            )
    return messages


def _of(events: Sequence[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == name]


def _last(events: Sequence[Event], name: str) -> Event | None:
    return next((event for event in reversed(events) if event["event"] == name), None)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
