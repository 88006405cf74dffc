"""Cross entropy of tokens against smoothed labels, with a gradient in one pass for a GPU."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dawnjax.models.execution import Execution, Platform


def sum_of_losses(
    logits: jax.Array,
    targets: jax.Array,
    real: jax.Array,
    label_smoothing: float,
    execution: Execution,
) -> jax.Array:
    """Summed loss of real tokens, in nats, and their number: float32 [2].

    Logits are float32 [batch, length, vocabulary], targets int32 and `real` bool [batch, length].
    """
    losses: jax.Array = token_losses(logits, targets, label_smoothing, execution.platform)
    sums = jnp.stack([jnp.where(real, losses, 0.0), real.astype(jnp.float32)])
    return sums.sum((1, 2))  # one reduction over devices, for both


def plain_losses(logits: jax.Array, targets: jax.Array, execution: Execution) -> jax.Array:
    """`token_losses` without smoothing."""
    losses: jax.Array = token_losses(logits, targets, 0.0, execution.platform)
    return losses


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def token_losses(
    logits: jax.Array, targets: jax.Array, label_smoothing: float, platform: Platform
) -> jax.Array:
    """Cross entropy of each token against smoothed labels, in nats: float32 [...].

    Logits are float32 [..., vocabulary], targets int32 [...]. `label_smoothing` is the probability
    that is spread evenly over all tokens, the true one too.

    Source: Szegedy et al. 2016 (arXiv 1512.00567), section 7; Vaswani et al. 2017, section 5.4.
    """
    return _token_losses_forward(logits, targets, label_smoothing, platform)[0]


def _token_losses_forward(logits, targets, label_smoothing, platform):
    normalizer, mean = _normalizer_and_mean(logits, platform)
    true = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    losses = normalizer - (1 - label_smoothing) * true
    if label_smoothing:
        losses -= label_smoothing * mean
    return losses, (logits, targets, normalizer)


def _normalizer_and_mean(logits: jax.Array, platform: Platform) -> tuple[jax.Array, jax.Array]:
    if platform != "gpu":
        # log(sum(exp(logits))) and the mean, [...]
        return jax.nn.logsumexp(logits, axis=-1), logits.mean(-1)
    # One reduction: of three, XLA on a GPU would make each read the logits.
    zero, lowest = np.float32(0), np.finfo(np.float32).min
    largest, total, plain = lax.reduce(
        (logits, jnp.ones_like(logits), logits),
        (lowest, zero, zero),
        _join_sums,
        (logits.ndim - 1,),
    )
    return largest + jnp.log(total), plain / logits.shape[-1]


def _join_sums(left: Any, right: Any) -> Any:
    # (largest, sum of exponentials relative to it, plain sum) of two parts of a row
    largest = jnp.maximum(left[0], right[0])
    total = left[1] * jnp.exp(left[0] - largest) + right[1] * jnp.exp(right[0] - largest)
    return largest, total, left[2] + right[2]


def _token_losses_backward(label_smoothing, platform, kept, cotangent):
    # Written out, it is one pass over the logits. JAX's own adds the true token's part by a
    # scatter, for which XLA on a GPU copies them all.
    logits, targets, normalizer = kept
    vocabulary = logits.shape[-1]
    is_true = jnp.arange(vocabulary) == targets[..., None]
    wanted = jnp.where(is_true, 1 - label_smoothing, 0.0) + label_smoothing / vocabulary
    return cotangent[..., None] * (jnp.exp(logits - normalizer[..., None]) - wanted), None


token_losses.defvjp(_token_losses_forward, _token_losses_backward)
