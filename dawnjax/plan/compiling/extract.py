"""Extract of a compiled program: its work, in bins of alike ops, and its collectives.

An op takes the longer of its products' time and its memory's, so an extract sums the ops whose
FLOPs a byte are alike (within a quarter of a factor of two). The error is at most 9 % of an op's
time, and megabytes of program text become a few kilobytes.
"""

import dataclasses
import math
import re
from typing import NamedTuple

from dawnjax.plan.hardware.interconnect import Exchange
from dawnjax.profile.program import Program

BINS_PER_OCTAVE = 4

_RECOMPUTED = re.compile(r"\.remat(?!erialized)")
"""In the names of what XLA computes again so that a program fits. On GPUs `.rematerialized` marks
constants that a loop makes again, however much memory is free. Source: XLA, `HloRematerialization`.
"""


class Work(NamedTuple):
    """Ops of one kind and intensity, on one device; a row of a file.

    Attributes:
      dtype: Dtype of the products' operands, in XLA's name; empty for ops without products.
      flops: FLOPs of their products, times the passes of a precision.
      num_bytes: Bytes read and written.
      runs: Number of kernel launches.
      has_even_rows: As of an `Op` of a program.
    """

    dtype: str
    flops: float
    num_bytes: float
    runs: int
    has_even_rows: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extract:
    """Extract of a program on one device.

    Attributes:
      memory_bytes: Its peak, without its code.
      recomputed: Number of kernel launches, collectives included, that XLA added so that the
        program fits: they compute again what it would else have kept.
    """

    work: tuple[Work, ...]
    exchanges: tuple[Exchange, ...]
    memory_bytes: int
    recomputed: int = 0

    @property
    def flops(self) -> float:
        """FLOPs of matrix products and convolutions."""
        return sum(work.flops for work in self.work)

    @property
    def num_bytes(self) -> float:
        """Bytes that all ops read and write."""
        return sum(work.num_bytes for work in self.work)


def extract_of(program: Program, memory_bytes: int) -> Extract:
    """Extract of a program that `profile.hlo.analyze` counted."""
    bins: dict[tuple[str, int, bool], list[float]] = {}
    for op in program.ops.values():
        # Collectives are priced by links and not by memory (`interconnect`).
        if op.name in program.collectives:
            continue
        flops = op.product_flops * op.passes
        if not flops and not op.num_bytes:
            continue
        intensity = round(BINS_PER_OCTAVE * math.log2(flops / max(1, op.num_bytes))) if flops else 0
        key = (op.product_dtype, intensity, op.has_even_rows)
        totals = bins.setdefault(key, [0.0, 0.0, 0.0])
        for place, value in enumerate((flops, op.num_bytes, 1)):
            totals[place] += value * op.runs
    exchanges: dict[tuple[str, int, int], list[float]] = {}
    for collective in program.collectives.values():
        key = (collective.kind, collective.group_size, collective.group_stride)
        totals = exchanges.setdefault(key, [0.0, 0.0])
        totals[0] += collective.num_bytes * collective.runs
        totals[1] += collective.runs
    return Extract(
        work=tuple(
            Work(dtype, flops, num_bytes, int(runs), has_even_rows)
            for (dtype, _, has_even_rows), (flops, num_bytes, runs) in sorted(bins.items())
        ),
        exchanges=tuple(
            Exchange(
                kind=kind, group_size=size, num_bytes=num_bytes, runs=int(runs), group_stride=stride
            )
            for (kind, size, stride), (num_bytes, runs) in sorted(exchanges.items())
            if size > 1
        ),
        memory_bytes=memory_bytes,
        recomputed=_recomputed(program),
    )


def _recomputed(program: Program) -> int:
    names = {**program.ops, **program.collectives}  # one that is asynchronous is not an op
    return sum(int(run.runs) for run in names.values() if _RECOMPUTED.search(run.name))
