"""Attention in a ring: each device passes keys and values on, and adds up what its queries see.

Along `context` a device holds a part of the text. In each of as many turns it multiplies its
queries with one part of the keys, so none holds the keys or the scores of a whole text. The softmax
is added up from turn to turn. The backward pass makes the turns again: the sums of the gradients of
keys and values travel with them, and come home after the last turn.

Every device makes every turn, also those whose keys are all later than its queries. Letters of
shapes: B examples, Q queries and K keys of a part, H heads of keys, G query heads of each, C
channels.

Source: Liu et al. 2023 (arXiv 2310.01889), section 3, for the ring; Dao 2023 (arXiv 2307.08691),
section 3.1, for the sums and their gradients.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

AXIS = "context"


def ring_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    documents: jax.Array | None,
    sinks: jax.Array | None,
    parts: int,
    window: int,
) -> jax.Array:
    """Attention of a device's part of the queries, float32 [batch, part, heads, channels].

    To be called in a `shard_map` over `context` of `parts` devices. `documents`, int32 [batch,
    length], are those of the whole text.
    """
    heads, size = key.shape[2], query.shape[1]
    grouped = query.reshape(*query.shape[:2], heads, -1, query.shape[-1])
    if documents is None:
        documents = jnp.zeros((1, parts * size), jnp.int32)
    # A score of -inf joins no softmax.
    scores = jnp.full(grouped.shape[2:4], -jnp.inf) if sinks is None else sinks
    scores = scores.astype(jnp.float32).reshape(grouped.shape[2:4])
    mixed_BxHxGxQxC: jax.Array = _ring(grouped, key, value, documents, scores, parts, window)
    return jnp.moveaxis(mixed_BxHxGxQxC, 3, 1).reshape(query.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _ring(query, key, value, documents, sinks, parts: int, window: int) -> jax.Array:
    return _forward(query, key, value, documents, sinks, parts, window)[0]


def _forward(query, key, value, documents, sinks, parts: int, window: int) -> tuple[Any, Any]:
    batch, size = query.shape[:2]
    most = jnp.broadcast_to(sinks[None, :, :, None], (batch, *sinks.shape, size))
    total = jnp.isfinite(most).astype(jnp.float32)
    mixed = jnp.zeros((*most.shape, query.shape[-1]), jnp.float32)
    held = key, value
    for turn in range(parts):
        if turn:
            held = _passed(held, parts)
        scores = _scores(query, held[0], documents, turn, parts, window)
        # The first turn has the token itself, so that from there on no maximum is -inf.
        newest = jnp.maximum(most, scores.max(axis=-1))
        weights, kept = jnp.exp(scores - newest[..., None]), jnp.exp(most - newest)
        total = total * kept + weights.sum(axis=-1)
        mixed *= kept[..., None]
        mixed += _product("bhgqk,bkhc->bhgqc", weights.astype(value.dtype), held[1])
        most = newest
    mixed /= total[..., None]
    return mixed, (query, key, value, documents, sinks, mixed, most + jnp.log(total))


def _backward(parts: int, window: int, saved: Any, gradient: jax.Array) -> tuple[Any, ...]:
    query, key, value, documents, sinks, mixed, log_total = saved
    # Of the weights' gradient, the part that the softmax's sum of 1 takes away.
    common = (gradient * mixed).sum(axis=-1)
    low = gradient.astype(value.dtype)
    of_query = jnp.zeros(query.shape, jnp.float32)
    held = key, value
    sums = jnp.zeros(key.shape, jnp.float32), jnp.zeros(value.shape, jnp.float32)
    for turn in range(parts):
        if turn:
            held, sums = _passed(held, parts), _passed(sums, parts)
        scores = _scores(query, held[0], documents, turn, parts, window)
        weights = jnp.exp(scores - log_total[..., None])
        of_weights = _product("bhgqc,bkhc->bhgqk", low, held[1])
        of_scores = weights * (of_weights - common[..., None]) / math.sqrt(query.shape[-1])
        of_scores = of_scores.astype(query.dtype)
        of_query += _product("bhgqk,bkhc->bqhgc", of_scores, held[0])
        of_key = _product("bhgqk,bqhgc->bkhc", of_scores, query)
        of_value = _product("bhgqk,bhgqc->bkhc", weights.astype(value.dtype), low)
        sums = sums[0] + of_key, sums[1] + of_value
    of_key, of_value = _passed(sums, parts)
    of_sinks = -(jnp.exp(sinks[None, :, :, None] - log_total) * common).sum(axis=(0, 3))
    of_query, of_key = of_query.astype(query.dtype), of_key.astype(key.dtype)
    return of_query, of_key, of_value.astype(value.dtype), None, of_sinks


_ring.defvjp(_forward, _backward)


def _scores(query, key, documents, turn: int, parts: int, window: int) -> jax.Array:
    """Scores of the turn's keys, float32 [B, H, G, Q, K]; -inf for those that are not seen."""
    size, here = query.shape[1], jax.lax.axis_index(AXIS)
    starts = here * size, (here - turn) % parts * size
    mine, theirs = (start + jnp.arange(size) for start in starts)
    distance = mine[:, None] - theirs
    of_mine, of_theirs = (
        jax.lax.dynamic_slice_in_dim(documents, start, size, axis=1) for start in starts
    )
    seen = (distance >= 0) & (distance < window) & (of_mine[:, :, None] == of_theirs[:, None])
    scores = _product("bqhgc,bkhc->bhgqk", query, key) / math.sqrt(query.shape[-1])
    return jnp.where(seen[:, None, None], scores, -jnp.inf)


def _passed(arrays: tuple[jax.Array, ...], parts: int) -> tuple[jax.Array, ...]:
    """Arrays of the device before this one."""
    pairs = [(device, (device + 1) % parts) for device in range(parts)]
    return tuple(jax.lax.ppermute(array, AXIS, pairs) for array in arrays)


def _product(equation: str, first: jax.Array, second: jax.Array) -> jax.Array:
    return jnp.einsum(equation, first, second, preferred_element_type=jnp.float32)
