"""Events of a profiler's trace: the op, its device, its start and end.

On CPU the ops of all simulated devices are spread over the host's threads and name their device.
On GPU the lines of a device are its CUDA streams, and a kernel names its op. On TPU a device has
a line of ops and one of asynchronous ops; their categories stand in the metadata.
"""

import bisect
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dawnjax.profile.program import COLLECTIVES
from dawnjax.profile.xplane import Plane, TraceError, read_planes

ANNOTATION_PREFIX = "dawnjax."
"""Prefix of the run's own annotations of the host's time."""

# Events of the CPU runtime between the ops.
_NOT_OPS = ("end: ", "Threadpool", "Wait", "ThunkExecutor", "Rendezvous")
# Events that span the ops inside them, which would count twice.
_CONTAINERS = re.compile(r"^(while|call|conditional)(\.\d+)*(\.clone)*$")
_CONTAINER_CATEGORIES = ("while", "conditional", "call")
_COLLECTIVE_NAME = re.compile(
    r"^(" + "|".join(sorted(COLLECTIVES, key=len, reverse=True)) + r")(-start|-done)?(?![a-z])"
)
_NCCL_KINDS = {
    "AllReduce": "all-reduce",
    "AllGather": "all-gather",
    "ReduceScatter": "reduce-scatter",
    "Broadcast": "collective-broadcast",
    "SendRecv": "collective-permute",
}

TracePlatform = Literal["cpu", "gpu", "tpu"]


class Event(NamedTuple):
    """An op that ran on a device. Times are picoseconds since the trace began.

    Attributes:
      op: Instruction's name in the compiled program; empty where the trace lacks it.
      kernel: GPU kernel's name; elsewhere that of the op.
      kind: Kind of collective; empty for computation.
      is_async: It was in flight beside the device's ops.
      run: Number of the program's execution; 0 where the trace has none.
    """

    start: int
    end: int
    op: str
    kernel: str
    kind: str
    program: str
    is_async: bool = False
    run: int = 0


class Span(NamedTuple):
    """Named stretch of the host's time; picoseconds since the trace began."""

    start: int
    end: int
    name: str


@dataclasses.dataclass(frozen=True)
class Trace:
    """Events on the devices of one process, and named spans of its host, in order of start."""

    platform: TracePlatform
    devices: dict[int, list[Event]]
    spans: list[Span]

    def of_program(self, name: str) -> "Trace":
        """Trace with the events of one program alone; `TraceError` if there are none."""
        devices = {
            number: [event for event in events if event.program == name]
            for number, events in self.devices.items()
        }
        if not any(devices.values()):
            seen = sorted({e.program for events in self.devices.values() for e in events})
            programs = ", ".join(program or "ops without a program" for program in seen[:5])
            raise TraceError(
                f"the trace is of another program: it holds {programs or 'no op'}, and not {name}"
            )
        return dataclasses.replace(self, devices={n: e for n, e in devices.items() if e})

    def between(self, start: int, end: int) -> "Trace":
        devices = {
            number: [event for event in events if start <= event.start < end]
            for number, events in self.devices.items()
        }
        spans = [span for span in self.spans if start <= span.start < end]
        return dataclasses.replace(self, devices=devices, spans=spans)


def timeline_of(folder: Path) -> Path:
    """Trace file of a process's capture, beside those of the run's other processes.

    TensorBoard and XProf read `profile/` of the run directory so: one run, with a host for each
    process.
    """
    place = folder.parent.parent / "plugins" / "profile" / folder.name
    return place / f"{folder.parent.name}.xplane.pb"


def find_trace(folder: Path) -> Path:
    """Trace file of a capture's folder, or the newest under it; `TraceError` if there is none."""
    if timeline_of(folder).exists():
        return timeline_of(folder)
    files = sorted(folder.glob("**/*.xplane.pb"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise TraceError(f"there is no trace (*.xplane.pb) under {folder}")
    return files[-1]


def read_trace(path: Path) -> Trace:
    """Read a trace file; `TraceError` for an unusable one, or if no op in it has a name."""
    devices: dict[int, list[Event]] = {}
    spans: list[Span] = []
    platforms: set[TracePlatform] = set()
    host_devices: dict[int, list[Event]] = {}
    for plane in read_planes(path):
        if plane.name == "/host:CPU":
            spans += _host_spans(plane)
            host_devices = _cpu_devices(plane)
        elif device := _DEVICE_PLANE.match(plane.name):
            platform: TracePlatform = "tpu" if device[1] == "TPU" else "gpu"
            events = sorted(_tpu_events(plane) if platform == "tpu" else _gpu_events(plane))
            if events:
                platforms.add(platform)
                devices[int(device[2])] = events
    if not devices:
        # Only without an accelerator: its traces also hold ops of the host.
        devices, platforms = host_devices, {"cpu"}
    if not any(devices.values()):
        raise TraceError(f"{path} holds no op of any device: nothing ran while it was taken")
    platform = "tpu" if "tpu" in platforms else "gpu" if "gpu" in platforms else "cpu"
    if platform == "gpu":
        _refuse_command_buffers(path, devices)
    return Trace(platform, devices, sorted(spans))


def collective_kind(name: str) -> str:
    """Kind of collective by the op's name; empty if it is none.

    >>> collective_kind("all-reduce-start.3"), collective_kind("reduce.1")
    ('all-reduce', '')
    """
    match = _COLLECTIVE_NAME.match(name)
    return match[1] if match else ""


_DEVICE_PLANE = re.compile(r"^/device:(TPU|GPU):(\d{1,9})$")


def _span_of(line: Any, event: Any) -> tuple[int, int]:
    start = line.timestamp_ns * 1000 + event.offset_ps
    return start, start + event.duration_ps


def _host_spans(plane: Plane) -> Iterator[Span]:
    names = {
        number: metadata.name
        for number, metadata in plane.proto.event_metadata.items()
        if metadata.name.startswith(ANNOTATION_PREFIX)
    }
    for line in plane.proto.lines if names else ():
        for event in line.events:
            if event.metadata_id in names:
                yield Span(*_span_of(line, event), names[event.metadata_id])


def _cpu_devices(plane: Plane) -> dict[int, list[Event]]:
    ids = {name: number for number, name in plane.stat_names.items()}
    op_id, device_id = ids.get("hlo_op"), ids.get("device_ordinal")
    module_id, run_id = ids.get("hlo_module"), ids.get("run_id")
    devices: dict[int, list[Event]] = {}
    if op_id is None or device_id is None:
        return devices
    skipped = {
        number
        for number, metadata in plane.proto.event_metadata.items()
        if metadata.name.startswith(_NOT_OPS) or _CONTAINERS.match(metadata.name)
    }
    for line in plane.proto.lines:
        for event in line.events:
            if event.metadata_id in skipped:
                continue
            op = device = None
            module, run = "", 0
            for stat in event.stats:
                number = stat.metadata_id
                if number == op_id:
                    op = plane.stat_names.get(stat.ref_value) or stat.str_value
                elif number == device_id:
                    device = stat.int64_value or stat.uint64_value
                elif number == module_id:
                    module = plane.stat_names.get(stat.ref_value) or stat.str_value
                elif number == run_id:
                    run = stat.int64_value or stat.uint64_value
            if op is None or device is None or _CONTAINERS.match(op):
                continue
            times, kind = _span_of(line, event), collective_kind(op)
            traced = Event(*times, op, op, kind, module, run=run)
            devices.setdefault(int(device), []).append(traced)
    return {number: sorted(devices[number]) for number in sorted(devices)}


def _gpu_events(plane: Plane) -> Iterator[Event]:
    for line in plane.proto.lines:
        if not line.name.startswith("Stream"):
            continue
        for event in line.events:
            kernel = plane.proto.event_metadata[event.metadata_id].name
            stats = plane.stats(event)
            op = str(stats.get("hlo_op") or "")
            kind = collective_kind(op)
            if not kind and "nccl" in kernel.lower():
                kind = next((k for name, k in _NCCL_KINDS.items() if name in kernel), "all-to-all")
            module = str(stats.get("hlo_module") or "")
            yield Event(*_span_of(line, event), op, kernel, kind, module)


def _refuse_command_buffers(path: Path, devices: dict[int, list[Event]]) -> None:
    """Refuse a trace whose kernels do not name their ops."""
    events = itertools.chain.from_iterable(devices.values())
    kernels = [event for event in events if not event.kernel.startswith(("Memcpy", "Memset"))]
    total = sum(event.end - event.start for event in kernels)
    named = sum(event.end - event.start for event in kernels if event.op)
    if total and named < 0.5 * total:
        raise TraceError(
            f"{path}: {1 - named / total:.0%} of the kernels' time belongs to no op, as with GPU "
            "command buffers; profile with XLA_FLAGS=--xla_gpu_enable_command_buffer="
        )


def _tpu_events(plane: Plane) -> Iterator[Event]:
    lines = {line.name: line for line in plane.proto.lines}
    modules = _Modules(plane, lines.get("XLA Modules"))
    described = {}
    for name in ("XLA Ops", "Async XLA Ops"):
        line = lines.get(name)
        for event in line.events if line is not None else ():
            number = event.metadata_id
            if number not in described:
                described[number] = _tpu_op(plane, plane.proto.event_metadata[number])
            op, category = described[number]
            if category in _CONTAINER_CATEGORIES or _CONTAINERS.match(op):
                continue
            start, end = _span_of(line, event)
            kind = collective_kind(op) or collective_kind(category)
            is_async = name.startswith("Async")
            if is_async and not kind:
                continue  # a copy in flight is neither computation nor communication
            program, run = modules.at(start)
            yield Event(start, end, op, op, kind, program, is_async, run)


def _tpu_op(plane: Plane, metadata: Any) -> tuple[str, str]:
    # The long name is the instruction's text.
    long_name = metadata.name.removeprefix("%").split(" = ", 1)[0]
    category = str(plane.stats(metadata).get("hlo_category") or "")
    return metadata.display_name or long_name, category


class _Modules:
    def __init__(self, plane: Plane, line: Any):
        spans = []
        for event in line.events if line is not None else ():
            # `jit_train(1234567890)`: the number is the program's fingerprint.
            name = plane.proto.event_metadata[event.metadata_id].name.partition("(")[0]
            spans.append((*_span_of(line, event), name))
        self._spans = sorted(spans)
        self._starts = [start for start, _, _ in self._spans]

    def at(self, moment: int) -> tuple[str, int]:
        """Program at a moment, and the number of its execution, from 1."""
        index = bisect.bisect_right(self._starts, moment) - 1
        if index < 0 or moment > self._spans[index][1]:
            return "", 0
        return self._spans[index][2], index + 1


Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Moments covered by any interval, as disjoint intervals in order.

    >>> union([(5, 7), (0, 2), (1, 3)])
    [(0, 3), (5, 7)]
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def subtract(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Moments of the first that the second does not cover; both disjoint and in order.

    >>> subtract([(0, 10)], [(2, 3), (5, 20)])
    [(0, 2), (3, 5)]
    """
    left: list[Interval] = []
    index = 0
    for start, end in first:
        while index < len(second) and second[index][1] <= start:
            index += 1
        position, covering = start, index
        while covering < len(second) and second[covering][0] < end:
            if second[covering][0] > position:
                left.append((position, second[covering][0]))
            position = max(position, second[covering][1])
            covering += 1
        if position < end:
            left.append((position, end))
    return left


def intersect(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Moments that both cover; both disjoint and in order."""
    return subtract(first, subtract(first, second))


def length(intervals: Iterable[Interval]) -> int:
    """Sum of disjoint intervals' lengths."""
    return sum(end - start for start, end in intervals)
