"""Calls in flight: durations of steps and their losses, without stalling the devices."""

import array
import collections
import math
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from dawnjax.runs.loss_curve import StepLoss, next_kept


class CallMetrics(NamedTuple):
    """Results of one call of the train program; arrays of the devices or the host.

    Attributes:
      losses: float32 [steps_per_call], 0 where no step was made; with the norms of the gradients
        [steps_per_call, 2], since one array is read faster than two.
      first_nonfinite_step: int32, the run's first step, from 1, with a NaN or infinite loss; 0 if
        none.
      wishes: float32 [3], for each `stops.Wish` but the first the devices whose process has it;
        None for a process alone.
    """

    losses: Any  # a jax.Array, whose types lack is_ready
    first_nonfinite_step: jax.Array
    wishes: jax.Array | None = None


IN_FLIGHT_SECONDS = 2.0
"""Bound on the work in flight in seconds, since a signal waits for it. A device needs one call
ahead, and time to spare while Python collects garbage."""


class CallQueue:
    """Calls that were handed to the devices and not yet waited for.

    The host runs ahead by a bounded number of calls and waits for the oldest only beyond that. The
    devices always have work, and the ends of those waits time the calls. If a call ended before the
    host looked, its end was not seen: its time is added to that of the next call whose end is seen.
    Otherwise, when the host enqueues a whole stretch before it first waits, we would time the host
    and report it as the devices' step time.

    `add` is the innermost work of a run. The host's caches are cold for it after each call, so
    every function and attribute costs microseconds: it is one function that does the least.

    Attributes:
      in_flight: The most calls that may wait for the devices.
      last_end: When a call last ended, or a stretch of steps began, by `time.perf_counter`.
      seen_seconds: Time from each end of a call that was seen to the next.
      seen_steps: Steps in each of those times: of one call, or of several.
      total_seconds: Duration of all ended calls.
      waited_seconds: The part of it in which the host waited for the devices.
    """

    def __init__(self, in_flight: int, first_step: int = 0):
        self.in_flight = self._limit = in_flight
        self._long_seconds = IN_FLIGHT_SECONDS / in_flight
        self._calls: collections.deque[tuple[CallMetrics, int]] = collections.deque()
        self._first_step = first_step
        self._kept: list[tuple[CallMetrics, int, int]] = []
        self._next_kept = next_kept(first_step) - first_step
        self._latest: tuple[CallMetrics, int] | None = None
        self.last_end = time.perf_counter()
        self.steps_done = 0
        self.seen_seconds = array.array("d")
        self.seen_steps = array.array("l")
        self.total_seconds = self.waited_seconds = 0.0
        self._unseen_seconds, self._unseen_steps = 0.0, 0
        self._devices_may_wait = True

    def start(self) -> None:
        """Begin a stretch of steps: the first call's duration counts from here."""
        self.last_end = time.perf_counter()
        self._devices_may_wait = True

    def add(self, metrics: CallMetrics, num_steps: int) -> None:
        """Take a call that was just made; waits for the oldest if too many are in flight."""
        calls = self._calls
        if self._devices_may_wait and calls and calls[-1][0].losses.is_ready():
            # The devices have done all that they had: the host's pace is what is to be seen.
            while calls:
                self._end_oldest(has_ended=True)
        calls.append((metrics, num_steps))
        while len(calls) > self._limit:
            self._end_oldest(self._devices_may_wait and calls[0][0].losses.is_ready())

    def is_busy(self) -> bool:
        """True while the devices work: the newest call has not ended."""
        calls = self._calls
        return bool(calls) and not calls[-1][0].losses.is_ready()

    def pending_seconds(self) -> float:
        """Seconds that the calls in flight need, at the mean pace so far; inf before one ended."""
        if not self._calls:
            return 0.0
        if not self.steps_done:
            return math.inf
        steps = sum(num_steps for _, num_steps in self._calls)
        return steps * self.total_seconds / self.steps_done

    def drain(self) -> None:
        """Wait for all calls: before an evaluation, a checkpoint, the end."""
        calls = self._calls
        while calls:
            self._end_oldest(calls[0][0].losses.is_ready())

    def latest(self) -> tuple[np.ndarray, int] | None:
        """Losses of the latest ended call's steps, and the first non-finite step or 0."""
        if self._latest is None:
            return None
        metrics, num_steps = self._latest
        return _rows(metrics, num_steps)[:, 0], int(metrics.first_nonfinite_step)

    def take_losses(self) -> list[StepLoss]:
        """Kept losses (`next_kept`) of the steps that ended since the last call of this."""
        calls, self._kept = self._kept, []
        taken: list[StepLoss] = []
        for metrics, before, num_steps in calls:
            rows, step = _rows(metrics, num_steps), next_kept(before)
            while step <= before + num_steps:
                # As text a float32 has 9 digits at most, and 17 as a float64 of the same value.
                taken.append(StepLoss(step, *(float(str(x)) for x in rows[step - before - 1])))
                step = next_kept(step)
        return taken

    def _end_oldest(self, has_ended: bool) -> None:
        call = self._calls.popleft()
        metrics, num_steps = call
        # Once a call was waited for, the devices have more to do than the host gives them: in this
        # stretch they are not asked again before its end.
        self._devices_may_wait = has_ended
        begun = time.perf_counter()
        metrics.losses.block_until_ready()  # also raises what a call failed with
        now = time.perf_counter()
        self.waited_seconds += now - begun
        seconds = now - self.last_end
        self.last_end = now
        if has_ended and self._calls:
            self._unseen_seconds += seconds
            self._unseen_steps += num_steps
        else:
            self.seen_seconds.append(seconds + self._unseen_seconds)
            self.seen_steps.append(num_steps + self._unseen_steps)
            self._unseen_seconds, self._unseen_steps = 0.0, 0
        self._latest = call
        before, self.steps_done = self.steps_done, self.steps_done + num_steps
        if self.steps_done >= self._next_kept:
            self._kept.append((metrics, self._first_step + before, num_steps))
            self._next_kept = next_kept(self._first_step + self.steps_done) - self._first_step
        self.total_seconds += seconds
        is_long = seconds > self._long_seconds
        self._limit = max(1, int(IN_FLIGHT_SECONDS / seconds)) if is_long else self.in_flight


def _rows(metrics: CallMetrics, num_steps: int) -> np.ndarray:
    return np.asarray(metrics.losses)[:num_steps].reshape(num_steps, -1)


def step_statistics(queue: CallQueue) -> dict[str, float] | None:
    """Mean, median and 99th percentile of a step's seconds; None without a step.

    The time between two seen ends is spread evenly over the steps between them.
    """
    if not queue.seen_steps:
        return None
    seconds, steps = np.array(queue.seen_seconds), np.array(queue.seen_steps)
    each = np.repeat(seconds / steps, steps)
    p50, p99 = np.percentile(each, [50, 99])
    return {"mean": seconds.sum() / steps.sum(), "p50": float(p50), "p99": float(p99)}
