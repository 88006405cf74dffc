"""Parameters and moments kept in bfloat16, which halves their memory.

bfloat16 has 8 significant bits: rounded to the nearest, a change below 1/512 of a number is lost,
at every step again. Rounded at random, up with the probability of the fraction that is cut off, a
number is right on average.

Source: Gupta et al. 2015 (arXiv 1502.02551), section 3; Zamirai et al. 2020 (arXiv 2010.06192).
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

Rounding = Literal["nearest", "stochastic"]


class LowPrecisionState(NamedTuple):
    """Steps done, and the state of the rule with its arrays of floats in bfloat16 or float32."""

    step: jax.Array
    inner: Any


def in_low_precision(
    rule: optax.GradientTransformation, moment_dtype: str, rounding: Rounding
) -> optax.GradientTransformation:
    """A rule that computes in float32, whatever its state and the parameters are kept in.

    Its random numbers depend on the step and the parameter alone, and so on no mesh. All trials
    draw the same ones, and round other values by them.
    """

    def init(params: optax.Params) -> LowPrecisionState:
        inner = jax.tree.map(lambda leaf: _kept(leaf, moment_dtype), rule.init(_wide(params)))
        return LowPrecisionState(jnp.zeros((), jnp.int32), inner)

    def update(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, LowPrecisionState]:
        wide = _wide(params)
        updates, inner = rule.update(_wide(updates), _wide(state.inner), wide)
        step = state.step + 1
        if rounding == "nearest":
            return updates, LowPrecisionState(
                step, jax.tree.map(lambda new: _kept(new, moment_dtype), inner)
            )
        keys = _keys(jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), state.step))
        inner = jax.tree.map(lambda new: _kept(new, moment_dtype, next(keys)), inner)

        def rounded(update: jax.Array, old: jax.Array, narrow: jax.Array) -> jax.Array:
            if narrow.dtype == old.dtype:
                return update
            # Added to the parameter it gives a bfloat16 number, which no rounding changes again.
            return _kept(old + update, narrow.dtype, next(keys)).astype(old.dtype) - old

        updates = jax.tree.map(rounded, updates, wide, params)
        return updates, LowPrecisionState(step, inner)

    return optax.GradientTransformation(init, update)


def round_at_random(values: jax.Array, key: jax.Array) -> jax.Array:
    """float32 values as bfloat16: one of the two neighbours, the nearer one more often."""
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32)
    noise = jax.random.bits(key, values.shape, jnp.uint16).astype(jnp.uint32)
    cut = (bits + noise) & jnp.uint32(0xFFFF0000)
    rounded = jax.lax.bitcast_convert_type(cut, jnp.float32)
    # The bits of NaN and infinity are no number to add to.
    return jnp.where(jnp.isfinite(values), rounded, values).astype(jnp.bfloat16)


def _keys(key: jax.Array) -> Any:
    number = 0
    while True:
        yield jax.random.fold_in(key, number)
        number += 1


def _kept(leaf: jax.Array, dtype: Any, key: jax.Array | None = None) -> jax.Array:
    if not jnp.issubdtype(leaf.dtype, jnp.floating) or jnp.dtype(dtype) == leaf.dtype:
        return leaf
    return leaf.astype(dtype) if key is None else round_at_random(leaf, key)


def _wide(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: _kept(leaf, jnp.float32), tree)
