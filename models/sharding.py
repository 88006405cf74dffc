"""The one table that says which mesh axis splits which axis of an array.

A model names the axes of its arrays by what they count, such as ("layers", "embed", "heads").
`RULES` maps each name to axes of the mesh, and nothing else decides where an array lies:

    data     examples. Each device holds the weights whole and sums gradients with the others.
    fsdp     examples too, and the weights: a layer's weights are gathered before they are used,
             and their gradients are summed and scattered.
    model    the inside of a layer (tensor parallelism). A device has some heads and some columns of
             the MLP. Each half of a block takes whole tokens and ends in a sum over `model`.
             Between the halves, the residual stream and its norms are split along the text
             (sequence parallelism): a sum becomes a scatter of sums, and a gather precedes the
             next half.

Source: Megatron-LM (arXiv 1909.08053, 2205.05198) for `model`, ZeRO (arXiv 1910.02054) for `fsdp`;
jax-ml/scaling-book, `training.md`, derives when each is worth its communication.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from dawnjax.models.configs.types import Axes
from dawnjax.models.execution import Execution

RULES: dict[str, tuple[str, ...]] = {
    # Axes of weights.
    "layers": (),  # stacked layers: `lax.scan` takes one after the other
    "embed": ("fsdp",),  # width of the residual stream
    "heads": ("model",),  # query heads times their width
    "kv_heads": ("model",),  # key and value heads times their width
    "mlp": ("model",),  # middle of an MLP
    "vocab": ("model",),  # rows of the embedding, columns of the output layer
    "experts": ("expert",),
    "rank": (),  # of a low-rank adapter: too thin to split
    # Axes of activations.
    "batch": ("data", "fsdp", "expert"),
    "replicas": ("data", "expert"),  # examples, where `fsdp` splits the width
    "tokens": ("context",),  # positions, within a block
    "text": ("context", "model"),  # positions, between the halves of a block
}
"""Mesh axes of each named axis, the outermost first; `None` and names without axes stay whole."""

SMALLEST_SPLIT_SIZE = 2**14
"""`fsdp` leaves arrays below this many elements whole: a gather costs more than they take."""


def spec_of(axes: Axes, shape: Sequence[int], mesh: Mesh | AbstractMesh) -> PartitionSpec:
    """Partition of an array by `RULES`; an axis of the mesh splits one axis of the array.

    Raises:
      ValueError: Two of the named axes lie along one axis of the mesh, on any mesh.
    """
    taken: dict[str, str] = {}
    parts: list[Any] = []
    for name, size in zip(axes, shape, strict=True):
        for axis in RULES[name] if name else ():
            if axis in taken:
                raise ValueError(
                    f"an array of axes {axes}: {taken[axis]!r} and {name!r} both lie along "
                    f"mesh.{axis}; name one of them None"
                )
            taken[axis] = str(name)
        names = tuple(axis for axis in RULES[name] if mesh.shape[axis] > 1) if name else ()
        if name == "embed" and math.prod(shape) < SMALLEST_SPLIT_SIZE:
            names = ()
        divides = size % math.prod(mesh.shape[axis] for axis in names) == 0
        names = names if divides else ()
        parts.append(names if len(names) > 1 else names[0] if names else None)
    return PartitionSpec(*parts)


def axes_of(path: str, num_axes: int, named: Mapping[str, Axes]) -> Axes | None:
    """Named axes of the array at a path, such as `opt_state/0/mu/blocks/query`; None without any.

    A key of `named` is the end of a path, so an optimizer's moments follow their parameter.
    """
    parts = path.split("/")
    for start in range(len(parts)):
        axes = named.get("/".join(parts[start:]))
        if axes is not None and len(axes) == num_axes:
            return axes
    return None


def parts_of(name: str, size: int, execution: Execution) -> int:
    """Number of parts that the mesh splits an axis of this size into."""
    if execution.placement is None or jax.sharding.get_abstract_mesh().manual_axes:
        return 1
    mesh = execution.placement.mesh
    parts = math.prod(mesh.shape[axis] for axis in RULES[name])
    return parts if size % parts == 0 else 1


def moved(array: jax.Array, axes: Axes, backward: Axes, execution: Execution) -> jax.Array:
    """An activation placed by `axes`, and its gradient by those of where it came from.

    A gather of the text in the forward pass is a scatter of sums in the backward pass, and the
    other way round; one constraint for both would make an all-reduce of each scatter.
    """
    result: jax.Array = _moved(array, axes, backward, execution)
    return result


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _moved(array: jax.Array, axes: Axes, backward: Axes, execution: Execution) -> jax.Array:
    num_start, num_end = (sum(len(RULES[n]) for n in names if n) for names in (backward, axes))
    if num_start > num_end:
        # A gather is placed twice: told the end alone, XLA may gather first and round then.
        array = constrained(array, backward, execution)
    return constrained(array, axes, execution)


def _moved_forward(array, axes, backward, execution):
    return _moved(array, axes, backward, execution), None


def _moved_backward(axes, backward, execution, kept, gradient):
    return (constrained(gradient, backward, execution),)


_moved.defvjp(_moved_forward, _moved_backward)


def gathered(weights: jax.Array, axes: Axes, execution: Execution, dtype: Any) -> jax.Array:
    """Weights of named axes, gathered along `embed`; their gradient is summed and scattered.

    They cross devices in `dtype` and come back in their own, which their gradient keeps: a product
    that rounds its factors to `dtype` is the same as without.
    """
    if execution.placement is None or jax.sharding.get_abstract_mesh().manual_axes:
        return weights
    result: jax.Array = _gathered(weights, axes, execution, jnp.dtype(dtype))
    return result


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _gathered(weights: jax.Array, axes: Axes, execution: Execution, dtype: Any) -> jax.Array:
    # Placed twice: told the second place alone, XLA may gather first and round then.
    rounded = constrained(weights.astype(dtype), axes, execution)
    whole = tuple(None if axis == "embed" else axis for axis in axes)
    return constrained(rounded, whole, execution).astype(weights.dtype)


def _gathered_forward(weights, axes, execution, dtype):
    return _gathered(weights, axes, execution, dtype), None


def _gathered_backward(axes, execution, dtype, kept, gradient):
    return (constrained(gradient, axes, execution),)


_gathered.defvjp(_gathered_forward, _gathered_backward)


def constrained(array: jax.Array, axes: Axes, execution: Execution) -> jax.Array:
    """An array placed as `RULES` say; untouched on one device and in a `jax.shard_map`."""
    if execution.placement is None or jax.sharding.get_abstract_mesh().manual_axes:
        return array
    mesh = execution.placement.mesh
    sharding = NamedSharding(mesh, spec_of(axes, array.shape, mesh))
    return jax.lax.with_sharding_constraint(array, sharding)
