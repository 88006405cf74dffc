"""The device mesh, and where each array lies on it.

A batch is split over the axes `data`, `fsdp` and `expert`; parameters and optimizer state over
`fsdp`. Where a model names the axes of its parameters, `models/sharding.py` decides in their place.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from dawnjax.errors import ConfigError, RunError
from dawnjax.machine.mesh_shape import AXES, MeshShape
from dawnjax.models.sharding import RULES, Axes, axes_of, spec_of

BATCH_AXES = RULES["batch"]

SMALLEST_SHARDED_SIZE = 2**14
"""Arrays below this many elements stay whole: splitting them saves less than it costs to gather."""


def all_devices() -> list[Any]:
    """Devices of all processes; RunError where JAX has none of the platform it was set to."""
    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:  # asserted: that a platform has its plugin
        asked = os.environ.get("JAX_PLATFORMS", "")
        why = str(error) or (
            f"no plugin here gives it JAX_PLATFORMS={asked}; install dawnjax[gpu] or dawnjax[tpu], "
            "or unset the variable"
        )
        raise RunError(f"JAX finds no devices to use: {why.splitlines()[0]}") from None


def make_mesh(shape: MeshShape, devices: Sequence[Any]) -> Mesh:
    """Mesh over all devices, in JAX's order; ConfigError if the axes do not fit them.

    The devices of a process need not be adjacent, and the first need not be process 0's.
    """
    sizes = [*shape.sizes(len(devices)).values()]
    # The compiler propagates shardings from the step's arguments; explicit axes would put them into
    # every type.
    types = (AxisType.Auto,) * len(AXES)
    return Mesh(arranged(sizes, devices), AXES, axis_types=types)


def arranged(sizes: Sequence[int], devices: Sequence[Any]) -> np.ndarray:
    """Devices by the mesh's axes, next to each other in a TPU's torus along each axis.

    An axis of the torus may serve two of the mesh, as 8 x 8 chips have a mesh of 16 x 4. Slices lie
    along `data`, the first axis.

    Raises:
      ConfigError: The slices do not divide that axis, or are not alike.
    """
    is_tpu = devices[-1].platform == "tpu"
    indices = {getattr(device, "slice_index", 0) for device in devices if is_tpu}
    data, *others = sizes
    slices = max(1, len(indices))
    if data % slices:
        raise ConfigError(
            f"mesh.data={data} must be a multiple of {slices}, the number of slices, since the "
            "network between them is slower than their links"
        )
    within, between = (data // slices, *others), (slices, *[1] * len(others))
    try:
        if slices == 1:
            return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
        return mesh_utils.create_hybrid_device_mesh(
            within, between, devices, allow_split_physical_axes=True
        )
    except (NotImplementedError, ValueError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"JAX finds no place in the devices' links for this mesh: {why}"
        ) from None


def batch_shards(mesh: Mesh) -> int:
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES)


def replicated(mesh: Mesh) -> NamedSharding:
    """Sharding of an array that is whole on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh, batch_axis: int) -> NamedSharding:
    """Sharding of an array whose axis `batch_axis` counts the examples of a batch."""
    return NamedSharding(mesh, PartitionSpec(*[None] * batch_axis, BATCH_AXES))


def state_sharding(mesh: Mesh, shape: tuple[int, ...]) -> NamedSharding:
    """Sharding of one array of the state: `fsdp` splits the largest dimension that it divides."""
    return _split(mesh, shape, ("fsdp",))


def update_sharding(mesh: Mesh, shape: tuple[int, ...]) -> NamedSharding:
    """Sharding of one array of an update: a batch's devices split its largest dimension."""
    return _split(mesh, shape, BATCH_AXES)


def _split(mesh: Mesh, shape: tuple[int, ...], names: tuple[str, ...]) -> NamedSharding:
    parts = math.prod(mesh.shape[name] for name in names)
    if parts == 1 or math.prod(shape) < SMALLEST_SHARDED_SIZE:
        return replicated(mesh)
    divisible = [axis for axis, size in enumerate(shape) if size % parts == 0]
    if not divisible:
        return replicated(mesh)
    axis = max(divisible, key=lambda candidate: shape[candidate])
    split = names if len(names) > 1 else next(iter(names))
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, split))


def place(arrays: Any, sharding: NamedSharding) -> Any:
    """Put an array, or a tree of them, that every process holds whole onto the devices."""
    if jax.process_count() == 1:
        return jax.device_put(arrays, sharding)

    # Each process uploads the parts of its own devices only.
    def put(array: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(put, arrays)


def place_local(
    rows: np.ndarray, sharding: NamedSharding, global_shape: tuple[int, ...]
) -> jax.Array:
    """Global array of the `local_rows` that each process has read for its own devices."""
    return jax.make_array_from_process_local_data(sharding, rows, global_shape)


def local_rows(sharding: NamedSharding, num_rows: int) -> np.ndarray:
    """Rows of a batch that this process's devices hold, ascending: int64 [rows].

    They are not always adjacent: along the torus of a TPU v5e-16, host 0 has rows 0, 1, 6 and 15 of
    16.
    """
    parts = sharding.addressable_devices_indices_map((num_rows,)).values()
    # Devices along `model` and `context` share their rows.
    return np.unique(np.concatenate([np.arange(num_rows)[index] for index in parts]))


def shardings_of(mesh: Mesh, tree: Any, named: Mapping[str, Axes] | None = None) -> Any:
    """Sharding of each array of a tree of shapes: by its named axes, or else `state_sharding`.

    `named` has the axes of a model's parameters, as `sharding.axes_of` takes them.
    """

    def of(location: Any, leaf: Any) -> NamedSharding:
        path = jax.tree_util.keystr(location, simple=True, separator="/")
        axes = axes_of(path, len(leaf.shape), named or {})
        if axes is None:
            return state_sharding(mesh, leaf.shape)
        return NamedSharding(mesh, spec_of(axes, leaf.shape, mesh))

    return jax.tree_util.tree_map_with_path(of, tree)
