"""Attention to a window of earlier tokens of the same document.

Letters of shapes in names: B examples, Q queries of a block, K keys that it may see, H heads; where
queries share keys, two axes stand for H, heads of keys and queries of each.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from dawnjax.models.execution import Execution
from dawnjax.models.fused_attention import fused_attention
from dawnjax.models.ring_attention import ring_attention
from dawnjax.models.sharding import parts_of, spec_of

BLOCK, _MOST_BLOCKS = 64, 4
"""Queries that are computed at once, and the most blocks of them.

Gradients of 8 rows of 256 tokens in 4 heads of 32 channels took 9.8 ms in blocks of 64 and 13.4 ms
at once (shortest of 15; two shared cores of an Intel Xeon).
"""


class Keys(NamedTuple):
    """Keys and values of a layer's earlier tokens, [batch, length, heads, channels]."""

    key: jax.Array
    value: jax.Array


class Place(NamedTuple):
    """Where the next token of each row stands, and the first that it may see: int32 [batch]."""

    place: jax.Array
    first: jax.Array


def next_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    earlier: Keys,
    at: Place,
    window: int,
    sinks: jax.Array | None = None,
) -> tuple[jax.Array, Keys]:
    """`causal_attention` of one more token of each row, and the keys with that token's own.

    Query, key and value are [batch, 1, heads, channels].
    """
    rows = jnp.arange(len(query))
    keys = earlier.key.at[rows, at.place].set(key[:, 0])
    values = earlier.value.at[rows, at.place].set(value[:, 0])
    first = jnp.maximum(at.first, at.place + 1 - window) if window else at.first
    places = jnp.arange(keys.shape[1])
    mask = (places >= first[:, None]) & (places <= at.place[:, None])
    return _products(query, keys, values, mask[:, None], sinks), Keys(keys, values)


def document_starts(tokens: jax.Array, places: jax.Array, separator: int) -> jax.Array:
    """First token of the document that a place of each row is in, int32 [batch]."""
    index = jnp.arange(tokens.shape[1])
    begins = (tokens == separator) & (index <= places[:, None])
    return jnp.where(begins, index, 0).max(axis=1)


def causal_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    documents: jax.Array | None,
    window: int,
    execution: Execution,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """Scaled dot-product attention, float32 [batch, length, heads, channels].

    A token sees `window` tokens, itself included (0 is no limit), of its own document in
    `documents`, int32 [batch, length] (None is one document). Consecutive query heads share one of
    fewer heads of keys and values. `sinks`, [heads], are scores that join
    each softmax and add no value. Scores must be finite, those of tokens that are not seen too.
    """
    parts = parts_of("tokens", query.shape[1], execution)
    if parts > 1:
        return _over_context(query, key, value, documents, window, execution, sinks, parts)
    length = query.shape[1]
    window = window or length
    mask = None if documents is None else visible(documents, 0, length, 0, length, window)
    within = window if documents is None and window < length else 0
    if sinks is None:
        arrays = (query, key, value)
        fused = fused_attention(*arrays, execution, mask=mask, is_causal=True, window=within)
        if fused is not None:
            return fused.astype(jnp.float32)
    block = window_block(window, length)
    if length // block > _MOST_BLOCKS:
        return _in_windows(query, key, value, documents, window, sinks, block)
    block = max(BLOCK, -(-length // _MOST_BLOCKS))
    attended = []
    for start in range(0, length, block):
        end = min(start + block, length)
        # No query of the block sees a key before this one.
        first = max(0, start + 1 - window)
        mask = visible(documents, start, end, first, end, window)
        seen = (query[:, start:end], key[:, first:end], value[:, first:end])
        attended.append(_products(*seen, mask, sinks))
    return jnp.concatenate(attended, axis=1)


def window_block(window: int, length: int) -> int:
    """Size of blocks whose queries see no other than theirs and the one before; else the length."""
    # The first query of a block sees a whole block before it, and itself.
    sizes = (max(BLOCK, window - 1), max(BLOCK, window))
    return next((size for size in sizes if length % size == 0), length)


def _in_windows(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    documents: jax.Array | None,
    window: int,
    sinks: jax.Array | None,
    block: int,
) -> jax.Array:
    """Attention of blocks, each to itself and the one before it; `window` is at most block + 1."""
    batch, length = query.shape[:2]

    def blocks(array: jax.Array) -> jax.Array:
        return array.reshape(-1, block, *array.shape[2:])

    def with_earlier(array: jax.Array, fill: int) -> jax.Array:
        pads = ((0, 0), (block, 0), *[(0, 0)] * (array.ndim - 2))
        earlier = jnp.pad(array, pads, constant_values=fill)[:, :length]
        return jnp.concatenate([blocks(earlier), blocks(array)], axis=1)

    if documents is None:
        documents = jnp.zeros((batch, length), jnp.int32)
    distance = block + jnp.arange(block)[:, None] - jnp.arange(2 * block)
    # Before the text lies a document of its own, which no token sees.
    mask = blocks(documents)[:, :, None] == with_earlier(documents, -1)[:, None]
    mask &= ((distance >= 0) & (distance < window))[None]
    seen = (blocks(query), with_earlier(key, 0), with_earlier(value, 0))
    return _products(*seen, mask, sinks).reshape(query.shape)


def _products(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask_BxQxK: jax.Array,
    sinks: jax.Array | None,
) -> jax.Array:
    shape, group = query.shape, query.shape[2] // key.shape[2]
    scores, mixed = "bqhc,bkhc->bhqk", "bhqk,bkhc->bqhc"
    # Added, since JAX would make the mask of a `where` for each head before a loop over layers, and
    # keep it for the backward pass. The barrier keeps XLA from making this one as large.
    unseen = jnp.where(mask_BxQxK[:, None], 0.0, -jnp.inf)
    unseen = jax.lax.optimization_barrier(unseen)
    if group > 1:
        query, unseen = query.reshape(*shape[:2], -1, group, shape[-1]), unseen[:, None]
        scores, mixed = "bqhgc,bkhc->bhgqk", "bhgqk,bkhc->bqhgc"
    scores_BxHxQxK = jnp.einsum(scores, query, key, preferred_element_type=jnp.float32)
    scores_BxHxQxK = scores_BxHxQxK / math.sqrt(shape[-1]) + unseen
    if sinks is None:
        weights_BxHxQxK = jax.nn.softmax(scores_BxHxQxK, axis=-1)
    else:
        sinks_Hx1x1 = sinks.reshape(*scores_BxHxQxK.shape[1:-2], 1, 1).astype(jnp.float32)
        most = jnp.maximum(scores_BxHxQxK.max(axis=-1, keepdims=True), sinks_Hx1x1)
        most = jax.lax.stop_gradient(most)
        weights_BxHxQxK = jnp.exp(scores_BxHxQxK - most)
        total = weights_BxHxQxK.sum(axis=-1, keepdims=True) + jnp.exp(sinks_Hx1x1 - most)
        weights_BxHxQxK /= total
    weights_BxHxQxK = weights_BxHxQxK.astype(value.dtype)
    result = jnp.einsum(mixed, weights_BxHxQxK, value, preferred_element_type=jnp.float32)
    return result.reshape(shape)


def _over_context(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    documents: jax.Array | None,
    window: int,
    execution: Execution,
    sinks: jax.Array | None,
    parts: int,
) -> jax.Array:
    """Attention of each device's tokens to the keys of all, gathered or in a ring along `context`.

    Every device multiplies its queries with all keys and masks later ones, so all work the same.
    """
    assert execution.placement is not None
    mesh, length = execution.placement.mesh, query.shape[1]
    window = window or length

    def attend(query, key, value, documents, sinks):
        if execution.context_keys == "ring":
            return ring_attention(query, key, value, documents, sinks, parts, window)
        key, value = (
            jax.lax.all_gather(array, "context", axis=1, tiled=True) for array in (key, value)
        )
        start = jax.lax.axis_index("context") * (length // parts)
        places = start + jnp.arange(length // parts)
        distance = places[:, None] - jnp.arange(length)
        mask = ((distance >= 0) & (distance < window))[None]
        if documents is not None:
            mine = jax.lax.dynamic_slice_in_dim(documents, start, length // parts, axis=1)
            mask &= mine[:, :, None] == documents[:, None]
        return _products(query, key, value, mask, sinks)

    heads = spec_of(("batch", "tokens", "kv_heads", None), key.shape, mesh)
    rows = spec_of(("batch", None), (len(query), length), mesh)
    of_sinks = PartitionSpec(heads[2])
    return jax.shard_map(
        attend,
        mesh=mesh,
        in_specs=(heads, heads, heads, rows, of_sinks),
        out_specs=heads,
        check_vma=False,
    )(query, key, value, documents, sinks)


def visible(
    documents: jax.Array | None, start: int, end: int, first: int, last: int, window: int
) -> jax.Array:
    """Mask of the keys `first` to `last` that queries `start` to `end` see: [batch or 1, q, k]."""
    distance = jnp.arange(start, end)[:, None] - jnp.arange(first, last)
    mask = ((distance >= 0) & (distance < window))[None]
    if documents is not None:
        mask &= documents[:, start:end, None] == documents[:, None, first:last]
    return mask
