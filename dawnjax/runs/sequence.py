"""Numbers of a log's lines, which reveal lost, doubled and moved lines.

`sequence` counts from 1 over all attempts. A line cut short by a kill or a full disk was never
whole, so the next line takes its number. A whole line that is damaged or missing now leaves a gap.
"""

from collections.abc import Iterable
from typing import NamedTuple

from dawnjax.runs.past import LOST, Event


class Line(NamedTuple):
    """A line of a log file that is not blank: its number from 1, and its event or None.

    `is_ended` is false without a newline, as in the last line of a killed process.
    """

    number: int
    event: Event | None
    is_ended: bool


class LineFault(NamedTuple):
    """A fault at a line of a log; `line` counts from 1 in the file.

    `kind` is `torn` (never written whole, which harms nothing), `damaged`, `doubled`, `out of
    order`, `numbered as another line`, or the number of lines missing before it.
    """

    line: int
    kind: str

    @property
    def is_harmless(self) -> bool:
        """True if nothing is lost: a kill or a full disk cut the line short."""
        return self.kind == "torn"

    def __str__(self) -> str:
        return f"line {self.line} is {self.kind}"


def in_sequence(lines: Iterable[Line], after: int = 0) -> tuple[list[Event], list[LineFault]]:
    """Order the events of a log as written, each once, and list the faults of the lines.

    `after` is the largest number of the lines before these; 0 where these are the first. A `lost`
    event stands where lines are lost.
    """
    faults: list[LineFault] = []
    placed: list[_Placed] = []
    seen: dict[int, Event] = {}
    damaged: list[Line] = []
    last = after
    for line in lines:
        if line.event is None:
            damaged.append(line)
            continue
        number = line.event["sequence"]
        # A line that was never whole leaves its number to this one.
        is_torn = number == last + 1
        faults += [LineFault(bad.number, "torn" if is_torn else "damaged") for bad in damaged]
        before, damaged = len(damaged), []
        is_first = number not in seen
        if not is_first:
            is_copy = line.event == seen[number]
            kind = "doubled" if is_copy else "numbered as another line"
            faults.append(LineFault(line.number, kind))
            if is_copy:
                continue
            # One of the two is not of this log: it stays behind the line it was written after.
            number = placed[-1].sequence
        else:
            seen[number] = line.event
            if number < last:
                faults.append(LineFault(line.number, "out of order"))
            last = max(last, number)
        placed.append(_Placed(number, line, is_first, before))
    events: list[Event] = []
    last = after
    for item in sorted(placed, key=lambda item: item.sequence):
        event, lost = item.line.event, 1
        assert event is not None
        if item.is_first:
            lost = item.sequence - last - 1
            missing = lost - item.damaged
            if missing > 0:
                kind = f"preceded by {missing} missing line{'s' if missing > 1 else ''}"
                faults.append(LineFault(item.line.number, kind))
        if lost > 0:
            events.append(_lost(lost, item.sequence - 1, events[-1] if events else None, event))
        events.append(event)
        last = item.sequence
    whole = [line for line in damaged if line.is_ended]
    faults += [LineFault(bad.number, "damaged" if bad.is_ended else "torn") for bad in damaged]
    if whole and events:
        events.append(_lost(len(whole), last + len(whole), events[-1], None))
    return events, sorted(faults)


class _Placed(NamedTuple):
    """A line and its place, after `damaged` lines; `is_first` of those with its number."""

    sequence: int
    line: Line
    is_first: bool
    damaged: int


def _lost(count: int, sequence: int, before: Event | None, after: Event | None) -> Event:
    """Event for lost lines, at the moment and attempt of a line beside them."""
    is_within = after is not None and (before is None or before["attempt"] == after["attempt"])
    moment = after if is_within else before
    assert moment is not None
    names = ("attempt", "t", "boot_seconds", "unix_seconds")
    kept = {name: moment[name] for name in names if name in moment}
    return {"event": LOST, **kept, "sequence": sequence, "lines": count}
