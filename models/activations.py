"""Activation functions, and what a GPU needs of them for short gradients."""

import functools
import math
from typing import Literal, assert_never

import jax
import jax.numpy as jnp
from jax import lax

from dawnjax.models.execution import Platform

Activation = Literal["relu", "gelu", "silu"]
"""max(x, 0); x times the normal distribution function of x; x times the logistic function of x.

Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415), section 2, for the second and the third.
"""


def activate(inputs: jax.Array, kind: Activation, platform: Platform) -> jax.Array:
    """Applies an activation to each value.

    Args:
      inputs: Any shape.
      kind: Which one.
      platform: What the program is compiled for.

    Returns:
      Same shape and dtype.
    """
    if platform == "gpu" and kind != "relu":
        return _activate_with_slope(kind, inputs)
    match kind:
        case "relu":
            return jax.nn.relu(inputs)
        case "gelu":
            # JAX's own takes three times as long on a CPU: it is exact for the tail below -5 too,
            # which does not reach float32 activations of unit size.
            return 0.5 * inputs * (1 + lax.erf(inputs * math.sqrt(0.5)))
        case "silu":
            return jax.nn.silu(inputs)
        case _:
            assert_never(kind)


def value_and_slope(values: jax.Array, kind: Activation) -> tuple[jax.Array, jax.Array]:
    """Gives an activation of float32 values and its derivative there; together they cost little.

    A GELU is within 5e-7 of the exact one, by one exponential that its derivative needs too. What a
    GPU computes of it is else more than it reads: XLA's error function takes twice the operations,
    and its gradient an exponential besides.
    """
    match kind:
        case "relu":
            return jnp.maximum(values, 0), (values > 0).astype(jnp.float32)
        case "gelu":
            return _gelu_and_slope(values)
        case "silu":
            logistic = 1 / (1 + jnp.exp(-values))
            return values * logistic, logistic * (1 + values * (1 - logistic))
        case _:
            assert_never(kind)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _activate_with_slope(kind: Activation, inputs: jax.Array) -> jax.Array:
    return value_and_slope(inputs.astype(jnp.float32), kind)[0].astype(inputs.dtype)


def _with_slope_forward(kind: Activation, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _activate_with_slope(kind, inputs), inputs


def _with_slope_backward(
    kind: Activation, inputs: jax.Array, cotangent: jax.Array
) -> tuple[jax.Array]:
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
    distribution = jnp.where(values < 0, tail, 1 - tail)
    return values * distribution, distribution + values * exponential / math.sqrt(2 * math.pi)


def relu_of_sum(inputs: jax.Array, platform: Platform) -> jax.Array:
    """Gives the larger of each value and 0, where the result is kept and the values are sums.

    Left to itself, XLA on a GPU computes the inputs a second time to see which were negative; of a
    residual block these are two arrays, where the result, which the next block needs anyway, is
    one.

    Args:
      inputs: Any shape.
      platform: What the program is compiled for.
    """
    return _relu_by_result(inputs) if platform == "gpu" else jax.nn.relu(inputs)


@jax.custom_vjp
def _relu_by_result(inputs: jax.Array) -> jax.Array:
    return jnp.maximum(inputs, 0)


def _relu_forward(inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    # Without a barrier XLA replaces `max(x, 0) > 0` by `x > 0`.
    result = lax.optimization_barrier(jnp.maximum(inputs, 0))
    return result, result


def _relu_backward(result: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    return (jnp.where(result > 0, cotangent, 0),)


_relu_by_result.defvjp(_relu_forward, _relu_backward)
