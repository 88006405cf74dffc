"""The ReLU of sums that are kept: on a GPU its gradient reads the result, not what was added."""

import jax
import jax.numpy as jnp
from jax import lax

from dawnjax.models.execution import Platform


def relu(inputs: jax.Array, platform: Platform) -> jax.Array:
    """Gives the larger of each value and 0.

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


def _forward(inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    # Without a barrier XLA replaces `max(x, 0) > 0` by `x > 0`.
    result = lax.optimization_barrier(jnp.maximum(inputs, 0))
    return result, result


def _backward(result: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    return (jnp.where(result > 0, cotangent, 0),)


_relu_by_result.defvjp(_forward, _backward)
