"""Memory that a train step needs on a device, from shapes alone: nothing is compiled."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, cast

import jax
from jax.ad_checkpoint import checkpoint_name

from dawnjax.config.experiment import Experiment
from dawnjax.errors import ConfigError
from dawnjax.feed import BATCHES_AHEAD, LARGEST_RESIDENT_BYTES
from dawnjax.input_pipeline.reading.dataset import num_bytes
from dawnjax.machine.mesh import make_mesh
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.models.execution import Execution, Platform
from dawnjax.models.pure_model import Tree
from dawnjax.plan.decoder_memory import other_rows_bytes
from dawnjax.plan.inlining import GRADIENT
from dawnjax.plan.liveness import peak_of
from dawnjax.plan.ops import Peak, Size, bytes_of
from dawnjax.plan.systems import System
from dawnjax.plan.tiles import tiled_bytes_of
from dawnjax.programs import state_shapes
from dawnjax.train_step import Recipe, TrainState, key_shape, make_recipe


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An array on one device."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    num_bytes: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of a train step on one device, by what they hold.

    Attributes:
      stage: Of the run, from 0.
      data: The data set where a run puts it on each device, or else batches that wait for their
        step.
      results: Results of ops at the peak: activations that the backward pass reads, gradients, and
        weights that are whole on the device, with the holes of their heap.
      gathered: What gathers need besides, by formulas: tokens that the experts of a decoder take
        from other devices, and stacks of weights in another layout.
      made: Examples that the task made and keeps.
      call: What a call that makes examples needs besides, such as trees of a search; no step runs
        beside it.
      tensors: The largest arrays.
    """

    parameters: float
    optimizer: float
    averages: float
    inputs: float
    results: float
    tensors: tuple[Tensor, ...]
    stage: int = 0
    data: float = 0.0
    gathered: float = 0.0
    made: float = 0.0
    call: float = 0.0

    @property
    def num_bytes(self) -> float:
        state = self.parameters + self.optimizer + self.averages + self.made
        return self.data + state + max(self.inputs + self.results + self.gathered, self.call)


NUM_TENSORS = 10


def step_memory(
    experiment: Experiment,
    spec: Any,
    shape: MeshShape,
    system: System,
    shards_update: bool = False,
) -> Memory:
    """Memory of a step of the stage that needs most.

    Activations are traced at a device's share of the batch. Axes of the mesh that split layers or
    texts are not seen there: activations count whole. The state is split as a run splits it.
    """
    stages: list[Experiment] = []
    found: list[Memory] = []
    for span in experiment.spans(spec):
        stage = experiment.in_stage(span.index)
        if stage not in stages:
            memory = memory_of_stage(stage, spec, shape, system, shards_update)
            stages.append(stage)
            found.append(dataclasses.replace(memory, stage=span.index))
    return max(found, key=lambda memory: memory.num_bytes)


def memory_of_stage(
    stage: Experiment, spec: Any, shape: MeshShape, system: System, shards_update: bool
) -> Memory:
    sizes = shape.sizes(system.num_devices)
    shards = shape.batch_shards(system.num_devices)
    if stage.global_batch_size % shards:
        raise ConfigError(
            f"global_batch_size={stage.global_batch_size} is no multiple of {shards} devices"
        )
    rows, parts = stage.global_batch_size // shards, stage.accumulation_steps
    if rows % parts:
        raise ConfigError(
            f"memory is not known where accumulation_steps={parts} does not divide the {rows} "
            "examples of a device"
        )
    local = _local_recipe(stage, spec, rows, system, counts_gathers=sizes["fsdp"] > 1)
    mesh = jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes))
    split_recipe = dataclasses.replace(local, mesh=mesh, shards_update=shards_update)
    # The same shapes on another mesh: a large model traces for seconds.
    split_recipe.__dict__["abstract_state"] = local.abstract_state
    state = state_shapes(split_recipe)
    is_tiled = system.accelerator.device.platform == "tpu"
    split = _Split(sizes, tiled_bytes_of if is_tiled else bytes_of)
    parts = {
        "parameters": state.params,
        "optimizer": state.opt_state,
        "averages": (state.ema_params, state.batch_stats, state.loss_scale),
        "made": state.made,
    }
    batch = _batch(local)
    inputs = sum(split.bytes_of(leaf.shape, leaf.dtype) for leaf in batch.values())
    arrays = [tensor for name, tree in parts.items() for tensor in split.tensors(name, tree)]
    peak = _peak(local, batch, split, shards, system)
    found = [
        Tensor(_short(buffer.name), buffer.shape, buffer.dtype, buffer.num_bytes)
        for buffer in peak.buffers
    ]
    largest = sorted([*arrays, *found], key=lambda tensor: -tensor.num_bytes)
    held = {
        name: sum(tensor.num_bytes for tensor in split.tensors(name, tree))
        for name, tree in parts.items()
    }
    return Memory(
        parameters=held["parameters"],
        optimizer=held["optimizer"],
        averages=held["averages"],
        made=held["made"],
        inputs=inputs,
        results=peak.num_bytes,
        data=_resident_bytes(spec) or BATCHES_AHEAD * inputs,
        gathered=_other_rows(local, MeshShape(**sizes)) + _relaid(state.params, split, system),
        call=stage.task.call_bytes(local.setting, shards),
        tensors=tuple(largest[:NUM_TENSORS]),
    )


def _resident_bytes(spec: Any) -> float:
    """Bytes of the data set on each device; 0 where a run sends each batch."""
    size = num_bytes(spec)
    return float(size) if size <= LARGEST_RESIDENT_BYTES else 0.0


class _Split:
    """Sizes of arrays on one device of a mesh; remembers into how many parts parameters are split.

    A gradient may lie transposed, or its layers in groups, so that its elements alone tell which
    parameter it is of. A weight that is gathered, of all layers or of one, is still split along
    `model` and `expert`.
    """

    def __init__(self, sizes: Mapping[str, int], bytes_of: Size):
        self._sizes, self.bytes_of = sizes, bytes_of
        self._parts: dict[int, int] = {}
        self._gathered: dict[int, int] = {}

    def tensors(self, kind: str, tree: Any) -> list[Tensor]:
        found = []
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            named = [axis for axes in leaf.sharding.spec for axis in _names(axes)]
            parts = math.prod(self._sizes[axis] for axis in named)
            self._parts.setdefault(math.prod(leaf.shape), parts)
            gathered = parts // self._sizes["fsdp"] if "fsdp" in named else parts
            for count in (math.prod(leaf.shape), math.prod(leaf.shape[1:])):
                self._gathered.setdefault(count, gathered)
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            size = self.bytes_of(leaf.shape, leaf.dtype) / parts
            found.append(Tensor(f"{kind}/{name}", leaf.shape, str(leaf.dtype), size))
        return found

    def size(self, shape: tuple[int, ...], dtype: Any) -> float:
        """Bytes of a result: a gradient is split as its parameter is."""
        return self.bytes_of(shape, dtype) / self._parts.get(math.prod(shape), 1)

    def whole(self, shape: tuple[int, ...], dtype: Any) -> float:
        """Bytes of a result: a weight that is gathered, or its gradient before the sum."""
        return self.bytes_of(shape, dtype) / self._gathered.get(math.prod(shape), 1)


def _names(axes: Any) -> tuple[str, ...]:
    return () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)


def _local_recipe(
    experiment: Experiment, spec: Any, batch: int, system: System, counts_gathers: bool
) -> Recipe:
    """Recipe of one device with its share of the batch, as its platform computes it."""
    group, part = experiment.batch_norm_group_size, batch // experiment.accumulation_steps
    if group and part % group:
        group = part  # a group that straddles devices
    experiment = dataclasses.replace(
        experiment, global_batch_size=batch, batch_norm_group_size=group
    )
    execution = Execution(
        platform=cast(Platform, system.accelerator.device.platform),
        compute_dtype=experiment.compute_dtype,
        batch_norm_group_size=group,
        attention="shapes" if system.accelerator.has_fused_attention else "products",
        counts_gathers=counts_gathers,
    )
    mesh = make_mesh(MeshShape(data=1), jax.devices()[:1])
    return make_recipe(experiment, spec, mesh, execution=execution)


def _batch(recipe: Recipe) -> dict[str, jax.ShapeDtypeStruct]:
    shapes = recipe.spec.example_shapes("train") | {"index": ((), "int32"), "epoch": ((), "int32")}
    rows = recipe.experiment.global_batch_size
    return {n: jax.ShapeDtypeStruct((rows, *s), d) for n, (s, d) in shapes.items()}


class _Summing(Recipe):
    """A recipe whose gradients have the name of those that devices sum."""

    def updated(
        self, state: TrainState, gradients: Tree, loss: jax.Array, batch_stats: Tree
    ) -> tuple[TrainState, jax.Array]:
        named = jax.tree.map(lambda leaf: checkpoint_name(leaf, GRADIENT), gradients)
        return super().updated(state, named, loss, batch_stats)


_WIDE = ("v6e", "v7x")
"""TPUs with a matrix unit of 256 rows and columns. Source: Google's pages on v6e and v7x."""


def _peak(recipe: Recipe, batch: Any, split: _Split, shards: int, system: System) -> Peak:
    if shards > 1:
        recipe = _Summing(**{f.name: getattr(recipe, f.name) for f in dataclasses.fields(recipe)})
    traced = jax.make_jaxpr(recipe.train_step)(recipe.abstract_state, batch, key_shape())
    on_gpu = recipe.setting.execution.platform == "gpu"
    is_hopper = system.accelerator.name in ("h100", "h200")
    return peak_of(
        traced,
        split.size,
        on_gpu,
        split.whole,
        splits_sums=is_hopper,
        is_wide=system.accelerator.name in _WIDE,
        num_updates=len(jax.tree.leaves(recipe.abstract_state.params)),
    )


def _relaid(params: Tree, split: _Split, system: System) -> float:
    """Bytes of stacks that a GPU lays out anew, for a loop that gathers their parts.

    A gather joins parts along the first axis of a layer. XLA turns all layers at once, before the
    loop, and keeps them.
    """
    turned = [
        leaf
        for leaf in jax.tree.leaves(params)
        if len(leaf.shape) > 2
        and any("fsdp" in _names(axes) for axes in tuple(leaf.sharding.spec)[2:])
    ]
    is_gpu = system.accelerator.device.platform == "gpu"
    return sum(tensor.num_bytes for tensor in split.tensors("", turned)) if is_gpu else 0.0


def _other_rows(local: Recipe, shape: MeshShape) -> float:
    model: Any = local.experiment.model
    spec: Any = local.spec
    if not hasattr(model, "num_kv_heads"):
        return 0.0
    tokens = local.experiment.global_batch_size * spec.sequence_length / shape.context
    return other_rows_bytes(model, shape, tokens)


def _short(name: str) -> str:
    return name.rsplit("/", 3)[-1] if len(name) > 60 else name


def largest_batch(
    experiment: Experiment,
    spec: Any,
    shape: MeshShape,
    system: System,
    shards_update: bool,
    limit_bytes: float,
    needs: Memory,
) -> int:
    """Largest global batch within a limit, if memory grows evenly; 0 where no batch is.

    Args:
      needs: Memory of the experiment's own batch, of one stage.
    """
    smallest = shape.batch_shards(system.num_devices) * experiment.accumulation_steps
    small = dataclasses.replace(experiment, global_batch_size=smallest)
    one = step_memory(small, spec, shape, system, shards_update).num_bytes
    share = experiment.global_batch_size // smallest
    if one > limit_bytes or share == 1:
        return 0
    each = (needs.num_bytes - one) / (share - 1)
    return smallest * int(1 + (limit_bytes - one) // each)
