"""The attempts of a log, and the clocks and costs over them.

The clock of a run is the sum over its attempts of (last recorded moment - max(run_start, start of
the attempt)). A restart, a restore, compilation and repeated work count; the gap between two
attempts does not. A killed attempt ends at its last event; the heartbeat bounds how much later it
may have died. If a log was lost with its disk, it continues from the text in the newest checkpoint.
"""

import dataclasses
from collections.abc import Sequence

from dawnjax.errors import RunError
from dawnjax.runs.clock import PHASES
from dawnjax.runs.log import Event

HEARTBEAT_SECONDS = 1.0
"""The time between two events of a living process, unless its disk or its cores are busy."""

CLOCK_SLACK_SECONDS = 1.0
"""Two readings of one clock, which a log rounds, differ by less."""

FINAL_STATUSES = ("reached", "not_reached", "diverged")
"""The statuses of a trial that has ended: a further attempt has nothing to do."""

_STATE_EVENTS = ("train", "evaluation", "restored", "checkpoint")

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
        """The first event; empty in a log that was cut short by hand."""
        return last_event(self.events, "attempt_start") or {}

    @property
    def seconds(self) -> float:
        """Lifetime up to the last event."""
        return max(event["t"] for event in self.events)

    def phase_seconds(self, until: float | None = None) -> dict[str, float]:
        """Seconds of each phase up to the moment `until`, or to the attempt's end if None."""
        end = self.seconds if until is None else until
        seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        name, begin = "setup", 0.0
        for event in self.events:
            if event["event"] == "phase" and event["t"] <= end:
                seconds[name] += event["t"] - begin
                name, begin = event["name"], event["t"]
        seconds[name] += end - begin
        return seconds

    @property
    def ended(self) -> bool:
        """True if the log has the attempt's end; false if it was killed or still runs."""
        return last_event(self.events, "attempt_end") is not None

    @property
    def usd_per_hour(self) -> float | None:
        """Price of all its hosts for an hour; None without a price."""
        record, devices = last_event(self.events, "experiment"), last_event(self.events, "devices")
        if record is None or devices is None:
            return None
        price = record["run_options"].get("price_per_hour_usd")
        return None if price is None else price * devices["num_hosts"]


@dataclasses.dataclass(frozen=True)
class LoggedRun:
    """The attempts of a log; a moment is an event of one of them."""

    attempts: list[LoggedAttempt]
    run_start: Event | None

    @classmethod
    def from_events(cls, events: Sequence[Event]) -> "LoggedRun":
        """Group a log's events by attempt, in the order written; `RunError` for an empty log."""
        grouped: dict[int, list[Event]] = {}
        for event in events:
            grouped.setdefault(event["attempt"], []).append(event)
        if not grouped:
            raise RunError("the log holds no attempt; nothing can be summarized")
        attempts = [LoggedAttempt(number, part) for number, part in grouped.items()]
        return cls(attempts, next(iter(events_of(events, "run_start")), None))

    @property
    def events(self) -> list[Event]:
        return [event for attempt in self.attempts for event in attempt.events]

    @property
    def reached(self) -> Event | None:
        """First evaluation that reached the target; None if none did."""
        return next((e for e in events_of(self.events, "evaluation") if e["reached"]), None)

    @property
    def lost_log(self) -> bool:
        """True if a log was lost, with the last attempt's work after its last save."""
        return any(event.get("lost_log") for event in events_of(self.events, "attempt_start"))

    @property
    def training_end(self) -> Event:
        """End of the last step or evaluation, before the last save and the profile.

        The last event of an attempt that was killed or failed in training.
        """
        last = self.attempts[-1]
        trained = [e for e in self.events if e["event"] in ("train", "evaluation", "diverged")]
        end = last_event(last.events, "attempt_end")
        status = None if end is None else end["status"]
        profiled = any(event["name"] == "profile" for event in events_of(last.events, "phase"))
        if trained and trained[-1]["attempt"] == last.number:
            ended = profiled or status not in (None, "failed")
        else:
            # It only took up what an earlier attempt had finished, or it did not come to train.
            ended = profiled or status in FINAL_STATUSES
        return trained[-1] if ended and trained else last.events[-1]

    @property
    def newest_step(self) -> int:
        """Steps of the newest state."""
        for event in reversed(self.events):
            name, step = event["event"], event.get("step")
            # An attempt that fails before it has a state ends at step 0; the state is an older one.
            if name in _STATE_EVENTS or (name == "attempt_end" and step):
                return event["step"]
        return 0

    def why_no_time(self, moment: Event) -> str:
        """Reason why the run's clock at a moment is unknown; empty if it is known."""
        start = self.run_start
        return NO_RUN_START if start is None or moment["attempt"] < start["attempt"] else ""

    def run_parts(self, moment: Event) -> list[tuple[LoggedAttempt, float]] | None:
        """Each attempt's seconds on the run's clock up to a moment; None if unknown."""
        start = self.run_start
        if start is None or self.why_no_time(moment):
            return None
        parts = []
        for attempt in self.attempts:
            if not start["attempt"] <= attempt.number <= moment["attempt"]:
                continue
            begin = start["t"] if attempt.number == start["attempt"] else 0.0
            end = moment["t"] if attempt.number == moment["attempt"] else attempt.seconds
            parts.append((attempt, end - begin))
        return parts

    def run_seconds(self, moment: Event) -> float | None:
        """Seconds on the run's clock at a moment; None before `run_start`, or if unknown."""
        parts = self.run_parts(moment)
        return None if parts is None else sum(seconds for _, seconds in parts)

    def total_seconds(self, moment: Event) -> float:
        """Lifetimes of all attempts up to a moment."""
        before = sum(a.seconds for a in self.attempts if a.number < moment["attempt"])
        return before + moment["t"]

    def phase_seconds(self) -> dict[str, float]:
        parts = [attempt.phase_seconds() for attempt in self.attempts]
        return {name: sum(part[name] for part in parts) for name in PHASES}

    def compile_seconds(self, moment: Event) -> float:
        """Seconds of the compile phase, over all attempts up to a moment."""
        seconds = 0.0
        for attempt in self.attempts:
            if attempt.number <= moment["attempt"]:
                is_last = attempt.number == moment["attempt"]
                seconds += attempt.phase_seconds(moment["t"] if is_last else None)["compile"]
        return seconds

    def elapsed_seconds(self, moment: Event) -> float | None:
        """Seconds from `run_start` to a moment with the gaps between attempts."""
        run_seconds, start = self.run_seconds(moment), self.run_start
        if run_seconds is None or start is None or start["attempt"] == moment["attempt"]:
            return run_seconds
        boots = {attempt.number: attempt.start.get("boot_id") for attempt in self.attempts}
        times = start["boot_seconds"], moment["boot_seconds"]
        if None not in times and boots[start["attempt"]] == boots[moment["attempt"]] is not None:
            elapsed = times[1] - times[0]
            if elapsed >= run_seconds:  # a machine restored from a snapshot goes back in time
                return elapsed
        # Another boot or machine: only the wall clocks are left.
        return max(run_seconds, moment["unix_seconds"] - start["unix_seconds"])

    def run_cost(self, moment: Event) -> tuple[float | None, str]:
        """Cost in USD of the run's clock up to a moment, or None and the reason."""
        parts = self.run_parts(moment)
        return (None, self.why_no_time(moment)) if parts is None else _cost(parts)

    def allocated_cost(self) -> tuple[float | None, str]:
        """Cost in USD of all lifetimes, or None and the reason."""
        return _cost([(attempt, attempt.seconds) for attempt in self.attempts])


def events_of(events: Sequence[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == name]


def chooses(events: Sequence[Event]) -> bool:
    """True if a search chose its recipe by any attempt of a run."""
    return any(event["run_options"].get("chooses") for event in events_of(events, "experiment"))


def save_point(event: Event) -> tuple[int, int]:
    """Steps of a save or of a restored state, and calls since then that made examples."""
    return event["step"], event.get("calls", 0)


def last_event(events: Sequence[Event], name: str) -> Event | None:
    return next((event for event in reversed(events) if event["event"] == name), None)


def _cost(parts: list[tuple[LoggedAttempt, float]]) -> tuple[float | None, str]:
    cost, unpriced = 0.0, []
    for attempt, seconds in parts:
        hourly = attempt.usd_per_hour
        if hourly is not None:
            cost += hourly * seconds / 3600
        # An attempt without time on the clock needs no price.
        elif seconds:
            unpriced.append(attempt.number)
    if unpriced:
        numbers = ", ".join(map(str, unpriced))
        return None, f"no price given (--price_per_hour_usd) in attempt {numbers}"
    return cost, ""
