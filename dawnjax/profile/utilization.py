"""Use of a host's devices, and the parts of a step, which sum to it.

Parts: computation, exposed communication (waiting for the slowest device, and the wire), waiting
for input, for the host to launch work, and idle time of unknown cause.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dawnjax.profile.communication import PICOSECONDS, DeviceTime, device_time
from dawnjax.profile.program import Program
from dawnjax.profile.trace import (
    ANNOTATION_PREFIX,
    Event,
    Interval,
    Trace,
    intersect,
    length,
    subtract,
    union,
)

INPUT_SPAN = ANNOTATION_PREFIX + "input"
CALL_SPAN = ANNOTATION_PREFIX + "call"
WINDOW_SPAN = ANNOTATION_PREFIX + "window"

PARTS = ("compute", "exposed_wire", "exposed_skew", "input_wait", "host", "idle")
"""The parts of a step; all but `idle` have a known cause."""

_TENSOR_CORE_KERNELS = re.compile(
    r"nvjet"  # cuBLAS on Hopper and Blackwell
    r"|(?:884|1688|168|16816|16832|161616)(?:gemm|fprop|dgrad|wgrad|cudnn)"  # instruction shapes
    r"|tensorop|wgmma|hgmma|igmma|qgmma|bmma|imma_|hmma"
    r"|xmma_(?:gemm|fprop|dgrad|wgrad|conv)"
    r"|cutlass\w*_(?:tensorop|sm90|sm100)"
    r"|flash_(?:fwd|bwd)|fmha|cudnn_generated_fort_native_sdpa",
    re.IGNORECASE,
)
_PLAIN_KERNELS = re.compile(r"simt|sgemm_\d+x\d+|dgemm|gemv|implicit_convolve_sgemm", re.IGNORECASE)


def is_tensor_core_kernel(kernel: str) -> bool:
    """True if the name of a CUDA kernel shows that it multiplies on tensor cores.

    Names of cuBLAS, cuDNN and CUTLASS kernels hold the shape of the matrix instruction (884 on
    Volta, 1688 and 16816 from Turing on), `xmma`, `tensorop`, or `nvjet` from Hopper on. Names of
    XLA's own kernels (`gemm_fusion_dot`, `triton`) show nothing; their op's products decide.
    """
    return bool(_TENSOR_CORE_KERNELS.search(kernel)) and not _PLAIN_KERNELS.search(kernel)


@dataclasses.dataclass(frozen=True)
class Attribution:
    """Seconds per step of each of `PARTS`, the mean over a host's devices and for each device."""

    step_seconds: float
    parts: dict[str, float]
    devices: dict[int, dict[str, float]]

    @property
    def attributed_fraction(self) -> float:
        """Fraction of the step with a known cause."""
        return 1 - self.parts["idle"] / self.step_seconds

    @property
    def busy_fraction(self) -> float:
        """Share in which the device ran an op, waiting in a collective included."""
        busy = ("compute", "exposed_wire", "exposed_skew")
        return sum(self.parts[name] for name in busy) / self.step_seconds


def attribute_step(
    trace: Trace,
    window: Interval,
    num_steps: int,
    shortest: Mapping[str, Sequence[int]],
) -> Attribution:
    """Split the time of a host's steps into parts; `shortest` covers all devices of the run."""
    times = {d: device_time(e, window, shortest) for d, e in trace.devices.items()}
    input_spans = union((s.start, s.end) for s in trace.spans if s.name == INPUT_SPAN)
    devices = {}
    for number, time in times.items():
        between = _between_runs(trace.devices[number], window)
        devices[number] = _parts(time, input_spans, between, num_steps)
    parts = {name: sum(d[name] for d in devices.values()) / len(devices) for name in PARTS}
    return Attribution((window[1] - window[0]) / (PICOSECONDS * num_steps), parts, devices)


def _parts(
    time: DeviceTime, input_spans: list[Interval], between: list[Interval], num_steps: int
) -> dict[str, float]:
    # A gap inside a program is not the host's: the device had all that it needed.
    between = intersect(time.gaps, between)
    parts = {
        "compute": time.compute,
        "exposed_wire": subtract(time.exposed, time.exposed_skew),
        "exposed_skew": time.exposed_skew,
        "input_wait": intersect(between, input_spans),
        "host": subtract(between, input_spans),
        "idle": subtract(time.gaps, between),
    }
    return {name: length(parts[name]) / (PICOSECONDS * num_steps) for name in PARTS}


def _between_runs(events: Sequence[Event], window: Interval) -> list[Interval]:
    """Moments of the window outside the program's executions.

    Where the trace does not number executions, only the time before the first op and after the
    last is known to be outside.
    """
    runs: dict[int, Interval] = {}
    for event in events:
        start, end = runs.get(event.run, event[:2])
        runs[event.run] = min(start, event.start), max(end, event.end)
    return subtract([window], union(runs.values()))


def tensor_core_fraction(
    trace: Trace, window: Interval, program: Program
) -> tuple[float | None, str]:
    """Share of the step in which a device multiplies on its matrix units, mean over the devices.

    On a TPU the program says which ops multiply. None and a reason where unknown.
    """
    if trace.platform == "cpu":
        return None, "a CPU has no tensor cores"
    shares = []
    for events in trace.devices.values():
        on = union((e.start, e.end) for e in events if _multiplies(e, trace.platform, program))
        shares.append(length(intersect(on, [window])) / (window[1] - window[0]))
    return sum(shares) / len(shares), ""


def _multiplies(event: Event, platform: str, program: Program) -> bool:
    op = program.ops.get(event.op)
    if platform == "gpu":
        if is_tensor_core_kernel(event.kernel):
            return True
        # Names of XLA's kernels show no unit; its half-precision products run on tensor cores.
        by_xla = event.kernel.startswith(("gemm_fusion", "triton", "fusion", "__triton"))
        half = op is not None and op.product_flops > 0 and op.product_dtype in ("bf16", "f16")
        return by_xla and half
    return op is not None and op.product_flops > 0


def attribution_json(attribution: Attribution) -> dict[str, Any]:
    """Parts of a step as seconds and as fractions of it."""
    step = attribution.step_seconds
    return {
        "traced_step_seconds": round(step, 9),
        "parts_seconds": {name: round(s, 9) for name, s in attribution.parts.items()},
        "parts_fraction": {name: round(s / step, 6) for name, s in attribution.parts.items()},
    }
