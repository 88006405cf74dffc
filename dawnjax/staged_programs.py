"""What a run calls in each of its stages, all compiled before its clock starts."""

import dataclasses

import jax

from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.feed import InputShapes, input_shapes
from dawnjax.programs import (
    EvaluationPrograms,
    Record,
    TrainPrograms,
    compile_evaluation,
    compile_training,
    state_shapes,
)
from dawnjax.runs.stages import Span, span_of_last
from dawnjax.train_step import Recipe


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a run, ready to be called.

    Attributes:
      recipe: The pure functions.
      shapes: What its programs are fed.
      train: What training calls.
      evaluation: What an evaluation calls: it sees images of the stage's own size.
    """

    recipe: Recipe
    shapes: InputShapes
    train: TrainPrograms
    evaluation: EvaluationPrograms


@dataclasses.dataclass(frozen=True)
class CompiledStages:
    """The stages of a run; most runs have one.

    Attributes:
      stages: The stages, in order.
    """

    stages: tuple[Stage, ...]

    @property
    def first(self) -> Stage:
        """The first stage."""
        return self.stages[0]

    @property
    def spans(self) -> tuple[Span, ...]:
        """The steps of each stage."""
        return tuple(stage.recipe.span for stage in self.stages)

    def of_last(self, step: int) -> Stage:
        """The stage of the last of `step` steps; the state is evaluated as that stage's."""
        return self.stages[span_of_last(self.spans, step).index]


def compile_stages(
    recipes: tuple[Recipe, ...], options: RunOptions, record: Record
) -> CompiledStages:
    """Compiles what every stage of a run calls.

    Args:
      recipes: The pure functions of each stage.
      options: How the run is made.
      record: Called with each program.

    Raises:
      ConfigError: The model has other parameters at another image size.
    """
    _refuse_other_parameters(recipes)
    stages: list[Stage] = []
    for recipe in recipes:
        shapes = input_shapes(recipe.experiment, recipe.spec, options, recipe.mesh)
        first = stages[0].train if stages else None
        train = compile_training(recipe, shapes, options.steps_per_call, record, first)
        stages.append(Stage(recipe, shapes, train, compile_evaluation(recipe, shapes, record)))
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
