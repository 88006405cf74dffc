"""Boxes, proposals and RoIAlign: by hand, and by loops in NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import overlap_of

from dawnjax.models import boxes
from dawnjax.models.configs.anchors import anchors_of_level
from dawnjax.models.proposals import proposals
from dawnjax.models.roi_align import levels_of, roi_align


def test_overlaps_by_hand():
    first = jnp.array([[0.0, 0, 2, 2], [5, 5, 5, 5]])
    second = jnp.array([[1.0, 1, 3, 3], [0, 0, 2, 2], [5, 5, 5, 5], [2, 0, 4, 2]])
    # A square of 1 is shared of 4 + 4 - 1; a box without area overlaps nothing, itself included.
    wanted = [[1 / 7, 1, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(boxes.overlaps(first, second), wanted, atol=1e-7)


def test_codes_of_huge_and_empty_boxes_are_finite():
    references = jnp.array([[5.0, 5, 2, 4]])
    huge = boxes.decode(jnp.array([[0.0, 0, 1e9, 1e9]]), references, (1, 1, 1, 1))
    np.testing.assert_allclose(huge[0, 2] - huge[0, 0], 2 * 1000 / 16, rtol=1e-5)
    assert np.isfinite(boxes.encode(jnp.zeros((1, 4)), references, (1, 1, 1, 1))).all()


LEVELS = [anchors_of_level((8, 8), 8, 16), anchors_of_level((4, 4), 16, 32)]


def decoded(code, anchor, height, width):
    w, h = anchor[2] - anchor[0], anchor[3] - anchor[1]
    x, y = anchor[0] + w / 2 + code[0] * w, anchor[1] + h / 2 + code[1] * h
    w, h = w * np.exp(min(code[2], np.log(62.5))), h * np.exp(min(code[3], np.log(62.5)))
    corners = np.array([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
    return np.clip(corners, 0, [width, height, width, height])


def by_loops(scores, codes, extent, before, most, threshold):
    """Anchor and box of each proposal, in order."""
    found, first = [], 0
    for of_level, level_codes, anchors in zip(scores, codes, LEVELS, strict=True):
        kept: list[tuple[float, int, np.ndarray]] = []
        for place in np.argsort(-of_level, kind="stable")[:before]:
            box = decoded(level_codes[place], anchors[place].astype(np.float64), *extent)
            if (box[2:] <= box[:2]).any():
                continue
            if all(overlap_of(box, other) <= threshold for _, _, other in kept):
                kept.append((of_level[place], first + int(place), box))
        found += kept
        first += len(anchors)
    return sorted(found, key=lambda row: -row[0])[:most]


@pytest.mark.parametrize("threshold", [0.3, 0.7])
def test_proposals_are_the_greedy_choice_of_each_level(threshold):
    random = np.random.default_rng(int(100 * threshold))
    scores = [random.normal(size=len(level)).astype(np.float32) for level in LEVELS]
    codes = [random.normal(size=(len(level), 4)).astype(np.float32) / 2 for level in LEVELS]
    extent = np.array([40.0, 56.0], np.float32)
    found = jax.jit(
        lambda s, c, e: proposals(s, c, LEVELS, e, before=60, most=50, overlap=threshold)
    )(scores, codes, extent)
    wanted = by_loops(scores, codes, extent, 60, 50, threshold)
    count = len(wanted)
    assert found.is_real.tolist() == [True] * count + [False] * (50 - count)
    assert found.anchors[:count].tolist() == [row[1] for row in wanted]
    np.testing.assert_allclose(found.corners[:count], [row[2] for row in wanted], atol=1e-3)
    assert (np.asarray(found.corners)[:, 2] <= 56).all()
    assert (np.asarray(found.corners)[:, 3] <= 40).all()


@pytest.mark.compiles
def test_no_number_is_no_proposal_and_few_boxes_leave_padding():
    scores = [jnp.full(len(level), jnp.nan) for level in LEVELS]
    scores[1] = scores[1].at[5].set(1.0)
    codes = [jnp.zeros((len(level), 4)) for level in LEVELS]
    extent = jnp.array([64.0, 64.0])
    found = jax.jit(lambda s, c, e: proposals(s, c, LEVELS, e, before=1000, most=300, overlap=0.7))(
        scores, codes, extent
    )
    assert found.is_real.tolist() == [True] + [False] * 299
    assert int(found.anchors[0]) == len(LEVELS[0]) + 5
    assert not np.asarray(found.corners)[1:].any() or not found.is_real[1:].any()


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


def aligned_by_loops(part, box, stride, cells):
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
        wanted = aligned_by_loops(maps[level][image], corners[image, box], STRIDES[level], 3)
        np.testing.assert_allclose(features[image, box], wanted, atol=2e-5)


def test_the_level_of_a_box_by_hand():
    sides = jnp.array([1.0, 55, 56, 112, 223, 224, 448, 2000])
    corners = jnp.stack([sides * 0, sides * 0, sides, sides], axis=-1)
    # 224 is read from the third level, half of it from the one before.
    assert levels_of(corners, 4, 224, 2).tolist() == [0, 0, 0, 1, 1, 2, 3, 3]
    tall = jnp.array([[0.0, 0, 112, 448], [5, 5, 5, 9]])
    assert levels_of(tall, 4, 224, 2).tolist() == [2, 0]
    assert math.isclose(math.sqrt(112 * 448), 224)
