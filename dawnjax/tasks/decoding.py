"""Search for the best translation with a cache: greedy, and beam search with penalties.

Each is one `lax.while_loop` over positions for a whole padded batch, so it compiles into one
program of fixed shapes; it ends when the last row has ended. Both work with any model that maps a
cache and the tokens at a position to logits and the next cache.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

PAD = 0
"""The token of padding; it is also what a target begins with."""


class DecodingCache(Protocol):
    """A model's state between positions.

    A cache may have `coverage()` too: float32 [batch, beams], 0 or less, the sum over source tokens
    of the logarithm of their attention weights so far, each sum at most 1.
    """

    def reordered(self, rows: jax.Array) -> Any:
        """The cache in which each beam continues the past of a row, int [batch x beams]."""
        ...


DecodeNext = Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, Any]]
"""From `(cache, tokens [batch, beams], position)` to `(logits, cache)`.

Logits are float32 [batch, beams, vocabulary].
"""


class Decoded(NamedTuple):
    """The best translation found of each row.

    Attributes:
      tokens: int32 [batch, length]; padding follows the end token, or the row's limit.
      scores: float32 [batch], log probability (in nats) over the length penalty, plus the coverage
        penalty.
    """

    tokens: jax.Array
    scores: jax.Array


def length_penalty(length: jax.Array, alpha: float) -> jax.Array:
    """The divisor of a log probability: ((5 + length) / 6) ** alpha.

    Args:
      alpha: 0 prefers short translations; 0.6 is what Vaswani et al. 2017 chose.

    Source: Wu et al. 2016, "Google's Neural Machine Translation System" (arXiv 1609.08144),
    equation 14, without the coverage penalty.
    """
    return ((5.0 + length) / 6.0) ** alpha


def greedy_search(
    decode_next: DecodeNext,
    cache: Any,
    limits: jax.Array,
    *,
    max_length: int,
    end: int,
    alpha: float = 0.0,
) -> Decoded:
    """Takes the likeliest token at each position.

    Args:
      cache: Its cache before the first position, with one beam.
      limits: int32 [batch], tokens after which a row ends; 0 for a row of padding.
      max_length: The largest limit: the length of the result.
      alpha: Exponent of the length penalty in the scores.
    """
    batch = limits.shape[0]

    def unfinished(carry: tuple) -> jax.Array:
        position, _, _, alive, _, _ = carry
        return (position < max_length) & alive.any()

    def extend(carry: tuple) -> tuple:
        position, cache, inputs, alive, tokens, log_probability = carry
        logits, cache = decode_next(cache, inputs[:, None], position)
        log_probabilities = _log_probabilities(logits[:, 0])
        gain, best = maxima(log_probabilities)
        best = jnp.where(alive, best, PAD)
        log_probability += jnp.where(alive, gain, 0.0)
        tokens = tokens.at[:, position].set(best)
        alive = alive & (best != end) & (position + 1 < limits)
        return position + 1, cache, best, alive, tokens, log_probability

    start = (
        jnp.zeros((), jnp.int32),
        cache,
        jnp.full(batch, PAD, jnp.int32),
        limits > 0,
        jnp.full((batch, max_length), PAD, jnp.int32),
        jnp.zeros(batch, jnp.float32),
    )
    *_, tokens, log_probability = jax.lax.while_loop(unfinished, extend, start)
    lengths = (tokens != PAD).sum(axis=1)
    return Decoded(tokens, log_probability / length_penalty(lengths, alpha))


class _Beams(NamedTuple):
    """Live hypotheses and the best ended one of each row."""

    position: jax.Array
    cache: Any
    tokens: jax.Array  # [batch, beams, length]
    log_probabilities: jax.Array  # [batch, beams]
    ended_tokens: jax.Array  # [batch, length]
    ended_score: jax.Array  # [batch]
    num_ended: jax.Array  # [batch]
    live: jax.Array  # [batch]


def beam_search(
    decode_next: DecodeNext,
    cache: DecodingCache,
    limits: jax.Array,
    *,
    num_beams: int,
    max_length: int,
    end: int,
    alpha: float,
    beta: float = 0.0,
) -> Decoded:
    """Keeps the `num_beams` likeliest hypotheses at each position; returns the best that ended.

    A hypothesis ends when the end token is among its row's `num_beams` likeliest continuations, or
    at the row's limit. A row ends after `num_beams` of them, or as soon as no live one can still
    score better: its log probability only falls, the length penalty is largest at the limit, and
    that of coverage adds nothing above 0. With one beam this is greedy search.

    Args:
      cache: Its cache before the first position, with `num_beams` beams.
      limits: int32 [batch], tokens after which a row ends; 0 for a row of padding.
      num_beams: Hypotheses kept, 1 or more.
      max_length: The largest limit: the length of the result.
      alpha: Exponent of the length penalty, 0 or more.
      beta: Factor of the coverage penalty, which ranks ended hypotheses; 0 or more, and 0 for a
        cache without `coverage`.

    Source: Wu et al. 2016 (arXiv 1609.08144), equation 14.
    """
    batch = limits.shape[0]

    def unfinished(beams: _Beams) -> jax.Array:
        return (beams.position < max_length) & beams.live.any()

    def extend(beams: _Beams) -> _Beams:
        position = beams.position
        inputs = jnp.where(
            position == 0, PAD, beams.tokens[:, :, jnp.maximum(position - 1, 0)]
        ).astype(jnp.int32)
        logits, new_cache = decode_next(beams.cache, inputs, position)
        vocabulary = logits.shape[-1]
        totals = _log_probabilities(logits) + beams.log_probabilities[:, :, None]
        # Twice as many: if all of the first half end, the other half continue.
        count = min(2 * num_beams, num_beams * vocabulary)
        candidates, flat = jax.lax.top_k(totals.reshape(batch, -1), count)
        origin, token = flat // vocabulary, (flat % vocabulary).astype(jnp.int32)
        at_limit = (position + 1 >= limits)[:, None]
        ends = (token == end) | at_limit
        is_real = jnp.isfinite(candidates)

        # Ended hypotheses: only those that rank among the first `num_beams`.
        ending = ends & is_real & (jnp.arange(count) < num_beams) & beams.live[:, None]
        scores = candidates / length_penalty(position + 1, alpha)
        if beta:
            scores += beta * jnp.take_along_axis(new_cache.coverage(), origin, axis=1)
        scores = jnp.where(ending, scores, -jnp.inf)
        best = jnp.argmax(scores, axis=1)
        best_score = jnp.take_along_axis(scores, best[:, None], axis=1)[:, 0]
        all_tokens = jnp.take_along_axis(beams.tokens, origin[:, :, None], axis=1)
        all_tokens = all_tokens.at[:, :, position].set(token)
        best_tokens = jnp.take_along_axis(all_tokens, best[:, None, None], axis=1)[:, 0]
        better = best_score > beams.ended_score
        ended_tokens = jnp.where(better[:, None], best_tokens, beams.ended_tokens)
        ended_score = jnp.where(better, best_score, beams.ended_score)
        num_ended = beams.num_ended + ending.sum(axis=1)

        # Live ones: the likeliest that have not ended, in order.
        going = jnp.where(ends, -jnp.inf, candidates)
        log_probabilities, chosen = jax.lax.top_k(going, num_beams)
        origin = jnp.take_along_axis(origin, chosen, axis=1)
        tokens = jnp.take_along_axis(all_tokens, chosen[:, :, None], axis=1)
        reachable = log_probabilities[:, 0] / length_penalty(limits, alpha)
        live = beams.live & (num_ended < num_beams) & (ended_score < reachable) & ~at_limit[:, 0]
        return _Beams(
            position + 1,
            _reorder(new_cache, origin),
            tokens,
            log_probabilities,
            ended_tokens,
            ended_score,
            num_ended,
            live,
        )

    start = _Beams(
        position=jnp.zeros((), jnp.int32),
        cache=cache,
        tokens=jnp.full((batch, num_beams, max_length), PAD, jnp.int32),
        # All beams begin alike, so that only the first may give candidates.
        log_probabilities=jnp.full((batch, num_beams), -jnp.inf).at[:, 0].set(0.0),
        ended_tokens=jnp.full((batch, max_length), PAD, jnp.int32),
        ended_score=jnp.full(batch, -jnp.inf),
        num_ended=jnp.zeros(batch, jnp.int32),
        live=limits > 0,
    )
    beams = jax.lax.while_loop(unfinished, extend, start)
    return Decoded(beams.ended_tokens, jnp.where(limits > 0, beams.ended_score, 0.0))


def _log_probabilities(logits: jax.Array) -> jax.Array:
    """Computes float32 log probabilities; padding, which no translation holds, has the least."""
    return jax.nn.log_softmax(logits).at[..., PAD].set(-jnp.inf)


def maxima(values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Finds the maximum of each row of [batch, n] and its first place.

    For `argmax` XLA's CPU compiler makes no vector instructions: for 250 x 8,000 it takes about
    seven times as long as this (two cores of an AMD EPYC that other jobs shared).
    A row that holds NaN has NaN, and the place 0.
    """
    largest = values.max(axis=-1)
    places = jnp.arange(values.shape[-1], dtype=jnp.int32)
    first = jnp.where(values >= largest[:, None], places, values.shape[-1]).min(axis=-1)
    return largest, jnp.where(first == values.shape[-1], 0, first)


def _reorder(cache: Any, origin: jax.Array) -> Any:
    """Copies to each beam the past of the beam that it continues."""
    if origin.shape[1] == 1:
        return cache

    batch, num_beams = origin.shape
    rows = (jnp.arange(batch)[:, None] * num_beams + origin).reshape(-1)
    return cache.reordered(rows)
