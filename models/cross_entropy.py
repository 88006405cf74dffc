"""The cross entropy of tokens, whole or in parts that never hold all logits.

The logits of a large batch are its largest arrays: 96 x 256 tokens by a vocabulary of 32,768 are
3.2 GB in float32, written, read, and once more as a gradient. In parts, the logits of some tokens
are made, and from them at once the part's loss and its gradients, which are all that stays. Nothing
is computed twice: the loss is a sum, whose gradients need only be scaled by what comes after it.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dawnjax.models.arithmetic import Arithmetic, linear
from dawnjax.models.chunks import nearest_divisor
from dawnjax.models.execution import Platform

PART_BYTES = 256 << 20
"""Bytes of logits that a device makes at a time: 2,048 tokens of 32,768 still fill its products."""


class Tokens(NamedTuple):
    """What the loss is of.

    Attributes:
      hidden: [batch, length, width], the decoder's output.
      targets: int32 [batch, length].
      real: bool [batch, length]; the other tokens count nothing.
    """

    hidden: jax.Array
    targets: jax.Array
    real: jax.Array


def logits_of(hidden: jax.Array, embedding: jax.Array, arithmetic: Arithmetic) -> jax.Array:
    """Gives float32 logits [..., vocabulary] of [..., width] by the transposed embedding."""
    return linear(hidden, embedding, arithmetic, "oi", jnp.dtype("float32"))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def token_losses(
    logits: jax.Array, targets: jax.Array, label_smoothing: float, platform: Platform
) -> jax.Array:
    """Gives each token's cross entropy against smoothed labels, in nats.

    Args:
      logits: float32 [..., vocabulary].
      targets: int32 [...].
      label_smoothing: The probability that is spread evenly over all tokens, the true one too.
      platform: What the program is compiled for.

    Source: Szegedy et al. 2016 (arXiv 1512.00567), section 7; Vaswani et al. 2017, section 5.4.
    """
    return _token_losses_forward(logits, targets, label_smoothing, platform)[0]


def _token_losses_forward(
    logits: jax.Array, targets: jax.Array, label_smoothing: float, platform: Platform
) -> Any:
    normalizer, mean = _normalizer_and_mean(logits, platform)
    own = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    losses = normalizer - (1 - label_smoothing) * own
    if label_smoothing:
        losses -= label_smoothing * mean
    return losses, (logits, targets, normalizer)


def _normalizer_and_mean(logits: jax.Array, platform: Platform) -> tuple[jax.Array, jax.Array]:
    """Gives log(sum(exp(logits))) and the mean along the last axis."""
    if platform != "gpu":
        return jax.nn.logsumexp(logits, axis=-1), logits.mean(-1)
    # One reduction: XLA on a GPU reads the logits for each by itself, and those are three.
    zero, lowest = np.float32(0), np.finfo(np.float32).min
    largest, total, plain = lax.reduce(
        (logits, jnp.ones_like(logits), logits),
        (lowest, zero, zero),
        _join_sums,
        (logits.ndim - 1,),
    )
    return largest + jnp.log(total), plain / logits.shape[-1]


def _join_sums(one: Any, other: Any) -> Any:
    """Joins (largest, sum of exponentials relative to it, plain sum) of two parts of a row."""
    largest = jnp.maximum(one[0], other[0])
    total = one[1] * jnp.exp(one[0] - largest) + other[1] * jnp.exp(other[0] - largest)
    return largest, total, one[2] + other[2]


def _token_losses_backward(
    label_smoothing: float, platform: Platform, kept: Any, cotangent: jax.Array
) -> tuple[jax.Array, None]:
    del platform
    # Written out, it is one pass over the logits. JAX's own adds the true token's part by a
    # scatter, for which XLA on a GPU copies them all.
    logits, targets, normalizer = kept
    vocabulary = logits.shape[-1]
    is_own = jnp.arange(vocabulary) == targets[..., None]
    wanted = jnp.where(is_own, 1 - label_smoothing, 0.0) + label_smoothing / vocabulary
    return cotangent[..., None] * (jnp.exp(logits - normalizer[..., None]) - wanted), None


token_losses.defvjp(_token_losses_forward, _token_losses_backward)


def loss_and_count(
    tokens: Tokens, embedding: jax.Array, label_smoothing: float, arithmetic: Arithmetic
) -> jax.Array:
    """Gives the summed loss of real tokens, and how many they are: float32 [2].

    Args:
      tokens: The decoder's output and the targets.
      embedding: float32 [vocabulary, width].
      label_smoothing: As in `token_losses`.
      arithmetic: Of the products.
    """
    logits = logits_of(tokens.hidden, embedding, arithmetic)
    losses = token_losses(logits, tokens.targets, label_smoothing, arithmetic.platform)
    sums = jnp.stack([jnp.where(tokens.real, losses, 0.0), tokens.real.astype(jnp.float32)])
    return sums.sum((1, 2))  # one reduction over devices, for both


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def loss_and_count_in_parts(
    tokens: Tokens, embedding: jax.Array, label_smoothing: float, arithmetic: Arithmetic
) -> jax.Array:
    """Gives what `loss_and_count` does. Differentiable by the decoder's output and the embedding.

    Each device adds up the sums and the embedding's gradient of its own parts, and they are reduced
    once.

    Args:
      tokens: As there, like the arguments that follow.
      embedding: The same.
      label_smoothing: The same.
      arithmetic: The same.
    """

    def add(totals: jax.Array, parts: Tokens) -> tuple[jax.Array, None]:
        sums = jax.vmap(lambda part: loss_and_count(part, embedding, label_smoothing, arithmetic))
        return totals + sums(parts), None

    parts = _in_parts(tokens, len(embedding), arithmetic.batch_shards)
    totals, _ = lax.scan(add, jnp.zeros((arithmetic.batch_shards, 2)), parts)
    return totals.sum(0)


def _in_parts(tokens: Tokens, vocabulary_size: int, batch_shards: int) -> Tokens:
    """Gives [parts, shards, examples of a part, ...] of [batch, ...]; no example changes device."""
    batch, length = tokens.targets.shape
    size = nearest_divisor(batch // batch_shards, PART_BYTES / (length * vocabulary_size * 4))
    split = (array.reshape(batch_shards, -1, size, *array.shape[1:]) for array in tokens)
    return Tokens(*(array.swapaxes(0, 1) for array in split))


def _forward(
    tokens: Tokens, embedding: jax.Array, smoothing: float, arithmetic: Arithmetic
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    def of_part(part: Tokens) -> Any:
        def loss(hidden: jax.Array, embedding: jax.Array) -> tuple[jax.Array, jax.Array]:
            sums = loss_and_count(part._replace(hidden=hidden), embedding, smoothing, arithmetic)
            return sums[0], sums

        return jax.grad(loss, argnums=(0, 1), has_aux=True)(part.hidden, embedding)

    def add(totals: tuple[jax.Array, jax.Array], parts: Tokens) -> Any:
        (of_hidden, of_embedding), sums = jax.vmap(of_part)(parts)
        return (totals[0] + sums, totals[1] + of_embedding), of_hidden

    shards = arithmetic.batch_shards
    zeros = jnp.zeros((shards, 2)), jnp.zeros((shards, *embedding.shape))
    parts = _in_parts(tokens, len(embedding), shards)
    (sums, of_embedding), of_hidden = lax.scan(add, zeros, parts)
    of_hidden = of_hidden.swapaxes(0, 1).reshape(tokens.hidden.shape)
    return sums.sum(0), (of_hidden, of_embedding.sum(0))


def _backward(
    label_smoothing: float,
    arithmetic: Arithmetic,
    gradients: tuple[jax.Array, jax.Array],
    cotangent: jax.Array,
) -> tuple[Any, jax.Array]:
    del label_smoothing, arithmetic
    of_hidden, of_embedding = gradients
    loss_cotangent = cotangent[0]  # the count is of no parameter
    of_hidden = (loss_cotangent * of_hidden).astype(of_hidden.dtype)
    return Tokens(of_hidden, None, None), loss_cotangent * of_embedding  # pyright: ignore[reportArgumentType]


loss_and_count_in_parts.defvjp(_forward, _backward)
