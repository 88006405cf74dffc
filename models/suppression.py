"""Non-maximum suppression: of boxes that overlap, the one with the greatest score stays."""

import jax
import jax.numpy as jnp
from jax import lax


def greedy_choice(is_rival: jax.Array, is_candidate: jax.Array) -> jax.Array:
    """Candidates that greedy suppression keeps, in their order: bool [..., n].

    A candidate goes if one before it stays and is its rival.

    Args:
      is_rival: bool [..., n, n], symmetrical, such as an overlap above a threshold.
      is_candidate: bool [..., n]; the order is that of falling scores.
    """
    count = is_candidate.shape[-1]
    earlier = jnp.tri(count, k=-1, dtype=bool)  # [later, earlier]
    beats = is_rival & earlier

    def choose(kept: jax.Array) -> jax.Array:
        return is_candidate & ~(beats & kept[..., None, :]).any(-1)

    def has_changed(kept_and_next: tuple[jax.Array, jax.Array]) -> jax.Array:
        return (kept_and_next[0] != kept_and_next[1]).any()

    # Each round settles at least the first candidate that is not settled yet, so the fixed point is
    # the greedy choice at any threshold; chains of rivals are short, and so are the rounds.
    start = is_candidate, choose(is_candidate)
    return lax.while_loop(has_changed, lambda pair: (pair[1], choose(pair[1])), start)[1]
