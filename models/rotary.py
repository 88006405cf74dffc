"""Rotary positions, with the stretched wavelengths that long contexts are trained with."""

import jax
import jax.numpy as jnp
import numpy as np


def rotated(
    heads: jax.Array,
    rates: jax.Array | np.ndarray,
    scale: float = 1.0,
    places: jax.Array | None = None,
) -> jax.Array:
    """Rotate pairs (i, i + half) of a head's channels, [batch, length, heads, channels].

    `places`, int [batch, length], are the tokens' positions; None counts from 0.
    """
    half = heads.shape[-1] // 2
    places = jnp.arange(heads.shape[1]) if places is None else places
    angles = (places[..., None] * rates)[..., None, :]
    first, second = heads[..., :half], heads[..., half:]
    cos, sin = jnp.cos(angles) * scale, jnp.sin(angles) * scale
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
