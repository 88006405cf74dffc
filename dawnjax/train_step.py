"""Training state, and the pure train and evaluation steps.

A step is a pure function of an explicit state; `programs` compiles it. In plain data parallel its
collectives are the reductions of the gradients and one of the scalars; normalization statistics
ride with the scalars.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec

from dawnjax.config.experiment import Experiment
from dawnjax.config.own_files import line_or_text, own_code
from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import Split
from dawnjax.machine.mesh import (
    BATCH_AXES,
    batch_sharding,
    batch_shards,
    replicated,
    update_sharding,
)
from dawnjax.models.execution import ContextKeys, Execution, Platform
from dawnjax.models.fused_attention import say_products
from dawnjax.models.pure_model import PureModel, Tree, joined_trees, named_layers, split_tree
from dawnjax.models.sharding import Axes
from dawnjax.optim import loss_scaling
from dawnjax.optim.optimizers import average_decay, make_optimizer
from dawnjax.runs.stages import Span
from dawnjax.tasks.task import INITIALIZATION, MODEL, Arrays, Moment, Setting, make_model

PRNG_IMPLEMENTATION = "threefry2x32"


def key_shape() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0, impl=PRNG_IMPLEMENTATION))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything that a step changes.

    Attributes:
      step: int32, steps done.
      params: Nested dict of parameters; float32 where the model does not choose bfloat16.
      batch_stats: Nested dict of float32 running statistics.
      ema_params: Moving average of `params`; empty where the experiment keeps none.
      loss_scale: Factor of float16 gradients, and steps since it changed; empty for other dtypes.
      first_nonfinite_step: int32, the first step, from 1, with a NaN or infinite loss; 0 if none.
      made: Arrays of a task that makes its examples (`GeneratingTask`); empty for others.
    """

    step: jax.Array
    params: Tree
    batch_stats: Tree
    opt_state: optax.OptState
    ema_params: Tree
    loss_scale: Tree
    first_nonfinite_step: jax.Array
    made: Tree


@dataclasses.dataclass(frozen=True)
class Recipe:
    """An experiment's pure functions on a mesh, before they are compiled.

    Attributes:
      experiment: The experiment of the stage alone.
      shards_update: Each device makes its part of an update and keeps its part of the optimizer's
        state; the parameters are whole on each device.
      records_norm: A step returns the norm of its gradient too.
      is_deterministic: Its programs on GPUs have deterministic operations alone.
    """

    experiment: Experiment
    setting: Setting
    mesh: Mesh
    model: PureModel
    optimizer: optax.GradientTransformation
    span: Span
    shards_update: bool = False
    records_norm: bool = False
    is_deterministic: bool = False

    @property
    def spec(self) -> Any:
        return self.setting.spec

    @property
    def named_axes(self) -> dict[str, Axes]:
        """Named axes of the parameters, by the end of their paths; empty if they have none."""
        model = self.experiment.model
        return model.logical_axes() if hasattr(model, "logical_axes") else {}

    def initial_state(self, root_key: jax.Array) -> TrainState:
        """State before the first step; it depends on the seed alone."""
        key = jax.random.fold_in(root_key, INITIALIZATION)
        params, batch_stats = self.model.init(key)
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            batch_stats=batch_stats,
            opt_state=self.optimizer.init(self.split_params(params)[0]),
            ema_params=params if self.experiment.ema_decay else {},
            loss_scale=loss_scaling.start() if self.experiment.compute_dtype == "float16" else {},
            first_nonfinite_step=jnp.zeros((), jnp.int32),
            made=self.experiment.task.nothing_made(params, batch_stats, self.setting),
        )

    def split_params(self, params: Tree) -> tuple[Tree, Tree]:
        """Parameters that are trained, and those that stay as they are.

        A model names parts as `trained_parts`, which alone are trained, or the beginnings of paths
        as `frozen_parts`.
        """
        parts = getattr(self.experiment.model, "trained_parts", ())
        frozen = getattr(self.experiment.model, "frozen_parts", ())
        if not parts and not frozen:
            return params, {}

        def is_trained(path: str) -> bool:
            return (not parts or path.partition("/")[0] in parts) and not path.startswith(frozen)

        return split_tree(params, is_trained)

    @functools.cached_property
    def initialize(self) -> Callable[[jax.Array], TrainState]:
        """`initial_state` as one object: JAX then traces it once for shapes and for the program."""
        return self.initial_state

    @functools.cached_property
    def abstract_state(self) -> TrainState:
        """Shapes and dtypes of the state; cached, since a large model traces for a second."""
        # The argument of the program, or the trace would not be the program's.
        key = key_shape().update(sharding=replicated(self.mesh))
        state = jax.eval_shape(self.initialize, key)
        return jax.tree.map(lambda leaf: leaf.update(sharding=None), state)

    def state_from_data(self, state: TrainState, examples: Arrays) -> TrainState:
        """State with the parameters that look at `InputShapes.initialization_rows`."""
        params = self.experiment.task.initialize_from_data(state.params, examples, self.setting)
        ema_params = params if self.experiment.ema_decay else {}
        return dataclasses.replace(state, params=params, ema_params=ema_params)

    def train_step(
        self, state: TrainState, batch: Arrays, root_key: jax.Array
    ) -> tuple[TrainState, jax.Array]:
        """Make one step; returns the next state, and the mean loss (float32) before the update.

        With `records_norm` it returns, in place of the loss, float32 [2]: the loss, and the norm of
        the gradient before the optimizer clips it.

        `batch` has arrays of examples, [batch, ...], with `index` and `epoch` int32 [batch]: the
        position in the split and the epoch that the example is seen in.
        """
        experiment = self.experiment
        batch = experiment.task.drawn(state.made, batch, root_key, self.setting)
        # `step_shift` lets a stage with another batch size continue the first stage's progress.
        steps_done = state.step.astype(jnp.float32) + self.span.step_shift
        moment = Moment(
            root_key=root_key,
            step=state.step,
            progress=steps_done / experiment.num_steps(self.spec),
        )
        return self.updated(state, *self._gradients(state, batch, moment))

    def updated(
        self, state: TrainState, gradients: Tree, loss: jax.Array, batch_stats: Tree
    ) -> tuple[TrainState, jax.Array]:
        """Next state, and what `train_step` returns with it.

        `gradients` are of the trained parameters alone, multiplied by the state's loss scale.
        """
        experiment = self.experiment
        old_params, frozen = self.split_params(state.params)
        if self.shards_update:
            # From here each device works on its part alone, and needs only that part of the sums.
            gradients, old_params = self._parts(gradients), self._parts(old_params)
        gradients, loss_scale, are_finite = loss_scaling.unscale(gradients, state.loss_scale)
        measured = jnp.stack([loss, _norm(gradients)]) if self.records_norm else loss
        updates, opt_state = self.optimizer.update(gradients, state.opt_state, old_params)
        params = cast(Tree, optax.apply_updates(old_params, updates))
        ema_decay = average_decay(experiment.ema_decay, experiment.ema_has_warmup, state.step)
        ema_params = state.ema_params  # empty where a run keeps no average
        if ema_params:
            ema_params = cast(Tree, optax.incremental_update(params, ema_params, 1 - ema_decay))
        if loss_scale:
            # An overflow costs the step: all stays as it was, but for the scale.
            params, batch_stats, opt_state, ema_params = jax.tree.map(
                lambda new, old: jnp.where(are_finite, new, old),
                (params, batch_stats, opt_state, ema_params),
                (old_params, state.batch_stats, state.opt_state, state.ema_params),
            )
        if self.shards_update:
            params = jax.lax.with_sharding_constraint(params, replicated(self.mesh))
        params = joined_trees(params, frozen)
        step = state.step + 1
        # Kept in the state: the host reads it calls later and still learns the exact step.
        is_first_nonfinite = ~jnp.isfinite(loss) & (state.first_nonfinite_step == 0)
        return (
            TrainState(
                step=step,
                params=params,
                batch_stats=batch_stats,
                opt_state=opt_state,
                ema_params=ema_params,
                loss_scale=loss_scale,
                first_nonfinite_step=jnp.where(
                    is_first_nonfinite, step, state.first_nonfinite_step
                ),
                made=state.made,
            ),
            measured,
        )

    def _parts(self, tree: Tree) -> Tree:
        shardings = jax.tree.map(lambda leaf: update_sharding(self.mesh, leaf.shape), tree)
        return jax.lax.with_sharding_constraint(tree, shardings)

    def _gradients(
        self, state: TrainState, batch: Arrays, moment: Moment
    ) -> tuple[Tree, jax.Array, Tree]:
        """Gradients of the mean loss, times the loss scale where there is one; loss; statistics.

        The differentiated sum is divided by the rows first, so that it stays small in float16. If
        the task divides by another count, the gradients are corrected once, in the end.
        """
        rows, task = self.experiment.global_batch_size, self.experiment.task
        trained, frozen = self.split_params(state.params)

        def loss_over_rows(params: Tree, held: Any, batch: Arrays) -> tuple[jax.Array, _Sums]:
            batch_stats, loss_scale, moment = held
            num_rows = len(next(iter(batch.values())))
            module = self.model.bind(joined_trees(params, frozen), batch_stats, moment.key(MODEL))
            with named_layers(module), own_code("the task's loss"):
                losses, count = task.loss(module, batch, moment, self.setting)
                _check_loss(losses, count, num_rows)
            counts_rows = isinstance(count, int) and count == num_rows
            total = None if counts_rows else jnp.float32(count)
            sums = _Sums(losses, total, self.model.stats_of(module))
            return loss_scaling.scale(losses.sum() / rows, loss_scale), sums

        gradient = jax.grad(loss_over_rows, has_aux=True)
        held = (state.batch_stats, state.loss_scale, moment)
        if self.experiment.accumulation_steps == 1:
            gradients, sums = gradient(trained, held, batch)
        else:
            gradients, sums = self._in_parts(gradient, trained, held, batch)
        if sums.divisor is not None:
            correction = rows / sums.divisor.sum()
            gradients = jax.tree.map(lambda leaf: leaf * correction, gradients)
        return gradients, *_means(sums, state.batch_stats, rows)

    def _in_parts(
        self, gradient: Any, params: Tree, held: Any, batch: Arrays
    ) -> tuple[Tree, "_Sums"]:
        parts, group = self.experiment.accumulation_steps, self.experiment.batch_norm_group_size

        def add(total: Tree, part: tuple[jax.Array, Arrays]) -> tuple[Tree, _Sums]:
            number, rows = part
            moment = held[-1]._replace(part=number)
            gradients, sums = gradient(params, (*held[:-1], moment), rows)
            return jax.tree.map(jnp.add, total, gradients), sums

        def all_parts(params: Tree, batch: Arrays, place: Any = None) -> tuple[Tree, _Sums]:
            split = {
                name: array.reshape(parts, len(array) // parts, *array.shape[1:])
                for name, array in batch.items()
            }
            if place is not None:
                split = jax.lax.with_sharding_constraint(split, place)
            # In float32, whatever the parameters are.
            zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf, jnp.float32), params)
            gradients, sums = jax.lax.scan(add, zeros, (jnp.arange(parts), split))
            losses = sums.losses.reshape(-1)
            # The rows of all parts' groups follow one another; statistics of whole parts stay rows.
            stats = jax.tree.map(
                lambda new, old: new.reshape(-1, *old.shape) if new.ndim == old.ndim + 2 else new,
                sums.stats,
                held[0],
            )
            return gradients, _Sums(losses, sums.divisor, stats)

        shards = batch_shards(self.mesh)
        # A part is a run of rows, which lies on few devices: without this, all would compute it.
        divides = self.experiment.global_batch_size % (parts * shards) == 0
        spread = batch_sharding(self.mesh, 1) if shards > 1 and divides else None
        is_split = shards > 1 and self.mesh.shape["fsdp"] == 1
        groups = self.experiment.global_batch_size // group if group else 0
        # Where normalization has other groups, or random numbers follow a row's place, a device's
        # rows alone would give another result.
        is_local = getattr(self.setting.model, "has_batch_norm_groups", False)
        is_local = is_local and not self.model.has_streams
        if not is_split or not groups or groups % (shards * parts) or not is_local:
            return all_parts(params, batch, spread)

        # Each device adds up its own parts, and the sums are reduced once: left to itself, XLA
        # reduces the gradients of every part.
        def on_device(params: Tree, batch: Arrays) -> tuple[Tree, _Sums]:
            gradients, sums = all_parts(params, batch)
            return jax.lax.psum(gradients, BATCH_AXES), sums

        whole, split = PartitionSpec(), PartitionSpec(BATCH_AXES)
        reduced = jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(whole, split),
            out_specs=(whole, split),
            check_vma=False,
        )
        return reduced(params, batch)

    def train_flops_per_example(self) -> float:
        """Model FLOPs of one example in a train step, as an accelerator would compute it.

        ValueError if the model holds a loop whose number of rounds is not known.
        """
        # As an accelerator computes it: on a CPU some convolutions become other products.
        execution = dataclasses.replace(
            self.setting.execution,
            platform="tpu",
            batch_shards=1,
            placement=None,
            is_plain=True,
            attention="products",
        )
        setting = dataclasses.replace(self.setting, execution=execution, mesh=None)
        return self.experiment.task.train_flops_per_example(setting)

    @functools.cached_property
    def known_flops(self) -> tuple[float | None, str]:
        """`train_flops_per_example`, or None and why they are not known."""
        try:
            return self.train_flops_per_example(), ""
        except Exception as error:  # a task or a model of a user's own may refuse a single row
            return None, line_or_text(error)

    def trace(self) -> None:
        """Trace a step and an evaluation batch, so that a class of a user's own fails early."""

        def batch(split: Split, **more: Any) -> dict[str, jax.ShapeDtypeStruct]:
            shapes = {name: (s, d) for name, (s, d) in self.spec.example_shapes(split).items()}
            shapes |= {"index": ((), "int32"), **more}
            rows = (self.experiment.global_batch_size,)
            return {n: jax.ShapeDtypeStruct((*rows, *s), d) for n, (s, d) in shapes.items()}

        state, totals = self.abstract_state, jax.eval_shape(self.zero_totals)
        jax.eval_shape(self.train_step, state, batch("train", epoch=((), "int32")), key_shape())
        examples = batch("eval", mask=((), "bool"))
        jax.eval_shape(self.evaluation_step, state.params, state.batch_stats, examples, totals)

    def evaluation_step(
        self, params: Tree, batch_stats: Tree, batch: Arrays, totals: Arrays
    ) -> Arrays:
        """Add one evaluation batch to the totals.

        `batch` has arrays of examples, [batch, ...], with `index` int32 [batch] and `mask` bool
        [batch], False for padding.
        """
        module = self.model.bind(params, batch_stats)
        examples = totals["examples"] + batch["mask"].sum(dtype=jnp.int32)
        task_totals = {name: value for name, value in totals.items() if name != "examples"}
        with named_layers(module), own_code("the task's evaluation"):
            added = self.experiment.task.add_batch(module, batch, task_totals, self.setting)
        return {"examples": examples, **added}

    def zero_totals(self) -> Arrays:
        totals = self.experiment.task.zero_totals(self.setting)
        return {"examples": jnp.zeros((), jnp.int32), **totals}

    def metrics_of(self, totals: Mapping[str, np.ndarray]) -> dict[str, float | str]:
        """Metrics of an evaluation from its totals, which lie on the host."""
        task, targets = self.experiment.task, self.experiment.targets
        with own_code("the task's metrics_of"):
            metrics = task.metrics_of(totals, self.setting)
            metrics = {n: v if isinstance(v, str) else float(v) for n, v in metrics.items()}
        absent = [target.metric for target in targets if target.metric not in metrics]
        if absent:
            raise RunError(
                f"task={task.TAG}: metrics_of returned no {absent[0]}, which the target is for; it "
                f"returned {', '.join(metrics)}"
            )
        for metric in task.metrics:
            value = metrics.get(metric.name)
            if isinstance(value, float) and not (np.isnan(value) or metric.allows(value)):
                # Such as of a count that overflowed: a negative loss would reach any target.
                raise RunError(
                    f"task={task.TAG}: an evaluation gave {metric.name}={value:g}, which must lie "
                    f"in {metric.least:g} to {metric.most:g}"
                )
        return metrics


def _check_loss(losses: Any, count: Any, num_rows: int) -> None:
    # A loss of another shape would broadcast and be summed in silence.
    shape, kind = jnp.shape(losses), jnp.result_type(losses)
    if shape not in ((), (num_rows,)) or not jnp.issubdtype(kind, jnp.floating):
        raise ConfigError(
            f"the task's loss has shape {shape} and dtype {kind}; it must be floating-point, with "
            f"one value a row ({num_rows},) or their sum ()"
        )
    if jnp.shape(count) != ():
        raise ConfigError(f"the task's loss counts {jnp.shape(count)} values; it must be a number")


class _Sums(NamedTuple):
    """Sums over a batch, or over a part of one.

    Attributes:
      losses: float32 [] or [rows].
      divisor: float32, for the sum of the losses; None if it is the number of rows.
      stats: The model's statistics, one row a normalization group or one of the whole batch.
    """

    losses: jax.Array
    divisor: jax.Array | None
    stats: Tree


def make_recipe(
    experiment: Experiment,
    spec: Any,
    mesh: Mesh,
    stage: int | None = None,
    shards_update: bool = False,
    execution: Execution | None = None,
    records_norm: bool = False,
    is_deterministic: bool = False,
    context_keys: ContextKeys = "gather",
) -> Recipe:
    """Pure functions of an experiment on a mesh, of a stage from 0; None takes the last stage."""
    span = experiment.spans(spec)[-1 if stage is None else stage]
    experiment = experiment.in_stage(span.index)
    setting = Setting(
        model=experiment.model,
        data=experiment.data,
        spec=spec,
        execution=execution or execution_of(experiment, mesh, context_keys),
        mesh=mesh,
    )
    experiment.task.refuse_setting(experiment, setting)
    with own_code("the model cannot be built"):
        model = make_model(experiment.task, setting)
    parts = ("trained_parts", "frozen_parts")
    if experiment.ema_decay and any(getattr(experiment.model, name, ()) for name in parts):
        raise ConfigError(
            f"ema_decay={experiment.ema_decay} would average frozen parameters; give 0"
        )
    with own_code("the optimizer cannot be built"):
        split_over = mesh if shards_update else None
        optimizer = make_optimizer(experiment, spec, span.step_shift, split_over)
    return Recipe(
        experiment,
        setting,
        mesh,
        model,
        optimizer,
        span,
        shards_update,
        records_norm,
        is_deterministic,
    )


def execution_of(
    experiment: Experiment, mesh: Mesh, context_keys: ContextKeys = "gather"
) -> Execution:
    return Execution(
        platform=platform_of(mesh),
        compute_dtype=experiment.compute_dtype,
        batch_norm_group_size=experiment.batch_norm_group_size,
        batch_shards=batch_shards(mesh),
        placement=batch_sharding(mesh, 0) if mesh.size > 1 else None,
        attention="fused" if _has_fused_attention(mesh) else "products",
        context_keys=context_keys,
    )


def _has_fused_attention(mesh: Mesh) -> bool:
    """Use cuDNN's attention on NVIDIA GPUs of capability 8.0 on.

    A big Transformer's step takes 0.87 of the time with it (84.2 for 97.3 ms, one H200).
    """
    if platform_of(mesh) != "gpu":
        return False
    capability = str(getattr(mesh.devices.flat[0], "compute_capability", ""))
    if re.fullmatch(r"\d+\.\d+", capability) and float(capability) >= 8:
        return True
    say_products(f"cuDNN's needs NVIDIA's capability 8.0, and the GPU has {capability or 'none'}")
    return False


def platform_of(mesh: Mesh) -> Platform:
    platform = mesh.devices.flat[0].platform
    return cast(Platform, {"cuda": "gpu", "rocm": "gpu"}.get(platform, platform))


def evaluated_params(experiment: Experiment, state: TrainState) -> Tree:
    """Parameters that an evaluation measures: averaged ones where the run keeps them."""
    return state.ema_params if experiment.evaluation.weights == "ema" else state.params


def _norm(gradients: Tree) -> jax.Array:
    """Norm of all gradients as one vector, float32 []."""
    leaves = (leaf.astype(jnp.float32) for leaf in jax.tree.leaves(gradients))
    return jnp.sqrt(sum((jnp.square(leaf).sum() for leaf in leaves), jnp.float32(0.0)))


def _means(sums: _Sums, old_stats: Tree, num_rows: int) -> tuple[jax.Array, Tree]:
    leaves, structure = jax.tree.flatten(sums.stats)
    old_leaves = jax.tree.leaves(old_stats)
    have_groups = all(new.ndim == old.ndim + 1 for new, old in zip(leaves, old_leaves, strict=True))
    if leaves and have_groups and sums.divisor is None and sums.losses.shape == (num_rows,):
        # One array for loss and statistics: one small all-reduce costs less than one for each
        # layer.
        groups = len(leaves[0])
        group_losses = sums.losses.reshape(groups, -1).mean(axis=1, keepdims=True)
        rows = jnp.concatenate([group_losses, *leaves], axis=1)
        means = rows.mean(axis=0)
        ends = list(itertools.accumulate([leaf.shape[1] for leaf in leaves], initial=1))
        stats = [means[start:end] for start, end in itertools.pairwise(ends)]
        return means[0], jax.tree.unflatten(structure, stats)
    loss = sums.losses.sum() / (num_rows if sums.divisor is None else sums.divisor.sum())
    return loss, jax.tree.map(
        lambda new, old: new.mean(axis=0) if new.ndim > old.ndim else new, sums.stats, old_stats
    )
