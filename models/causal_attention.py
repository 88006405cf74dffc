"""Attention to a window of earlier tokens of the same document.

Letters of shapes in names: B examples, Q queries of a block, K keys that it may see, H heads, and in
grouped attention G queries that share the head of a key.
"""

import math

import jax
import jax.numpy as jnp

from dawnjax.models.execution import Execution
from dawnjax.models.fused_attention import fused_attention

BLOCK, _MOST_BLOCKS = 64, 4
"""Queries that are computed at once, and the most blocks of them.

Gradients of 8 rows of 256 tokens in 4 heads of 32 channels took 9.8 ms in blocks of 64 and 13.4 ms
at once (shortest of 15; two shared cores of an Intel Xeon).
"""


def causal_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    documents: jax.Array | None,
    window: int,
    execution: Execution,
) -> jax.Array:
    """Scaled dot-product attention, float32 [batch, length, heads, channels].

    A token sees `window` tokens, itself included (0 is no limit), of its own document in
    `documents`, int32 [batch, length] (None is one document). Consecutive query heads share one of
    fewer heads of keys and values.
    """
    length, group = query.shape[1], query.shape[2] // key.shape[2]
    window = window or length
    mask = None if documents is None else visible(documents, 0, length, 0, length, window)
    within = window if documents is None and window < length else 0
    fused = fused_attention(query, key, value, execution, mask=mask, is_causal=True, window=within)
    if fused is not None:
        return fused.astype(jnp.float32)
    block = max(BLOCK, -(-length // _MOST_BLOCKS))
    heads, scores, mixed = query.shape, "bqhc,bkhc->bhqk", "bhqk,bkhc->bqhc"
    if group > 1:
        query = query.reshape(*heads[:2], -1, group, heads[-1])
        scores, mixed = "bqhgc,bkhc->bhgqk", "bhgqk,bkhc->bqhgc"
    attended = []
    for start in range(0, length, block):
        end = min(start + block, length)
        # No query of the block sees a key before this one.
        first = max(0, start + 1 - window)
        scores_BxHxQxK = jnp.einsum(
            scores,
            query[:, start:end],
            key[:, first:end],
            preferred_element_type=jnp.float32,
        )
        mask_Bx1xQxK = visible(documents, start, end, first, end, window)[:, None]
        if group > 1:
            mask_Bx1xQxK = mask_Bx1xQxK[:, None]
        scores_BxHxQxK /= math.sqrt(query.shape[-1])
        scores_BxHxQxK = jnp.where(mask_Bx1xQxK, scores_BxHxQxK, -jnp.inf)
        weights_BxHxQxK = jax.nn.softmax(scores_BxHxQxK, axis=-1).astype(value.dtype)
        attended.append(
            jnp.einsum(
                mixed,
                weights_BxHxQxK,
                value[:, first:end],
                preferred_element_type=jnp.float32,
            )
        )
    return jnp.concatenate(attended, axis=1).reshape(heads)


def visible(
    documents: jax.Array | None, start: int, end: int, first: int, last: int, window: int
) -> jax.Array:
    """Mask of the keys `first` to `last` that queries `start` to `end` see: [batch or 1, q, k]."""
    distance = jnp.arange(start, end)[:, None] - jnp.arange(first, last)
    mask = ((distance >= 0) & (distance < window))[None]
    if documents is not None:
        mask &= documents[:, start:end, None] == documents[:, None, first:last]
    return mask
