"""Tests of dropout's masks: where their numbers come from, and that they are random enough."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from dawnjax.models.dropout import Dropout, threefry

pytestmark = pytest.mark.compiles

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_generator_gives_the_published_words(key, counter, words):
    """The known answers of Random123, the program of the generator's authors."""
    made = threefry(jnp.asarray(key, jnp.uint32), *jnp.asarray(counter, jnp.uint32))
    assert tuple(int(word) for word in made) == words


def test_it_keeps_the_mean_and_follows_its_key():
    values = jnp.ones((64, 512))
    dropped = Dropout(KEY)(values, 0.1)
    kept = dropped != 0
    # 32,768 draws: a standard deviation of 0.0017.
    assert float(kept.mean()) == pytest.approx(0.9, abs=0.008)
    np.testing.assert_allclose(dropped[kept], 1 / 0.9, rtol=1e-4)
    np.testing.assert_array_equal(dropped, Dropout(KEY)(values, 0.1))
    dropout = Dropout(KEY)
    first, second = dropout(values, 0.5), dropout(values, 0.5)
    # Masks of two calls are independent: they agree in half of the places.
    assert float((first == second).mean()) == pytest.approx(0.5, abs=0.015)
    assert Dropout(None)(values, 0.5) is values


def test_neighbours_and_the_parts_of_a_block_are_independent():
    kept = np.asarray(Dropout(KEY)(jnp.ones((96, 128, 64)), 0.5)) != 0
    # 786,432 draws, and half as many pairs or more: five standard deviations are 0.004.
    for axis, distance in ((0, 1), (1, 1), (2, 1), (1, 2), (0, 7)):
        rolled = np.roll(kept, distance, axis)
        assert (kept == rolled).mean() == pytest.approx(0.5, abs=0.004)
    parts = np.split(kept, 4, axis=-1)  # of one block each
    for part in parts:
        assert part.mean() == pytest.approx(0.5, abs=0.006)
    for first, second in itertools.combinations(parts, 2):
        assert (first == second).mean() == pytest.approx(0.5, abs=0.006)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 6), (4, 1)])
def test_any_shape(shape):
    dropped = Dropout(KEY)(jnp.ones((50, *shape)), 0.5)
    assert dropped.shape == (50, *shape)
    assert 0 < float((dropped != 0).mean()) < 1
    assert len(np.unique(dropped.reshape(50, -1), axis=0)) > 1  # rows differ


def test_devices_make_their_own_parts_of_the_same_mask():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    drop = jax.jit(lambda values: Dropout(KEY)(values, 0.3), in_shardings=rows, out_shardings=rows)
    values = jnp.ones((8, 16, 64))
    compiled = drop.lower(values).compile()
    np.testing.assert_array_equal(compiled(jax.device_put(values, rows)), Dropout(KEY)(values, 0.3))
    text = compiled.as_text() or ""
    assert "all-gather" not in text and "all-reduce" not in text
    assert "u32[8,16,16]" not in text and "u32[2,16,16]" in text  # a quarter of the words
