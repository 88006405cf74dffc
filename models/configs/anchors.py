"""Anchors: boxes of a few shapes around each position of a pyramid's maps.

Source: Ren et al. 2015, "Faster R-CNN" (arXiv 1506.01497), section 3.1.1; maskrcnn-benchmark,
`modeling/rpn/anchor_generator.py`, for the rounding of sides.
"""

import math

import numpy as np

RATIOS = (0.5, 1.0, 2.0)
"""Of height to width."""


def sides_of(stride: int, side: int) -> list[tuple[float, float]]:
    """Width and height of the anchors of one level, in pixels.

    A cell of stride x stride pixels is given each ratio, with sides of whole pixels, and then
    enlarged to `side`.
    """
    shapes = []
    for ratio in RATIOS:
        width = round(math.sqrt(stride**2 / ratio))
        shapes.append((width * side / stride, round(width * ratio) * side / stride))
    return shapes


def anchors_of_level(positions: tuple[int, int], stride: int, side: int) -> np.ndarray:
    """Corners in pixels, float32 [rows * columns * ratios, 4], by row, column and ratio.

    Corners are continuous: where the reference counts the last pixel in, an anchor has the same
    centre and sides.
    """
    y, x = np.meshgrid(*((np.arange(count) + 0.5) * stride for count in positions), indexing="ij")
    half = np.array(sides_of(stride, side)) / 2
    centres = np.stack([x, y], axis=-1)[:, :, None]
    corners = np.concatenate([centres - half, centres + half], axis=-1)
    return corners.reshape(-1, 4).astype(np.float32)


def strides_of(first: int, num_levels: int) -> tuple[int, ...]:
    """Pixels between positions of each level, which double from level to level."""
    return tuple(first * 2**level for level in range(num_levels))


def positions_of(size: tuple[int, int], strides: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Rows and columns of each level's map."""
    height, width = size
    return tuple((math.ceil(height / stride), math.ceil(width / stride)) for stride in strides)
