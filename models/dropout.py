"""Dropout whose masks depend on a value's place in the whole batch, and on no device."""

import jax
import jax.numpy as jnp
import numpy as np


class Dropout:
    """Draw a mask at each call, from a key that the count of calls is folded into.

    JAX's Threefry draws each value by its place, so masks do not depend on the number of devices.
    """

    def __init__(self, key: jax.Array | None):
        """Take a key of `threefry2x32`; None drops nothing."""
        self._key = key
        self._count = 0

    def __call__(self, values: jax.Array, rate: float) -> jax.Array:
        """Zero a part of the values and scale up the rest."""
        if self._key is None or rate == 0:
            return values
        key = jax.random.fold_in(self._key, self._count)
        self._count += 1
        mask = jax.random.bernoulli(key, 1 - rate, values.shape)
        # Scaled after the choice, so that the gradient ends with the choice. XLA on a GPU would
        # move a last factor into the matrix product that follows, and slow that down.
        kept = jnp.where(mask, values, jnp.zeros((), values.dtype))
        return (kept.astype(jnp.float32) * np.float32(1 / (1 - rate))).astype(values.dtype)
