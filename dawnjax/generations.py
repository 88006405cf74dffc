"""Generations of examples that a task makes: the calls of its programs between two epochs."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import jax

from dawnjax.attempt import Attempt
from dawnjax.machine.mesh import replicated
from dawnjax.models.pure_model import Tree
from dawnjax.programs import Record, compile_program, placed, state_shapes
from dawnjax.stepper import Stepper
from dawnjax.tasks.generation import CALLS, FIGURES, GeneratingTask
from dawnjax.train_step import Recipe, key_shape

Programs = Mapping[str, Callable[..., Tree]]


def compile_generation(recipe: Recipe, record: Record) -> Programs:
    """Program of each phase that makes examples, by name; empty where the data have them.

    Each takes `(params, batch_stats, made, root_key)` and returns the next `made` in its memory.
    None is run before the clock starts: a call may take longer than all else there.
    """
    task = recipe.experiment.task
    if not isinstance(task, GeneratingTask):
        return {}
    state, whole = state_shapes(recipe), replicated(recipe.mesh)
    arguments = (state.params, state.batch_stats, state.made, placed(key_shape(), whole))
    programs = {}
    for phase, _ in task.calls():
        call = _one_call(recipe, task, phase)
        programs[phase] = compile_program(phase, call, arguments, whole, (2,), record)
    return programs


def _one_call(recipe: Recipe, task: GeneratingTask, phase: str) -> Callable[..., Tree]:
    def call(params: Tree, batch_stats: Tree, made: Tree, root_key: jax.Array) -> Tree:
        model, setting = recipe.model, recipe.setting
        after = task.make(phase, model, params, batch_stats, made, root_key, setting)
        return {**after, CALLS: made[CALLS] + 1}

    return call


class Generations:
    """Makes each generation before the first step that trains on it."""

    def __init__(self, recipe: Recipe, programs: Programs, made: Tree):
        """Continue after the calls that `made` has had; without programs there is nothing to do."""
        self._recipe, self._programs = recipe, programs
        task = recipe.experiment.task
        calls = task.calls() if isinstance(task, GeneratingTask) else ()
        self._phases = [phase for phase, count in calls for _ in range(count)]
        self._done = int(made[CALLS]) if calls else 0

    def make(self, stepper: Stepper, attempt: Attempt, limit_seconds: float) -> bool:
        """Make the generation of the next step, unless it is there; True if asked to stop first."""
        recipe, preemption, length = self._recipe, attempt.preemption, len(self._phases)
        number = math.floor(recipe.experiment.epoch_of_step(stepper.step, recipe.spec))
        if self._done >= (number + 1) * length:
            return False
        while self._done < (number + 1) * length:
            if attempt.journal.run_seconds() > limit_seconds:
                preemption.spend_budget()
            if preemption.holding and preemption.stops_at(stepper.step):
                return True
            phase = self._phases[self._done % length]
            attempt.phases.enter(phase)
            state = stepper.state
            made = self._programs[phase](
                state.params, state.batch_stats, state.made, stepper.root_key
            )
            stepper.state = dataclasses.replace(state, made=made)
            # A call takes far longer than the host needs to begin the next; a signal waits for it.
            made[CALLS].block_until_ready()
            attempt.get_on()
            self._done += 1
        figures = recipe.experiment.task.figures(
            jax.device_get(stepper.state.made[FIGURES]), recipe.setting
        )
        attempt.journal.record_generation(stepper.step, number, figures)
        return False
