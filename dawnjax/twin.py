"""The ablation twin: the same steps on every device, without anything between them.

Each local device makes the train step of its own part of the batch, on a copy of the state, at the
same time as the others; nothing is reduced over devices. What the real step takes longer is
communication that nothing hid: a second method, which needs no trace.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dawnjax.config.run_options import MeshShape
from dawnjax.feed import Arrays
from dawnjax.machine.mesh import batch_shards, make_mesh
from dawnjax.programs import Record, call_of_steps, compile_program, xla_options
from dawnjax.train_step import PRNG_IMPLEMENTATION, Recipe, TrainState

_AXIS = "device"


@dataclasses.dataclass
class Twin:
    """The twin of a train program, with a state of its own.

    Attributes:
      state: The state, a copy on each device: arrays [local devices, ...].
    """

    state: Any
    _mesh: Mesh
    _program: Callable[..., Any]
    _resident: Arrays
    _key: jax.Array
    _counts: dict[int, jax.Array] = dataclasses.field(default_factory=dict)

    @property
    def program_text(self) -> str:
        """The compiled program, as text."""
        return self._program.as_text()  # type: ignore[attr-defined]

    def call(self, inputs: Arrays, num_steps: int) -> jax.Array:
        """Makes steps of one call on each device; gives the losses [local devices, steps].

        Args:
          inputs: The real call's inputs; each device uses the rows that it holds.
          num_steps: Steps to make.
        """
        if num_steps not in self._counts:
            count = np.array(num_steps, np.int32)
            self._counts[num_steps] = jax.device_put(count, _whole(self._mesh))
        self.state, losses = self._program(
            self.state,
            self._resident,
            local_inputs(inputs, self._mesh),
            self._counts[num_steps],
            self._key,
        )
        return losses


def why_not(recipe: Recipe) -> str:
    """Gives why a recipe on its mesh has no twin; empty where it has one."""
    experiment, mesh = recipe.experiment, recipe.mesh
    if mesh.devices.size == 1:
        return "one device: nothing is communicated"
    if mesh.shape["fsdp"] > 1 or mesh.shape["model"] > 1:
        return "parameters are sharded: no device can make the step alone"
    if recipe.shards_update:
        return "the optimizer's state is sharded: no device makes the whole update"
    own_batch = experiment.global_batch_size // batch_shards(mesh)
    if own_batch % max(1, experiment.batch_norm_group_size):
        return "normalization groups span devices: no device can make the step alone"
    return ""


def make_twin(
    recipe: Recipe,
    steps_per_call: int,
    state: TrainState,
    resident: Arrays,
    inputs: Arrays,
    record: Record,
) -> Twin:
    """Makes and compiles the twin; `why_not` must have nothing against it.

    Args:
      recipe: The recipe of the real program.
      steps_per_call: As in the real program.
      state: The state to copy.
      resident: The dataset on the devices, or nothing.
      inputs: The inputs of a real call, for their shapes.
      record: Called with the program.
    """
    mesh = _local_mesh(recipe.mesh)
    own_batch = recipe.experiment.global_batch_size // batch_shards(recipe.mesh)
    own = dataclasses.replace(
        recipe,
        experiment=dataclasses.replace(recipe.experiment, global_batch_size=own_batch),
        mesh=make_mesh(MeshShape(), [mesh.devices.flat[0]]),  # it knows of no other device
    )
    make_call = call_of_steps(own, steps_per_call)

    def on_each_device(state: Any, resident: Any, inputs: Any, num_steps: Any, key: Any) -> Any:
        own_state = jax.tree.map(lambda array: array[0], state)
        own_state, metrics = make_call(own_state, resident, inputs, num_steps, key)
        return jax.tree.map(lambda array: array[None], own_state), metrics.losses[None]

    split, whole, rows = PartitionSpec(_AXIS), PartitionSpec(), PartitionSpec(None, _AXIS)
    call = jax.shard_map(
        on_each_device,
        mesh=mesh,
        in_specs=(split, whole, rows, whole, whole),
        out_specs=(split, split),
        check_vma=False,
    )
    copied = jax.tree.map(lambda array: _copy_of_each(array, mesh), state)
    key = jax.device_put(jax.random.key(0, impl=PRNG_IMPLEMENTATION), _whole(mesh))
    local_resident = {name: _same_on_each(array, mesh) for name, array in resident.items()}
    count = jax.device_put(np.array(1, np.int32), _whole(mesh))
    arguments = (copied, local_resident, local_inputs(inputs, mesh), count, key)
    program = compile_program("twin", call, arguments, None, (0,), record, xla_options(recipe))
    return Twin(copied, mesh, program, local_resident, key)


def local_inputs(inputs: Arrays, mesh: Mesh) -> Arrays:
    """Gives the rows of a call's inputs that this process's devices hold, as arrays of its own."""
    sharding = NamedSharding(mesh, PartitionSpec(None, _AXIS))
    local = {}
    for name, array in inputs.items():
        parts = _parts(array, mesh)
        rows = sum(part.shape[1] for part in parts)
        shape = (array.shape[0], rows, *array.shape[2:])
        local[name] = jax.make_array_from_single_device_arrays(shape, sharding, parts)
    return local


def _local_mesh(mesh: Mesh) -> Mesh:
    own = [d for d in mesh.devices.flat if d.process_index == jax.process_index()]
    return Mesh(np.array(own), (_AXIS,))


def _whole(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def _parts(array: jax.Array, mesh: Mesh) -> list[jax.Array]:
    """Gives what each device of the mesh holds of an array, in the mesh's order."""
    by_device = {shard.device: shard.data for shard in array.addressable_shards}
    return [by_device[device] for device in mesh.devices.flat]


def _copy_of_each(array: jax.Array, mesh: Mesh) -> jax.Array:
    parts = [jnp.expand_dims(jnp.copy(part), 0) for part in _parts(array, mesh)]
    shape = (len(parts), *array.shape)
    sharding = NamedSharding(mesh, PartitionSpec(_AXIS))
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def _same_on_each(array: jax.Array, mesh: Mesh) -> jax.Array:
    return jax.make_array_from_single_device_arrays(array.shape, _whole(mesh), _parts(array, mesh))
