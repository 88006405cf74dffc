"""Dynamic loss scaling: float16 gradients that neither vanish nor overflow.

A step whose gradients are not all finite changes nothing and halves the scale; after
`STEPS_TO_GROW` finite ones in a row it doubles.

Source: Micikevicius et al. 2018, "Mixed Precision Training" (arXiv 1710.03740), section 3.2; the
constants are those of PyTorch's `GradScaler`.
"""

from typing import Any

import jax
import jax.numpy as jnp

Tree = dict[str, Any]

INITIAL_SCALE = 2.0**16
LARGEST_SCALE = 2.0**24
STEPS_TO_GROW = 2000


def start() -> Tree:
    """Scale before the first step, with no finite step since it changed."""
    return {"scale": jnp.float32(INITIAL_SCALE), "finite_steps": jnp.zeros((), jnp.int32)}


def scale(loss: jax.Array, state: Tree) -> jax.Array:
    """Scaled loss; without a state it stays as it is."""
    return loss * state["scale"] if state else loss


def unscale(gradients: Tree, state: Tree) -> tuple[Tree, Tree, jax.Array]:
    """Gradients divided by the scale, the next state, and whether all of them are finite.

    With an empty state nothing is scaled, and the third is True.
    """
    if not state:
        return gradients, state, jnp.bool_(True)
    are_finite = jnp.all(
        jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients)])
    )
    finite_steps = jnp.where(are_finite, state["finite_steps"] + 1, 0)
    grows = finite_steps == STEPS_TO_GROW
    factor = jnp.where(are_finite, jnp.where(grows, 2.0, 1.0), 0.5)
    next_state = {
        "scale": jnp.clip(state["scale"] * factor, 1.0, LARGEST_SCALE),
        "finite_steps": jnp.where(grows, 0, finite_steps),
    }
    # The scale that these gradients had, not the next one.
    return jax.tree.map(lambda leaf: leaf / state["scale"], gradients), next_state, are_finite
