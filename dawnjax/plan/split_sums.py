"""Parts into which XLA splits the sums of a product for a GPU, each with a result of its own.

Source: XLA, `xla/backends/gpu/transforms/splitk_rewriter.cc`, with its weights for Hopper GPUs.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

PARTS = "sum of parts"
"""An op of our own: the sum of a product's parts, which lie along the first axis."""

CORES = 132
"""Of an H100 and an H200."""

TILE = 128
COMPUTING, MOVING, SUMMING, LAUNCH = 100.0, 0.194136, 193.1384, 4.36e7
"""Cost of a multiply or add, of a byte of a product, of a byte of the parts' sum, and of that sum.
"""

MOST = 2048


def with_parts(
    ops: Sequence[Any],
    groups: Iterable[Sequence[int]],
    parts_of: Callable[[int, int], int],
    new: Callable[[str], Any],
) -> list[Any]:
    """Ops with a sum of parts after each product that is split.

    Args:
      groups: Places of products that are one, which is split as such.
      parts_of: Makes a name for the parts of an array, float32, by their number.
      new: Makes an op without inputs and outputs.
    """
    wider: dict[int, tuple[float, float]] = {}
    for group in groups:
        shares_left = len({ops[place].inputs[0] for place in group}) == 1
        sizes = [ops[place].equation.outvars[0].aval.size for place in group]
        for place, size in zip(group, sizes, strict=True):
            more = sum(sizes) / size
            wider[place] = (1.0, more) if shares_left else (more, 1.0)
    found = []
    for place, op in enumerate(ops):
        found.append(op)
        parts = num_parts(op.equation, *wider.get(place, ())) if op.equation is not None else 1
        if parts > 1:
            summed = new(PARTS)
            summed.outputs, op.outputs = op.outputs, [parts_of(op.outputs[0], parts)]
            summed.inputs = op.outputs
            found.append(summed)
    return found


def num_parts(equation: Any, more_rows: float = 1.0, more_columns: float = 1.0) -> int:
    """Parts of the sum of a `dot_general` equation; 1 where it is not split.

    Args:
      more_rows: Rows of the product of which it is a part, in its own.
      more_columns: Columns of that product.
    """
    (summed, _), (batch, _) = equation.params["dimension_numbers"]
    left, right = (variable.aval for variable in equation.invars)
    if len(summed) != 1 or not left.size or not right.size:
        return 1
    length = left.shape[summed[0]]
    batches = math.prod(left.shape[axis] for axis in batch)
    rows = round(left.size * more_rows / (length * batches))
    columns = round(right.size * more_columns / (length * batches))
    tile = min(rows, TILE) * min(columns, TILE)
    tiles = batches * -(-rows // TILE) * -(-columns // TILE)
    slots = CORES * TILE**2 / tile
    read = left.size * more_rows * left.dtype.itemsize
    read += right.size * more_columns * right.dtype.itemsize
    elements, width = batches * rows * columns, equation.outvars[0].aval.dtype.itemsize

    def cost(parts: int) -> float:
        computed = 2 * tile * -(-length // parts) * max(1.0, parts * tiles / slots)
        written = elements * (4 * parts if parts > 1 else width)
        found = max(computed * COMPUTING, (read + written) * MOVING)
        if parts > 1:
            found += LAUNCH + elements * (4 * parts + width) * SUMMING
        return found

    return min((2**power for power in range(MOST.bit_length())), key=cost)
