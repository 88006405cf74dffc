"""The training state, and the pure train and evaluation steps.

A step is a pure function of an explicit state; `programs` compiles it. In plain data parallel the
collectives of a step are the reductions of the gradients and one of the scalars; normalization
statistics ride with the scalars.
"""

import dataclasses
import functools
import itertools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec

from dawnjax.config.experiment import Experiment
from dawnjax.input_pipeline import image_augmentation
from dawnjax.input_pipeline.dataset import AnySpec, DatasetSpec, TextSpec
from dawnjax.machine.mesh import BATCH_AXES, batch_shards, replicated, update_sharding
from dawnjax.models.execution import ComputeDtype, Execution, Platform, TrainingMoment
from dawnjax.models.pure_model import PureModel, Tree, pure_model
from dawnjax.optim import loss_scaling
from dawnjax.optim.optimizers import make_optimizer, whitening_learns
from dawnjax.runs.stages import Span
from dawnjax.tasks import classification

PRNG_IMPLEMENTATION = "threefry2x32"

# Purposes of random numbers: key = fold_in(root, purpose, step, global example index).
INITIALIZATION, AUGMENTATION, EXAMPLE, MODEL = range(4)

Arrays = dict[str, jax.Array]


def key_shape() -> Any:
    """Gives the shape of a trial's key."""
    return jax.eval_shape(lambda: jax.random.key(0, impl=PRNG_IMPLEMENTATION))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a step changes.

    Attributes:
      step: int32, steps done.
      params: Nested dict of float32 parameters.
      batch_stats: Nested dict of float32 running statistics.
      opt_state: The optimizer's state.
      ema_params: Moving average of `params`; empty where the experiment keeps none.
      loss_scale: What float16 gradients are scaled with, and the steps since it last changed; empty
        for other dtypes.
      first_nonfinite_step: int32, the first step, from 1, with a NaN or infinite loss; 0 if none.
    """

    step: jax.Array
    params: Tree
    batch_stats: Tree
    opt_state: optax.OptState
    ema_params: Tree
    loss_scale: Tree
    first_nonfinite_step: jax.Array


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A classifier's pure functions on a mesh, before they are compiled.

    `translation.TranslationRecipe` is that of a translator.

    Attributes:
      experiment: The experiment.
      spec: The dataset's shapes and counts.
      mesh: The devices.
      model: The pure model.
      optimizer: The update rule.
      span: The steps of the run's stage that it is for; the experiment is that of this stage alone.
      shards_update: Whether each device makes its part of an update alone and keeps its part of the
        optimizer's state; the parameters are whole on each device.
    """

    experiment: Experiment
    spec: DatasetSpec
    mesh: Mesh
    model: PureModel
    optimizer: optax.GradientTransformation
    span: Span
    shards_update: bool = False

    def initial_state(self, root_key: jax.Array) -> TrainState:
        """Gives the state before the first step; it depends on the seed alone."""
        key = jax.random.fold_in(root_key, INITIALIZATION)
        params, batch_stats = self.model.init(key)
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            batch_stats=batch_stats,
            opt_state=self.optimizer.init(params),
            ema_params=params if self.experiment.ema_decay else {},
            loss_scale=loss_scaling.start() if self.experiment.compute_dtype == "float16" else {},
            first_nonfinite_step=jnp.zeros((), jnp.int32),
        )

    @functools.cached_property
    def abstract_state(self) -> TrainState:
        """Shapes and dtypes of the state: a run asks often, and a large model traces a second."""
        return jax.eval_shape(self.initial_state, key_shape())

    def state_from_data(self, state: TrainState, images: jax.Array) -> TrainState:
        """Gives the state with those parameters set that look at training images.

        Args:
          state: The initial state.
          images: uint8 [n, height, width, channels], the first of the training split.
        """
        normalized = image_augmentation.normalize(images, self.spec.mean, self.spec.std)
        initialize = getattr(self.experiment.model, "initialize_from_data")  # noqa: B009
        params = initialize(state.params, normalized)
        ema_params = params if self.experiment.ema_decay else {}
        return dataclasses.replace(state, params=params, ema_params=ema_params)

    def train_step(
        self, state: TrainState, batch: Arrays, root_key: jax.Array
    ) -> tuple[TrainState, jax.Array]:
        """Makes one step.

        Args:
          state: The state.
          batch: `image` uint8 [batch, height, width, channels], `label`, `index` and `epoch` int32
            [batch]: the example's position in its split and the epoch that it is seen in.
          root_key: The trial's key.

        Returns:
          The next state, and the mean loss of the batch (float32) before the update.
        """
        experiment = self.experiment
        images = image_augmentation.normalize(batch["image"], self.spec.mean, self.spec.std)
        example_keys = _fold_in_each(jax.random.fold_in(root_key, EXAMPLE), batch["index"])
        step_key = jax.random.fold_in(jax.random.fold_in(root_key, AUGMENTATION), state.step)
        images = image_augmentation.augment(
            experiment.augmentation,
            images,
            step_keys=_fold_in_each(step_key, batch["index"]),
            example_keys=example_keys,
            epochs=batch["epoch"],
        )

        moment = self._moment(state.step, batch["index"], root_key)
        gradients, losses, group_stats = self._gradients(state, images, batch["label"], moment)
        loss, batch_stats = _mean_over_groups(
            losses, group_stats, experiment.global_batch_size // experiment.batch_norm_group_size
        )
        return self.updated(state, gradients, loss, batch_stats)

    def updated(
        self, state: TrainState, gradients: Tree, loss: jax.Array, batch_stats: Tree
    ) -> tuple[TrainState, jax.Array]:
        """Gives the state after an update by gradients of the mean loss, and that loss.

        The gradients are those of the loss times the state's loss scale, where it has one.
        """
        experiment = self.experiment
        old_params = state.params
        if self.shards_update:
            # What follows is made of each device's part: of the sum over devices it needs no more.
            gradients, old_params = self._parts(gradients), self._parts(old_params)
        gradients, loss_scale, are_finite = loss_scaling.unscale(gradients, state.loss_scale)
        updates, opt_state = self.optimizer.update(gradients, state.opt_state, old_params)
        params = cast(Tree, optax.apply_updates(old_params, updates))
        ema_decay = _ema_decay(experiment, state.step)
        ema_params = _moving_average(state.ema_params, params, ema_decay)
        if loss_scale:
            # An overflow costs the step: all stays as it was, but for the scale.
            params, batch_stats, opt_state, ema_params = jax.tree.map(
                lambda new, old: jnp.where(are_finite, new, old),
                (params, batch_stats, opt_state, ema_params),
                (old_params, state.batch_stats, state.opt_state, state.ema_params),
            )
        if self.shards_update:
            params = jax.lax.with_sharding_constraint(params, replicated(self.mesh))
        step = state.step + 1
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
            ),
            loss,
        )

    def _parts(self, tree: Tree) -> Tree:
        """Gives a tree of arrays as each device's part of them."""
        shardings = jax.tree.map(lambda leaf: update_sharding(self.mesh, leaf.shape), tree)
        return jax.lax.with_sharding_constraint(tree, shardings)

    def _gradients(
        self,
        state: TrainState,
        images: jax.Array,
        labels: jax.Array,
        moment: TrainingMoment | None,
    ) -> tuple[Tree, jax.Array, Tree]:
        """Gives the gradients of the mean loss, times the loss scale where there is one.

        Returns:
          The gradients, each example's loss, and statistics of each normalization group. In several
          parts the last two come in another order of groups, which their means do not see.
        """

        def mean_loss(
            params: Tree, held: tuple[Tree, Tree], rows: Any
        ) -> tuple[jax.Array, tuple[jax.Array, Tree]]:
            (batch_stats, loss_scale), (images, labels, moment) = held, rows
            heads, batch_stats = self.model.apply(params, batch_stats, images, True, moment)
            losses = self._losses(heads, labels)
            return loss_scaling.scale(losses.mean(), loss_scale), (losses, batch_stats)

        gradient = jax.grad(mean_loss, has_aux=True)
        params, held = state.params, (state.batch_stats, state.loss_scale)
        rows = (images, labels, moment)
        count = self.experiment.accumulation_steps
        if count == 1:
            gradients, (losses, group_stats) = gradient(params, held, rows)
            return gradients, losses, group_stats

        def in_parts(params: Tree, held: tuple[Tree, Tree], rows: Any) -> Any:
            def add(total: Tree, part: Any) -> tuple[Tree, tuple[jax.Array, Tree]]:
                gradients, aux = gradient(params, held, part)
                return jax.tree.map(lambda a, b: a + b / count, total, gradients), aux

            def parts_of(array: jax.Array) -> jax.Array:
                if array.ndim == 0:
                    return jnp.broadcast_to(array, (count,))
                return array.reshape(count, len(array) // count, *array.shape[1:])

            zeros = jax.tree.map(jnp.zeros_like, params)
            gradients, aux = jax.lax.scan(add, zeros, jax.tree.map(parts_of, rows))
            losses, group_stats = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), aux)
            return gradients, losses, group_stats

        shards = batch_shards(self.mesh)
        num_groups = self.experiment.global_batch_size // self.experiment.batch_norm_group_size
        is_split = shards > 1 and self.mesh.shape["fsdp"] == 1
        if not is_split or num_groups % (shards * count):
            return in_parts(params, held, rows)

        # Each device adds up its own parts, and the sums are reduced once: left to itself, XLA
        # reduces the gradients of every part.
        def on_device(params: Tree, held: tuple[Tree, Tree], rows: Any) -> Any:
            gradients, losses, group_stats = in_parts(params, held, rows)
            return jax.lax.pmean(gradients, BATCH_AXES), losses, group_stats

        whole, split = PartitionSpec(), PartitionSpec(BATCH_AXES)
        row_specs = jax.tree.map(lambda array: split if array.ndim else whole, rows)
        reduced = jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(whole, whole, row_specs),
            out_specs=(whole, split, split),
            check_vma=False,
        )
        return reduced(params, held, rows)

    def _moment(
        self, step: jax.Array, index: jax.Array, root_key: jax.Array
    ) -> TrainingMoment | None:
        """Gives what a model that takes a moment is told; None for the others."""
        if not getattr(self.experiment.model, "takes_moment", False):
            return None
        step_key = jax.random.fold_in(jax.random.fold_in(root_key, MODEL), step)
        num_steps = self.experiment.num_steps(self.spec)
        done = step.astype(jnp.float32) + self.span.step_shift
        return TrainingMoment(
            keys=_fold_in_each(step_key, index),
            progress=done / num_steps,
            whitening_learns=whitening_learns(self.experiment, self.spec, step),
        )

    def _losses(
        self, heads: jax.Array | tuple[jax.Array, jax.Array], labels: jax.Array
    ) -> jax.Array:
        """Gives each example's loss, float32 [batch], an auxiliary head's included."""
        smoothing = self.experiment.label_smoothing
        if not isinstance(heads, tuple):
            return classification.smoothed_cross_entropy(heads, labels, smoothing)
        losses, auxiliary = (
            classification.smoothed_cross_entropy(logits, labels, smoothing) for logits in heads
        )
        weight = getattr(self.experiment.model, "auxiliary_loss_weight")  # noqa: B009
        return losses + weight * auxiliary

    def evaluation_step(
        self, params: Tree, batch_stats: Tree, batch: Arrays, totals: Arrays
    ) -> Arrays:
        """Adds one evaluation batch to the totals.

        Args:
          params: The raw or averaged parameters.
          batch_stats: The running statistics.
          batch: `image` uint8 [batch, height, width, channels], `label` int32 [batch], `mask` bool
            [batch], False for padding.
          totals: As `classification.zero_totals` gives them.
        """
        logits = self.evaluated_logits(params, batch_stats, batch["image"])
        return classification.add_totals(totals, logits, batch["label"], batch["mask"])

    def evaluated_logits(self, params: Tree, batch_stats: Tree, images: jax.Array) -> jax.Array:
        """Gives the logits of images as an evaluation has them: float32 [batch, classes].

        Args:
          params: The raw or averaged parameters.
          batch_stats: The running statistics.
          images: uint8 [batch, height, width, channels].
        """
        cropped = image_augmentation.center_crop(self.experiment.augmentation, images)
        normalized = image_augmentation.normalize(cropped, self.spec.mean, self.spec.std)
        logits = jnp.zeros((), jnp.float32)
        augmentation = self.experiment.evaluation.test_time_augmentation
        for weight, view in image_augmentation.views(augmentation, normalized):
            logits += weight * self.model.apply(params, batch_stats, view, False)[0]
        return logits

    def zero_totals(self) -> Arrays:
        """Gives the totals of no examples."""
        return classification.zero_totals()

    def metrics_of(self, totals: dict[str, np.ndarray]) -> dict[str, float | str]:
        """Gives the metrics of an evaluation from its totals, which lie on the host."""
        numbers = {name: value.item() for name, value in totals.items()}
        return {**classification.metrics_of(numbers, self.spec.num_classes)}


def make_recipe(
    experiment: Experiment,
    spec: AnySpec,
    mesh: Mesh,
    stage: int | None = None,
    shards_update: bool = False,
    execution: Execution | None = None,
) -> Recipe:
    """Gives the pure functions of an experiment for the devices of a mesh.

    Args:
      experiment: The experiment.
      spec: The dataset's shapes and counts.
      mesh: The devices.
      stage: Which stage's functions, from 0; None takes the last one's, as which the run ends.
      shards_update: As in `Recipe`.
      execution: How layers compute; None lets `execution_of` choose, as runs do.
    """
    span = experiment.spans(spec)[-1 if stage is None else stage]
    experiment = experiment.in_stage(span.index)
    if isinstance(spec, TextSpec):
        # Imported here: that module builds on this one.
        from dawnjax.tasks.translation import make_translation_recipe

        return make_translation_recipe(experiment, spec, mesh, span, shards_update, execution)
    execution = execution or execution_of(experiment, mesh)
    build: Any = experiment.model.build
    model = pure_model(
        lambda rngs: build(
            image_shape=image_augmentation.model_image_shape(
                experiment.augmentation, spec.image_shape
            ),
            num_classes=spec.num_classes,
            execution=execution,
            rngs=rngs,
        )
    )
    optimizer = make_optimizer(experiment, spec, span.step_shift)
    return Recipe(experiment, spec, mesh, model, optimizer, span, shards_update)


def execution_of(experiment: Experiment, mesh: Mesh) -> Execution:
    """Gives what the layers must know of the machine and the recipe."""
    return Execution(
        platform=platform_of(mesh),
        compute_dtype=experiment.compute_dtype,
        batch_norm_group_size=experiment.batch_norm_group_size,
        batch_shards=batch_shards(mesh),
        attention="fused" if _has_fused_attention(experiment.compute_dtype, mesh) else "products",
    )


def _has_fused_attention(dtype: ComputeDtype, mesh: Mesh) -> bool:
    """Whether attention is given to cuDNN: on one NVIDIA GPU that is here, of capability 8.0 on.

    A big Transformer's step takes 0.87 of the time with it (84.2 for 97.3 ms, one H200). Of a GPU
    that is not here JAX cannot ask whether cuDNN would take the call; of several, it is not tried.
    """
    device = mesh.devices.flat[0]
    if mesh.size > 1 or dtype == "float32" or device.platform not in ("gpu", "cuda"):
        return False
    return device in jax.local_devices() and float(device.compute_capability) >= 8


def platform_of(mesh: Mesh) -> Platform:
    """Gives the platform that programs on this mesh are compiled for."""
    platform = mesh.devices.flat[0].platform
    return cast(Platform, {"cuda": "gpu", "rocm": "gpu"}.get(platform, platform))


def evaluated_params(experiment: Experiment, state: TrainState) -> Tree:
    """Gives the parameters that an evaluation measures."""
    return state.ema_params if experiment.evaluation.weights == "ema" else state.params


def _fold_in_each(key: jax.Array, values: jax.Array) -> jax.Array:
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, values)


def _mean_over_groups(
    losses: jax.Array, group_stats: Tree, num_groups: int
) -> tuple[jax.Array, Tree]:
    """Gives the mean loss and the mean statistics by one reduction over the normalization groups.

    Args:
      losses: float32 [batch].
      group_stats: Tree of float32 [groups, channels].
      num_groups: Groups in the global batch.
    """
    leaves, structure = jax.tree.flatten(group_stats)
    group_losses = losses.reshape(num_groups, -1).mean(axis=1, keepdims=True)
    rows = jnp.concatenate([group_losses, *leaves], axis=1)
    means = rows.mean(axis=0)
    ends = list(itertools.accumulate([leaf.shape[1] for leaf in leaves], initial=1))
    stats = [means[start:end] for start, end in itertools.pairwise(ends)]
    return means[0], jax.tree.unflatten(structure, stats)


def _ema_decay(experiment: Experiment, step: jax.Array) -> jax.Array | float:
    """Gives the decay of the moving average after `step` earlier steps.

    Source: `num_updates` of TensorFlow's `ExponentialMovingAverage`, for the warm-up.
    """
    if not experiment.ema_has_warmup:
        return experiment.ema_decay
    count = step.astype(jnp.float32)
    return jnp.minimum(experiment.ema_decay, (1 + count) / (10 + count))


def _moving_average(average: Tree, params: Tree, decay: jax.Array | float) -> Tree:
    if not average:
        return average
    return cast(Tree, optax.incremental_update(params, average, 1 - decay))
