"""The training state, and the pure train and evaluation steps.

A step is a pure function of an explicit state; `programs` compiles it. In plain data parallel the
collectives of a step are the reductions of the gradients and one of the scalars; normalization
statistics ride with the scalars.
"""

import dataclasses
import itertools
from typing import cast

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from dawnjax import classification
from dawnjax.experiment import Experiment
from dawnjax.input_pipeline import image_augmentation
from dawnjax.input_pipeline.dataset import DatasetSpec
from dawnjax.models.execution import Execution, Platform, TrainingMoment
from dawnjax.optimizers import make_optimizer
from dawnjax.pure_model import PureModel, Tree, pure_model

PRNG_IMPLEMENTATION = "threefry2x32"

# Purposes of random numbers: key = fold_in(root, purpose, step, global example index).
INITIALIZATION, AUGMENTATION, EXAMPLE, MODEL = range(4)

Arrays = dict[str, jax.Array]


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
      first_nonfinite_step: int32, the first step, from 1, with a NaN or infinite loss; 0 if none.
    """

    step: jax.Array
    params: Tree
    batch_stats: Tree
    opt_state: optax.OptState
    ema_params: Tree
    first_nonfinite_step: jax.Array


@dataclasses.dataclass(frozen=True)
class Recipe:
    """An experiment's pure functions on a mesh, before they are compiled.

    Attributes:
      experiment: The experiment.
      spec: The dataset's shapes and counts.
      mesh: The devices.
      model: The pure model.
      optimizer: The update rule.
    """

    experiment: Experiment
    spec: DatasetSpec
    mesh: Mesh
    model: PureModel
    optimizer: optax.GradientTransformation

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
            first_nonfinite_step=jnp.zeros((), jnp.int32),
        )

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

        def mean_loss(params: Tree) -> tuple[jax.Array, tuple[jax.Array, Tree]]:
            heads, batch_stats = self.model.apply(params, state.batch_stats, images, True, moment)
            losses = self._losses(heads, batch["label"])
            return losses.mean(), (losses, batch_stats)

        gradients, (losses, group_stats) = jax.grad(mean_loss, has_aux=True)(state.params)
        loss, batch_stats = _mean_over_groups(
            losses, group_stats, experiment.global_batch_size // experiment.batch_norm_group_size
        )
        updates, opt_state = self.optimizer.update(gradients, state.opt_state, state.params)
        params = cast(Tree, optax.apply_updates(state.params, updates))
        step = state.step + 1
        is_first_nonfinite = ~jnp.isfinite(loss) & (state.first_nonfinite_step == 0)
        return (
            TrainState(
                step=step,
                params=params,
                batch_stats=batch_stats,
                opt_state=opt_state,
                ema_params=_moving_average(state.ema_params, params, experiment.ema_decay),
                first_nonfinite_step=jnp.where(
                    is_first_nonfinite, step, state.first_nonfinite_step
                ),
            ),
            loss,
        )

    def _moment(
        self, step: jax.Array, index: jax.Array, root_key: jax.Array
    ) -> TrainingMoment | None:
        """Gives what a model that draws random numbers is told; None for the others."""
        if not getattr(self.experiment.model, "draws_in_training", False):
            return None
        step_key = jax.random.fold_in(jax.random.fold_in(root_key, MODEL), step)
        num_steps = self.experiment.num_steps(self.spec)
        return TrainingMoment(
            keys=_fold_in_each(step_key, index), progress=step.astype(jnp.float32) / num_steps
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
        images = image_augmentation.normalize(batch["image"], self.spec.mean, self.spec.std)
        logits = jnp.zeros((), jnp.float32)
        views = image_augmentation.views(self.experiment.evaluation.test_time_augmentation, images)
        for weight, view in views:
            logits += weight * self.model.apply(params, batch_stats, view, False)[0]
        return classification.add_totals(totals, logits, batch["label"], batch["mask"])


def make_recipe(experiment: Experiment, spec: DatasetSpec, mesh: Mesh) -> Recipe:
    """Gives the pure functions of an experiment for the devices of a mesh."""
    execution = Execution(
        platform=platform_of(mesh),
        compute_dtype=experiment.compute_dtype,
        batch_norm_group_size=experiment.batch_norm_group_size,
    )
    model = pure_model(
        lambda rngs: experiment.model.build(
            image_shape=spec.image_shape,
            num_classes=spec.num_classes,
            execution=execution,
            rngs=rngs,
        )
    )
    return Recipe(experiment, spec, mesh, model, make_optimizer(experiment, spec))


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


def _moving_average(average: Tree, params: Tree, decay: float) -> Tree:
    if not decay:
        return average
    return cast(Tree, optax.incremental_update(params, average, 1 - decay))
