"""Ablation twin: the same steps on every device, without communication between devices.

Each local device makes the train step of its own part of the batch, on a copy of the state; nothing
is reduced over devices. The time that the real step takes longer is communication that nothing hid:
a second method, which needs no trace. `dawnjax profile --twin` takes it.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dawnjax.capture.trace import together
from dawnjax.cluster import processes
from dawnjax.config.run_options import MeshShape
from dawnjax.feed import Arrays
from dawnjax.machine.mesh import batch_shards, make_mesh
from dawnjax.profile.captured import TwinTimes
from dawnjax.programs import call_of_steps, compile_program, xla_options
from dawnjax.stepper import Stepper
from dawnjax.train_step import PRNG_IMPLEMENTATION, Recipe, TrainState

STRETCHES = 6
"""Pairs of a stretch of real steps and one of the twin's, after a first that warms up."""

_AXIS = "device"
_SPLIT, _WHOLE, _ROWS = PartitionSpec(_AXIS), PartitionSpec(), PartitionSpec(None, _AXIS)


@dataclasses.dataclass
class Twin:
    """Twin of a train program; its state is a copy on each device: arrays [local devices, ...]."""

    state: Any
    program: Any
    _mesh: Mesh
    _resident: Arrays
    _more: tuple[jax.Array, ...]
    """The number of steps in a call, and the key."""

    def call(self, inputs: Arrays) -> jax.Array:
        """Make the steps of a call on each device; returns the losses [local devices, steps]."""
        rows = jax.tree.map(lambda array: _local(array, self._mesh, _ROWS), inputs)
        self.state, losses = self.program(self.state, self._resident, rows, *self._more)
        return losses


def why_not(recipe: Recipe) -> str:
    """Reason why a recipe on its mesh has no twin; empty where it has one."""
    experiment, mesh = recipe.experiment, recipe.mesh
    if mesh.devices.size == 1:
        return "one device: nothing is communicated"
    if mesh.shape["data"] < mesh.devices.size:
        return "parameters are sharded: no device can make the step alone"
    if recipe.shards_update:
        return "the optimizer's state is sharded: no device makes the whole update"
    device_batch = experiment.global_batch_size // batch_shards(mesh)
    if device_batch % max(1, experiment.batch_norm_group_size):
        return "normalization groups span devices: no device can make the step alone"
    return ""


def compare(
    stepper: Stepper,
    call_steps: int,
    num_calls: int,
    make_real: Callable[[int], float],
    on_call: Callable[[], object],
) -> TwinTimes:
    """Time stretches of real steps and of the twin's in turn; all processes call it alike.

    `make_real` makes as many real calls as it is told, and returns the seconds of a step.
    """
    feed = stepper.feed

    def prepare() -> tuple[Twin, Arrays]:
        calls = range(1, 2 + (STRETCHES + 1) * num_calls)
        stepper.read_ahead([stepper.step + call_steps * call for call in calls])
        inputs = feed.inputs(stepper.step, call_steps)
        steps = (stepper.programs.steps_per_call, call_steps)
        return make_twin(stepper.recipe, *steps, stepper.state, feed.resident, inputs), inputs

    (twin, inputs), _ = together(prepare)

    def make_alone(num_calls: int) -> float:
        started, losses = time.perf_counter(), None
        for _ in range(num_calls):
            if feed.resident:  # the host works as for a real call
                feed.inputs(stepper.step, call_steps)
            losses = twin.call(inputs)
            on_call()
        jax.block_until_ready((twin.state, losses))
        return (time.perf_counter() - started) / (num_calls * call_steps)

    real: list[float] = []
    alone: list[float] = []
    for pair in range(STRETCHES + 1):
        order = ((real, make_real), (alone, make_alone))
        # Each goes first in turn: a machine whose speed drifts favours neither.
        for seconds, make in order if pair % 2 else order[::-1]:
            taken, _ = together(functools.partial(make, num_calls))
            seconds.append(taken)
    slowest = map(max, zip(*processes.gather(alone), strict=True))
    return TwinTimes(real[1:], list(slowest)[1:])


def make_twin(
    recipe: Recipe,
    steps_per_call: int,
    call_steps: int,
    state: TrainState,
    resident: Arrays,
    inputs: Arrays,
) -> Twin:
    """Make and compile the twin, where `why_not` returns nothing; it makes `call_steps` a call."""
    mesh = Mesh(np.array(recipe.mesh.local_devices), (_AXIS,))
    device_batch = recipe.experiment.global_batch_size // batch_shards(recipe.mesh)
    device_recipe = dataclasses.replace(
        recipe,
        experiment=dataclasses.replace(recipe.experiment, global_batch_size=device_batch),
        mesh=make_mesh(MeshShape(), [mesh.devices.flat[0]]),  # it knows of no second device
    )
    make_call = call_of_steps(device_recipe, steps_per_call)

    def on_each_device(states: Any, resident: Any, inputs: Any, num_steps: Any, key: Any) -> Any:
        state = jax.tree.map(lambda array: array[0], states)
        state, metrics = make_call(state, resident, inputs, num_steps, key)
        return jax.tree.map(lambda array: array[None], state), metrics.losses[None]

    call = jax.shard_map(
        on_each_device,
        mesh=mesh,
        in_specs=(_SPLIT, _WHOLE, _ROWS, _WHOLE, _WHOLE),
        out_specs=(_SPLIT, _SPLIT),
        check_vma=False,
    )
    # The twin's program takes over the memory of its state, and the run's must survive.
    copies = jax.tree.map(
        lambda array: _local(array, mesh, _SPLIT, lambda part: jnp.copy(part)[None]), state
    )
    whole = NamedSharding(mesh, _WHOLE)
    key = jax.device_put(jax.random.key(0, impl=PRNG_IMPLEMENTATION), whole)
    count = jax.device_put(np.array(call_steps, np.int32), whole)
    local_resident = jax.tree.map(lambda array: _local(array, mesh, _WHOLE), resident)
    rows = jax.tree.map(lambda array: _local(array, mesh, _ROWS), inputs)
    arguments = (copies, local_resident, rows, count, key)
    program = compile_program(
        "twin", call, arguments, None, (0,), lambda *_: None, xla_options(recipe)
    )
    return Twin(copies, program, mesh, local_resident, (count, key))


def _local(
    array: jax.Array,
    mesh: Mesh,
    spec: PartitionSpec,
    make_part: Callable[[jax.Array], jax.Array] = lambda part: part,
) -> jax.Array:
    held = {shard.device: shard.data for shard in array.addressable_shards}
    parts = [make_part(held[device]) for device in mesh.devices.flat]
    shape = list(parts[0].shape)
    for axis, name in enumerate(spec):
        shape[axis] *= len(parts) if name else 1
    return jax.make_array_from_single_device_arrays(tuple(shape), NamedSharding(mesh, spec), parts)
