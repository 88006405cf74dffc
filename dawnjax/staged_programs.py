"""Compiled programs of each stage of a run, all made before its clock starts."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import NamedSharding

from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.feed import Arrays, InputShapes, Shapes, input_shapes
from dawnjax.machine.mesh import batch_sharding, place, replicated
from dawnjax.programs import (
    EvaluationPrograms,
    Record,
    TrainPrograms,
    compile_evaluation,
    compile_training,
    state_shapes,
)
from dawnjax.runs.stages import Span, span_of_last
from dawnjax.stops import Stops
from dawnjax.train_step import Recipe, evaluated_params


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
    wanted = [leaf.shape for leaf in jax.tree.leaves(state_shapes(recipes[0]))]
    for recipe in recipes[1:]:
        if [leaf.shape for leaf in jax.tree.leaves(state_shapes(recipe))] != wanted:
            config = recipe.experiment
            values = config.task.stage_values().items()
            raise ConfigError(
                f"model={config.model.TAG} has other parameters with "
                f"{', '.join(f'{name}={value}' for name, value in values)} than in the run's first "
                "stage; it cannot change its input (an auxiliary head is as large as what it sees)"
            )
