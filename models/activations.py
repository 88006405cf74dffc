"""Activation functions of the image networks."""

import math
from typing import assert_never

import jax
import jax.numpy as jnp
from jax import lax

from dawnjax.models.configs.types import Activation
from dawnjax.models.execution import Execution
from dawnjax.models.kernels.relu_by_result import relu_by_result


def activate(inputs: jax.Array, kind: Activation) -> jax.Array:
    """Activation in the inputs' dtype, computed in float32."""
    wide = inputs.astype(jnp.float32)
    match kind:
        case "relu":
            return jax.nn.relu(inputs)
        case "gelu":
            # JAX's exact GELU takes three times as long on a CPU. It is also exact below -5, where
            # values are too small to matter among float32 activations of unit size.
            return (0.5 * wide * (1 + lax.erf(wide * math.sqrt(0.5)))).astype(inputs.dtype)
        case "silu":
            return jax.nn.silu(wide).astype(inputs.dtype)
        case _:
            assert_never(kind)


def relu_of_sum(inputs: jax.Array, execution: Execution) -> jax.Array:
    """ReLU of a sum of two arrays, such as the end of a residual block."""
    # For the gradient, XLA on a GPU would add up both arrays again to see which sums were negative.
    # The result says so too, and the next layer keeps it anyway.
    return relu_by_result(inputs) if execution.platform == "gpu" else jax.nn.relu(inputs)
