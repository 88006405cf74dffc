"""Time, FLOPs and bytes of each op against the bounds of its device.

An op's roofline is the longer of two times: its FLOPs at the arithmetic's peak, and its bytes at
the memory's bandwidth. Time beyond that is lost.

Source: Williams, Waterman and Patterson 2009, "Roofline: an insightful visual performance model"
(Communications of the ACM 52:4). Distributions over time: Coleman et al. 2019, "Analysis of
DAWNBench, a time-to-accuracy machine learning performance benchmark", figures 7 to 11.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

from dawnjax.profile.communication import PICOSECONDS
from dawnjax.profile.program import Op, Program
from dawnjax.profile.trace import Event, Trace, length, union


@dataclasses.dataclass(frozen=True)
class OpTime:
    """An op's time and work per step of one device, the mean over a host's devices.

    Attributes:
      product_flops: FLOPs of matrix products and convolutions.
      roofline_seconds: Least time that the device's peaks allow; None without peaks.
      peak_fraction: Product FLOPs over time, as a fraction of the peak; None without peak, and
        above 1, where the op is too short for the clock or the peak too low.
      scope: The layer.
      kind: Kind of collective; empty for computation.
    """

    name: str
    seconds: float
    product_flops: float
    flops: float
    num_bytes: float
    roofline_seconds: float | None
    peak_fraction: float | None
    scope: str
    source_line: str
    kind: str

    @property
    def lost_seconds(self) -> float | None:
        """Time beyond the roofline; None without peaks and for collectives."""
        if self.roofline_seconds is None or self.kind:
            return None
        return max(0.0, self.seconds - self.roofline_seconds)

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte."""
        return self.flops / self.num_bytes if self.num_bytes else None


_UNKNOWN = Op("", "", 0, 0, 0, 1, "", 1, "", "")
"""Op of an event outside the program, such as a copy between devices."""


def op_times(
    trace: Trace,
    num_steps: int,
    program: Program,
    peak_flops_per_second: float | None,
    memory_bytes_per_second: float | None,
) -> list[OpTime]:
    """Measure the ops of a step, the longest first."""
    runs: dict[str, dict[int, list[Event]]] = {}
    for device, events in trace.devices.items():
        for event in events:
            runs.setdefault(event.op or event.kernel, {}).setdefault(device, []).append(event)
    scale = num_steps * len(trace.devices)
    ops = []
    for name, devices in runs.items():
        busy = (union((event.start, event.end) for event in events) for events in devices.values())
        seconds = sum(map(length, busy)) / (PICOSECONDS * scale)
        op = program.ops.get(name, _UNKNOWN)
        product, num_bytes = op.product_flops * op.runs, op.num_bytes * op.runs
        executed = product * (op.passes if trace.platform == "tpu" else 1)
        roofline = peak_fraction = None
        if peak_flops_per_second and memory_bytes_per_second:
            roofline = max(executed / peak_flops_per_second, num_bytes / memory_bytes_per_second)
        if peak_flops_per_second and seconds:
            share = executed / seconds / peak_flops_per_second
            peak_fraction = share if share <= 1 else None
        ops.append(
            OpTime(
                name=name,
                seconds=seconds,
                product_flops=product,
                flops=op.flops * op.runs,
                num_bytes=num_bytes,
                roofline_seconds=roofline,
                peak_fraction=peak_fraction,
                scope=op.scope,
                source_line=op.source_line,
                kind=next(event.kind for events in devices.values() for event in events),
            )
        )
    return sorted(ops, key=lambda op: -op.seconds)


def largest_losses(ops: Sequence[OpTime]) -> list[OpTime]:
    """The ten ops that lose most time against their own roofline."""
    known = [op for op in ops if op.lost_seconds is not None]
    return sorted(known, key=lambda op: -(op.lost_seconds or 0.0))[:10]


def time_weighted_cdf(values: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Ascending values, each with the share of the time at or below it, of (value, seconds).

    >>> time_weighted_cdf([(2.0, 1.0), (1.0, 3.0)])
    [(1.0, 0.75), (2.0, 1.0)]
    """
    total = sum(seconds for _, seconds in values)
    if not total:
        return []
    shares: dict[float, float] = {}
    for value, seconds in values:
        shares[value] = shares.get(value, 0.0) + seconds / total
    ascending = sorted(shares)
    below = itertools.accumulate(shares[value] for value in ascending)
    return list(zip(ascending, below, strict=True))


def peak_use_cdf(ops: Sequence[OpTime]) -> list[tuple[float, float]]:
    """Distribution over computing time of the share of the peak that products used.

    It is empty where products that exceed the peak take more than a hundredth of the time.
    """
    computing = [op for op in ops if not op.kind]
    exceed = sum(op.seconds for op in computing if op.peak_fraction is None and op.product_flops)
    if exceed > 0.01 * sum(op.seconds for op in computing):
        return []
    known = [(op.peak_fraction, op.seconds) for op in computing if op.peak_fraction is not None]
    return time_weighted_cdf(known)


def throughput_cdf(ops: Sequence[OpTime]) -> list[tuple[float, float]]:
    """Distribution over computing time of the FLOP/s of the running op."""
    computing = [op for op in ops if op.seconds and not op.kind]
    return time_weighted_cdf([(op.flops / op.seconds, op.seconds) for op in computing])


MOST_OPS = 20
"""Ops that a result keeps for its roofline: those that take the longest."""

MOST_POINTS = 40
"""Points of a distribution that a result keeps."""


def to_json(
    ops: Sequence[OpTime],
    peak_flops_per_second: float | None,
    peak_bytes_per_second: float | None,
    peak_source: str,
) -> dict[str, Any]:
    """Roofline and distributions for the result, without ops that take little time."""
    computing = [op for op in ops if not op.kind and op.seconds and op.flops and op.intensity]
    return {
        "peak_flops_per_second": peak_flops_per_second,
        "peak_bytes_per_second": peak_bytes_per_second,
        "peak_source": peak_source or None,
        "ops": [
            {
                "op": op.name,
                "layer": op.scope,
                "seconds_per_step": round(op.seconds, 9),
                "flops_per_byte": _short(op.intensity or 0.0),
                "flops_per_second": _short(op.flops / op.seconds),
                "has_products": bool(op.product_flops),
            }
            for op in computing[:MOST_OPS]
        ],
        "peak_use_cdf": _thinned(peak_use_cdf(ops)),
        "throughput_cdf": _thinned(throughput_cdf(ops)),
    }


def _thinned(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    kept = {math.ceil(share * MOST_POINTS - 1e-9): (value, share) for value, share in points}
    return [[_short(value), round(share, 6)] for value, share in kept.values()]


def _short(value: float) -> float:
    """Value at six digits; more would only make the log longer."""
    return float(f"{value:.6g}")
