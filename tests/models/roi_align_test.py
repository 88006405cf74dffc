"""RoIAlign against a loop over points in NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dawnjax.models.roi_align import levels_of, roi_align

STRIDES = (4, 8)


def interpolated(part, y, x):
    """Value of a map between four positions, by the published rules at its border."""
    height, width = part.shape[:2]
    if y < -1 or y > height or x < -1 or x > width:
        return np.zeros(part.shape[-1])
    y, x = max(y, 0.0), max(x, 0.0)
    top, left = int(y), int(x)
    if top >= height - 1:
        top, y = height - 1, float(height - 1)
    if left >= width - 1:
        left, x = width - 1, float(width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, across = y - top, x - left
    above = (1 - across) * part[top, left] + across * part[top, right]
    below = (1 - across) * part[bottom, left] + across * part[bottom, right]
    return (1 - down) * above + down * below


def by_loops(part, box, stride, cells):
    left, top, right, bottom = np.asarray(box, np.float64) / stride
    height, width = max(bottom - top, 1.0) / cells, max(right - left, 1.0) / cells
    result = np.zeros((cells, cells, part.shape[-1]))
    for row, column, down, across in np.ndindex(cells, cells, 2, 2):
        y = top + height * (row + (down + 0.5) / 2)
        x = left + width * (column + (across + 0.5) / 2)
        result[row, column] += interpolated(part, y, x) / 4
    return result


def made(seed, count=24):
    random = np.random.default_rng(seed)
    maps = [random.normal(size=(2, 8, 12, 3)), random.normal(size=(2, 4, 6, 3))]
    centres = random.uniform(-4, 52, (2, count, 2))
    sides = random.uniform(0, 40, (2, count, 2))
    corners = np.concatenate([centres - sides / 2, centres + sides / 2], axis=-1)
    corners[0, 0] = (0, 0, 48, 32)  # the whole image
    corners[0, 1] = 7.0  # a box without area
    corners[0, 2] = (44, 28, 70, 60)  # mostly outside
    levels = random.integers(0, 2, (2, count)).astype(np.int32)
    return [part.astype(np.float32) for part in maps], corners.astype(np.float32), levels


def test_features_are_those_of_a_loop_over_points():
    maps, corners, levels = made(0)
    align = jax.jit(lambda *given: roi_align(*given, strides=STRIDES, cells=3))
    features = np.asarray(align(maps, corners, levels))
    for image, box in np.ndindex(2, corners.shape[1]):
        level = levels[image, box]
        wanted = by_loops(maps[level][image], corners[image, box], STRIDES[level], 3)
        np.testing.assert_allclose(features[image, box], wanted, atol=2e-5)


def test_the_level_of_a_box_by_hand():
    sides = jnp.array([1.0, 55, 56, 112, 223, 224, 448, 2000])
    corners = jnp.stack([sides * 0, sides * 0, sides, sides], axis=-1)
    # 224 is read from the third level, half of it from the one before.
    assert levels_of(corners, 4, 224, 2).tolist() == [0, 0, 0, 1, 1, 2, 3, 3]
    tall = jnp.array([[0.0, 0, 112, 448], [5, 5, 5, 9]])
    assert levels_of(tall, 4, 224, 2).tolist() == [2, 0]
    assert math.isclose(math.sqrt(112 * 448), 224)
