"""Layer normalization in float32.

Source: Ba et al. 2016, "Layer Normalization" (arXiv 1607.06450), section 3.
"""

import jax
import jax.numpy as jnp
from flax import nnx

NORM_EPSILON = 1e-6
"""Added to the variance; as in the MLPerf v0.5 reference implementation of the Transformer."""


class LayerNorm(nnx.LayerNorm):
    """Normalize [..., channels] over channels, in the inputs' dtype."""

    def __init__(self, width: int):
        super().__init__(
            width,
            epsilon=NORM_EPSILON,
            dtype=jnp.float32,  # Flax would round scale and bias too
            use_fast_variance=False,  # E[x^2] - E[x]^2 cancels
            rngs=nnx.Rngs(0),  # nothing is drawn
        )

    def __call__(self, x: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return super().__call__(x, mask=mask).astype(x.dtype)
