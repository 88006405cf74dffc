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
    largest, log_total, mean = _relative_sums(logits, platform)
    true = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0] - largest
    # All terms are relative to the largest logit: added to an offset that the logits share, the
    # logarithm would be lost in the rounding, and the loss with it.
    losses = log_total - (1 - label_smoothing) * true
    if label_smoothing:
        losses -= label_smoothing * mean
    return losses, (logits, targets, largest, log_total)


def _relative_sums(logits: jax.Array, platform: Platform) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Largest logit; of the logits less it: log(sum(exp)) and the mean. Each is [...]."""
    if platform != "gpu":
        largest = logits.max(-1)
        below = logits - largest[..., None]
        return largest, jnp.log(jnp.exp(below).sum(-1)), below.mean(-1)
    # One reduction: of three, XLA on a GPU would make each read the logits.
    zero, one, lowest = np.float32(0), jnp.ones_like(logits), np.finfo(np.float32).min
    largest, total, _, below = lax.reduce(
        (logits, one, one, jnp.zeros_like(logits)),
        (lowest, zero, zero, zero),
        _join_sums,
        (logits.ndim - 1,),
    )
    return largest, jnp.log(total), below / logits.shape[-1]


def _join_sums(left: Any, right: Any) -> Any:
    # Of two parts of a row: largest, sum of exponentials relative to it, count, sum relative to it.
    largest = jnp.maximum(left[0], right[0])
    down = left[0] - largest, right[0] - largest
    total = left[1] * jnp.exp(down[0]) + right[1] * jnp.exp(down[1])
    below = left[3] + right[3] + left[2] * down[0] + right[2] * down[1]
    return largest, total, left[2] + right[2], below


def _token_losses_backward(label_smoothing, platform, kept, cotangent):
    # Written out, it is one pass over the logits. JAX's own adds the true token's part by a
    # scatter, for which XLA on a GPU copies them all.
    logits, targets, largest, log_total = kept
    vocabulary = logits.shape[-1]
    is_true = jnp.arange(vocabulary) == targets[..., None]
    wanted = jnp.where(is_true, 1 - label_smoothing, 0.0) + label_smoothing / vocabulary
    softmax = jnp.exp(logits - largest[..., None] - log_total[..., None])
    return cotangent[..., None] * (softmax - wanted), None


token_losses.defvjp(_token_losses_forward, _token_losses_backward)
