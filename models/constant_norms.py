"""Normalizations that do not look at the batch, in the place of a ResNet's BatchNorm."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.activations import Activation, activate
from dawnjax.models.group_norm import GroupNorm
from dawnjax.models.layers import Layers


class FrozenBatchNorm(nnx.Module):
    """BatchNorm of which all is constant: an affine map of each channel.

    Its four arrays have the names of `BatchNorm`'s, and none is a parameter. A run that begins with
    a classifier's parameters takes them from it.
    """

    def __init__(self, num_channels: int, epsilon: float):
        self.scale, self.var = (nnx.BatchStat(jnp.ones(num_channels)) for _ in range(2))
        self.bias, self.mean = (nnx.BatchStat(jnp.zeros(num_channels)) for _ in range(2))
        self.epsilon = epsilon

    def __call__(
        self, inputs: jax.Array, *, train: bool, activation: Activation | None = None
    ) -> jax.Array:
        factor = self.scale[...] * jax.lax.rsqrt(self.var[...] + self.epsilon)
        offset = self.bias[...] - self.mean[...] * factor
        outputs = (inputs.astype(jnp.float32) * factor + offset).astype(inputs.dtype)
        return outputs if activation is None else activate(outputs, activation)


@dataclasses.dataclass(frozen=True)
class LayersWithFrozenBatchNorm(Layers):
    """Layers of a model whose normalization is constant."""

    def norm(self, width: int, scale: float | None = 1.0) -> Any:
        del scale  # 0 would stay, and with it a block without effect
        return FrozenBatchNorm(width, self.config.batch_norm_epsilon)


@dataclasses.dataclass(frozen=True)
class LayersWithGroupNorm(Layers):
    """Layers of a model that normalizes groups of channels."""

    groups: int = 32

    def norm(self, width: int, scale: float | None = 1.0) -> Any:
        return GroupNorm(width, self.groups)
