"""The attempts of a log, and the clocks and costs over them.

The clock of a run, over several attempts, is the sum of (last recorded moment - max(run_start,
start of the attempt)): a restart, a restore, compilation and work done again count, the gap between
two attempts does not. An attempt that was killed ends at its last event; a heartbeat bounds how
much later it may have died. Where a log or its end was lost with its disk, a checkpoint carries
what it said up to the save, and stands in the place of the attempts that it tells of; what the lost
attempt did after that is not known.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dawnjax.errors import RunError
from dawnjax.runs.clock import PHASES
from dawnjax.runs.history import Event, History, attempt_starts, carried_history, damaged_run_start

HEARTBEAT_SECONDS = 1.0
"""The time between two events of a living process, unless its disk or its cores are busy."""

FINAL_STATUSES = ("reached", "not_reached", "diverged")
"""The statuses of a trial that has ended: a further attempt has nothing to go on with."""

NO_RUN_START = "the log lacks run_start"
NOT_REACHED = "no evaluation reached the target"
"""Why a time or a cost is not known."""


@dataclasses.dataclass(frozen=True)
class LoggedAttempt:
    """One process lifetime, from the events of its log."""

    number: int
    events: list[Event]

    @property
    def start(self) -> Event:
        """The first event; empty if its line is damaged."""
        return last_event(self.events, "attempt_start") or {}

    @property
    def seconds(self) -> float:
        """Its lifetime."""
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
        """Whether the log has its end; it was killed, or still runs, if not."""
        return last_event(self.events, "attempt_end") is not None

    @property
    def usd_per_hour(self) -> float | None:
        """What all its hosts cost an hour; None without a price."""
        record, devices = last_event(self.events, "experiment"), last_event(self.events, "devices")
        if record is None or devices is None:
            return None
        price = record["run_options"].get("price_per_hour_usd")
        hosts = devices.get("num_hosts", devices["num_processes"])
        return price * hosts if _is_price(price) else None

    @property
    def price_fault(self) -> str:
        """Why what stands for its price is none; empty where it is one or nothing stands there."""
        record = last_event(self.events, "experiment")
        price = None if record is None else record["run_options"].get("price_per_hour_usd")
        if price is None or _is_price(price):
            return ""
        return f"the price of attempt {self.number} is {price!r}, no amount of dollars an hour"


@dataclasses.dataclass(frozen=True)
class LoggedRun:
    """The attempts of a log and the past that it carries, and the clocks over them.

    An attempt that the past tells of is in the past alone. A moment is an event of one of the
    attempts.
    """

    attempts: list[LoggedAttempt]
    run_start: Event | None
    history: History

    @classmethod
    def from_events(cls, events: Sequence[Event]) -> "LoggedRun":
        """Gives the run of a log, from its events in the order written.

        Raises:
          RunError: There are none.
        """
        grouped: dict[int, list[Event]] = {}
        for event in events:
            grouped.setdefault(event["attempt"], []).append(event)
        if not grouped:
            raise RunError("the log holds no attempt; nothing can be summarized")
        attempts = [LoggedAttempt(number, own) for number, own in grouped.items()]
        run_start = next(iter(events_of(events, "run_start")), None)
        history = carried_history(events)
        if run_start is None and history.run_started:
            run_start = damaged_run_start(events, history)
            if run_start is not None:
                history = History()  # all of it is in this log
        starts = attempt_starts(events)
        attempts = [own for own in attempts if starts[own.number] not in history.attempt_starts]
        return cls(attempts, run_start, history)

    @property
    def events(self) -> list[Event]:
        """The events of the attempts, in the order written."""
        return [event for attempt in self.attempts for event in attempt.events]

    @property
    def reached(self) -> Event | None:
        """The first evaluation of the attempts that reached the target; None if none did."""
        return next((e for e in events_of(self.events, "evaluation") if e["reached"]), None)

    def run_parts(self, moment: Event) -> list[tuple[LoggedAttempt, float]] | None:
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

    def phase_seconds(self) -> dict[str, float]:
        """Gives the seconds of each phase, of all attempts."""
        seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        for attempt in self.attempts:
            for name, own in attempt.phase_seconds().items():
                seconds[name] += own
        for name, carried in self.history.phases.items():
            seconds[name] += carried
        return seconds

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

    def cost_to_target(self) -> tuple[float | None, str]:
        """Gives the cost of the time to accuracy, or None and the reason."""
        if self.history.reached:
            return _cost(self.history.cost_usd, [])
        return (None, NOT_REACHED) if self.reached is None else self.run_cost(self.reached)

    def run_cost(self, moment: Event) -> tuple[float | None, str]:
        """Gives the cost of the run's clock up to a moment, or None and the reason."""
        parts = self.run_parts(moment)
        if parts is None:
            return None, NO_RUN_START
        return _cost(self.history.cost_usd, parts)

    def allocated_cost(self) -> tuple[float | None, str]:
        """Gives the cost of all lifetimes, or None and the reason."""
        parts = [(attempt, attempt.seconds) for attempt in self.attempts]
        return _cost(self.history.allocated_cost_usd, parts)


def events_of(events: Sequence[Event], name: str) -> list[Event]:
    """Gives the events of one name."""
    return [event for event in events if event["event"] == name]


def last_event(events: Sequence[Event], name: str) -> Event | None:
    """Gives the last event of one name, if there is one."""
    return next((event for event in reversed(events) if event["event"] == name), None)


def _cost(
    carried: float | None, parts: list[tuple[LoggedAttempt, float]]
) -> tuple[float | None, str]:
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
