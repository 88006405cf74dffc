"""Compiled programs of a run: the one place where anything is compiled, with its shardings.

Everything is compiled ahead of time from shapes, before an example is read. The number of steps of
a call is an argument, so one train program serves every stretch between evaluations.
"""

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from dawnjax.call_queue import CallMetrics
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.feed import Arrays, InputShapes, Shapes, input_shapes
from dawnjax.machine import compilation
from dawnjax.machine.mesh import (
    batch_sharding,
    place,
    replicated,
    shardings_of,
    update_sharding,
)
from dawnjax.models.execution import Platform
from dawnjax.models.pure_model import Tree
from dawnjax.profile.model_flops import inner_jaxprs
from dawnjax.runs.stages import Span, span_of_last
from dawnjax.stops import Stops, wishes_shape
from dawnjax.train_step import Recipe, TrainState, evaluated_params, key_shape, platform_of

Record = Callable[[str, float, str], None]
"""Callback with a program's name, its seconds of compilation, and its cache (`CacheUse.state`)."""

LONGEST_CALL_STEPS = 32
"""More steps in a call save nothing measurable, and delay the answer to a signal."""

SMALL_BATCH_ELEMENTS = 2**15
"""Below this batch size, a CPU's programs gain nothing from LLVM's higher levels.

`digits` (4,096) compiled in 4.5 in place of 5.2 s, and its step took 0.98 of the time. That of
ResNet-18 with 128 images (393,216) took 1.05 times as long, `multi30k_transformer` 1.01 (two cores
of an AMD EPYC, Zen 5; `benchmarks/measurements.md`).
"""


@dataclasses.dataclass(frozen=True)
class EvaluationPrograms:
    """Compiled programs of an evaluation; `add_batch` takes over the memory of its totals."""

    zero_totals: Callable[[], Arrays]
    add_batch: Callable[[Tree, Tree, Arrays, Arrays, Arrays], Arrays]


@dataclasses.dataclass(frozen=True)
class TrainPrograms:
    """Compiled programs of training. Each takes over the memory of the state that it is given.

    Attributes:
      initialize: From the root key to the state.
      initialize_from_data: From the state and some training examples to the state; None where the
        model does not look at data.
      train: From `(state, resident, inputs, num_steps, root_key, *wishes)` to `(state,
        CallMetrics)`; `inputs` has a row for each step of a call, and the first `num_steps` are
        used. `wishes` is `stops.wishes_shape`.
      steps_per_call: The most steps of one call.
    """

    initialize: Callable[[jax.Array], TrainState]
    initialize_from_data: Callable[[TrainState, Arrays], TrainState] | None
    train: Callable[..., Any]
    steps_per_call: int


def state_shapes(recipe: Recipe) -> TrainState:
    shapes = recipe.abstract_state
    shardings = shardings_of(recipe.mesh, shapes, recipe.named_axes)
    whole = jax.tree.map(lambda _: replicated(recipe.mesh), shapes.made)
    shardings = dataclasses.replace(shardings, made=whole)
    if recipe.shards_update:
        parts = jax.tree.map(lambda leaf: update_sharding(recipe.mesh, leaf.shape), shapes)
        shardings = dataclasses.replace(
            shardings, opt_state=parts.opt_state, ema_params=parts.ema_params
        )
    return placed(shapes, shardings)


def compile_evaluation(recipe: Recipe, shapes: InputShapes, record: Record) -> EvaluationPrograms:
    whole = replicated(recipe.mesh)
    add_batch, arguments = evaluation_call(recipe, shapes)
    return EvaluationPrograms(
        zero_totals=compile_program("zero_totals", recipe.zero_totals, (), whole, (), record),
        add_batch=compile_program(
            _in_stage("evaluate", recipe),
            add_batch,
            arguments,
            whole,
            (4,),
            record,
            xla_options(recipe),
        ),
    )


def evaluation_call(recipe: Recipe, shapes: InputShapes) -> tuple[Callable, tuple]:
    """Uncompiled `EvaluationPrograms.add_batch`, and the shapes of its arguments."""
    whole = replicated(recipe.mesh)
    state = state_shapes(recipe)

    def add_batch(
        params: Tree, batch_stats: Tree, resident: Arrays, inputs: Arrays, totals: Arrays
    ) -> Arrays:
        batch = batch_of(resident, inputs)
        return recipe.evaluation_step(params, batch_stats, batch, totals)

    return add_batch, (
        evaluated_params(recipe.experiment, state),
        state.batch_stats,
        placed(shapes.eval_resident, whole),
        batches(shapes.eval_inputs, recipe.mesh, 0),
        placed(jax.eval_shape(recipe.zero_totals), whole),
    )


def compile_training(
    recipe: Recipe,
    shapes: InputShapes,
    steps_per_call: int,
    record: Record,
    first: TrainPrograms | None = None,
) -> TrainPrograms:
    """Compile the programs of training; `steps_per_call` 0 chooses the most steps in a call.

    A later stage keeps `first.initialize` and its steps per call.
    """
    whole = replicated(recipe.mesh)
    key = placed(key_shape(), whole)
    state = state_shapes(recipe)
    state_shardings = jax.tree.map(lambda leaf: leaf.sharding, state)

    def arguments_of(steps_per_call: int) -> tuple:
        return (
            state,
            placed(shapes.train_resident, whole),
            batches(shapes.train_inputs(steps_per_call), recipe.mesh, 1),
            placed(jax.ShapeDtypeStruct((), jnp.int32), whole),
            key,
            *wishes_shape(recipe.mesh),
        )

    if first is not None:
        steps_per_call = first.steps_per_call
    if steps_per_call:
        call = call_of_steps(recipe, steps_per_call)
    else:
        steps_per_call, call = _choose_call(recipe, shapes, arguments_of)
    train = compile_program(
        _in_stage("train", recipe),
        call,
        arguments_of(steps_per_call),
        (state_shardings, whole),
        (0,),
        record,
        xla_options(recipe),
    )
    if first is not None:
        return dataclasses.replace(first, train=train)
    initialize_from_data = None
    if hasattr(recipe.experiment.model, "initialize_from_data"):
        arguments = (state, placed(shapes.initialization_examples, whole))
        initialize_from_data = compile_program(
            "initialize_from_data", recipe.state_from_data, arguments, state_shardings, (0,), record
        )
    # It runs once, and on a CPU LLVM takes four times as long to optimize its random numbers.
    quick = {"xla_backend_optimization_level": 0} if platform_of(recipe.mesh) == "cpu" else {}
    return TrainPrograms(
        initialize=compile_program(
            "initialize", recipe.initialize, (key,), state_shardings, (), record, quick
        ),
        initialize_from_data=initialize_from_data,
        train=train,
        steps_per_call=steps_per_call,
    )


def xla_options(recipe: Recipe) -> dict[str, Any]:
    """XLA's options: those of the experiment, and those that the size of its batch needs."""
    words: dict[str, Any] = {"true": True, "false": False}
    pairs = (option.partition("=") for option in recipe.experiment.xla_options)
    asked = {name: words.get(value.lower(), value) for name, _, value in pairs}
    platform = platform_of(recipe.mesh)
    if recipe.is_deterministic and platform == "gpu":
        asked["xla_gpu_deterministic_ops"] = True
    batch_elements = recipe.spec.batch_elements(recipe.experiment.global_batch_size)
    return {**options_for_size(batch_elements, platform), **asked}


def options_for_size(batch_elements: int, platform: Platform) -> dict[str, Any]:
    """XLA's options for a program by the elements of its largest known array."""
    name = "xla_backend_optimization_level"
    if platform != "cpu" or batch_elements >= SMALL_BATCH_ELEMENTS:
        return {}
    # Options of a program would win over a user's flags.
    return {} if name in os.environ.get("XLA_FLAGS", "") else {name: 1}


def _in_stage(name: str, recipe: Recipe) -> str:
    # Names go into logs: runs of one stage keep the plain name.
    return f"{name}_{recipe.span.index + 1}" if recipe.span.index else name


def call_of_steps(recipe: Recipe, steps_per_call: int) -> Callable:
    """Uncompiled function of one call, as `TrainPrograms.train` says."""

    def call(
        state: TrainState,
        resident: Arrays,
        inputs: Arrays,
        num_steps: jax.Array,
        key: jax.Array,
        *wishes: jax.Array,
    ) -> tuple[TrainState, CallMetrics]:
        def one_step(index: Any, state: TrainState) -> tuple[TrainState, jax.Array]:
            row = jax.tree.map(lambda array: array[index], inputs)
            return recipe.train_step(state, batch_of(resident, row), key)

        def body(index: jax.Array, carry: tuple[TrainState, jax.Array]) -> Any:
            state, loss = one_step(index, carry[0])
            return state, carry[1].at[index].set(loss)

        if steps_per_call == 1:
            state, loss = one_step(0, state)
            losses = loss[None]
        else:
            # A loop with a runtime bound: one program makes any number of steps up to the most.
            each = (2,) if recipe.records_norm else ()
            losses = jnp.zeros((steps_per_call, *each), jnp.float32)
            state, losses = jax.lax.fori_loop(0, num_steps, body, (state, losses))
        asked = None
        if wishes:
            # After the steps' own collectives: XLA's CPU runs those that need nothing of each other
            # in any order, which Gloo takes for another collective.
            nothing = state.first_nonfinite_step < 0  # never
            asked = jnp.where(nothing, 0.0, wishes[0]).sum(axis=0)
        return state, CallMetrics(losses, state.first_nonfinite_step, asked)

    return call


def _choose_call(
    recipe: Recipe, shapes: InputShapes, arguments_of: Callable[[int], tuple]
) -> tuple[int, Callable]:
    steps_per_call = 1  # where each batch comes from the host anyway
    if shapes.placement != "host":
        evaluations = [0, *recipe.experiment.evaluation_steps(recipe.spec)]
        longest = max(after - before for before, after in itertools.pairwise(evaluations))
        steps_per_call = min(longest, LONGEST_CALL_STEPS)
    call = call_of_steps(recipe, steps_per_call)
    if steps_per_call == 1 or platform_of(recipe.mesh) != "cpu":
        return steps_per_call, call
    # XLA's CPU compiler lays convolutions out for speed outside of loops only (JAX issue 12868):
    # inside one they are 13 times slower, and their gradients up to 98 times. JAX keeps the trace,
    # so that compiling this same function takes no other.
    traced = jax.jit(call).trace(*arguments_of(steps_per_call))
    if _holds_convolution(traced.jaxpr.jaxpr):
        return 1, call_of_steps(recipe, 1)
    return steps_per_call, call


def _holds_convolution(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name == "conv_general_dilated"
        or any(map(_holds_convolution, inner_jaxprs(equation.params)))
        for equation in jaxpr.eqns
    )


def compile_program(
    name: str,
    function: Callable,
    arguments: tuple,
    out: Any,
    donated: tuple,
    record: Record,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """Compile a function for arguments whose shapes carry their shardings.

    The program takes over the memory of arguments at the positions `donated`.
    """
    jitted = jax.jit(function, out_shardings=out, donate_argnums=donated)
    started = time.perf_counter()
    with compilation.watch_cache() as cache:
        lowered = jitted.lower(*arguments)
        try:
            program = lowered.compile(compiler_options)
        except jax.errors.JaxRuntimeError as error:
            message = str(error).splitlines()[0]
            if "compile option" not in message and "While setting option" not in message:
                raise
            raise ConfigError(
                f"xla_options: {message.removeprefix('INVALID_ARGUMENT: ')}"
            ) from None
    record(name, time.perf_counter() - started, cache.state)
    return program


def batch_of(resident: Arrays, inputs: Arrays) -> Arrays:
    """Rows of the dataset on the device, or the arrays that the host sent."""
    if not resident:
        return inputs
    rows = {name: array[inputs["index"]] for name, array in resident.items()}
    return {**inputs, **rows}


def placed(tree: Any, shardings: Any) -> Any:
    """Add a sharding to each shape: one for all, or those of a tree of this structure."""
    if isinstance(shardings, jax.sharding.Sharding):
        one = shardings
        shardings = jax.tree.map(lambda _: one, tree)
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        tree,
        shardings,
    )


def batches(shapes: Shapes, mesh: Mesh, batch_axis: int) -> Shapes:
    """Add to shapes the sharding of batches, whose examples lie along one axis."""
    return placed(shapes, batch_sharding(mesh, batch_axis))


@dataclasses.dataclass(frozen=True)
class StagePrograms:
    recipe: Recipe
    shapes: InputShapes
    train: TrainPrograms
    evaluation: EvaluationPrograms

    def warm_up(self, root_key: jax.Array, counts: Sequence[jax.Array], stops: Stops) -> None:
        """Run every program once, on zeros: the first run loads it and sizes its memory."""

        def zeros(shapes: Shapes, sharding: NamedSharding) -> Arrays:
            return {name: place(np.zeros(a.shape, a.dtype), sharding) for name, a in shapes.items()}

        shapes, programs = self.shapes, self.train
        mesh, whole = self.recipe.mesh, replicated(self.recipe.mesh)
        state = programs.initialize(root_key)
        if programs.initialize_from_data is not None:
            examples = zeros(shapes.initialization_examples, whole)
            state = programs.initialize_from_data(state, examples)
        inputs = zeros(shapes.train_inputs(programs.steps_per_call), batch_sharding(mesh, 1))
        resident = zeros(shapes.train_resident, whole)
        state, _ = programs.train(state, resident, inputs, counts[1], root_key, *stops.row())
        totals = self.evaluation.add_batch(
            evaluated_params(self.recipe.experiment, state),
            state.batch_stats,
            zeros(shapes.eval_resident, whole),
            zeros(shapes.eval_inputs, batch_sharding(mesh, 0)),
            self.evaluation.zero_totals(),
        )
        jax.block_until_ready((state, totals))


@dataclasses.dataclass(frozen=True)
class CompiledStages:
    """Stages of a run, in order; most runs have one."""

    stages: tuple[StagePrograms, ...]

    @property
    def first(self) -> StagePrograms:
        return self.stages[0]

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(stage.recipe.span for stage in self.stages)

    def of_last(self, step: int) -> StagePrograms:
        """Stage of the last of `step` steps; the state is evaluated as that stage's."""
        return self.stages[span_of_last(self.spans, step).index]


def compile_stages(
    recipes: tuple[Recipe, ...], options: RunOptions, record: Record
) -> CompiledStages:
    """Compile every stage of a run; refuses a model with other parameters at another image size."""
    _refuse_other_parameters(recipes)
    stages: list[StagePrograms] = []
    for recipe in recipes:
        shapes = input_shapes(recipe.experiment, recipe.spec, options, recipe.mesh)
        first = stages[0].train if stages else None
        # Later stages reuse the first stage's `initialize`: a run makes its state once.
        train = compile_training(recipe, shapes, options.steps_per_call, record, first)
        stages.append(
            StagePrograms(recipe, shapes, train, compile_evaluation(recipe, shapes, record))
        )
    return CompiledStages(tuple(stages))


def _refuse_other_parameters(recipes: tuple[Recipe, ...]) -> None:
    wanted, *others = (
        [leaf.shape for leaf in jax.tree.leaves(recipe.abstract_state)] for recipe in recipes
    )
    for recipe, shapes in zip(recipes[1:], others, strict=True):
        if shapes != wanted:
            config = recipe.experiment
            values = config.task.stage_values().items()
            raise ConfigError(
                f"model={config.model.TAG} has other parameters with "
                f"{', '.join(f'{name}={value}' for name, value in values)} than in the run's first "
                "stage; it cannot change its input (an auxiliary head is as large as its input)"
            )
