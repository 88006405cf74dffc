"""Batch normalization over fixed groups of consecutive examples of the global batch."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from dawnjax.models.activations import Activation, activate, value_and_slope
from dawnjax.models.execution import Execution, Platform

_JOINED: tuple[Activation, ...] = ("relu", "silu")
"""Activations whose gradient a GPU makes in both passes over the data.

XLA computes that of a GELU, as too much for a sum's kernel, in a pass of its own in float32 before
each of the two: 0.58 GB of the record net's first normalization, against 0.46 apart from it.
"""


class Moments(NamedTuple):
    """The mean and the biased variance of each group and channel, float32 [groups, channels]."""

    mean: jax.Array
    var: jax.Array


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

    def __call__(
        self, inputs: jax.Array, *, train: bool, activation: Activation | None = None
    ) -> jax.Array:
        """Normalizes over all axes but the last.

        Args:
          inputs: [batch, ..., channels]; the statistics are computed in float32.
          train: Whether to use and record the groups' own statistics.
          activation: What is applied to the results; None for nothing.

        Returns:
          Same shape and dtype.

        Raises:
          ValueError: The batch does not divide into groups.
        """
        scale, bias = self._scale_and_bias()
        platform = self.execution.platform
        if not train:
            mean, var = self.mean[...], self.var[...]
            factor = scale * lax.rsqrt(var + self.epsilon)
            channels = _computed_once((factor, bias - mean * factor), platform)
            outputs = _scale_and_shift(inputs, *channels)
            return outputs if activation is None else activate(outputs, activation, platform)
        groups = self._in_groups(inputs)
        origin = lax.stop_gradient(self.mean[...])
        moments = group_moments(lax.stop_gradient(groups), origin, platform)
        self._record(moments)
        joined = activation if platform == "gpu" and activation in _JOINED else None
        outputs = _normalize_groups(
            groups, moments, scale, bias, self.epsilon, platform, joined
        ).reshape(inputs.shape)
        if activation is None or activation == joined:
            return outputs
        return activate(outputs, activation, platform)

    def _scale_and_bias(self) -> tuple[jax.Array, jax.Array]:
        """Gives the learned factor, or ones, and the learned offset: float32 [channels]."""
        bias = self.bias[...]
        return jnp.ones_like(bias) if self.scale is None else self.scale[...], bias

    def _record(self, moments: Moments) -> None:
        """Sets the running statistics to what each group alone would make of them."""
        old_mean, old_var = self.mean[...], self.var[...]
        self.mean.set_value(self.momentum * old_mean + (1 - self.momentum) * moments.mean)
        self.var.set_value(self.momentum * old_var + (1 - self.momentum) * moments.var)

    def _in_groups(self, inputs: jax.Array) -> jax.Array:
        """Gives [groups, ..., channels], on a CPU with the examples of a group apart.

        Args:
          inputs: [batch, ..., channels].

        Raises:
          ValueError: The batch does not divide into groups.
        """
        batch, group = inputs.shape[0], self.execution.batch_norm_group_size
        if batch % group:
            raise ValueError(
                f"a batch of {batch} examples does not divide into BatchNorm groups of {group}"
            )
        if self.execution.platform == "cpu" or batch == group:
            return inputs.reshape(batch // group, group, *inputs.shape[1:])
        return inputs.reshape(batch // group, -1, inputs.shape[-1])


def group_moments(inputs: jax.Array, origin: jax.Array, platform: Platform) -> Moments:
    """Gives the moments of each group in one pass over the data.

    They are E[x - o] + o and E[(x - o)^2] - E[x - o]^2. With an origin o near the mean nothing
    cancels in the difference, however far that is from 0.

    Args:
      inputs: [groups, group, ..., channels].
      origin: float32 [channels], such as the running mean; it changes rounding only.
      platform: What the program is compiled for.
    """
    centred = inputs.astype(jnp.float32) - origin
    count = centred[0, ..., 0].size
    mean = _sum(centred, platform) / count
    square = _sum(jnp.square(centred), platform) / count
    return Moments(mean + origin, jnp.maximum(square - jnp.square(mean), 0.0))


def _factor_and_offset(
    moments: Moments, scale: jax.Array, bias: jax.Array, epsilon: float
) -> tuple[jax.Array, jax.Array]:
    """Gives what normalizes, scales and shifts at once: float32 [groups, channels] each."""
    factor = scale * lax.rsqrt(moments.var + epsilon)
    return factor, bias - moments.mean * factor


def _normalize(
    inputs: jax.Array,
    moments: Moments,
    scale: jax.Array,
    bias: jax.Array,
    epsilon: float,
    platform: Platform,
    activation: Activation | None,
) -> jax.Array:
    """Normalizes each group by its own mean and variance, then scales and shifts.

    The gradient of the inputs is the whole one, what they do to their moments included; none is
    left for the moments.

    Args:
      inputs: [groups, group, ..., channels].
      moments: Theirs.
      scale: float32 [channels].
      bias: float32 [channels].
      epsilon: Added to the variance.
      platform: What the program is compiled for.
      activation: What is applied to the results; None for nothing.

    Returns:
      Same shape and dtype.
    """
    return _normalize_forward(inputs, moments, scale, bias, epsilon, platform, activation)[0]


def _normalize_forward(inputs, moments, scale, bias, epsilon, platform, activation):
    outputs = _normalized(inputs, moments, scale, bias, epsilon, platform)
    if activation is not None:
        outputs = activate(outputs, activation, platform)
    return outputs, (inputs, moments, scale, bias)


def _normalized(inputs, moments, scale, bias, epsilon, platform):
    channels = _computed_once(_factor_and_offset(moments, scale, bias, epsilon), platform)
    return _scale_and_shift(inputs, *(_of_groups(values, inputs) for values in channels))


def _normalize_backward(epsilon, platform, activation, residuals, cotangent):
    inputs, moments, scale, bias = residuals

    def gradient_and_centred(inputs, cotangent):
        if activation is not None:
            outputs = _normalized(inputs, moments, scale, bias, epsilon, platform)
            _, slope = value_and_slope(outputs.astype(jnp.float32), activation)
            cotangent = (cotangent * slope).astype(inputs.dtype)
        # Centred before it is summed: a difference of two sums loses digits that a run amplifies.
        (mean,) = _computed_once((moments.mean,), platform)
        centred = inputs.astype(jnp.float32) - _of_groups(mean, inputs)
        return cotangent.astype(jnp.float32), centred

    # The activation's gradient is made in both passes over the data. Without barriers XLA would
    # write it in between, or keep in the forward pass what it needs.
    read_apart = lax.optimization_barrier if activation is not None else lambda arrays: arrays
    arrays = read_apart((inputs, cotangent))
    sums = _sums(*gradient_and_centred(*arrays), platform)
    arrays = read_apart(arrays)
    of_inputs, of_scale, of_bias = _gradients_of_sums(
        *gradient_and_centred(*arrays), *sums, lax.rsqrt(moments.var + epsilon), scale, platform
    )
    return of_inputs.astype(inputs.dtype), jax.tree.map(jnp.zeros_like, moments), of_scale, of_bias


def _sums(
    gradient: jax.Array, centred: jax.Array, platform: Platform
) -> tuple[jax.Array, jax.Array]:
    """Gives a gradient's sum, and that of its product with the centred inputs."""
    if platform != "gpu":
        return _sum(gradient, platform), _sum(gradient * centred, platform)
    # As one reduction: of two, XLA on a GPU makes each read the gradient, and one write it first.
    zero = np.float32(0)
    pairs = (gradient, gradient * centred)
    return lax.reduce(pairs, (zero, zero), _add_pairs, _summed_axes(gradient))


def _sum(values: jax.Array, platform: Platform) -> jax.Array:
    """Sums all axes but the first and the last; on a CPU each example by a product with ones.

    XLA's own sums over all but a short last axis take longer there, on one core.

    Args:
      values: float32 [groups, ..., channels], on a CPU [groups, group, ..., channels].
      platform: What the program is compiled for.

    Returns:
      float32 [groups, channels].
    """
    if platform != "cpu" or values.ndim == 3:
        return values.sum(_summed_axes(values))
    groups, group, channels = *values.shape[:2], values.shape[-1]
    positions = values.reshape(groups * group, -1, channels)
    ones = jnp.ones(positions.shape[:2], jnp.float32)
    of_examples = lax.dot_general(ones, positions, (((1,), (1,)), ((0,), (0,))))
    return of_examples.reshape(groups, group, channels).sum(1)


def _add_pairs(one, other):
    return one[0] + other[0], one[1] + other[1]


_normalize_groups = jax.custom_vjp(_normalize, nondiff_argnums=(4, 5, 6))
_normalize_groups.defvjp(_normalize_forward, _normalize_backward)


def _gradients_of_sums(
    gradient: jax.Array,
    centred: jax.Array,
    gradient_sum: jax.Array,
    product_sum: jax.Array,
    inverse_std: jax.Array,
    scale: jax.Array,
    platform: Platform,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gives the gradients of a normalization's inputs, scale and bias.

    Args:
      gradient: float32 [groups, ..., channels], of the outputs.
      centred: float32, the inputs less their mean.
      gradient_sum: float32 [groups, channels], of the gradient.
      product_sum: The same of gradient * centred.
      inverse_std: float32 [groups, channels].
      scale: float32 [channels].
      platform: What the program is compiled for.

    Returns:
      float32 [groups, ..., channels], and twice [channels].
    """
    of_scale = product_sum * inverse_std
    # factor * (gradient - its mean - normalized input * the mean of their product)
    factor, count = scale * inverse_std, centred[0, ..., 0].size
    channels = (factor, -factor * inverse_std * of_scale / count, -factor * gradient_sum / count)
    factor, slope, offset = (
        _of_groups(values, centred) for values in _computed_once(channels, platform)
    )
    of_inputs = factor * gradient + slope * centred + offset
    return of_inputs, of_scale.sum(0), gradient_sum.sum(0)


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
