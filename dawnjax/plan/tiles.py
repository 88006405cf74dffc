"""Bytes of an array on a TPU, which stores it in tiles of 8 x 128 elements.

Source: "Tiled layout" of XLA's documentation, and the layouts of compiled programs for a v5e.
"""

import itertools
import math
from typing import Any

ROWS, LANES = 8, 128


def tiled_bytes_of(shape: tuple[int, ...], dtype: Any) -> float:
    """Bytes of an array whose axes lie as they need least padding.

    XLA puts two axes into tiles, most often the batch and the channels. Of an axis below 8 it takes
    tiles with as many rows as the next power of two.
    """
    width = float(getattr(dtype, "itemsize", 8))
    if len(shape) < 2:
        return width * padded(math.prod(shape), LANES)
    size = math.prod(shape)
    if not size:
        return 0.0
    pairs = itertools.permutations(shape, 2)
    return width * min(
        size // (rows * lanes) * padded(rows, tile_height(rows)) * padded(lanes, LANES)
        for rows, lanes in pairs
    )


def tile_height(rows: int) -> int:
    """Rows of a tile for an axis of so many."""
    return min(ROWS, 1 << (rows - 1).bit_length())


def padded(size: int, multiple: int) -> int:
    """Size rounded up to a multiple."""
    return -(-size // multiple) * multiple
