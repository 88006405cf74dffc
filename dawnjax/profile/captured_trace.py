"""Events of a captured window, and the part that a machine's processes exchange."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax.errors import RunError
from dawnjax.profile import utilization
from dawnjax.profile.communication import device_time, shortest_runs
from dawnjax.profile.trace import Interval, Trace, find_trace, read_trace, union

SHORT_GAP_PICOSECONDS = 50 * 10**6
"""A device that pauses for less counts as computing, where processes tell each other when they do:
between two ops of a CPU lie microseconds, and a thread waits for a core for longer."""


def trace_part(folder: Path, capture: dict[str, Any]) -> dict[str, Any]:
    """Part of a process's trace for the other processes; empty where the trace cannot be read.

    Its fields: `shortest`, the shortest runs of collectives; `busy`, for each device of a CPU the
    picoseconds from the trace's start at which it computed; `start_unix_ns`, the trace's start.
    """
    try:
        trace, window = load_trace(folder, capture)
    except (RunError, OSError):
        return {"shortest": {}, "busy": [], "start_unix_ns": 0}
    shortest, busy = shortest_runs(trace), []
    if trace.platform == "cpu" and trace.start_unix_ns:
        for events in trace.devices.values():
            computing = device_time(events, window, shortest).compute
            joined = union((start, end + SHORT_GAP_PICOSECONDS) for start, end in computing)
            busy.append([(start, end - SHORT_GAP_PICOSECONDS) for start, end in joined])
    return {"shortest": shortest, "busy": busy, "start_unix_ns": trace.start_unix_ns}


def busy_neighbours(
    start_unix_ns: int, machine_parts: Sequence[dict[str, Any]]
) -> list[list[Interval]]:
    """Intervals in which other processes of the machine computed, in this trace's picoseconds."""
    return [
        [(start + shift, end + shift) for start, end in intervals]
        for part in machine_parts
        if part["start_unix_ns"] and part["start_unix_ns"] != start_unix_ns
        for shift in [1000 * (part["start_unix_ns"] - start_unix_ns)]
        for intervals in part["busy"]
    ]


def load_trace(folder: Path, capture: dict[str, Any]) -> tuple[Trace, Interval]:
    """Read the train program's events in the traced window, and the window in picoseconds."""
    trace = read_trace(find_trace(folder))
    spans = [span for span in trace.spans if span.name == utilization.WINDOW_SPAN]
    if spans:
        trace = trace.between(spans[-1].start, spans[-1].end)
    trace = trace.of_program(capture["module"])
    events = [event for events in trace.devices.values() for event in events]
    start = spans[-1].start if spans else min(event.start for event in events)
    # A device may end a little after the host says that it has; the window then ends later.
    end = max(event.end for event in events)
    return trace, (start, max(spans[-1].end, end) if spans else end)
