"""Proposals: the greedy choice of each level in NumPy, padding, and images with padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax.models.configs.anchors import anchors_of_level
from dawnjax.models.proposals import proposals

LEVELS = [anchors_of_level((8, 8), 8, 16), anchors_of_level((4, 4), 16, 32)]


def overlap_of(first, second):
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    shared = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return shared / (sum(areas) - shared)


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


@pytest.mark.parametrize("threshold", [0.3, 0.45, 0.5, 0.7])
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
    found = proposals(scores, codes, LEVELS, extent, before=1000, most=300, overlap=0.7)
    assert found.is_real.tolist() == [True] + [False] * 299
    assert int(found.anchors[0]) == len(LEVELS[0]) + 5
    assert not np.asarray(found.corners)[1:].any() or not found.is_real[1:].any()
