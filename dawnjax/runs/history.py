"""What a checkpoint carries of a run's past, should the log or its end be lost with its disk."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dawnjax.runs.log import Event


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """What a checkpoint carries of a run's past, should the log or its end be lost with its disk.

    Attributes:
      attempts: Attempts so far; 0 if there is no past.
      attempt_starts: The wall clock at the first event of each attempt in the log: its name, by
        which a log that lost its end is told to hold attempts of this past.
      run_started: Whether the run's clock has started.
      run_seconds: Seconds on the run's clock.
      total_seconds: Lifetimes of the attempts.
      steps_made: Train steps made, those made again included.
      run_start_unix_seconds: The wall clock at `run_start`; 0 if the clock has not started.
      phases: Seconds in each phase.
      first_losses: The losses of the first ten steps.
      evaluations: The evaluations, as a result holds them.
      reached: Whether an evaluation reached every target.
      time_to_accuracy_seconds: As in a result, like the next two.
      elapsed_seconds_to_accuracy: None if not reached.
      total_seconds_to_accuracy: None if not reached.
      compile_seconds_before_run_start: As in a result, like the next two; None if not known.
      compile_seconds_in_time_to_accuracy: None if not reached or not known.
      compile_cache: Empty if not known.
      cost_usd: The cost of `run_seconds`, or of those up to the target; None if not known.
      allocated_cost_usd: The cost of `total_seconds`; None if not known.
      versions: As in a result.
    """

    attempts: int = 0
    attempt_starts: list[float] = dataclasses.field(default_factory=list)
    run_started: bool = False
    run_seconds: float = 0.0
    total_seconds: float = 0.0
    steps_made: int = 0
    run_start_unix_seconds: float = 0.0
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    first_losses: list[float] = dataclasses.field(default_factory=list)
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    reached: bool = False
    time_to_accuracy_seconds: float | None = None
    elapsed_seconds_to_accuracy: float | None = None
    total_seconds_to_accuracy: float | None = None
    compile_seconds_before_run_start: float | None = None
    compile_seconds_in_time_to_accuracy: float | None = None
    compile_cache: dict[str, str] = dataclasses.field(default_factory=dict)
    cost_usd: float | None = 0.0
    allocated_cost_usd: float | None = 0.0
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Gives the past as plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "History":
        """Gives the past from plain JSON values; a cost that is absent is not known."""
        value = {"cost_usd": None, "allocated_cost_usd": None, **value}
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: value[name] for name in names if name in value})


def carried_history(events: Sequence[Event]) -> History:
    """Gives the past that an attempt of this log read from a checkpoint, if one did: the last.

    The attempt need not be the first of the log: one before it may have ended before it restored,
    or lost the end of what it logged.
    """
    carried = [event["history"] for event in _restored_with_a_past(events)]
    histories = [History.from_json(value) for value in carried]
    started = [history for history in histories if history.run_started]
    return [History(), *histories, *started][-1]


def attempt_starts(events: Sequence[Event]) -> dict[int, float]:
    """Gives the wall clock at the first event of each attempt, by its number."""
    starts: dict[int, float] = {}
    for event in events:
        starts.setdefault(event["attempt"], event["unix_seconds"])
    return starts


def damaged_run_start(events: Sequence[Event], history: History) -> Event | None:
    """Gives the `run_start` of a log that holds all of a carried past but that one line.

    An attempt takes its past from a checkpoint where its log tells of none. If only the line of
    `run_start` was damaged, the attempts of that past stand in the log too and would count twice.
    Then the past is used for one thing alone: to tell when the clock started, from an evaluation
    that both know.

    Args:
      events: The events of a log without `run_start`.
      history: The past that it carries.
    """
    before = min(event["attempt"] for event in _restored_with_a_past(events))
    seconds: dict[int, float] = {}
    for event in events:
        if event["attempt"] < before:
            seconds[event["attempt"]] = max(event["t"], seconds.get(event["attempt"], 0.0))
    if len(seconds) != history.attempts:
        return None
    since_start = {row["step"]: row["seconds_since_run_start"] for row in history.evaluations}
    known = [
        (event["attempt"], event["t"], since_start[event["step"]])
        for event in events
        if event["event"] == "evaluation"
        and event["attempt"] in seconds
        and event["step"] in since_start
    ]
    saved = [
        (event["attempt"], event["t"], history.run_seconds)
        for event in events
        if event["event"] == "checkpoint" and event["attempt"] in seconds
    ]
    if not saved:
        return None  # those attempts were no part of that past
    attempt, t, passed = (known or saved[-1:])[-1]
    # Back through the attempts, each of which counts whole, to the one that started the clock.
    while passed > t and attempt - 1 in seconds:
        attempt, passed = attempt - 1, passed - t
        t = seconds[attempt]
    start = round(max(0.0, t - passed), 6)
    other = next(event for event in events if event["attempt"] == attempt)
    boot = other.get("boot_seconds")
    return {
        "event": "run_start",
        "attempt": attempt,
        "t": start,
        "boot_seconds": None if boot is None else round(boot + start - other["t"], 6),
        "unix_seconds": history.run_start_unix_seconds,
    }


def _restored_with_a_past(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["event"] == "restored" and event.get("history")]
