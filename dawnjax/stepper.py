"""Train steps of a run, made call by call: shared by training, profiles and windows."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax

from dawnjax.call_queue import CallMetrics, CallQueue
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.feed import BATCHES_AHEAD, InputShapes, TrainFeed
from dawnjax.profile.utilization import CALL_SPAN, INPUT_SPAN
from dawnjax.programs import TrainPrograms
from dawnjax.stops import Stops
from dawnjax.train_step import Recipe, TrainState, platform_of

IN_FLIGHT_CPU, IN_FLIGHT = 4, 32
"""Steps that the host may run ahead. Simulated CPU devices deadlock with many collectives queued;
an accelerator must not run dry while Python collects garbage."""


@dataclasses.dataclass
class Stepper:
    """Makes the calls of a train program one after another, and holds what they hand on.

    Attributes:
      state: State after all steps handed to the devices; each call takes over its memory.
      step: Steps handed to the devices.
      counts: Each number of steps that a call can make, on the devices.
      is_traced: Name the two halves of a call, for a trace that is being taken.
    """

    recipe: Recipe
    programs: TrainPrograms
    feed: TrainFeed
    state: TrainState
    step: int
    root_key: jax.Array
    counts: Sequence[jax.Array]
    queue: CallQueue
    watchdog: Watchdog
    stops: Stops
    is_traced: bool = False

    def read_ahead(self, stops: Iterable[int]) -> None:
        """Begin to read the inputs of the calls that lead from stop to stop."""
        self.feed.start(calls_between(self.step, stops, self.programs.steps_per_call))

    def calls(self, stop: int, call_steps: int = 0) -> Iterator[CallMetrics]:
        """Make the calls up to a stop: the innermost loop of a run. Some are in flight at its end.

        Args:
          call_steps: The most steps in a call; 0 takes those of the program.
        """
        # Local names: an attribute costs microseconds in a loop whose caches are cold after each
        # call.
        get_inputs, call = self.feed.inputs, self.programs.train
        if self.is_traced:
            get_inputs = jax.profiler.annotate_function(get_inputs, name=INPUT_SPAN)
            call = self._marked(call)
        resident, counts, root_key = self.feed.resident, self.counts, self.root_key
        queue, watchdog, is_busy = self.queue, self.watchdog, self.queue.is_busy
        wishes = self.stops.row
        queue.start()
        call_steps = call_steps or self.programs.steps_per_call
        for first, num_steps in calls_between(self.step, [stop], call_steps):
            inputs = get_inputs(first, num_steps, is_busy)
            # Before the call: a host that is stuck, here or above, is behind the other hosts.
            watchdog.step = self.step = first + num_steps
            self.state, metrics = call(
                self.state, resident, inputs, counts[num_steps], root_key, *wishes()
            )
            queue.add(metrics, num_steps)
            yield metrics

    def _marked(self, call: Any) -> Any:
        """A program's call with the mark of a step, by which XProf tells steps apart."""

        def marked(*arguments: Any) -> Any:
            with jax.profiler.StepTraceAnnotation(CALL_SPAN, step_num=self.step):
                return call(*arguments)

        return marked


def calls_between(
    step: int, stops: Iterable[int], steps_per_call: int
) -> Iterator[tuple[int, int]]:
    """Calls that lead from a step to each stop: steps done before a call, and steps in it."""
    for stop in stops:
        while step < stop:
            num_steps = min(steps_per_call, stop - step)
            yield step, num_steps
            step += num_steps


def calls_in_flight(recipe: Recipe, shapes: InputShapes, steps_per_call: int) -> int:
    """Calls that the host may run ahead; at least 2, so that no device runs dry."""
    if shapes.placement == "host":  # each call keeps its batch in the devices' memory
        return BATCHES_AHEAD // 2
    steps = IN_FLIGHT_CPU if platform_of(recipe.mesh) == "cpu" else IN_FLIGHT
    return max(2, steps // steps_per_call)
