"""Calls in flight: how long the steps took, and their losses, without stalling the devices."""

import array
import collections
import time
from typing import NamedTuple

import jax
import numpy as np


class _Call(NamedTuple):
    losses: jax.Array
    num_steps: int


class CallQueue:
    """The calls that were handed to the devices and have not been waited for.

    The host runs ahead of the devices by a bounded number of calls. It waits for the oldest only
    when there are more, so the devices always have work, and the moments at which those waits end
    are the moments at which calls end: that is how steps are timed without stopping after each.

    Attributes:
      steps_done: Steps whose call has ended, since the queue was made.
      call_seconds: Duration of each ended call.
      call_steps: Steps of each ended call.
    """

    def __init__(self, in_flight: int):
        """Args:
        in_flight: The most calls that may wait for the devices, 1 or more.
        """
        self._in_flight = in_flight
        self._calls: collections.deque[_Call] = collections.deque()
        self._ended: list[_Call] = []
        self._last_end = time.perf_counter()
        self.steps_done = 0
        self.call_seconds = array.array("d")
        self.call_steps = array.array("l")

    def start(self) -> None:
        """Begins a stretch of steps: the first call's duration counts from here."""
        self._last_end = time.perf_counter()

    def add(self, losses: jax.Array, num_steps: int) -> None:
        """Takes a call that was just made; waits for the oldest if too many are in flight."""
        self._calls.append(_Call(losses, num_steps))
        if len(self._calls) > self._in_flight:
            self._end_oldest()

    def drain(self) -> None:
        """Waits for all calls: before an evaluation, a checkpoint, the end."""
        while self._calls:
            self._end_oldest()

    def take_losses(self) -> np.ndarray:
        """Gives the losses, float32, of the steps that ended since this was last asked."""
        ended, self._ended = self._ended, []
        if not ended:
            return np.zeros(0, np.float32)
        losses = jax.device_get([call.losses for call in ended])
        rows = zip(losses, ended, strict=True)
        return np.concatenate([loss[: call.num_steps] for loss, call in rows])

    def _end_oldest(self) -> None:
        call = self._calls.popleft()
        call.losses.block_until_ready()
        now = time.perf_counter()
        self.call_seconds.append(now - self._last_end)
        self.call_steps.append(call.num_steps)
        self._last_end = now
        self.steps_done += call.num_steps
        self._ended.append(call)


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
