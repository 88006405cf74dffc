"""Attention as one call, which a GPU gives to cuDNN, on one device or on several."""

import functools
import logging

import jax
import jax.numpy as jnp

from dawnjax.models.execution import Execution, Platform
from dawnjax.models.sharding import spec_of

MOST_CHANNELS = 128
"""Of a head: above them cuDNN has no gradient on every GPU that it takes."""


def fused_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    execution: Execution,
    *,
    mask: jax.Array | None = None,
    is_causal: bool = False,
    window: int = 0,
) -> jax.Array | None:
    """Scaled dot-product attention in one call; None where it has to be made of products.

    The query is [batch, queries, heads, channels], as is the result; key and value are [batch,
    keys, heads, channels].

    Args:
      mask: bool, broadcast to [batch, queries, keys]: which keys a query sees.
      is_causal: Whether a query sees no later key. cuDNN leaves out what lies behind.
      window: Keys that a query sees, itself included; 0 is no limit. It needs `is_causal`, and no
        mask: cuDNN takes one or the other.
    """
    if execution.attention == "products":
        return None
    # Inside of a program for each device, its examples are all there are.
    is_local = bool(jax.sharding.get_abstract_mesh().manual_axes)
    shards = 1 if is_local else execution.batch_shards
    why = _why_products(query, key, shards, execution.platform)
    if why:
        say_products(why)
        return None

    def attend(query: jax.Array, key: jax.Array, value: jax.Array, *masks: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(
            query,
            key,
            value,
            mask=masks[0][:, None] if masks else None,  # one for all heads: fewer bytes to read
            is_causal=is_causal,
            local_window_size=(window - 1, 0) if window else None,
            implementation="cudnn" if execution.platform == "gpu" else "xla",
        )

    arrays = [query, key, value]
    if mask is not None:
        # cuDNN reads it as numbers to add, of the queries' dtype.
        arrays.append(jnp.broadcast_to(mask, (len(key), query.shape[1], key.shape[1])))
    # Each device attends for its own examples: JAX's own rule for cuDNN ends the compilation where
    # XLA placed queries, keys and masks differently.
    rows = execution.placement
    if rows is None or is_local:
        return attend(*arrays)
    # Heads are split as `sharding.RULES` say, and each device has whole groups of them.
    heads = spec_of(("batch", None, "kv_heads", None), key.shape, rows.mesh)
    masks = spec_of(("batch", None, None), (len(key), 1, 1), rows.mesh)
    # Of all axes of the mesh: JAX's rule for cuDNN fails where some are left to XLA.
    return jax.shard_map(
        attend,
        mesh=rows.mesh,
        in_specs=(*[heads] * 3, *[masks] * (len(arrays) - 3)),
        out_specs=heads,
        check_vma=False,
    )(*arrays)


def _why_products(query: jax.Array, key: jax.Array, shards: int, platform: Platform) -> str:
    """Reason why cuDNN's attention with its gradient refuses these arrays; empty for none.

    Source: `check_layout` and `check_is_flash_attention` in jax 0.10's and 0.11's
    `cudnn/fused_attention_stablehlo.py`.
    """
    (batch, queries, _, channels), keys = query.shape, key.shape[1]
    if batch % shards:
        return f"{batch} examples do not divide among {shards} devices"
    if platform == "gpu" and query.dtype not in (jnp.bfloat16, jnp.float16):
        return f"cuDNN's takes bfloat16 and float16, and it is {query.dtype}"
    if channels % 8 or channels > MOST_CHANNELS:
        return f"cuDNN's takes multiples of 8 up to {MOST_CHANNELS} channels a head, not {channels}"
    if queries % 2 or keys % 2:
        return f"cuDNN's takes even lengths, not {queries} by {keys}"
    return ""


@functools.cache
def say_products(why: str) -> None:
    """Log, once for each reason, that attention is computed as separate products."""
    logging.getLogger("dawnjax").warning("attention is computed as products: %s", why)
