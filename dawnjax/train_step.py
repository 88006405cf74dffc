"""The training state, the pure train and evaluation steps, and the one place they are compiled.

A step is a pure function of an explicit state. A call of the compiled program makes several steps
(`steps_per_call`): the number it makes is an argument, so one program serves every stretch between
two evaluations. In plain data parallel the collectives of a step are the reductions of the
gradients and one of the scalars; normalization statistics ride with the scalars.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from dawnjax import classification, compilation
from dawnjax.experiment import Experiment
from dawnjax.feed import InputShapes
from dawnjax.input_pipeline import image_augmentation
from dawnjax.input_pipeline.dataset import DatasetSpec
from dawnjax.mesh import batch_sharding, replicated, shardings_of
from dawnjax.models.execution import Execution, Platform
from dawnjax.optimizers import make_optimizer
from dawnjax.pure_model import PureModel, Tree, pure_model

PRNG_IMPLEMENTATION = "threefry2x32"

# Purposes of random numbers: key = fold_in(root, purpose, step, global example index).
INITIALIZATION, AUGMENTATION, EXAMPLE = range(3)

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

        def mean_loss(params: Tree) -> tuple[jax.Array, tuple[jax.Array, Tree]]:
            logits, batch_stats = self.model.apply(params, state.batch_stats, images, True)
            losses = classification.smoothed_cross_entropy(
                logits, batch["label"], experiment.label_smoothing
            )
            return losses.mean(), (losses, batch_stats)

        gradients, (losses, group_stats) = jax.grad(mean_loss, has_aux=True)(state.params)
        loss, batch_stats = _mean_over_groups(
            losses, group_stats, experiment.global_batch_size // experiment.batch_norm_group_size
        )
        updates, opt_state = self.optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
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
    return {"cuda": "gpu", "rocm": "gpu"}.get(platform, platform)


@dataclasses.dataclass(frozen=True)
class Programs:
    """The compiled programs of a run. Each donates the state or totals that it is given.

    Attributes:
      initialize: From the root key to the state.
      initialize_from_data: From the state and the first training images to the state; None where
        the model does not look at data.
      train: From `(state, resident, inputs, num_steps, root_key)` to `(state, losses)`.
      evaluate: From `(params, batch_stats, resident, inputs, totals)` to the totals.
      zero_totals: Makes fresh totals.
      state_shapes: The state's shapes, dtypes and shardings.
      steps_per_call: The most steps that one call of `train` makes.
    """

    initialize: Callable[[jax.Array], TrainState]
    initialize_from_data: Callable[[TrainState, jax.Array], TrainState] | None
    train: Callable[[TrainState, Arrays, Arrays, Any, jax.Array], tuple[TrainState, jax.Array]]
    evaluate: Callable[[Tree, Tree, Arrays, Arrays, Arrays], Arrays]
    zero_totals: Callable[[], Arrays]
    state_shapes: TrainState
    steps_per_call: int


def compile_programs(
    recipe: Recipe,
    shapes: InputShapes,
    steps_per_call: int,
    record: Callable[[str, float, str], None],
) -> Programs:
    """Compiles every program of a run ahead of time, with its shardings; runs none of them.

    Args:
      recipe: The pure functions.
      shapes: What the input will look like.
      steps_per_call: The most steps in a call; 0 chooses.
      record: Called with each program's name, the seconds that it took, and whether the cache of
        compiled programs was `cold` or `warm`.
    """
    mesh = recipe.mesh
    whole = replicated(mesh)
    key = jax.eval_shape(lambda: jax.random.key(0, impl=PRNG_IMPLEMENTATION))
    abstract_state = jax.eval_shape(recipe.initial_state, key)
    state_sharding = shardings_of(mesh, abstract_state)
    totals = jax.eval_shape(classification.zero_totals)

    def compiled(
        name: str, function: Callable, arguments: tuple, in_shardings: Any, out: Any, donate: tuple
    ) -> Any:
        jitted = jax.jit(
            function, in_shardings=in_shardings, out_shardings=out, donate_argnums=donate
        )
        started = time.perf_counter()
        with compilation.watch_cache() as cache:
            program = jitted.lower(*arguments).compile()
        record(name, time.perf_counter() - started, cache.state)
        return program

    def sharding_of_inputs(inputs: Arrays, batch_axis: int) -> Any:
        return {name: batch_sharding(mesh, batch_axis) for name in inputs}

    steps_per_call = steps_per_call or _choose_steps_per_call(recipe, shapes, abstract_state, key)
    train_inputs = shapes.train_inputs(steps_per_call)
    train_resident, eval_resident = shapes.train_resident, shapes.eval_resident
    eval_params = abstract_state.ema_params if _uses_ema(recipe) else abstract_state.params
    eval_params_sharding = shardings_of(mesh, eval_params)

    initialize_from_data = None
    if hasattr(recipe.experiment.model, "initialize_from_data"):
        initialize_from_data = compiled(
            "initialize_from_data",
            recipe.state_from_data,
            (abstract_state, shapes.initialization_images),
            (state_sharding, whole),
            state_sharding,
            (0,),
        )
    return Programs(
        initialize=compiled(
            "initialize", recipe.initial_state, (key,), (whole,), state_sharding, ()
        ),
        initialize_from_data=initialize_from_data,
        train=compiled(
            "train",
            train_call(recipe, steps_per_call),
            (abstract_state, train_resident, train_inputs, jax.ShapeDtypeStruct((), "int32"), key),
            (state_sharding, whole, sharding_of_inputs(train_inputs, 1), whole, whole),
            (state_sharding, whole),
            (0,),
        ),
        evaluate=compiled(
            "evaluate",
            lambda params, stats, resident, inputs, totals: recipe.evaluation_step(
                params, stats, _batch_of(resident, inputs), totals
            ),
            (eval_params, abstract_state.batch_stats, eval_resident, shapes.eval_inputs, totals),
            (
                eval_params_sharding,
                state_sharding.batch_stats,
                whole,
                sharding_of_inputs(shapes.eval_inputs, 0),
                whole,
            ),
            whole,
            (4,),
        ),
        zero_totals=compiled("zero_totals", classification.zero_totals, (), (), whole, ()),
        state_shapes=jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            abstract_state,
            state_sharding,
        ),
        steps_per_call=steps_per_call,
    )


def train_call(recipe: Recipe, steps_per_call: int) -> Callable:
    """Gives the function of one call: up to `steps_per_call` train steps.

    Its arguments are `(state, resident, inputs, num_steps, root_key)`: `inputs` has a row for each
    step, of which the first `num_steps` are used. It gives the state and the losses, float32
    [steps_per_call], 0 where no step was made.
    """

    def one_step(state: TrainState, resident: Arrays, row: Arrays, key: jax.Array) -> Any:
        return recipe.train_step(state, _batch_of(resident, row), key)

    if steps_per_call == 1:
        # No loop: XLA's CPU compiler lays convolutions out well outside of loops only.
        def single(
            state: TrainState, resident: Arrays, inputs: Arrays, num_steps: Any, key: jax.Array
        ) -> Any:
            del num_steps
            state, loss = one_step(state, resident, jax.tree.map(lambda a: a[0], inputs), key)
            return state, loss[None]

        return single

    def several(
        state: TrainState, resident: Arrays, inputs: Arrays, num_steps: Any, key: jax.Array
    ) -> Any:
        def body(index: jax.Array, carry: tuple[TrainState, jax.Array]) -> Any:
            state, losses = carry
            state, loss = one_step(state, resident, jax.tree.map(lambda a: a[index], inputs), key)
            return state, losses.at[index].set(loss)

        losses = jnp.zeros(steps_per_call, jnp.float32)
        return jax.lax.fori_loop(0, num_steps, body, (state, losses))

    return several


LONGEST_CALL_STEPS = 32
"""More steps in a call save nothing that can be measured, and delay the answer to a signal."""


def _choose_steps_per_call(
    recipe: Recipe, shapes: InputShapes, state: TrainState, key: jax.ShapeDtypeStruct
) -> int:
    if not shapes.train_resident:
        return 1  # each batch comes from the host anyway
    if platform_of(recipe.mesh) == "cpu":
        row = {name: a.update(shape=a.shape[1:]) for name, a in shapes.train_inputs(1).items()}
        batch = jax.eval_shape(_batch_of, shapes.train_resident, row)
        step = jax.make_jaxpr(recipe.train_step)(state, batch, key)
        if _holds_convolution(step.jaxpr):
            return 1
    evaluations = [0, *recipe.experiment.evaluation_steps(recipe.spec)]
    longest = max(b - a for a, b in itertools.pairwise(evaluations))
    return min(longest, LONGEST_CALL_STEPS)


def _holds_convolution(jaxpr: Any) -> bool:
    """Tells whether a jaxpr, or one inside it, has a convolution that XLA would lay out."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "conv_general_dilated":
            return True
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            inner = getattr(value, "jaxpr", value)  # a closed jaxpr holds its jaxpr
            if hasattr(inner, "eqns") and _holds_convolution(inner):
                return True
    return False


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


def _batch_of(resident: Arrays, inputs: Arrays) -> Arrays:
    """Gives a batch: rows of the dataset on the device, or what the host sent."""
    if not resident:
        return inputs
    rows = {name: array[inputs["index"]] for name, array in resident.items()}
    return {**inputs, **rows}


def _uses_ema(recipe: Recipe) -> bool:
    return recipe.experiment.evaluation.weights == "ema"


def evaluated_params(recipe: Recipe, state: TrainState) -> Tree:
    """Gives the parameters that an evaluation measures."""
    return state.ema_params if _uses_ema(recipe) else state.params


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
    return optax.incremental_update(params, average, 1 - decay)
