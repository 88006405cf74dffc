"""Tables of a TPU's kernels with several results, which share no memory.

Such a kernel updates a parameter, runs a loop or a part of it, writes stacks of one shape, makes
two sums, or makes one beside a convolution's result, the numbers of a channel, what devices
exchange, or two words of a key. A barrier has one too.

Source: programs compiled for a v5p, which have about as many.
"""

import collections
from collections.abc import Sequence
from typing import Any

from dawnjax.plan.heap import TPU_ALIGNED
from dawnjax.plan.ops import CONVOLUTION, SUMMED, Op

LOOP_TABLES = 4
"""Of a loop: 2 to 4 in five programs with 10 to 20, that write few stacks of one shape."""

RANDOM_TABLES = {"random_fold_in": 5, "random_split": 3, "random_bits": 1}
"""Of random numbers of examples, each of which has a key: 6 to 23 in ten programs for a v5p, where
XLA has 7 to 20."""


def bytes_of_tables(ops: Sequence[Op], avals: Sequence[Any], num_updates: int = 0) -> float:
    """Bytes of the tables of a program, or of a loop's body, without those of loops in it.

    Args:
      avals: Shapes of all results.
      num_updates: Parameters that are updated, whether devices sum their gradients or not.
    """
    count = collections.Counter(op.primitive for op in ops)
    sums = count["reduce_sum"] if count[CONVOLUTION] else count["reduce_sum"] // 2
    loops = LOOP_TABLES * count["scan"] + sum(_stacked_shapes(op, avals) for op in ops)
    barriers = {avals[op.outputs[0]].shape for op in ops if op.primitive == "optimization_barrier"}
    updates = max(count[SUMMED], num_updates)
    return float(TPU_ALIGNED * (updates + sums + loops + len(barriers) + _random(ops, avals)))


def _stacked_shapes(op: Op, avals: Sequence[Any]) -> int:
    """Shapes of which a loop writes several stacks."""
    stacks = op.outputs[op.num_carried :] if op.primitive == "scan" else ()
    shapes = collections.Counter(avals[name].shape for name in stacks)
    return sum(count > 1 for count in shapes.values())


def _random(ops: Sequence[Op], avals: Sequence[Any]) -> int:
    """Tables of random numbers of several examples, if anything reads them."""
    read = {name for op in ops for name in op.inputs}
    used = (op for op in ops if op.primitive in RANDOM_TABLES and read.intersection(op.outputs))
    return sum(RANDOM_TABLES[op.primitive] for op in used if avals[op.outputs[0]].shape[:1] > (1,))
