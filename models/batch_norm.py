"""Batch normalization over fixed groups of consecutive examples of the global batch."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from dawnjax.models.activations import Activation, activate, value_and_slope
from dawnjax.models.execution import Execution
from dawnjax.models.pooling import halve

_JOINED: tuple[Activation, ...] = ("relu", "silu")
"""Activations whose gradient a GPU makes in both passes over the data.

A GELU's is too much for the kernel of a sum, so XLA would write it in float32 before each of the
two: 0.58 GB for the record net's first normalization, against 0.46 with the GELU kept apart.
"""


class Moments(NamedTuple):
    """The mean and the biased variance of each group and channel, float32 [groups, channels]."""

    mean: jax.Array
    var: jax.Array


class BatchNorm(nnx.Module):
    """Normalize each channel by the mean and variance of a group of examples.

    The recipe fixes the size of a group (`Execution.batch_norm_group_size`), so the result does not
    depend on the number of devices. A device that holds whole groups needs no communication.

    In training, each call sets the running statistics to [groups, channels], the update by each
    group alone. The train step averages these for all layers at once.

    Source: Ioffe and Szegedy 2015, "Batch Normalization", algorithm 1. Running variances are biased
    too (PyTorch's are not).
    """

    def __init__(
        self,
        num_channels: int,
        *,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        scale: float | None = 1.0,
        has_bias: bool = True,
        execution: Execution,
    ):
        """Make parameters and statistics; a `scale` of None makes no factor,
        without `has_bias` there is no summand.

        `momentum` is the fraction of the running statistics that a step keeps, 1 minus PyTorch's.
        """
        if execution.batch_norm_group_size < 1:
            raise ValueError(
                f"batch_norm_group_size={execution.batch_norm_group_size} must be 1 or more: this "
                "model normalizes over groups of examples"
            )
        initial_scale = None if scale is None else jnp.full(num_channels, scale, jnp.float32)
        self.scale = None if initial_scale is None else nnx.Param(initial_scale)
        self.bias = nnx.Param(jnp.zeros(num_channels, jnp.float32)) if has_bias else None
        self.mean = nnx.BatchStat(jnp.zeros(num_channels, jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(num_channels, jnp.float32))
        self.momentum = momentum
        self.epsilon = epsilon
        self.execution = execution

    def __call__(
        self,
        inputs: jax.Array,
        *,
        train: bool,
        activation: Activation | None = None,
        halves: bool = False,
    ) -> jax.Array:
        """Normalize [batch, ..., channels] in float32 over all axes but the last; keep the dtype.

        With `halves` the maxima of 2x2 windows of [batch, height, width, channels] are normalized.
        """
        if halves:
            inputs = halve(inputs, self.execution)
        bias = jnp.zeros_like(self.mean[...]) if self.bias is None else self.bias[...]
        scale = jnp.ones_like(bias) if self.scale is None else self.scale[...]
        if not train:
            mean, var = self.mean[...], self.var[...]
            factor = scale * lax.rsqrt(var + self.epsilon)
            channels = _computed_once((factor, bias - mean * factor), self.execution)
            outputs = _scale_and_shift(inputs, *channels)
            return outputs if activation is None else activate(outputs, activation, self.execution)
        origin = lax.stop_gradient(self.mean[...])
        joined = activation if self.execution.platform == "gpu" and activation in _JOINED else None
        groups = self._in_groups(inputs)
        moments = group_moments(lax.stop_gradient(groups), origin, self.execution)
        outputs = _normalize_groups(
            groups, moments, scale, bias, self.epsilon, self.execution, joined
        ).reshape(inputs.shape)
        for running, of_groups in ((self.mean, moments.mean), (self.var, moments.var)):
            running.set_value(self.momentum * running[...] + (1 - self.momentum) * of_groups)
        if activation is None or activation == joined:
            return outputs
        return activate(outputs, activation, self.execution)

    def _in_groups(self, inputs: jax.Array) -> jax.Array:
        """Reshape to [groups, group, ..., channels], or without `group` where positions join it."""
        batch, group = inputs.shape[0], self.execution.batch_norm_group_size
        if batch % group:
            raise ValueError(
                f"a batch of {batch} examples does not divide into BatchNorm groups of {group}"
            )
        # On a CPU `_sum` makes a product for each example.
        if self.execution.platform == "cpu" or batch == group:
            return inputs.reshape(batch // group, group, *inputs.shape[1:])
        return inputs.reshape(batch // group, -1, inputs.shape[-1])


def group_moments(inputs: jax.Array, origin: jax.Array, execution: Execution) -> Moments:
    """Moments of inputs [groups, group, ..., channels] in one pass over the data.

    `origin`, float32 [channels], such as the running mean, changes rounding only.
    """
    # E[x - o] + o and E[(x - o)^2] - E[x - o]^2: with an origin o near the mean nothing cancels in
    # the difference, however far the mean is from 0.
    centred = inputs.astype(jnp.float32) - origin
    count = centred[0, ..., 0].size
    mean, square = _sum(centred, execution) / count, _sum(jnp.square(centred), execution) / count
    return Moments(mean + origin, jnp.maximum(square - jnp.square(mean), 0.0))


def _normalize(
    inputs: jax.Array,
    moments: Moments,
    scale: jax.Array,
    bias: jax.Array,
    epsilon: float,
    execution: Execution,
    activation: Activation | None,
) -> jax.Array:
    return _normalize_forward(inputs, moments, scale, bias, epsilon, execution, activation)[0]


def _normalize_forward(inputs, moments, scale, bias, epsilon, execution, activation):
    outputs = _normalized(inputs, moments, scale, bias, epsilon, execution)
    if activation is not None:
        outputs = activate(outputs, activation, execution)
    return outputs, (inputs, moments, scale, bias)


def _normalized(inputs, moments, scale, bias, epsilon, execution):
    factor = scale * lax.rsqrt(moments.var + epsilon)
    channels = _computed_once((factor, bias - moments.mean * factor), execution)
    return _scale_and_shift(inputs, *(_of_groups(values, inputs) for values in channels))


def _normalize_backward(epsilon, execution, activation, residuals, cotangent):
    inputs, moments, scale, bias = residuals

    def gradient_and_centred(inputs, cotangent):
        if activation is not None:
            outputs = _normalized(inputs, moments, scale, bias, epsilon, execution)
            _, slope = value_and_slope(outputs.astype(jnp.float32), activation)
            cotangent = (cotangent * slope).astype(inputs.dtype)
        # Centred before it is summed: a difference of two sums loses digits, which a run amplifies.
        (mean,) = _computed_once((moments.mean,), execution)
        centred = inputs.astype(jnp.float32) - _of_groups(mean, inputs)
        return cotangent.astype(jnp.float32), centred

    # Both passes over the data make the activation's gradient. Without barriers XLA would write it
    # in between, or keep more of the forward pass.
    read_apart = lax.optimization_barrier if activation is not None else lambda arrays: arrays
    arrays = read_apart((inputs, cotangent))
    sums = _sums(*gradient_and_centred(*arrays), execution)
    gradient, centred = gradient_and_centred(*read_apart(arrays))
    count = centred[0, ..., 0].size
    channels, *of_params = _gradients_of_sums(*sums, moments, scale, epsilon, count)
    factor, slope, offset = (
        _of_groups(values, centred) for values in _computed_once(channels, execution)
    )
    of_inputs = factor * gradient + slope * centred + offset
    # This includes the effect of the inputs on the moments, whose own gradient is 0.
    return of_inputs.astype(inputs.dtype), jax.tree.map(jnp.zeros_like, moments), *of_params


def _gradients_of_sums(
    gradient_sum: jax.Array,
    product_sum: jax.Array,
    moments: Moments,
    scale: jax.Array,
    epsilon: float,
    count: int,
) -> tuple[tuple[jax.Array, jax.Array, jax.Array], jax.Array, jax.Array]:
    """Gradients from the sums of the results' gradient and of its product with the centred inputs.

    The first three, [groups, channels], make that of the inputs: factor x gradient + slope x
    centred input + offset. Then those of scale and bias, [channels].
    """
    inverse_std = lax.rsqrt(moments.var + epsilon)
    of_scale = product_sum * inverse_std
    # factor * (gradient - its mean - normalized input * the mean of their product)
    factor = scale * inverse_std
    channels = (factor, -factor * inverse_std * of_scale / count, -factor * gradient_sum / count)
    return channels, of_scale.sum(0), gradient_sum.sum(0)


def _sums(
    gradient: jax.Array, centred: jax.Array, execution: Execution
) -> tuple[jax.Array, jax.Array]:
    """Sum of a gradient, and of its product with the centred inputs, [groups, channels] each."""
    if execution.platform != "gpu":
        return _sum(gradient, execution), _sum(gradient * centred, execution)
    # One reduction: for two, XLA on a GPU would write the gradient first and read it twice.
    zero = np.float32(0)
    pairs = (gradient, gradient * centred)
    return lax.reduce(pairs, (zero, zero), _add_pairs, _summed_axes(gradient))


def _sum(values: jax.Array, execution: Execution) -> jax.Array:
    """Sum float32 [groups, ..., channels] to [groups, channels]."""
    if execution.platform != "cpu" or values.ndim == 3:
        return values.sum(_summed_axes(values))
    # Each example is a product with ones: XLA's sums over all but a short last axis take longer on
    # a CPU, on one core.
    groups, group, channels = *values.shape[:2], values.shape[-1]
    positions = values.reshape(groups * group, -1, channels)
    ones = jnp.ones(positions.shape[:2], jnp.float32)
    of_examples = lax.dot_general(ones, positions, (((1,), (1,)), ((0,), (0,))))
    return of_examples.reshape(groups, group, channels).sum(1)


def _add_pairs(left, right):
    return left[0] + right[0], left[1] + right[1]


_normalize_groups = jax.custom_vjp(_normalize, nondiff_argnums=(4, 5, 6))
_normalize_groups.defvjp(_normalize_forward, _normalize_backward)


def _summed_axes(inputs: jax.Array) -> tuple[int, ...]:
    return tuple(range(1, inputs.ndim - 1))


def _of_groups(channels: jax.Array, inputs: jax.Array) -> jax.Array:
    """[groups, 1, ..., channels], to combine with the inputs; [channels] of a single group."""
    return channels[0] if len(channels) == 1 else jnp.expand_dims(channels, _summed_axes(inputs))


def _scale_and_shift(inputs: jax.Array, factor: jax.Array, offset: jax.Array) -> jax.Array:
    return (inputs.astype(jnp.float32) * factor + offset).astype(inputs.dtype)


def _computed_once(channels: tuple[jax.Array, ...], execution: Execution) -> tuple[jax.Array, ...]:
    """Keep XLA on a CPU from computing a channel's values again for each element."""
    return lax.optimization_barrier(channels) if execution.platform == "cpu" else channels
