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
    TraceError,
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
        """Intervals of communication while nothing computes."""
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
    """A host's communication a step; seconds, fractions of the step, bytes of one device.

    Attributes:
      step_seconds: The step, while it was traced.
      seconds_per_step: Communication, the mean over the host's devices.
      max_seconds_per_step: The same of the device with the most.
      exposed_seconds_per_step: The part that no computation hides.
      max_exposed_seconds_per_step: The same of the device with the most.
      exposed_skew_seconds_per_step: The exposed part that waits for the slowest device.
      skew_seconds_per_step: All waiting for the slowest device, hidden or not.
      bytes_per_step: Bytes that a device gives to collectives; None without the program.
      by_kind: For each kind of collective: seconds, skew and wire seconds, bytes, runs a step, and
        the algorithm bandwidth, bytes over wire time.
      by_layer: The same for each named scope, its seconds shared out by bytes.
      by_axis: The same for each axis of the mesh, or several together, and the exposed seconds;
        empty without the program.
    """

    step_seconds: float
    seconds_per_step: float
    max_seconds_per_step: float
    exposed_seconds_per_step: float
    max_exposed_seconds_per_step: float
    exposed_skew_seconds_per_step: float
    skew_seconds_per_step: float
    bytes_per_step: int | None
    by_kind: dict[str, dict[str, float | None]]
    by_layer: dict[str, dict[str, float | None]]
    by_axis: dict[str, dict[str, float | None]]

    def to_json(self) -> dict[str, Any]:
        def fraction(seconds: float) -> float:
            return round(seconds / self.step_seconds, 6)

        return {
            "seconds_per_step": _round(self.seconds_per_step),
            "exposed_seconds_per_step": _round(self.exposed_seconds_per_step),
            "fraction": fraction(self.seconds_per_step),
            "exposed_fraction": fraction(self.exposed_seconds_per_step),
            "skew_fraction": fraction(self.skew_seconds_per_step),
            "exposed_skew_fraction": fraction(self.exposed_skew_seconds_per_step),
            "bytes_per_step": self.bytes_per_step,
            "max_seconds_per_step": _round(self.max_seconds_per_step),
            "max_exposed_seconds_per_step": _round(self.max_exposed_seconds_per_step),
            "by_kind": self.by_kind,
            "by_layer": self.by_layer,
            "by_axis": self.by_axis,
        }


def measure_communication(
    trace: Trace,
    window: Interval,
    num_steps: int,
    shortest: Mapping[str, Sequence[int]],
    program: Program | None,
    mesh: Mapping[str, int] | None = None,
) -> Communication:
    """Communication of a host per step; without the program bytes and layers are not known.

    `mesh` has the sizes of the mesh's axes, in order; without it none is told by axis.
    """
    if not trace.devices or num_steps < 1 or window[1] <= window[0]:
        raise TraceError("the trace holds no step of any device")
    times = {d: device_time(e, window, shortest) for d, e in trace.devices.items()}
    scale = PICOSECONDS * num_steps
    totals = [length(time.communication) / scale for time in times.values()]
    exposed = [length(time.exposed) / scale for time in times.values()]
    exposed_skew = [length(time.exposed_skew) / scale for time in times.values()]
    by_name: dict[str, list[float]] = {}  # seconds, skew, runs
    kinds: dict[str, str] = {}
    for events in trace.devices.values():
        for name, run, wait in _waits(events, shortest):
            share = 1 / (scale * len(times))
            amounts = ((run.end - run.start) * share, wait * share, 1 / (num_steps * len(times)))
            _add(by_name, name, amounts)
            kinds[name] = run.kind
    return Communication(
        step_seconds=(window[1] - window[0]) / scale,
        seconds_per_step=_mean(totals),
        max_seconds_per_step=max(totals),
        exposed_seconds_per_step=_mean(exposed),
        max_exposed_seconds_per_step=max(exposed),
        exposed_skew_seconds_per_step=_mean(exposed_skew),
        skew_seconds_per_step=sum(skew for _, skew, _ in by_name.values()),
        bytes_per_step=None if program is None else sum(program.collective_bytes.values()),
        by_kind=_grouped(by_name, program, lambda name: {kinds[name]: 1.0}),
        by_layer=_grouped(by_name, program, lambda name: _layer_shares(name, program)),
        by_axis=_by_axis(trace, times, by_name, num_steps, program, mesh),
    )


def _by_axis(
    trace: Trace,
    times: Mapping[int, DeviceTime],
    by_name: dict[str, list[float]],
    num_steps: int,
    program: Program | None,
    mesh: Mapping[str, int] | None,
) -> dict[str, dict[str, float | None]]:
    if program is None or not mesh:
        return {}
    axes = {
        name: mesh_axes(*program.collectives[name].groups, mesh)
        if name in program.collectives
        else "unknown"
        for name in by_name
    }
    rows = _grouped(by_name, program, lambda name: {axes[name]: 1.0})
    for axis, row in rows.items():
        exposed = 0
        for device, events in trace.devices.items():
            runs = collective_runs(events)
            spans = union(
                (run.start, run.end)
                for name, group in runs.items()
                if axes.get(name) == axis
                for run in group
            )
            inside = intersect(spans, [times[device].window])
            exposed += length(subtract(inside, times[device].compute))
        row["exposed_seconds_per_step"] = _round(exposed / (PICOSECONDS * num_steps * len(times)))
    return rows


def _layer_shares(name: str, program: Program | None) -> dict[str, float]:
    collective = None if program is None else program.collectives.get(name)
    if collective is None or not collective.num_bytes:
        return {"": 1.0}
    return {s: b / collective.num_bytes for s, b in collective.scope_bytes.items()}


def _grouped(by_name: dict[str, list[float]], program: Program | None, shares: Any) -> dict:
    """Sum collectives by group; `shares` has the groups of each and its fraction in each."""
    groups: dict[str, list[float]] = {}
    for name, (seconds, skew, runs) in by_name.items():
        collective = None if program is None else program.collectives.get(name)
        num_bytes = collective.num_bytes * collective.runs if collective else 0
        for group, share in shares(name).items():
            _add(groups, group, [amount * share for amount in (seconds, skew, num_bytes, runs)])
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
        for group, (seconds, skew, num_bytes, runs) in sorted(
            groups.items(), key=lambda item: -item[1][0]
        )
    }


def _add(sums: dict[str, list[float]], name: str, amounts: Sequence[float]) -> None:
    sums[name] = [a + b for a, b in zip(sums.get(name, [0.0] * len(amounts)), amounts, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _round(seconds: float) -> float:
    return round(seconds, 9)
