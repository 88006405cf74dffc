"""Batch normalization over fixed groups of consecutive examples of the global batch."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from dawnjax.models.execution import Execution


class BatchNorm(nnx.Module):
    """Normalizes each channel by the mean and variance of a group of examples.

    The group is a constant of the recipe (`Execution.batch_norm_group_size`), not what happens to
    lie on a device: the result does not depend on the number of devices, and a device that holds
    whole groups needs no communication for it.

    In evaluation the running statistics normalize. In training, each call sets them to what each
    group alone would make of them, [groups, channels]; the train step averages that over the groups
    for all layers at once, so that no communication falls inside a layer.

    Source: Ioffe and Szegedy 2015, "Batch Normalization", algorithm 1. The variance is the biased
    one in training and in the running statistics (PyTorch keeps the unbiased one there).
    """

    def __init__(
        self,
        num_channels: int,
        *,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        scale: float | None = 1.0,
        execution: Execution,
        rngs: nnx.Rngs | None = None,
    ):
        """Makes scale, bias and running statistics.

        Args:
          num_channels: Length of the last axis.
          momentum: The fraction of the running statistics that a step keeps (PyTorch's `momentum`
            is one minus this).
          epsilon: Added to the variance.
          scale: What the learned factor of each channel starts at; None for no factor.
          execution: Decides the group size.
          rngs: Not used: nothing is drawn. Accepted so that all layers are made alike.
        """
        del rngs
        self.scale = None if scale is None else nnx.Param(jnp.full(num_channels, scale))
        self.bias = nnx.Param(jnp.zeros(num_channels, jnp.float32))
        self.mean = nnx.BatchStat(jnp.zeros(num_channels, jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(num_channels, jnp.float32))
        self.momentum = momentum
        self.epsilon = epsilon
        self.execution = execution

    def __call__(self, inputs: jax.Array, *, train: bool) -> jax.Array:
        """Normalizes over all axes but the last.

        Args:
          inputs: [batch, ..., channels]; the statistics are computed in float32.
          train: Whether to use and record the groups' own statistics.

        Returns:
          Same shape and dtype.

        Raises:
          ValueError: The batch does not divide into groups.
        """
        if not train:
            return self._scale_and_shift(inputs, self.mean[...], self.var[...])
        batch, group = inputs.shape[0], self.execution.batch_norm_group_size
        if batch % group:
            raise ValueError(
                f"a batch of {batch} examples does not divide into BatchNorm groups of {group}"
            )
        grouped = inputs.reshape(batch // group, -1, inputs.shape[-1])
        old_mean, old_var = self.mean[...], self.var[...]
        # One pass over the data gives both moments. Taken about the running mean, a value near the
        # true one that costs nothing, their difference does not cancel when the mean is large.
        shift = lax.stop_gradient(old_mean)
        shifted = grouped.astype(jnp.float32) - shift
        mean_shifted = shifted.mean(1)
        mean = mean_shifted + shift
        var = jnp.maximum(jnp.square(shifted).mean(1) - jnp.square(mean_shifted), 0.0)
        self.mean.set_value(self._running(old_mean, mean))
        self.var.set_value(self._running(old_var, var))
        normalized = self._scale_and_shift(grouped, mean[:, None], var[:, None])
        return normalized.reshape(inputs.shape)

    def _running(self, old: jax.Array, new: jax.Array) -> jax.Array:
        return self.momentum * old + (1 - self.momentum) * lax.stop_gradient(new)

    def _scale_and_shift(self, inputs: jax.Array, mean: jax.Array, var: jax.Array) -> jax.Array:
        factor = lax.rsqrt(var + self.epsilon)
        if self.scale is not None:
            factor = factor * self.scale[...]
        return ((inputs.astype(jnp.float32) - mean) * factor + self.bias[...]).astype(inputs.dtype)
