"""Group normalization: each example by itself, so that it is the same in any batch.

Source: Wu and He 2018, "Group Normalization" (arXiv 1803.08494), section 3.1.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.activations import Activation, activate

EPSILON = 1e-5
"""Added to the variance; the default of PyTorch's `GroupNorm`."""


class GroupNorm(nnx.Module):
    """Normalize images [batch, height, width, channels] over positions and groups of channels."""

    def __init__(self, num_channels: int, num_groups: int):
        if num_channels % num_groups:
            raise ValueError(f"{num_channels} channels are not whole groups of {num_groups}")
        self.scale = nnx.Param(jnp.ones(num_channels, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(num_channels, jnp.float32))
        self.num_groups = num_groups

    def __call__(
        self, images: jax.Array, *, train: bool = False, activation: Activation | None = None
    ) -> jax.Array:
        """Normalize, as a `BatchNorm` is called; `train` changes nothing."""
        del train
        shape = images.shape
        positions = images.astype(jnp.float32).reshape(shape[0], -1, shape[-1])
        centred = positions - self._group_means(positions)[:, None]
        scale = jax.lax.rsqrt(self._group_means(jnp.square(centred)) + EPSILON) * self.scale[...]
        normed = centred * scale[:, None] + self.bias[...]
        outputs = normed.reshape(shape).astype(images.dtype)
        return outputs if activation is None else activate(outputs, activation)

    def _group_means(self, positions: jax.Array) -> jax.Array:
        """Mean over the positions and the group of each channel: [batch, channels]."""
        # Over the positions first: with the few channels of a group as the last axis XLA's loops on
        # CPUs take 2 to 8 times as long.
        means = positions.mean(1).reshape(len(positions), self.num_groups, -1).mean(2)
        return jnp.repeat(means, positions.shape[2] // self.num_groups, axis=1)
