"""Batch normalization over fixed groups of consecutive examples of the global batch."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from dawnjax.models.execution import Execution, Platform


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
    ):
        """Makes scale, bias and running statistics.

        Args:
          num_channels: Length of the last axis.
          momentum: The fraction of the running statistics that a step keeps (PyTorch's `momentum`
            is one minus this).
          epsilon: Added to the variance.
          scale: What the learned factor of each channel starts at; None for no factor.
          execution: Decides the group size.
        """
        initial_scale = None if scale is None else jnp.full(num_channels, scale, jnp.float32)
        self.scale = None if initial_scale is None else nnx.Param(initial_scale)
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
        bias = self.bias[...]
        scale = jnp.ones_like(bias) if self.scale is None else self.scale[...]
        old_mean, old_var = self.mean[...], self.var[...]
        if not train:
            factor = scale * lax.rsqrt(old_var + self.epsilon)
            channels = _computed_once((factor, bias - old_mean * factor), self.execution.platform)
            return _scale_and_shift(inputs, *channels)
        batch, group = inputs.shape[0], self.execution.batch_norm_group_size
        if batch % group:
            raise ValueError(
                f"a batch of {batch} examples does not divide into BatchNorm groups of {group}"
            )
        outputs, mean, var = normalize_groups(
            _in_groups(inputs, group),
            scale,
            bias,
            lax.stop_gradient(old_mean),
            self.epsilon,
            self.execution.platform,
        )
        self.mean.set_value(self.momentum * old_mean + (1 - self.momentum) * mean)
        self.var.set_value(self.momentum * old_var + (1 - self.momentum) * var)
        return outputs.reshape(inputs.shape)


def _normalize(
    inputs: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    origin: jax.Array,
    epsilon: float,
    platform: Platform,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalizes each group by its own mean and biased variance, then scales and shifts.

    Both moments come from one pass over the data, as E[(x - o)^2] - E[x - o]^2. With an origin o
    near the mean nothing cancels in the difference, however far the mean is from 0.

    Args:
      inputs: [groups, group, ..., channels].
      scale: float32 [channels].
      bias: float32 [channels].
      origin: float32 [channels], such as the running mean; it changes rounding only.
      epsilon: Added to the variance.
      platform: What the program is compiled for.

    Returns:
      The outputs, of the inputs' shape and dtype, and mean and variance, float32
      [groups, channels], which no gradient flows through.
    """
    return _normalize_forward(inputs, scale, bias, origin, epsilon, platform)[0]


def _normalize_forward(inputs, scale, bias, origin, epsilon, platform):
    axes = _summed_axes(inputs)
    centred = inputs.astype(jnp.float32) - origin
    mean = centred.mean(axes)
    var = jnp.maximum(jnp.square(centred).mean(axes) - jnp.square(mean), 0.0)
    mean = mean + origin
    inverse_std = lax.rsqrt(var + epsilon)
    factor = scale * inverse_std
    factor, offset = _computed_once((factor, bias - mean * factor), platform)
    outputs = _scale_and_shift(inputs, _of_groups(factor, inputs), _of_groups(offset, inputs))
    return (outputs, mean, var), (inputs, mean, inverse_std, factor)


def _normalize_backward(epsilon, platform, residuals, cotangents):
    del epsilon
    inputs, mean, inverse_std, factor = residuals
    axes = _summed_axes(inputs)
    gradient = cotangents[0].astype(jnp.float32)
    # Centred before it is summed: a difference of two sums would lose digits that a run amplifies.
    (mean,) = _computed_once((mean,), platform)
    centred = inputs.astype(jnp.float32) - _of_groups(mean, inputs)
    bias = gradient.sum(axes)
    scale = (gradient * centred).sum(axes) * inverse_std
    # factor * (gradient - its mean - normalized input * the mean of their product)
    count = centred[0, ..., 0].size
    slope = -factor * inverse_std * scale / count
    offset = -factor * bias / count
    factor, slope, offset = (
        _of_groups(channels, inputs)
        for channels in _computed_once((factor, slope, offset), platform)
    )
    inputs_gradient = factor * gradient + slope * centred + offset
    return inputs_gradient.astype(inputs.dtype), scale.sum(0), bias.sum(0), jnp.zeros_like(mean[0])


normalize_groups = jax.custom_vjp(_normalize, nondiff_argnums=(4, 5))
normalize_groups.defvjp(_normalize_forward, _normalize_backward)


def _in_groups(inputs: jax.Array, group: int) -> jax.Array:
    """[groups, ..., channels]: the axes that are summed are one, save for a single group.

    XLA on CPU sums the axes of a single group several times faster when they stand apart, and those
    of many groups faster when they are merged.
    """
    if inputs.shape[0] == group:
        return inputs[None]
    return inputs.reshape(inputs.shape[0] // group, -1, inputs.shape[-1])


def _summed_axes(inputs: jax.Array) -> tuple[int, ...]:
    return tuple(range(1, inputs.ndim - 1))


def _of_groups(channels: jax.Array, inputs: jax.Array) -> jax.Array:
    """[groups, channels] with axes of length 1 where the inputs have others; [channels] of one."""
    return channels[0] if len(channels) == 1 else jnp.expand_dims(channels, _summed_axes(inputs))


def _scale_and_shift(inputs: jax.Array, factor: jax.Array, offset: jax.Array) -> jax.Array:
    return (inputs.astype(jnp.float32) * factor + offset).astype(inputs.dtype)


def _computed_once(channels: tuple[jax.Array, ...], platform: Platform) -> tuple[jax.Array, ...]:
    """Keeps XLA on CPU from computing values of a channel again for each of its elements."""
    return lax.optimization_barrier(channels) if platform == "cpu" else channels
