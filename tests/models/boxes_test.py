"""Boxes: overlap and code by hand, and suppression against the plain greedy loop."""

import jax.numpy as jnp
import numpy as np

from dawnjax.models import boxes


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
