"""Sizes of arrays on a TPU, beside those in XLA's buffer assignments for a v5e."""

import jax.numpy as jnp
import pytest

from dawnjax.plan.tiles import tiled_bytes_of


@pytest.mark.parametrize(
    ("shape", "dtype", "num_bytes"),
    [
        ((8, 8, 8, 32), "float32", 262144),
        ((8, 4, 4, 64), "float32", 65536),
        ((8, 4, 4, 64), "bool", 16384),
        ((1, 8, 8, 8, 1), "uint8", 8192),
        ((128, 56, 56, 64), "bfloat16", 51380224),
        ((128, 224, 3, 224), "bfloat16", 38535168),
        ((7, 7, 3, 64), "float32", 86016),
        ((3, 3, 64, 64), "float32", 294912),
        ((3, 3, 1, 32), "float32", 4608),
        ((64, 10), "float32", 8192),
        ((128, 6), "float32", 4096),
        ((4, 32), "int32", 2048),
        ((8, 2), "int32", 1024),
        ((1000,), "float32", 4096),
        ((10,), "float32", 512),
        ((), "float32", 512),
        ((0, 8), "float32", 0),
    ],
)
def test_an_array_takes_the_bytes_that_xla_gives_it(shape, dtype, num_bytes):
    assert tiled_bytes_of(shape, jnp.dtype(dtype)) == num_bytes
