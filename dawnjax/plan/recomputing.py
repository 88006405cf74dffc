"""Results that a GPU's compiler writes because kernels would take longer to compute them again.

XLA puts an elementwise op into all kernels that read it where that is faster by its model of a GPU.

Source: XLA, `PriorityFusion` with `GpuPerformanceModel`, its profile of operations for `sm_90` and
its description of an H100, which stands for every GPU here.
"""

import collections
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

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

OPERATIONS_PER_SECOND = 132 * 128 * 2 * 1.98e9
"""Of an H100: its cores, the lanes of each, two operations a cycle, and the clock."""

BYTES_PER_SECOND = 3.35e12
CACHE_SPEEDUP = 2.5
OVERLAP = 0.95
"""Of the shorter of computing and moving, the part that the longer hides."""

LAUNCH_SECONDS = 1e-6
SMALL_BYTES = 2**18
"""An array that is made again in less than a launch takes, by far."""

MOST_KERNELS = 16
"""Readers that are followed: enough to be certain."""

ROUNDS = 2
"""The first finds by how many kernels each array is read, the second of what it is made then."""


def written(
    ops: Sequence[Any],
    stored: Collection[int],
    avals: Sequence[Any],
    is_kernel: Callable[[Any], bool],
) -> set[int]:
    """Results of elementwise ops that are written, besides those that lie in memory anyway.

    A kernel that sums reads joined arrays from memory too; another kernel joins them itself.

    Args:
      stored: Results that lie in memory.
      avals: Shapes of all results.
      is_kernel: Whether an op is a kernel of its own, such as a product or a sum.
    """
    costs = _Costs(ops, stored, avals)
    is_own = [is_kernel(op) for op in ops]
    found: set[int] = set()
    for _ in range(ROUNDS):
        before, found = found, set()
        # How often each kernel, by its place, reads an array: a sum of pairs may do so twice, and a
        # kernel that reads a slice does so in part.
        uses = collections.defaultdict[int, dict[int, float]](dict)
        for place in reversed(range(len(ops))):
            op = ops[place]
            if is_own[place]:
                for name in op.inputs:
                    uses[name][place] = uses[name].get(place, 0) + 1
                continue
            for name in op.outputs:
                kernels = uses.pop(name, {})
                joins = op.primitive == "concatenate" and any(is_own[key] for key in kernels)
                if name not in stored and (joins or costs.is_slow(name, kernels, before)):
                    found.add(name)
                if name in stored or name in found:
                    kernels = {place: 1}
                for other in {*op.inputs}:
                    share = min(1.0, costs.size[name] / costs.size[other])
                    for key, count in itertools.islice(kernels.items(), MOST_KERNELS):
                        most = len(ops[key].inputs) if is_own[key] else 1
                        uses[other][key] = min(most, uses[other].get(key, 0) + count * share)
    return found


class _Costs:
    def __init__(self, ops: Sequence[Any], stored: Collection[int], avals: Sequence[Any]):
        self._stored = stored
        self.size = [float(getattr(aval, "size", 1) or 1) for aval in avals]
        # A key of random numbers has no size of an item.
        self._width = [getattr(getattr(aval, "dtype", None), "itemsize", 8) for aval in avals]
        self._maker = {name: op for op in ops for name in op.outputs}

    def is_slow(self, name: int, kernels: Mapping[int, float], written: Collection[int]) -> bool:
        """Whether kernels take longer to make an array than to read it, once it is made."""
        num_bytes = self.size[name] * self._width[name]
        if sum(kernels.values()) <= 1 or num_bytes < SMALL_BYTES:
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
                operations += size * CYCLES.get(op.primitive, OTHER_CYCLES)
            for other in op.inputs:
                is_slice = self.size[other] > self.size[at]
                todo.append((other, at if is_slice else part, min(size, self.size[other])))
        return operations, sum(read.values())


def _seconds(operations: float, num_bytes: float) -> float:
    computing, moving = operations / OPERATIONS_PER_SECOND, num_bytes / BYTES_PER_SECOND
    return computing + moving - OVERLAP * min(computing, moving)
