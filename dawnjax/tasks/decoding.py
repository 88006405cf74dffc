"""Search for the best translation with a cache: greedy, and beam search with penalties.

Each is one `lax.while_loop` over positions for a whole padded batch, of fixed shapes. Both work
with any model that maps a cache and the tokens at a position to logits and the next cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from etils import epy

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import maxima

PAD = 0
"""The token of padding; it is also what a target begins with."""


class DecodingCache(Protocol):
    """A model's state between positions.

    A cache may have `coverage()` too: float32 [batch, beams], the sum over source tokens of the
    logarithm of their attention weights so far, each sum at most 1.
    """

    def reordered(self, rows: jax.Array) -> Any:
        """Cache in which each beam continues the past of a row, int [batch x beams]."""
        ...


DecodeNext = Callable[[Any, "jax.Array", "jax.Array"], "tuple[jax.Array, Any]"]
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
    """Divisor of a log probability: ((5 + length) / 6) ** alpha; an alpha of 0 prefers short ones.

    Source: Wu et al. 2016, "Google's Neural Machine Translation System" (arXiv 1609.08144),
    equation 14, without the coverage penalty. Vaswani et al. 2017 chose an alpha of 0.6.
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
    """Likeliest token at each position, after a cache with one beam.

    `limits`, int32 [batch], are tokens after which a row ends, at most `max_length`; 0 for a row of
    padding.
    """
    batch = limits.shape[0]

    def unfinished(carry: tuple) -> jax.Array:
        position, _, _, alive, _, _ = carry
        return (position < max_length) & alive.any()

    def extend(carry: tuple) -> tuple:
        position, cache, inputs, alive, tokens, log_probability = carry
        logits, cache = decode_next(cache, inputs[:, None], position)
        log_probabilities = _log_probabilities(logits[:, 0])
        gain, best = maxima.maxima(log_probabilities)
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
    """Best ended hypotheses, of the `num_beams` likeliest at each position; 1 is greedy search.

    A hypothesis ends when the end token is among its row's `num_beams` likeliest continuations, or
    at the row's limit. A row ends after `num_beams` of them, or as soon as no live one can still
    score better. `limits` and `max_length` are as of `greedy_search`.

    Args:
      alpha: Exponent of the length penalty, 0 or more.
      beta: Factor of the coverage penalty, 0 or more, and 0 for a cache without `coverage`.

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
        # A log probability only falls, the length penalty is largest at the limit, and that of
        # coverage adds nothing above 0.
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
    # No translation holds padding.
    return jax.nn.log_softmax(logits).at[..., PAD].set(-jnp.inf)


def _reorder(cache: Any, origin: jax.Array) -> Any:
    if origin.shape[1] == 1:
        return cache

    batch, num_beams = origin.shape
    rows = (jnp.arange(batch)[:, None] * num_beams + origin).reshape(-1)
    return cache.reordered(rows)
