"""Attention in one call where the platform has one, on one device or on several."""

import functools
import logging

import jax
import jax.numpy as jnp

from dawnjax.models.execution import Execution
from dawnjax.models.kernels import cudnn_attention
from dawnjax.models.sharding import spec_of


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
        mask.
    """
    if execution.attention == "products":
        return None
    # Inside of a program for each device, its examples are all there are.
    is_local = bool(jax.sharding.get_abstract_mesh().manual_axes)
    shards = 1 if is_local else execution.batch_shards
    on_gpu = execution.platform == "gpu"
    why = cudnn_attention.why_not(query, key, on_gpu=on_gpu)
    if len(query) % shards:
        why = f"{len(query)} examples do not divide among {shards} devices"
    if why:
        say_products(why)
        return None
    attend = functools.partial(
        cudnn_attention.attention, is_causal=is_causal, window=window, on_gpu=on_gpu
    )
    if mask is not None:
        # cuDNN reads it as numbers to add, of the queries' dtype.
        mask = jnp.broadcast_to(mask, (len(key), query.shape[1], key.shape[1]))
    # Each device attends for its own examples: JAX's own rule for cuDNN ends the compilation where
    # XLA placed queries, keys and masks differently.
    rows = execution.placement
    if rows is None or is_local:
        return attend(query, key, value, mask)
    # Heads are split as `sharding.RULES` say, and each device has whole groups of them.
    heads = spec_of(("batch", None, "kv_heads", None), key.shape, rows.mesh)
    masks = spec_of(("batch", None, None), (len(key), 1, 1), rows.mesh)
    # Of all axes of the mesh: JAX's rule for cuDNN fails where some are left to XLA.
    return jax.shard_map(
        attend,
        mesh=rows.mesh,
        in_specs=(heads, heads, heads, masks),
        out_specs=heads,
        check_vma=False,
    )(query, key, value, mask)


@functools.cache
def say_products(why: str) -> None:
    """Log, once for each reason, that attention is computed as separate products."""
    logging.getLogger("dawnjax").warning("attention is computed as products: %s", why)
