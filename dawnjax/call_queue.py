"""Calls in flight: how long the steps took, and their losses, without stalling the devices."""

import array
import collections
import time
from typing import NamedTuple

import jax
import numpy as np


class CallMetrics(NamedTuple):
    """What a call of the train program says of its steps; arrays of the devices or the host.

    Attributes:
      losses: float32 [steps_per_call], 0 where no step was made.
      first_nonfinite_step: int32, the run's first step, from 1, with a NaN or infinite loss; 0 if
        there was none so far.
    """

    losses: jax.Array
    first_nonfinite_step: jax.Array


class _Call(NamedTuple):
    metrics: CallMetrics
    num_steps: int


class CallQueue:
    """The calls that were handed to the devices and have not been waited for.

    The host runs ahead of the devices by a bounded number of calls. It waits for the oldest only
    when there are more, so the devices always have work, and the moments at which those waits end
    are the moments at which calls end: that is how steps are timed without stopping after each.
    Metrics are kept on the devices and read only when asked for, those of the latest call alone.

    Attributes:
      steps_done: Steps whose call has ended, since the queue was made.
      call_seconds: Duration of each ended call.
      call_steps: Steps of each ended call.
      total_seconds: Their durations together.
    """

    def __init__(self, in_flight: int, first_losses: int = 0):
        """Args:
        in_flight: The most calls that may wait for the devices, 1 or more.
        first_losses: How many of the first steps' losses `take_first_losses` gives.
        """
        self._in_flight = in_flight
        self._calls: collections.deque[_Call] = collections.deque()
        self._first_wanted = first_losses
        self._first_taken = 0
        self._first_calls: list[_Call] = []
        self._latest: _Call | None = None
        self._last_end = time.perf_counter()
        self.steps_done = 0
        self.call_seconds = array.array("d")
        self.call_steps = array.array("l")
        self.total_seconds = 0.0

    def start(self) -> None:
        """Begins a stretch of steps: the first call's duration counts from here."""
        self._last_end = time.perf_counter()

    def add(self, metrics: CallMetrics, num_steps: int) -> None:
        """Takes a call that was just made; waits for the oldest if too many are in flight."""
        self._calls.append(_Call(metrics, num_steps))
        if len(self._calls) > self._in_flight:
            self._end_oldest()

    def drain(self) -> None:
        """Waits for all calls: before an evaluation, a checkpoint, the end."""
        while self._calls:
            self._end_oldest()

    def latest(self) -> tuple[np.ndarray, int] | None:
        """Gives the losses of the latest ended call's steps, and the first non-finite step or 0."""
        if self._latest is None:
            return None
        losses = np.asarray(self._latest.metrics.losses)
        return losses[: self._latest.num_steps], self.first_nonfinite_step()

    def first_nonfinite_step(self) -> int:
        """Gives the first step with a NaN or infinite loss in the ended calls, or 0."""
        return 0 if self._latest is None else int(self._latest.metrics.first_nonfinite_step)

    def take_first_losses(self) -> list[float]:
        """Gives those of the first losses whose steps ended since this was last asked."""
        calls, self._first_calls = self._first_calls, []
        taken: list[float] = []
        for call in calls:
            losses = np.asarray(call.metrics.losses)[: call.num_steps]
            wanted = self._first_wanted - self._first_taken
            taken += [float(loss) for loss in losses[:wanted]]
            self._first_taken += min(wanted, call.num_steps)
        return taken

    def _end_oldest(self) -> None:
        call = self._calls.popleft()
        call.metrics.losses.block_until_ready()
        now = time.perf_counter()
        seconds = now - self._last_end
        self.call_seconds.append(seconds)
        self.total_seconds += seconds
        self.call_steps.append(call.num_steps)
        self._last_end = now
        if self.steps_done < self._first_wanted:
            self._first_calls.append(call)
        self.steps_done += call.num_steps
        self._latest = call


def step_statistics(queue: CallQueue) -> dict[str, float] | None:
    """Gives mean, median and 99th percentile of the seconds a step took; None without a step.

    A call's duration is spread evenly over its steps, so with several steps a call the percentiles
    are those of calls.
    """
    if not queue.call_steps:
        return None
    seconds, steps = np.array(queue.call_seconds), np.array(queue.call_steps)
    each = np.repeat(seconds / steps, steps)
    p50, p99 = np.percentile(each, [50, 99])
    return {"mean": seconds.sum() / steps.sum(), "p50": float(p50), "p99": float(p99)}
