"""Parts into which XLA splits the sums of a product for a GPU, each with a result of its own.

Source: XLA, `xla/backends/gpu/transforms/splitk_rewriter.cc`, with its weights for Hopper GPUs.
"""

import math
from typing import Any

CORES = 132
"""Of an H100 and an H200."""

TILE = 128
COMPUTING, MOVING, SUMMING, LAUNCH = 100.0, 0.194136, 193.1384, 4.36e7
"""Cost of a multiply or add, of a byte of a product, of a byte of the parts' sum, and of that sum.
"""

MOST = 2048


def num_parts(equation: Any) -> int:
    """Parts of the sum of a `dot_general` equation; 1 where it is not split."""
    (summed, _), (batch, _) = equation.params["dimension_numbers"]
    left, right = (variable.aval for variable in equation.invars)
    if len(summed) != 1 or not left.size or not right.size:
        return 1
    length = left.shape[summed[0]]
    batches = math.prod(left.shape[axis] for axis in batch)
    rows, columns = left.size // (length * batches), right.size // (length * batches)
    tile = min(rows, TILE) * min(columns, TILE)
    tiles = batches * -(-rows // TILE) * -(-columns // TILE)
    slots = CORES * TILE**2 / tile
    read = sum(side.size * side.dtype.itemsize for side in (left, right))
    elements, width = batches * rows * columns, equation.outvars[0].aval.dtype.itemsize

    def cost(parts: int) -> float:
        computed = 2 * tile * -(-length // parts) * max(1.0, parts * tiles / slots)
        written = elements * (4 * parts if parts > 1 else width)
        found = max(computed * COMPUTING, (read + written) * MOVING)
        if parts > 1:
            found += LAUNCH + elements * (4 * parts + width) * SUMMING
        return found

    return min((2**power for power in range(MOST.bit_length())), key=cost)
