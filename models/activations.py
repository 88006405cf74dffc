"""Activation functions, with gradients that are short on a GPU."""

import functools
import math
from typing import Literal, assert_never

import jax
import jax.numpy as jnp
from jax import lax

from dawnjax.models.execution import Execution

Activation = Literal["relu", "gelu", "silu"]
"""max(x, 0); x times the normal distribution function of x; x times the logistic function of x.

Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415), section 2, for the second and the third.
"""


def activate(inputs: jax.Array, kind: Activation, execution: Execution) -> jax.Array:
    if execution.platform == "gpu" and kind != "relu":
        return _activate_with_slope(kind, inputs)
    match kind:
        case "relu":
            return jax.nn.relu(inputs)
        case "gelu":
            # JAX's GELU takes three times as long on a CPU. It is also exact below -5, where values
            # are too small to matter among float32 activations of unit size.
            return 0.5 * inputs * (1 + lax.erf(inputs * math.sqrt(0.5)))
        case "silu":
            return jax.nn.silu(inputs)
        case _:
            assert_never(kind)


def value_and_slope(values: jax.Array, kind: Activation) -> tuple[jax.Array, jax.Array]:
    """Activation of float32 values and its derivative; the GELU is within 5e-7 of the exact one."""
    match kind:
        case "relu":
            return jnp.maximum(values, 0), (values > 0).astype(jnp.float32)
        case "gelu":
            # XLA's error function takes twice the operations on a GPU, and its gradient another
            # exponential: more time than reading the values takes.
            return _gelu_and_slope(values)
        case "silu":
            logistic = 1 / (1 + jnp.exp(-values))
            return values * logistic, logistic * (1 + values * (1 - logistic))
        case _:
            assert_never(kind)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _activate_with_slope(kind: Activation, inputs: jax.Array) -> jax.Array:
    return value_and_slope(inputs.astype(jnp.float32), kind)[0].astype(inputs.dtype)


def _with_slope_forward(kind, inputs):
    return _activate_with_slope(kind, inputs), inputs


def _with_slope_backward(kind, inputs, cotangent):
    slope = value_and_slope(inputs.astype(jnp.float32), kind)[1]
    return ((cotangent * slope).astype(inputs.dtype),)


_activate_with_slope.defvjp(_with_slope_forward, _with_slope_backward)


_TAIL = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_TAIL_SCALE = 0.3275911
"""Of the error function's tail, to 1.5e-7.

Source: Abramowitz and Stegun 1964, "Handbook of Mathematical Functions", equation 7.1.26.
"""


def _gelu_and_slope(values: jax.Array) -> tuple[jax.Array, jax.Array]:
    size = jnp.abs(values) * math.sqrt(0.5)
    exponential = jnp.exp(-jnp.square(size))
    part = 1 / (1 + _TAIL_SCALE * size)
    polynomial = functools.reduce(lambda total, factor: total * part + factor, reversed(_TAIL))
    tail = 0.5 * part * polynomial * exponential
    # The formula is for positive values; the distribution is symmetric.
    distribution = jnp.where(values < 0, tail, 1 - tail)
    return values * distribution, distribution + values * exponential / math.sqrt(2 * math.pi)


def relu_of_sum(inputs: jax.Array, execution: Execution) -> jax.Array:
    """ReLU of a sum of two arrays, such as the end of a residual block."""
    # For the gradient, XLA on a GPU would add up both arrays again to see which sums were negative.
    # The result says so too, and the next block keeps it anyway.
    return _relu_by_result(inputs) if execution.platform == "gpu" else jax.nn.relu(inputs)


@jax.custom_vjp
def _relu_by_result(inputs: jax.Array) -> jax.Array:
    return jnp.maximum(inputs, 0)


def _relu_forward(inputs):
    # Without a barrier XLA replaces `max(x, 0) > 0` by `x > 0`.
    result = lax.optimization_barrier(jnp.maximum(inputs, 0))
    return result, result


def _relu_backward(result, cotangent):
    return (jnp.where(result > 0, cotangent, 0),)


_relu_by_result.defvjp(_relu_forward, _relu_backward)
