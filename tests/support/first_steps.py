"""The first steps of a run on simulated devices, for the tests that compare losses and metrics."""

import functools
import typing
from typing import Any

import jax
import numpy as np

from dawnjax.config.experiment_flags import parse_request
from dawnjax.evaluation import EvaluationFeed, evaluate
from dawnjax.feed import InputShapes, TrainFeed, input_shapes
from dawnjax.generations import Generations, Programs, compile_generation
from dawnjax.machine.mesh import make_mesh, place, replicated
from dawnjax.programs import (
    EvaluationPrograms,
    TrainPrograms,
    compile_evaluation,
    compile_training,
    state_shapes,
)
from dawnjax.stops import Stops
from dawnjax.train_step import PRNG_IMPLEMENTATION, Recipe, TrainState, make_recipe

SEED = 3


@functools.cache
def build(num_devices: int, *flags: str) -> tuple[Recipe, InputShapes]:
    """The first stage's recipe, and the shapes of its inputs, of flags of `dawnjax train`."""
    request, _ = parse_request("train", list(flags))
    experiment, options = request.experiment, request.options
    spec = experiment.data.spec()
    experiment.validate(spec)
    mesh = make_mesh(options.mesh, jax.devices()[:num_devices])
    sharded, keys = options.weight_update_sharding, options.context_keys
    recipe = make_recipe(experiment, spec, mesh, 0, sharded, context_keys=keys)
    return recipe, input_shapes(experiment, spec, options, mesh)


@functools.cache
def training(num_devices: int, *flags: str) -> TrainPrograms:
    """The compiled programs of training, a step a call."""
    recipe, shapes = build(num_devices, *flags)
    first = None
    is_whole = recipe.mesh.size == recipe.mesh.shape["data"] and not recipe.shards_update
    if is_whole and jax.process_count() == 1:
        # The state is whole on each device. Compiled for one, its program is that of all layouts.
        first = TrainPrograms(functools.partial(_initialized_alone, recipe), None, _no_program, 1)
    return compile_training(recipe, shapes, 1, lambda *_: None, first)


def _initialized_alone(recipe: Recipe, key: jax.Array) -> TrainState:
    state = jax.jit(recipe.initial_state)(jax.device_put(key, jax.devices()[0]))
    return jax.device_put(state, jax.tree.map(lambda leaf: leaf.sharding, state_shapes(recipe)))


def _no_program(*_: Any) -> Any:
    raise AssertionError("the first state alone is taken from these programs")


@functools.cache
def generating(num_devices: int, *flags: str) -> Programs:
    """The compiled programs that make examples, if any do."""
    return compile_generation(build(num_devices, *flags)[0], lambda *_: None)


@functools.cache
def evaluation(num_devices: int, *flags: str) -> EvaluationPrograms:
    """The compiled programs of an evaluation."""
    return compile_evaluation(*build(num_devices, *flags), lambda *_: None)


def train_text(programs: TrainPrograms) -> str:
    """The compiled train program, as XLA prints it."""
    return str(typing.cast(jax.stages.Compiled, programs.train).as_text())


def train_steps(num_devices: int, *flags: str, steps: int = 6) -> tuple[TrainState, list[float]]:
    """The state after the first steps, and their losses."""
    recipe, shapes = build(num_devices, *flags)
    programs, mesh = training(num_devices, *flags), recipe.mesh
    make_key = functools.partial(jax.random.key, impl=PRNG_IMPLEMENTATION)
    key = jax.jit(make_key, out_shardings=replicated(mesh))(SEED)
    data = recipe.experiment.data.load("train")
    feed = TrainFeed(shapes, mesh, data, seed=SEED, steps_per_call=1)
    feed.start([(step, 1) for step in range(steps)])
    state, one_step = programs.initialize(key), place(np.array(1, np.int32), replicated(mesh))
    generations = Generations(recipe, generating(num_devices, *flags), state.made)
    losses, stops = [], Stops(mesh)
    for step in range(steps):
        while generations.next_phase(step):
            state = generations.advance(state, key)
        inputs = feed.inputs(step, 1)
        state, metrics = programs.train(state, feed.resident, inputs, one_step, key, *stops.row())
        losses.append(float(metrics.losses[0]))
    feed.close()
    return state, losses


def run_steps(num_devices: int, *flags: str, steps: int = 6) -> tuple[list[float], dict[str, Any]]:
    """The losses of the first steps, and the metrics after them."""
    recipe, shapes = build(num_devices, *flags)
    state, losses = train_steps(num_devices, *flags, steps=steps)
    split = EvaluationFeed(shapes, recipe.mesh, recipe.experiment.data.load("eval"))
    programs = evaluation(num_devices, *flags)
    return losses, evaluate(recipe, programs, state, split, in_flight=2)
