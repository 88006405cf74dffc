"""Results that a compiler writes because kernels would take longer to compute them again.

XLA puts an elementwise op into all kernels that read it where that is faster by its model of a GPU;
of a TPU, see `fusing.py`.

Source: XLA, `PriorityFusion` with `GpuPerformanceModel`, its profile of operations for `sm_90` and
its description of an H100, which stands for every GPU here.
"""

import collections
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dawnjax.plan.split_sums import PARTS

CYCLES = {
    "add": 7, "add_any": 7, "sub": 7, "div": 19, "exp": 79, "expm1": 190, "log": 166, "log1p": 229,
    "rsqrt": 75, "sqrt": 75, "cbrt": 178, "tanh": 467, "pow": 510, "sin": 958, "cos": 978,
    "logistic": 79 + 7 + 19 + 3,
}  # fmt: skip
"""Of an operation on float32 elements; all others take `OTHER_CYCLES`."""

OTHER_CYCLES = 3

MOVES = (
    "broadcast_in_dim", "slice", "pad", "reshape", "squeeze", "expand_dims", "transpose", "iota",
    "concatenate", "split", "rev", "dynamic_slice", "gather", "stop_gradient", "copy", "name",
    "optimization_barrier",
)  # fmt: skip
"""Ops that compute nothing."""

MOST_PARTS = 15
"""Of a sum that is computed in the kernel of another sum."""

OPERATIONS_PER_SECOND = 132 * 128 * 2 * 1.98e9
"""Of an H100: its cores, the lanes of each, two operations a cycle, and the clock."""

BYTES_PER_SECOND = 3.35e12
CACHE_SPEEDUP = 2.5
OVERLAP = 0.95
"""Of the shorter of computing and moving, the part that the longer hides."""

LAUNCH_SECONDS = 1e-6
MOST_KERNELS = 16
"""Readers that are followed: enough to be certain."""

ROUNDS = 2
"""What is written by the first reads for all kernels behind it, so the second counts one."""


def written(
    ops: Sequence[Any],
    stored: Collection[int],
    avals: Sequence[Any],
    is_kernel: Callable[[Any], bool],
    cycles: Mapping[str, float] = CYCLES,
) -> set[int]:
    """Results of elementwise ops that are written, besides those that lie in memory anyway.

    Joined arrays and sums of many parts are written for a sum, whose kernel does not make them.

    Args:
      stored: Results that lie in memory.
      avals: Shapes of all results.
      is_kernel: Whether an op is a kernel of its own, such as a product or a sum.
      cycles: Of an operation on an element, by primitive.
    """
    costs = _Costs(ops, stored, avals, cycles)
    is_own = [is_kernel(op) for op in ops]
    found: set[int] = set()
    for _ in range(ROUNDS):
        uses, found = _uses(ops, {*stored, *found}, is_own, costs.size), set()
        for op in itertools.compress(ops, map(operator.not_, is_own)):
            for name in op.outputs:
                kernels = uses.get(name, {})
                is_apart = op.primitive == "concatenate" or (
                    op.primitive == PARTS and avals[op.inputs[0]].shape[0] > MOST_PARTS
                )
                is_read_so = is_apart and any(is_own[place] for place in kernels)
                if name not in stored and (is_read_so or costs.is_slow(name, kernels, found)):
                    found.add(name)
    return found


def _uses(
    ops: Sequence[Any], stored: Collection[int], is_own: Sequence[bool], size: Sequence[float]
) -> dict[int, dict[int, float]]:
    """How often each kernel, by its place, reads each array.

    A sum of pairs may read an array twice, and a kernel that reads a slice of it does so in part.
    """
    uses = collections.defaultdict[int, dict[int, float]](dict)
    for place in reversed(range(len(ops))):
        op = ops[place]
        if is_own[place]:
            for name in op.inputs:
                uses[name][place] = uses[name].get(place, 0) + 1
            continue
        for name in op.outputs:
            kernels = {place: 1.0} if name in stored else uses[name]
            for other in {*op.inputs}:
                share = min(1.0, size[name] / size[other])
                for key, count in itertools.islice(kernels.items(), MOST_KERNELS):
                    most = len(ops[key].inputs) if is_own[key] else 1
                    uses[other][key] = min(most, uses[other].get(key, 0) + count * share)
    return uses


class _Costs:
    def __init__(
        self,
        ops: Sequence[Any],
        stored: Collection[int],
        avals: Sequence[Any],
        cycles: Mapping[str, float],
    ):
        self._stored, self._cycles = stored, cycles
        self.size = [float(getattr(aval, "size", 1) or 1) for aval in avals]
        # A key of random numbers has no size of an item.
        self._width = [getattr(getattr(aval, "dtype", None), "itemsize", 8) for aval in avals]
        self._maker = {name: op for op in ops for name in op.outputs}

    def is_slow(self, name: int, kernels: Mapping[int, float], written: Collection[int]) -> bool:
        """Whether kernels take longer to make an array than to read it, once it is made."""
        num_bytes = self.size[name] * self._width[name]
        if sum(kernels.values()) <= 1:
            return False
        operations, read = self._needed(name, written)
        apart, within = LAUNCH_SECONDS + _seconds(operations, read + num_bytes), 0.0
        for count in kernels.values():
            reads = min(count, 1) + max(count - 1, 0) / CACHE_SPEEDUP
            apart += _seconds(0, num_bytes * reads)
            within += _seconds(operations * count, read * reads)
        return apart < within

    def _needed(self, name: int, written: Collection[int]) -> tuple[float, float]:
        """Operations that make an array of what lies in memory, and bytes that they read."""
        operations = 0.0
        read: dict[tuple[int, int], float] = {}
        seen = set[tuple[int, int]]()
        todo = [(name, name, self.size[name])]
        while todo:
            at, part, size = todo.pop()  # an array, the slice of it and its elements
            if (at, part) in seen:
                continue
            seen.add((at, part))
            op = self._maker.get(at)
            is_written = at in self._stored or (at in written and at != name)
            # Factors of channels and the like are made once, and lie in a cache.
            if op is None or is_written or 8 * self.size[at] < self.size[name]:
                read[at, part] = size * self._width[at]
                continue
            if op.primitive not in MOVES:
                operations += size * self._cycles.get(op.primitive, OTHER_CYCLES)
            if op.primitive == PARTS:
                whole = self.size[op.inputs[0]] / self.size[at] * size
                operations += whole * self._cycles["add"]
                todo.append((op.inputs[0], part, whole))
                continue
            for other in op.inputs:
                is_slice = self.size[other] > self.size[at]
                todo.append((other, at if is_slice else part, min(size, self.size[other])))
        return operations, sum(read.values())


def _seconds(operations: float, num_bytes: float) -> float:
    computing, moving = operations / OPERATIONS_PER_SECOND, num_bytes / BYTES_PER_SECOND
    return computing + moving - OVERLAP * min(computing, moving)
