"""Exponential moving average of the parameters, which an evaluation may measure in their place."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import optax


def decay_at(decay: float, has_warmup: bool, step: jax.Array) -> jax.Array | float:
    """Decay of the average after `step` earlier steps.

    Source: `num_updates` of TensorFlow's `ExponentialMovingAverage`, for the warm-up.
    """
    if not has_warmup:
        return decay
    count = step.astype(jnp.float32)
    return jnp.minimum(decay, (1 + count) / (10 + count))


def moved(average: Any, params: Any, decay: jax.Array | float) -> Any:
    """Average after another step's parameters; a run without one has an empty tree."""
    if not average:
        return average
    return cast(Any, optax.incremental_update(params, average, 1 - decay))
