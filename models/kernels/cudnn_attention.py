"""Attention in one call, which a GPU gives to cuDNN.

It took 12.7 ms of a Transformer big step on an H200, where scores, softmax and products took 25.0
(benchmarks/measurements.md, "What a change did").
"""

import jax
import jax.numpy as jnp

MOST_CHANNELS = 128
"""Of a head: above them cuDNN has no gradient on every GPU that it takes."""


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | None,
    *,
    is_causal: bool,
    window: int,
    on_gpu: bool,
) -> jax.Array:
    """Scaled dot-product attention; elsewhere than on a GPU XLA computes the same.

    `mask` is bool [batch, queries, keys], and None with a `window`: cuDNN takes one or the other.
    """
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=None if mask is None else mask[:, None],  # one for all heads: fewer bytes to read
        is_causal=is_causal,
        local_window_size=(window - 1, 0) if window else None,
        implementation="cudnn" if on_gpu else "xla",
    )


def why_not(query: jax.Array, key: jax.Array, *, on_gpu: bool) -> str:
    """Reason why cuDNN's attention with its gradient refuses these arrays; empty for none.

    Source: `check_layout` and `check_is_flash_attention` in jax 0.10's and 0.11's
    `cudnn/fused_attention_stablehlo.py`.
    """
    queries, keys, channels = query.shape[1], key.shape[1], query.shape[3]
    if on_gpu and query.dtype not in (jnp.bfloat16, jnp.float16):
        return f"cuDNN's takes bfloat16 and float16, and it is {query.dtype}"
    if channels % 8 or channels > MOST_CHANNELS:
        return f"cuDNN's takes multiples of 8 up to {MOST_CHANNELS} channels a head, not {channels}"
    if queries % 2 or keys % 2:
        return f"cuDNN's takes even lengths, not {queries} by {keys}"
    return ""
