"""RoIAlign: features of a fixed size for boxes of any size.

Source: He et al. 2017, "Mask R-CNN" (arXiv 1703.06870), section 3, "RoIAlign"; Lin et al. 2016,
"Feature Pyramid Networks" (arXiv 1612.03144), equation 1, for a box's level; maskrcnn-benchmark,
`csrc/cpu/ROIAlign_cpu.cpp`, for samples and borders, without a shift by half a cell.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dawnjax.models import boxes as box_geometry

SAMPLES = 2
"""Along each side of a result's cell."""


def levels_of(
    corners: jax.Array, num_levels: int, canonical_side: float, canonical_level: int
) -> jax.Array:
    """Level of the pyramid from which each box of [..., 4] is read: int32 [...], from 0.

    A box of `canonical_side` squared is read from `canonical_level`, and one of half the side from
    the level before.
    """
    side = jnp.sqrt(box_geometry.areas(corners))
    levels = canonical_level + jnp.floor(jnp.log2(side / canonical_side + 1e-6))
    return jnp.clip(levels, 0, num_levels - 1).astype(jnp.int32)


def roi_align(
    maps: list[jax.Array],
    corners: jax.Array,
    levels: jax.Array,
    *,
    strides: tuple[int, ...],
    cells: int,
) -> jax.Array:
    """Features of boxes: [batch, boxes, cells, cells, channels], in the dtype of the maps.

    A cell is the mean of `SAMPLES` squared points, each interpolated between four positions of the
    map. Points more than one position outside of the map are 0. A box has sides of one position or
    more.

    Args:
      maps: Of each level, [batch, height, width, channels].
      corners: In pixels of the image, float32 [batch, boxes, 4].
      levels: int32 [batch, boxes].
      strides: Pixels from one position to the next, of each level.
      cells: Along each side of the result.
    """
    read = functools.partial(_of_image, strides=strides, cells=cells)
    return jax.vmap(read)(maps, corners, levels)


def _points(starts: jax.Array, ends: jax.Array, cells: int) -> jax.Array:
    """Positions of the samples along one side: [boxes, cells * SAMPLES]."""
    lengths = jnp.maximum(ends - starts, 1.0)
    shares = (np.arange(cells * SAMPLES) + 0.5) / (cells * SAMPLES)
    return starts[:, None] + lengths[:, None] * shares.astype(np.float32)


def _neighbours(points: jax.Array, size: jax.Array | int) -> tuple[jax.Array, jax.Array]:
    """Two positions around each point, int32 [..., 2], and their weights."""
    is_inside = (points >= -1) & (points <= size)
    points = jnp.clip(points, 0, size - 1)
    lower = jnp.floor(points)
    share = points - lower
    places = jnp.stack([lower, jnp.minimum(lower + 1, size - 1)], axis=-1).astype(jnp.int32)
    weights = jnp.stack([1 - share, share], axis=-1)
    return places, jnp.where(is_inside[..., None], weights, 0.0)


def _of_image(maps, corners, levels, strides, cells):
    heights, widths = (np.array([part.shape[axis] for part in maps]) for axis in (0, 1))
    starts = np.cumsum(heights * widths) - heights * widths
    channels = maps[0].shape[-1]
    flat = jnp.concatenate([part.reshape(-1, channels) for part in maps])
    height, width, start = (
        jnp.asarray(values, jnp.int32)[levels][:, None] for values in (heights, widths, starts)
    )
    left, top, right, bottom = (corners / jnp.asarray(strides, jnp.float32)[levels][:, None]).T
    rows, of_rows = _neighbours(_points(top, bottom, cells), height)
    columns, of_columns = _neighbours(_points(left, right, cells), width)
    rows = start[..., None] + rows * width[..., None]
    total = jnp.zeros((), jnp.float32)
    for upper in range(2):
        for lefter in range(2):
            places = rows[:, :, None, upper] + columns[:, None, :, lefter]
            weights = of_rows[:, :, None, upper] * of_columns[:, None, :, lefter]
            total += flat[places].astype(jnp.float32) * weights[..., None]
    in_cells = total.reshape(len(corners), cells, SAMPLES, cells, SAMPLES, channels)
    return in_cells.mean((2, 4)).astype(flat.dtype)
