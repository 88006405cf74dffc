"""Merged traces of all hosts as one file for Perfetto, with aligned clocks.

A collective ends at the same moment on all its devices. So each host moves by the median difference
between the ends of the collectives that it shares with the first host. Without collectives the
profiled windows are aligned, because they begin after a barrier.

Format: Chrome's Trace Event Format, JSON objects with `traceEvents`; times in microseconds.
"""

import dataclasses
import gzip
import json
import statistics
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.profile.program import COLLECTIVES

MOST_BYTES = 2**30
MOST_MARKS = 10**8
_WINDOW = "dawnjax.window"
_NOISE = ("ThreadpoolListener", "end: ", "PythonRefManager")
_COLLECTIVES = (*COLLECTIVES, "ncclDevKernel")
_HOST_STRIDE = 10_000
"""Between the process numbers of two hosts in the file: a host has a few, one a device."""

_MOST_MICROSECONDS = 1e18
"""Of a time; now is 1.8e15 since 1970."""


class _Events(TypedDict):
    traceEvents: list[Any]


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The merged trace: Chrome's trace events, and the shift of each host in microseconds.

    `spread_microseconds` is half the interquartile range of the differences behind each shift; None
    where windows were aligned.
    """

    events: list[dict[str, Any]]
    offsets: list[float]
    spread_microseconds: list[float | None]


def merged(folders: Sequence[Path]) -> Timeline:
    """Merge the traces of one window; `RunError` names a missing or damaged file."""
    hosts = [_read(folder) for folder in folders]
    events, offsets, spreads = [], [], []
    for host, found in enumerate(hosts):
        offset, spread = (0.0, 0.0) if host == 0 else _offset(hosts[0], found)
        offsets.append(offset)
        spreads.append(spread)
        numbers: dict[Any, int] = {}
        for event in found:
            number = numbers.setdefault(event.get("pid"), len(numbers) % _HOST_STRIDE)
            moved = {**event, "pid": host * _HOST_STRIDE + number}
            if "ts" in moved:
                moved["ts"] = round(moved["ts"] + offset, 3)
            if moved["name"] == "process_name" and isinstance(moved.get("args"), dict):
                moved["args"] = {"name": f"host {host} {moved['args'].get('name', '')}".strip()}
            if moved["name"] == "process_sort_index":
                moved["args"] = {"sort_index": moved["pid"]}
            events.append(moved)
    return Timeline(events, offsets, spreads)


def write(timeline: Timeline, file: Path) -> None:
    """Write a timeline, compressed if the name ends in `.gz`."""
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": timeline.events}).encode()
    # No time stamp in the gzip header: one timeline has the same bytes each time.
    records.write(file, gzip.compress(text, 6, mtime=0) if file.suffix == ".gz" else text)


def _read(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("plugins/profile/*/*.trace.json.gz"))
    if not files:
        raise RunError(f"{folder} holds no *.trace.json.gz: this window was not traced to its end")
    try:
        with records.open_plain(files[-1]) as file:
            text = records.gunzip(file, MOST_BYTES)
        events = records.decode(text, _Events, MOST_MARKS, others=True)["traceEvents"]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        why = " ".join(str(error).split())[:200]
        raise RunError(f"{files[-1]}: it is no trace ({why})") from None
    return [event for event in events if _is_kept(event)]


def _is_kept(event: Any) -> bool:
    if not isinstance(event, dict) or not isinstance(event.get("name"), str):
        return False
    times = [event[name] for name in ("ts", "dur") if name in event]
    if any(isinstance(time, bool) or not isinstance(time, int | float) for time in times):
        return False
    # A number that overflows in a sum would be written as no JSON.
    if any(abs(time) > _MOST_MICROSECONDS for time in times):
        return False
    if not isinstance(event.get("pid"), int | str | None):
        return False
    return not event["name"].startswith(_NOISE)


def _offset(
    first: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]
) -> tuple[float, float | None]:
    """Offset of the second host's trace in microseconds, and its spread."""
    ends = [_collective_ends(events) for events in (first, other)]
    differences = [
        one - two
        for name in ends[0].keys() & ends[1].keys()
        # Unequal counts mean a missing run, which would pair the ends of different runs.
        if len(ends[0][name]) == len(ends[1][name])
        for one, two in zip(ends[0][name], ends[1][name], strict=True)
    ]
    # Fewer differences have no quartiles to take a spread from.
    if len(differences) >= 4:
        low, middle, high = statistics.quantiles(differences, n=4)
        return middle, (high - low) / 2
    starts = [
        next((event["ts"] for event in events if event["name"] == _WINDOW), None)
        for events in (first, other)
    ]
    if starts[0] is None or starts[1] is None:
        return 0.0, None
    return starts[0] - starts[1], None


def _collective_ends(events: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Ends of each collective's runs on all devices, ascending.

    Lines of the trace do not identify a device, since a CPU's threads share its events.
    """
    ends: dict[str, list[float]] = {}
    for event in events:
        if event.get("ph") == "X" and event["name"].startswith(_COLLECTIVES) and "ts" in event:
            ends.setdefault(event["name"], []).append(event["ts"] + event.get("dur", 0.0))
    return {name: sorted(found) for name, found in ends.items()}
