"""Generations of examples that a task makes: the calls of its programs between two epochs."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import jax

from dawnjax.attempt import Attempt
from dawnjax.errors import ConfigError
from dawnjax.machine.mesh import replicated
from dawnjax.models.pure_model import Tree
from dawnjax.programs import Record, compile_program, placed, state_shapes
from dawnjax.runs.clock import GENERATION_PHASES, Phase
from dawnjax.stepper import Stepper
from dawnjax.stops import Wish
from dawnjax.tasks.generation import CALLS, FIGURES, GeneratingTask
from dawnjax.train_step import Recipe, TrainState, key_shape

Programs = Mapping[str, Callable[..., Tree]]

MADE = 2
"""Place of `made` among the arguments of a call, whose memory its result takes over."""


def generation_calls(recipe: Recipe) -> Iterator[tuple[str, Callable[..., Tree], tuple, Any]]:
    """Phase, function, shapes of its arguments and sharding of each call that makes examples.

    Each takes `(params, batch_stats, made, root_key)` and returns the next `made`, which may take
    over the memory of the last one. There is none where the data have the examples.
    """
    task = recipe.experiment.task
    if not isinstance(task, GeneratingTask):
        return
    state, whole = state_shapes(recipe), replicated(recipe.mesh)
    arguments = (state.params, state.batch_stats, state.made, placed(key_shape(), whole))
    for phase, _ in task.calls():
        if phase not in GENERATION_PHASES:
            known = " or ".join(GENERATION_PHASES)
            raise ConfigError(
                f"task={task.TAG}: calls() names a phase {phase!r}; it must be {known}"
            )
        yield phase, _one_call(recipe, task, phase), arguments, whole


def compile_generation(recipe: Recipe, record: Record) -> Programs:
    """Program of each phase that makes examples, by name.

    None is run before the clock starts: a call may take longer than all else there.
    """
    # At LLVM's highest level, whatever the batch: a search then takes 0.71 of the CPU time.
    return {
        phase: compile_program(phase, call, arguments, whole, (MADE,), record)
        for phase, call, arguments, whole in generation_calls(recipe)
    }


def flops_of_generation(recipe: Recipe) -> float:
    """Model FLOPs that make a generation's examples; 0 if not known. It traces the model."""
    task = recipe.experiment.task
    try:
        return task.generation_flops(recipe.setting) if isinstance(task, GeneratingTask) else 0.0
    except ValueError:  # a loop of unknown length
        return 0.0


def _one_call(recipe: Recipe, task: GeneratingTask, phase: str) -> Callable[..., Tree]:
    def call(params: Tree, batch_stats: Tree, made: Tree, root_key: jax.Array) -> Tree:
        model, setting = recipe.model, recipe.setting
        after = task.make(phase, model, params, batch_stats, made, root_key, setting)
        return {**after, CALLS: made[CALLS] + 1}

    return call


class Generations:
    """Makes each generation before the first step that trains on it."""

    def __init__(self, recipe: Recipe, programs: Programs, made: Tree, model_flops: float = 0.0):
        """Continue after the calls that `made` has had; without programs there is nothing to do.

        `model_flops` are those that make a generation's examples, 0 if not known.
        """
        self._recipe, self._programs = recipe, programs
        self._figures = {"model_flops": model_flops} if model_flops else {}
        task = recipe.experiment.task
        calls = task.calls() if isinstance(task, GeneratingTask) else ()
        self._phases = [phase for phase, count in calls for _ in range(count)]
        # The first generation has the last phase alone.
        self._skipped = len(self._phases) - calls[-1][1] if calls else 0
        self._done = int(made[CALLS]) if calls else 0

    def _needed(self, step: int) -> int:
        """Calls that come before the last of `step` steps, those skipped at first included."""
        if step == 0:
            return self._skipped
        number = math.floor(self._recipe.experiment.epoch_of_step(step - 1, self._recipe.spec))
        return (number + 1) * len(self._phases)

    def calls_since(self, step: int) -> int:
        """Calls made since the newest step, which is `step`."""
        return self._done - self._needed(step)

    def next_phase(self, step: int) -> str:
        """Phase of the next call that must come before the step after `step`; empty if none."""
        is_made = self._done >= self._needed(step + 1)
        return "" if is_made else self._phases[self._done % len(self._phases)]

    def advance(self, state: TrainState, root_key: jax.Array) -> TrainState:
        """Make the next call; it takes over the memory of `made`."""
        program = self._programs[self._phases[self._done % len(self._phases)]]
        made = program(state.params, state.batch_stats, state.made, root_key)
        # A call takes far longer than the host needs to begin the next; a signal waits for it.
        made[CALLS].block_until_ready()
        self._done += 1
        return dataclasses.replace(state, made=made)

    def make(self, stepper: Stepper, attempt: Attempt, limit_seconds: float) -> Wish:
        """Make the generation of the next step, unless it is there; returns what stopped it."""
        recipe, stops, before = self._recipe, stepper.stops, self._done
        while phase := self.next_phase(stepper.step):
            attempt.spend(stepper.queue, limit_seconds)
            attempt.save_if_due()
            wish = stops.agreed()
            if wish >= Wish.BUDGET:
                return wish
            if wish == Wish.SAVE:
                attempt.save(recipe, stepper.step, stepper.state, self.calls_since(stepper.step))
            attempt.phases.enter(cast(Phase, phase))
            stepper.state = self.advance(stepper.state, stepper.root_key)
            attempt.get_on()
        if self._done > before:
            task, counts = recipe.experiment.task, jax.device_get(stepper.state.made[FIGURES])
            number = self._done // len(self._phases) - 1
            figures = {**task.figures(counts, recipe.setting), **self._figures}
            attempt.journal.record_generation(stepper.step, number, figures)
        return Wish.NONE
