"""Communication of a host's devices, per step.

  communication: length of the union of the collectives' intervals on a device.
  exposed: that union without the moments at which the device also computes.
  skew: a collective's duration less the shortest duration of the same collective on any device of
    the run: the time it waited for the slowest. `wire` is the rest.
Figures are means over the host's devices; the largest stands beside the mean.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dawnjax.profile.device_groups import mesh_axes
from dawnjax.profile.program import Program
from dawnjax.profile.trace import (
    Event,
    Interval,
    Trace,
    intersect,
    length,
    subtract,
    union,
)

PICOSECONDS = 10**12

COMMUNICATION_FIELDS = (
    "seconds_per_step",
    "exposed_seconds_per_step",
    "fraction",
    "exposed_fraction",
    "skew_fraction",
    "exposed_skew_fraction",
    "bytes_per_step",
)
"""Fields of a host in a result that its trace gives; null without one."""

Shortest = dict[str, list[int]]
"""For each collective, the shortest duration of its first, second, ... run on any device."""


@dataclasses.dataclass(frozen=True)
class DeviceTime:
    """A device's time in a window, as disjoint ascending intervals in picoseconds."""

    window: Interval
    compute: list[Interval]
    communication: list[Interval]
    skew: list[Interval]

    @property
    def exposed(self) -> list[Interval]:
        return subtract(self.communication, self.compute)

    @property
    def exposed_skew(self) -> list[Interval]:
        """Exposed intervals that wait for the slowest device."""
        return intersect(self.exposed, self.skew)

    @property
    def gaps(self) -> list[Interval]:
        return subtract([self.window], union([*self.compute, *self.communication]))


def collective_runs(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Each collective's runs on a device, in order.

    An asynchronous collective counts while it is in flight. Where the trace has no such event, the
    event that moves the data counts.
    """
    runs: dict[str, list[Event]] = {}
    in_flight = {event.op for event in events if event.kind and event.is_async}
    for event in events:
        if not event.kind or "-done" in event.op:
            continue
        if event.op in in_flight and not event.is_async:
            continue
        runs.setdefault(event.op or event.kernel, []).append(event)
    return runs


def shortest_runs(trace: Trace) -> Shortest:
    """Shortest duration of each run of each collective over a host's devices, in picoseconds."""
    return merge_shortest(
        [
            {name: [run.end - run.start for run in runs]}
            for events in trace.devices.values()
            for name, runs in collective_runs(events).items()
        ]
    )


def merge_shortest(parts: Sequence[Mapping[str, Sequence[int]]]) -> Shortest:
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: [
            min(duration for duration in durations if duration is not None)
            for durations in itertools.zip_longest(*(part.get(name, ()) for part in parts))
        ]
        for name in names
    }


def device_waits(trace: Trace, shortest: Mapping[str, Sequence[int]]) -> list[float]:
    """Seconds that each device of a host waited in collectives for slower ones."""
    return [
        sum(wait for _, _, wait in _waits(events, shortest)) / PICOSECONDS
        for events in trace.devices.values()
    ]


def _waits(
    events: Iterable[Event], shortest: Mapping[str, Sequence[int]]
) -> Iterable[tuple[str, Event, int]]:
    for name, runs in collective_runs(events).items():
        known = shortest.get(name, ())
        for index, run in enumerate(runs):
            duration = run.end - run.start
            wait = duration - known[index] if index < len(known) else 0
            yield name, run, max(0, wait)


def device_time(
    events: Sequence[Event], window: Interval, shortest: Mapping[str, Sequence[int]]
) -> DeviceTime:
    """Split a device's time in a window; `shortest` covers all devices of the run."""

    def inside(intervals: Iterable[Interval]) -> list[Interval]:
        return intersect(union(intervals), [window])

    return DeviceTime(
        window=window,
        compute=inside((e.start, e.end) for e in events if not e.kind),
        communication=inside((e.start, e.end) for e in events if e.kind),
        # A collective's data moves when the last device has come: at its end.
        skew=inside((run.start, run.start + wait) for _, run, wait in _waits(events, shortest)),
    )


@dataclasses.dataclass(frozen=True)
class Communication:
    """A host's communication a step; seconds, fractions of the traced step, bytes of one device.

    Attributes:
      seconds_per_step: Communication, the mean over the host's devices.
      exposed_seconds_per_step: The part that no computation hides.
      skew_fraction: Waiting for the slowest device, hidden or not; `exposed_skew_fraction` is what
        no computation hides.
      bytes_per_step: Bytes that a device gives to collectives.
      max_seconds_per_step: Communication of the device with the most.
      by_kind: For each kind of collective: seconds, skew and wire seconds, bytes, runs a step, and
        the algorithm bandwidth, bytes over wire time.
      by_axis: The same for each axis of the mesh, or several together, and the exposed seconds.
    """

    seconds_per_step: float
    exposed_seconds_per_step: float
    fraction: float
    exposed_fraction: float
    skew_fraction: float
    exposed_skew_fraction: float
    bytes_per_step: int
    max_seconds_per_step: float
    max_exposed_seconds_per_step: float
    by_kind: dict[str, dict[str, float | None]]
    by_axis: dict[str, dict[str, float | None]]


def measure_communication(
    trace: Trace,
    window: Interval,
    num_steps: int,
    shortest: Mapping[str, Sequence[int]],
    program: Program,
    mesh: Mapping[str, int],
) -> Communication:
    """Communication of a host per step; `mesh` has the sizes of the mesh's axes, in order."""
    times = {d: device_time(e, window, shortest) for d, e in trace.devices.items()}
    scale = PICOSECONDS * num_steps * len(times)
    step_seconds = (window[1] - window[0]) / (PICOSECONDS * num_steps)
    totals = [length(time.communication) / scale for time in times.values()]
    exposed = [length(time.exposed) / scale for time in times.values()]
    exposed_skew = sum(length(time.exposed_skew) for time in times.values()) / scale
    sums: dict[str, list[float]] = {}  # of each collective: seconds, skew, runs
    kinds: dict[str, str] = {}
    for events in trace.devices.values():
        for name, run, wait in _waits(events, shortest):
            amounts = (run.end - run.start) / scale, wait / scale, PICOSECONDS / scale
            sums[name] = [a + b for a, b in zip(sums.get(name, (0, 0, 0)), amounts, strict=True)]
            kinds[name] = run.kind
    axes = {name: _axis(program, name, mesh) for name in sums}
    by_axis = _grouped(sums, program, axes)
    for axis, row in by_axis.items():
        picoseconds = 0
        for device, events in trace.devices.items():
            runs = [r for name, r in collective_runs(events).items() if axes[name] == axis]
            spans = union((run.start, run.end) for group in runs for run in group)
            inside = intersect(spans, [window])
            picoseconds += length(subtract(inside, times[device].compute))
        row["exposed_seconds_per_step"] = _round(picoseconds / scale)
    return Communication(
        seconds_per_step=_round(sum(totals)),
        exposed_seconds_per_step=_round(sum(exposed)),
        fraction=round(sum(totals) / step_seconds, 6),
        exposed_fraction=round(sum(exposed) / step_seconds, 6),
        skew_fraction=round(sum(skew for _, skew, _ in sums.values()) / step_seconds, 6),
        exposed_skew_fraction=round(exposed_skew / step_seconds, 6),
        bytes_per_step=sum(program.collective_bytes.values()),
        max_seconds_per_step=_round(max(totals) * len(times)),
        max_exposed_seconds_per_step=_round(max(exposed) * len(times)),
        by_kind=_grouped(sums, program, kinds),
        by_axis=by_axis,
    )


def _axis(program: Program, name: str, mesh: Mapping[str, int]) -> str:
    known = program.collectives.get(name)
    return mesh_axes(known.group, mesh) if known is not None and mesh else "unknown"


def _grouped(
    sums: Mapping[str, Sequence[float]], program: Program, group_of: Mapping[str, str]
) -> dict[str, dict[str, float | None]]:
    """Sums of collectives by their group, the longest first."""
    groups: dict[str, list[float]] = {}  # seconds, skew, runs, bytes
    for name, amounts in sums.items():
        known = program.collectives.get(name)
        amounts = (*amounts, known.num_bytes * known.runs if known else 0)
        old = groups.get(group_of[name], (0, 0, 0, 0))
        groups[group_of[name]] = [a + b for a, b in zip(old, amounts, strict=True)]
    return {
        group: {
            "seconds_per_step": _round(seconds),
            "skew_seconds_per_step": _round(skew),
            "wire_seconds_per_step": _round(seconds - skew),
            "bytes_per_step": round(num_bytes) if num_bytes else None,
            "runs_per_step": round(runs, 3),
            "algorithm_bytes_per_second": (
                round(num_bytes / (seconds - skew)) if num_bytes and seconds > skew else None
            ),
        }
        for group, (seconds, skew, runs, num_bytes) in sorted(
            groups.items(), key=lambda item: -item[1][0]
        )
    }


def _round(seconds: float) -> float:
    return round(seconds, 9)


NO_TRACE = "the host that the others wait for cannot be named: a host's trace is missing"

STRAGGLER_FRACTION = 0.05
"""A host that costs the others less than this share of a step is not a straggler."""


@dataclasses.dataclass(frozen=True)
class Straggler:
    """A host that the others wait for.

    `cost_seconds_per_step` is the mean wait of each other host per step, `fraction` the same as a
    fraction of the step.
    """

    process_index: int
    cost_seconds_per_step: float
    fraction: float

    def line(self) -> str:
        return (
            f"host {self.process_index} delays the others: each waits "
            f"{1000 * self.cost_seconds_per_step:.3g} ms a step for it, {self.fraction:.0%} of the "
            "traced step"
        )

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "message": self.line()}


def find_straggler(
    waits: Sequence[float | None], step_seconds: float
) -> tuple[Straggler | None, str]:
    """The host that waits least, if all other hosts wait (seconds); or None and the reason."""
    known = [(wait, index) for index, wait in enumerate(waits) if wait is not None]
    if len(known) < len(waits):
        return None, NO_TRACE
    if len(known) < 2:
        return None, ""
    least, slowest = min(known)
    cost = (sum(wait for wait, _ in known) - least) / (len(known) - 1) - least
    if cost < STRAGGLER_FRACTION * step_seconds:
        return None, (
            f"no host delays the others: each waits {1000 * cost:.3g} ms a step for host "
            f"{slowest}, {cost / step_seconds:.1%} of the traced step, and less than "
            f"{STRAGGLER_FRACTION:.0%} names none"
        )
    return Straggler(slowest, round(cost, 9), round(cost / step_seconds, 6)), ""
