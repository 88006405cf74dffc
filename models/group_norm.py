"""Group normalization: each example by itself, so that it is the same in any batch.

Source: Wu and He 2018, "Group Normalization" (arXiv 1803.08494), section 3.1.
"""

import jax
import jax.numpy as jnp
from flax import nnx

EPSILON = 1e-5
"""Added to the variance; the default of PyTorch's `GroupNorm`."""


class GroupNorm(nnx.Module):
    """Normalize images [batch, height, width, channels] over positions and groups of channels."""

    def __init__(self, num_channels: int, num_groups: int):
        if num_channels % num_groups:
            raise ValueError(f"{num_channels} channels are no whole groups of {num_groups}")
        self.scale = nnx.Param(jnp.ones(num_channels, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(num_channels, jnp.float32))
        self.num_groups = num_groups

    def __call__(self, images: jax.Array) -> jax.Array:
        shape = images.shape
        grouped = images.astype(jnp.float32).reshape(
            shape[0], -1, self.num_groups, shape[-1] // self.num_groups
        )
        mean = grouped.mean((1, 3), keepdims=True)
        variance = jnp.square(grouped - mean).mean((1, 3), keepdims=True)
        normed = ((grouped - mean) * jax.lax.rsqrt(variance + EPSILON)).reshape(shape)
        return (normed * self.scale[...] + self.bias[...]).astype(images.dtype)
