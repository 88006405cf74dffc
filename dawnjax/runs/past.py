"""Lost parts of a log, put back from a checkpoint.

A checkpoint holds the log as of the save. If the log of a restoring attempt lacks events of that
past (another machine's disk, damaged lines), the attempt logs the whole past in its `restored`
event, and readers put it in its place. A finished run restores nothing: a `recovered` event, itself
no part of the list, carries the past there.
"""

from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]
"""A line of a log, decoded."""

LOSSES = "losses"
"""The event with the training losses of some steps."""

CONDENSED = ("host_sample", "train", LOSSES)
"""The events of which a condensed log keeps one of an attempt: the last, with what all hold."""


LOST = "lost"
"""The event that stands where lines of a log are lost; it is made when the log is read."""

RECOVERED = "recovered"
"""The event that carries a past after the run has ended."""


def lacks_some_of(past: Sequence[Event], events: Sequence[Event]) -> bool:
    """True if a log lost events that a checkpoint holds."""
    known = {_key(event) for event in events}
    if any(_key(event) not in known for event in past if event["event"] not in (*CONDENSED, LOST)):
        return True
    # The past may also show that a lost line was one of those that it does not hold one by one.
    carrier = {"event": RECOVERED, "attempt": 0, "t": 0.0, "past": past}
    return _count_lost(with_past([*events, carrier])) < _count_lost(events)


def _count_lost(events: Sequence[Event]) -> int:
    return sum(event["event"] == LOST for event in events)


def with_past(events: Sequence[Event]) -> list[Event]:
    """Put the past of each `restored` event in its place and number the attempts anew.

    In place of `past`, a `restored` event gets `lost_log`: true if the work of the attempt before
    it, after its save, may be lost.
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
    """Attempts of the past, each continued by the log; and True if the log ends before the past."""
    saved: dict[int, list[Event]] = {}
    for event in past:
        saved.setdefault(event["attempt"], []).append(event)
    filled, is_lost = [], False
    for part in saved.values():
        keys, end = {_key(event) for event in part}, max(event["t"] for event in part)
        # Matched by events, because attempts are numbered anew where a log was lost.
        logged = next((a for a in attempts if any(_key(event) in keys for event in a)), [])
        attempts = [attempt for attempt in attempts if attempt is not logged]
        is_lost = end > max((event["t"] for event in logged), default=0.0)
        filled.append(part + _after(logged, part))
    return filled + attempts, is_lost


def _after(logged: Sequence[Event], part: Sequence[Event]) -> list[Event]:
    """Events after a past; of a condensed `train` event, only the steps after it."""
    last = max(event["sequence"] for event in part)
    saved = max((event["step"] for event in part if event["event"] == "train"), default=0)
    return [
        # A condensed event sums all steps of its attempt, those of the past included.
        {**event, "steps": min(event["steps"], event["step"] - saved)}
        if event["event"] == "train"
        else event
        for event in logged
        if event["sequence"] > last
    ]


def _key(event: Event) -> tuple[str, float, str]:
    """Key that no other event has, in any attempt."""
    return event["event"], event["t"], str(event.get("unix_seconds"))
