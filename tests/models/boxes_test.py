"""Boxes: overlap and code by hand, and suppression against the plain greedy loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax.models import boxes
from dawnjax.models.suppression import greedy_choice


def test_overlaps_by_hand():
    first = jnp.array([[0.0, 0, 2, 2], [5, 5, 5, 5]])
    second = jnp.array([[1.0, 1, 3, 3], [0, 0, 2, 2], [5, 5, 5, 5], [2, 0, 4, 2]])
    # A square of 1 is shared of 4 + 4 - 1; a box without area overlaps nothing, itself included.
    wanted = [[1 / 7, 1, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(boxes.overlaps(first, second), wanted, atol=1e-7)


def test_a_code_by_hand_and_back():
    corners = jnp.array([[4.0, 2, 8, 10]])
    references = jnp.array([[5.0, 5, 2, 4]])
    # The centre (6, 6) lies half a width and a quarter of a height away; twice as wide and high.
    wanted = [[10 * 0.5, 10 * 0.25, 5 * np.log(2), 5 * np.log(2)]]
    code = boxes.encode(corners, references, (10, 10, 5, 5))
    np.testing.assert_allclose(code, wanted, rtol=1e-6)
    np.testing.assert_allclose(boxes.decode(code, references, (10, 10, 5, 5)), corners, rtol=1e-6)
    huge = boxes.decode(jnp.array([[0.0, 0, 1e9, 1e9]]), references, (1, 1, 1, 1))
    np.testing.assert_allclose(huge[0, 2] - huge[0, 0], 2 * 1000 / 16, rtol=1e-5)
    assert np.isfinite(boxes.encode(jnp.zeros((1, 4)), references, (1, 1, 1, 1))).all()


def test_clipped_boxes():
    clipped = boxes.clip(jnp.array([[-1.0, 2, 9, 20], [3, 4, 5, 6]]), 8, 10)
    np.testing.assert_array_equal(clipped, [[0, 2, 8, 10], [3, 4, 5, 6]])


def greedy(overlap, threshold, is_candidate):
    kept: list[int] = []
    for place in np.flatnonzero(is_candidate):
        if all(overlap[place, other] <= threshold for other in kept):
            kept.append(int(place))
    return kept


@pytest.mark.parametrize("threshold", [0.3, 0.45, 0.5, 0.7])
def test_suppression_is_greedy_at_every_threshold(threshold):
    random = np.random.default_rng(int(100 * threshold))
    centre = random.uniform(0, 3, (20, 60, 2))
    sides = random.uniform(0.5, 3, (20, 60, 2))
    corners = np.concatenate([centre - sides / 2, centre + sides / 2], axis=-1)
    corners[:, 7] = 0  # a box without area, and one at all zeros, are boxes too
    is_candidate = random.uniform(size=(20, 60)) < 0.9
    is_candidate[:, 7] = True
    overlap = np.asarray(jax.jit(boxes.overlaps)(corners, corners))
    choice = np.asarray(jax.jit(greedy_choice)(overlap > threshold, is_candidate))
    chains = 0
    for image in range(20):
        wanted = greedy(overlap[image], threshold, is_candidate[image])
        assert np.flatnonzero(choice[image]).tolist() == wanted
        rivals = (overlap[image] > threshold) & is_candidate[image] & is_candidate[image][:, None]
        chains += int(is_candidate[image].sum() - len(wanted) < (np.tril(rivals, -1).any(1)).sum())
    assert chains  # some candidate had a rival before it that went itself, and stayed
