"""Dropout: the fraction that it keeps, its key, and its masks on several devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from dawnjax.models.dropout import Dropout

pytestmark = pytest.mark.compiles

KEY = jax.random.key(0)


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


def test_devices_make_their_own_parts_of_the_same_mask():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    drop = jax.jit(lambda values: Dropout(KEY)(values, 0.3), in_shardings=rows, out_shardings=rows)
    values = jnp.ones((8, 16, 64))
    compiled = drop.lower(values).compile()
    np.testing.assert_array_equal(compiled(jax.device_put(values, rows)), Dropout(KEY)(values, 0.3))
    text = compiled.as_text() or ""
    assert "all-gather" not in text and "all-reduce" not in text
    assert "u32[8,16,64]" not in text  # each draws its own
