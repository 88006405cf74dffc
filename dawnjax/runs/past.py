"""The part of a log that was lost, put back from a checkpoint.

A checkpoint holds the log as it was at the save. An attempt that restores it compares that past
with its own log. Where the log lacks events (it lies on another machine's disk, or lines of it are
damaged), the attempt logs the whole past inside its `restored` event. Whoever reads the log gets
one list of events, in which the past stands in its place. A run that has ended restores nothing:
there a `recovered` event carries the past, and is itself no part of the list.
"""

from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]
"""A line of a log, decoded."""

CONDENSED = ("host_sample", "train")
"""The events of which a condensed log keeps the last one alone."""


LOST = "lost"
"""The event that stands where lines of a log are lost; it is made when the log is read."""

RECOVERED = "recovered"
"""The event that carries a past after the run has ended."""


def lacks_some_of(past: Sequence[Event], events: Sequence[Event]) -> bool:
    """Whether a log lost events that a checkpoint holds."""
    known = {_key(event) for event in events}
    if any(_key(event) not in known for event in past if event["event"] not in (*CONDENSED, LOST)):
        return True
    # The past may also show that a lost line was one of those that it does not hold one by one.
    carrier = {"event": RECOVERED, "attempt": 0, "t": 0.0, "past": past}
    return _count_lost(with_past([*events, carrier])) < _count_lost(events)


def _count_lost(events: Sequence[Event]) -> int:
    return sum(event["event"] == LOST for event in events)


def with_past(events: Sequence[Event]) -> list[Event]:
    """Puts each past that a `restored` event carries in its place and numbers the attempts anew.

    Returns:
      The events by attempt. A `restored` event has `lost_log`, true if what the attempt before it
      did after its save may be lost, in the place of `past`.
    """
    attempts: list[list[Event]] = []
    by_number: dict[int, list[Event]] = {}
    for event in events:
        if event.get("past"):
            attempts, is_lost = _filled_in(attempts, event["past"])
            if event["event"] == RECOVERED:
                continue
            event = {**event, "lost_log": is_lost}
            del event["past"]
        if event["attempt"] not in by_number:
            by_number[event["attempt"]] = []
            attempts.append(by_number[event["attempt"]])
        by_number[event["attempt"]].append(event)
    return [
        {**event, "attempt": number}
        for number, attempt in enumerate(attempts, start=1)
        for event in attempt
    ]


def _filled_in(
    attempts: list[list[Event]], past: Sequence[Event]
) -> tuple[list[list[Event]], bool]:
    """Takes each attempt that a past tells of from the past, with what its log says after that.

    Returns:
      The attempts, those of the past first; and whether the log ends before the past does.
    """
    saved: dict[int, list[Event]] = {}
    for event in past:
        saved.setdefault(event["attempt"], []).append(event)
    filled, is_lost = [], False
    for part in saved.values():
        keys, end = {_key(event) for event in part}, max(event["t"] for event in part)
        logged = next((a for a in attempts if any(_key(event) in keys for event in a)), [])
        attempts = [attempt for attempt in attempts if attempt is not logged]
        is_lost = end > max((event["t"] for event in logged), default=0.0)
        filled.append(part + _after(logged, end, part))
    return filled + attempts, is_lost


def _after(logged: Sequence[Event], end: float, part: Sequence[Event]) -> list[Event]:
    """The events after a past; of a condensed `train` event, the steps after it alone."""
    last = max(event.get("sequence", 0) for event in part)
    saved = max((event["step"] for event in part if event["event"] == "train"), default=0)
    return [
        {**event, "steps": min(event["steps"], event["step"] - saved)}
        if event["event"] == "train"
        else event
        for event in logged
        if _is_after(event, last, end)
    ]


def _is_after(event: Event, sequence: int, t: float) -> bool:
    """Whether an event of an attempt comes after a past: by its number if both have one."""
    if sequence and "sequence" in event:
        return event["sequence"] > sequence
    return event["t"] > t


def _key(event: Event) -> tuple[str, float, str]:
    """A key that no other event has, of other attempts too."""
    return event["event"], event["t"], str(event.get("unix_seconds"))
