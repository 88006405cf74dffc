"""The arrays of a state as a checkpoint names and describes them: path, dtype and shape."""

from typing import Any

import jax
import numpy as np

from dawnjax.errors import CheckpointError


def by_path(tree: Any) -> dict[str, Any]:
    """Leaves of a tree by path, such as `params/0/bias`, in the order of `jax.tree.leaves`."""
    # Paths, and not classes: what is on disk must not depend on this program's classes.
    leaves = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if leaves.setdefault(name, leaf) is not leaf:
            # A dict key may hold a `/`; the file could not tell the leaves apart.
            raise TypeError(f"two leaves have the path {name}")
    return leaves


def signature(leaf: Any) -> str:
    """Dtype and shape as text, such as `bfloat16[3,3,64]`."""
    return f"{np.dtype(leaf.dtype).name}[{','.join(str(size) for size in leaf.shape)}]"


def from_signature(text: str, sharding: Any) -> jax.ShapeDtypeStruct:
    dtype, _, sizes = text.rstrip("]").partition("[")
    shape = tuple(int(size) for size in sizes.split(",") if size)
    return jax.ShapeDtypeStruct(shape, jax.numpy.dtype(dtype), sharding=sharding)


def check_same_structure(saved: dict[str, str], wanted: dict[str, Any]) -> None:
    """Refuse other arrays than those wanted: Orbax would make up or cast them."""
    asked = {name: signature(leaf) for name, leaf in wanted.items()}
    for name in [*asked, *saved]:
        if asked.get(name) != saved.get(name):
            raise CheckpointError(
                f"the checkpoint has another model or optimizer: {name} is "
                f"{saved.get(name, 'absent')} in it and {asked.get(name, 'absent')} in this run"
            )
