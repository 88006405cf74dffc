"""The cross entropy of tokens, whole or in parts that never hold all logits.

The logits of a large batch are its largest arrays: 96 x 256 tokens by a vocabulary of 32,768 are
3.2 GB in float32, written, read, and once more as a gradient. In parts, the logits of some tokens
are made, and from them at once the part's loss and its gradients, which are all that stays. Nothing
is computed twice: the loss is a sum, whose gradients need only be scaled by what comes after it.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from dawnjax.models.arithmetic import Arithmetic, linear
from dawnjax.models.chunks import from_chunks, in_chunks, nearest_divisor

PART_BYTES = 256 << 20
"""Bytes of logits that a device makes at a time: 2,048 tokens of 32,768 still fill its products."""


def logits_of(hidden: jax.Array, embedding: jax.Array, arithmetic: Arithmetic) -> jax.Array:
    """Gives float32 logits [..., vocabulary] of [..., width] by the transposed embedding."""
    return linear(hidden, embedding, arithmetic, "oi", jnp.dtype("float32"))


def token_losses(logits: jax.Array, targets: jax.Array, label_smoothing: float) -> jax.Array:
    """Gives each token's cross entropy against smoothed labels, in nats.

    Args:
      logits: float32 [..., vocabulary].
      targets: int32 [...].
      label_smoothing: The probability that is spread evenly over all tokens, the true one too.

    Source: Szegedy et al. 2016 (arXiv 1512.00567), section 7; Vaswani et al. 2017, section 5.4.
    """
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    own = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    losses = normalizer - (1 - label_smoothing) * own
    return losses - label_smoothing * logits.mean(-1) if label_smoothing else losses


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def sums_in_parts(
    hidden: jax.Array,
    embedding: jax.Array,
    targets: jax.Array,
    real: jax.Array,
    label_smoothing: float,
    arithmetic: Arithmetic,
    batch_shards: int,
) -> jax.Array:
    """Gives the summed loss of real tokens, float32 []. Differentiable by the first two arguments.

    Args:
      hidden: [batch, length, width], the decoder's output.
      embedding: float32 [vocabulary, width].
      targets: int32 [batch, length].
      real: bool [batch, length]; the other tokens count nothing.
      label_smoothing: As in `token_losses`.
      arithmetic: Of the products.
      batch_shards: Over how many devices the examples are spread in equal runs. Each adds up the
        embedding's gradient of its own parts, and the sums are reduced once.
    """
    del batch_shards
    return _summed(hidden, embedding, targets, real, label_smoothing, arithmetic)


def _summed(hidden, embedding, targets, real, label_smoothing, arithmetic):
    losses = token_losses(logits_of(hidden, embedding, arithmetic), targets, label_smoothing)
    return jnp.where(real, losses, 0.0).sum()


def _forward(hidden, embedding, targets, real, label_smoothing, arithmetic, batch_shards):
    rows = hidden.shape[0] // batch_shards
    wanted = PART_BYTES / (hidden.shape[1] * len(embedding) * 4)
    size = batch_shards * nearest_divisor(rows, wanted)
    parts = tuple(in_chunks(array, size, batch_shards) for array in (hidden, targets, real))

    def of_shard(hidden: jax.Array, targets: jax.Array, real: jax.Array):
        loss = functools.partial(_summed, label_smoothing=label_smoothing, arithmetic=arithmetic)
        return jax.value_and_grad(loss, argnums=(0, 1))(hidden, embedding, targets, real)

    def add(total, part):
        shards = [array.reshape(batch_shards, -1, *array.shape[1:]) for array in part]
        loss, (of_hidden, of_embedding) = jax.vmap(of_shard)(*shards)
        total = total[0] + loss, total[1] + of_embedding
        return total, of_hidden.reshape(part[0].shape)

    zeros = jnp.zeros(batch_shards), jnp.zeros((batch_shards, *embedding.shape), embedding.dtype)
    (loss, of_embedding), of_hidden = lax.scan(add, zeros, parts)
    return loss.sum(), (from_chunks(of_hidden, batch_shards), of_embedding.sum(0))


def _backward(label_smoothing, arithmetic, batch_shards, gradients, cotangent):
    del label_smoothing, arithmetic, batch_shards
    return *((cotangent * gradient).astype(gradient.dtype) for gradient in gradients), None, None


sums_in_parts.defvjp(_forward, _backward)
