"""The cross entropy of tokens, whole or in parts that never hold all logits.

The logits of a large batch are its largest arrays: 96 x 256 tokens by a vocabulary of 32,768 are
3.2 GB in float32, written, read, and once more as a gradient. In parts, the logits of some tokens
are made, and from them at once the part's loss and its gradients, which are all that stays. Nothing
is computed twice: the loss is a sum, whose gradients need only be scaled by what comes after it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dawnjax.models.arithmetic import Arithmetic, linear
from dawnjax.models.chunks import nearest_divisor

PART_BYTES = 256 << 20
"""Bytes of logits that a device makes at a time: 2,048 tokens of 32,768 still fill its products."""


Part = tuple[jax.Array, jax.Array, jax.Array]
"""The decoder's output, the targets, and which of them are real."""


def logits_of(hidden: jax.Array, embedding: jax.Array, arithmetic: Arithmetic) -> jax.Array:
    """Gives float32 logits [..., vocabulary] of [..., width] by the transposed embedding."""
    return linear(hidden, embedding, arithmetic, "oi", jnp.dtype("float32"))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def token_losses(logits: jax.Array, targets: jax.Array, label_smoothing: float) -> jax.Array:
    """Gives each token's cross entropy against smoothed labels, in nats.

    Args:
      logits: float32 [..., vocabulary].
      targets: int32 [...].
      label_smoothing: The probability that is spread evenly over all tokens, the true one too.

    Source: Szegedy et al. 2016 (arXiv 1512.00567), section 7; Vaswani et al. 2017, section 5.4.
    """
    return _losses_and_normalizer(logits, targets, label_smoothing)[0]


def _losses_and_normalizer(
    logits: jax.Array, targets: jax.Array, label_smoothing: float
) -> tuple[jax.Array, jax.Array]:
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    own = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    losses = normalizer - (1 - label_smoothing) * own
    return losses - label_smoothing * logits.mean(-1) if label_smoothing else losses, normalizer


def _token_losses_forward(logits: jax.Array, targets: jax.Array, label_smoothing: float) -> Any:
    losses, normalizer = _losses_and_normalizer(logits, targets, label_smoothing)
    return losses, (logits, targets, normalizer)


def _token_losses_backward(
    label_smoothing: float, kept: Any, cotangent: jax.Array
) -> tuple[jax.Array, None]:
    # Written out, it is one pass over the logits. JAX's own adds the true token's part by a
    # scatter, for which XLA on a GPU copies them all.
    logits, targets, normalizer = kept
    vocabulary = logits.shape[-1]
    is_own = jnp.arange(vocabulary) == targets[..., None]
    wanted = jnp.where(is_own, 1 - label_smoothing, 0.0) + label_smoothing / vocabulary
    return cotangent[..., None] * (jnp.exp(logits - normalizer[..., None]) - wanted), None


token_losses.defvjp(_token_losses_forward, _token_losses_backward)


def loss_and_count(
    hidden: jax.Array,
    embedding: jax.Array,
    targets: jax.Array,
    real: jax.Array,
    label_smoothing: float,
    arithmetic: Arithmetic,
) -> jax.Array:
    """Gives the summed loss of real tokens, and how many they are: float32 [2].

    Args:
      hidden: [batch, length, width], the decoder's output.
      embedding: float32 [vocabulary, width].
      targets: int32 [batch, length].
      real: bool [batch, length]; the other tokens count nothing.
      label_smoothing: As in `token_losses`.
      arithmetic: Of the products.
    """
    losses = token_losses(logits_of(hidden, embedding, arithmetic), targets, label_smoothing)
    sums = jnp.stack([jnp.where(real, losses, 0.0), real.astype(jnp.float32)])
    return sums.sum((1, 2))  # one reduction over devices, for both


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def loss_and_count_in_parts(
    hidden: jax.Array,
    embedding: jax.Array,
    targets: jax.Array,
    real: jax.Array,
    label_smoothing: float,
    arithmetic: Arithmetic,
    batch_shards: int,
) -> jax.Array:
    """Gives what `loss_and_count` does. Differentiable by the first two arguments.

    Args:
      hidden: As there, like the arguments that follow.
      embedding: The same.
      targets: The same.
      real: The same.
      label_smoothing: The same.
      arithmetic: The same.
      batch_shards: Over how many devices the examples are spread in equal runs. Each adds up the
        sums and the embedding's gradient of its own parts, and they are reduced once.
    """

    def of_part(part: Part) -> jax.Array:
        return loss_and_count(part[0], embedding, *part[1:], label_smoothing, arithmetic)

    def add(totals: jax.Array, parts: Part) -> tuple[jax.Array, None]:
        return totals + jax.vmap(of_part)(parts), None

    parts = _in_parts((hidden, targets, real), len(embedding), batch_shards)
    totals, _ = lax.scan(add, jnp.zeros((batch_shards, 2)), parts)
    return totals.sum(0)


def _in_parts(arrays: Part, vocabulary_size: int, batch_shards: int) -> Part:
    """Gives [parts, shards, examples of a part, ...] of [batch, ...]; no example changes device."""
    batch, length = arrays[1].shape
    size = nearest_divisor(batch // batch_shards, PART_BYTES / (length * vocabulary_size * 4))
    split = (array.reshape(batch_shards, -1, size, *array.shape[1:]) for array in arrays)
    hidden, targets, real = (array.swapaxes(0, 1) for array in split)
    return hidden, targets, real


def _forward(
    hidden: jax.Array,
    embedding: jax.Array,
    targets: jax.Array,
    real: jax.Array,
    label_smoothing: float,
    arithmetic: Arithmetic,
    batch_shards: int,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    def of_part(part: Part) -> Any:
        def loss(hidden: jax.Array, embedding: jax.Array) -> tuple[jax.Array, jax.Array]:
            sums = loss_and_count(hidden, embedding, *part[1:], label_smoothing, arithmetic)
            return sums[0], sums

        return jax.grad(loss, argnums=(0, 1), has_aux=True)(part[0], embedding)

    def add(totals: tuple[jax.Array, jax.Array], parts: Part) -> Any:
        (of_hidden, of_embedding), sums = jax.vmap(of_part)(parts)
        return (totals[0] + sums, totals[1] + of_embedding), of_hidden

    zeros = jnp.zeros((batch_shards, 2)), jnp.zeros((batch_shards, *embedding.shape))
    parts = _in_parts((hidden, targets, real), len(embedding), batch_shards)
    (sums, of_embedding), of_hidden = lax.scan(add, zeros, parts)
    gradients = of_hidden.swapaxes(0, 1).reshape(hidden.shape), of_embedding.sum(0)
    return sums.sum(0), gradients


def _backward(
    label_smoothing: float,
    arithmetic: Arithmetic,
    batch_shards: int,
    gradients: tuple[jax.Array, jax.Array],
    cotangent: jax.Array,
) -> tuple[jax.Array, jax.Array, None, None]:
    del label_smoothing, arithmetic, batch_shards
    of_hidden, of_embedding = gradients
    loss_cotangent = cotangent[0]  # the count is of no parameter
    of_hidden = (loss_cotangent * of_hidden).astype(of_hidden.dtype)
    return of_hidden, loss_cotangent * of_embedding, None, None


loss_and_count_in_parts.defvjp(_forward, _backward)
