"""Layer normalization in float32, with a gradient that is short on a GPU.

Source: Ba et al. 2016, "Layer Normalization" (arXiv 1607.06450), section 3.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dawnjax.models.arithmetic import Arithmetic

NORM_EPSILON = 1e-6
"""Added to the variance; as in the MLPerf v0.5 reference implementation of the Transformer."""


class LayerNorm(nnx.Module):
    """Normalize [..., channels] over channels, in the inputs' dtype."""

    def __init__(self, width: int, arithmetic: Arithmetic):
        self.scale = nnx.Param(jnp.ones(width, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(width, jnp.float32))
        self.execution = arithmetic.execution

    def __call__(self, hidden: jax.Array) -> jax.Array:
        parameters = self.scale[...], self.bias[...]
        if self.execution.platform == "gpu":
            shards = self.execution.batch_shards
            shards = shards if len(hidden) % shards == 0 else 1
            return _normalize_on_gpu(hidden, *parameters, shards)
        return _normalize(hidden, *parameters)


def _normalize(hidden: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    centred = hidden.astype(jnp.float32)
    centred = centred - centred.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    normed = centred * jax.lax.rsqrt(variance + NORM_EPSILON)
    return (normed * scale + bias).astype(hidden.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _normalize_on_gpu(
    hidden: jax.Array, scale: jax.Array, bias: jax.Array, batch_shards: int
) -> jax.Array:
    return _normalize(hidden, scale, bias)


def _normalize_forward(hidden, scale, bias, batch_shards):
    return _normalize(hidden, scale, bias), (hidden, scale)


def _normalize_backward(batch_shards, kept, cotangent):
    hidden, scale = kept
    values = hidden.astype(jnp.float32)
    mean = values.mean(-1, keepdims=True)
    variance = jnp.square(values - mean).mean(-1, keepdims=True)
    inverse_std = jax.lax.rsqrt(variance + NORM_EPSILON)
    # Without a barrier XLA would compute them again for each sum over tokens.
    mean, inverse_std = jax.lax.optimization_barrier((mean, inverse_std))

    def normed_and_gradient(hidden: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
        return (hidden.astype(jnp.float32) - mean) * inverse_std, cotangent.astype(jnp.float32)

    normed, gradient = normed_and_gradient(hidden, cotangent)
    of_normed = gradient * scale
    of_hidden = inverse_std * (
        of_normed
        - of_normed.mean(-1, keepdims=True)
        - normed * (of_normed * normed).mean(-1, keepdims=True)
    )
    # A second barrier, or XLA would keep the float32 values that both need.
    normed, gradient = normed_and_gradient(*jax.lax.optimization_barrier((hidden, cotangent)))
    zero = np.float32(0)
    # Each device adds up its own examples: XLA makes no reduction of pairs over devices.
    # One reduction of pairs: XLA's own gradient writes the summands in float32 first, twice the
    # size of the activations.
    summands = (x.reshape(batch_shards, -1, len(scale)) for x in (normed * gradient, gradient))
    sums = jax.lax.reduce(tuple(summands), (zero, zero), _add_pairs, (1,))
    of_scale, of_bias = (of_shards.sum(0) for of_shards in sums)
    return of_hidden.astype(hidden.dtype), of_scale, of_bias


def _add_pairs(left, right):
    return left[0] + right[0], left[1] + right[1]


_normalize_on_gpu.defvjp(_normalize_forward, _normalize_backward)
