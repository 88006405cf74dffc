"""Calls in flight: how many, for how long, and what they say."""

import numpy as np
import pytest

from dawnjax import call_queue
from dawnjax.call_queue import CallMetrics, CallQueue, step_statistics


class Clock:
    """A clock that goes forward only when a call is waited for."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Losses:
    """The losses of a call that takes some seconds of the clock, and notes that it ended."""

    def __init__(self, clock: Clock, seconds: float, loss: float = 0.0):
        self._clock, self._seconds, self._loss = clock, seconds, loss
        self.has_ended = False

    def block_until_ready(self) -> None:
        self._clock.now += self._seconds
        self.has_ended = True

    def __array__(self, *_, **__):
        assert self.has_ended
        return np.full(4, self._loss, np.float32)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(call_queue, "time", made)
    return made


def run(queue: CallQueue, clock: Clock, seconds: list[float]) -> list[int]:
    """Adds calls of some seconds; gives how many were in flight after each."""
    calls, in_flight = [], []
    for number, each in enumerate(seconds):
        calls.append(Losses(clock, each, float(number)))
        queue.add(CallMetrics(calls[-1], np.int32(0)), 4)  # pyright: ignore
        in_flight.append(sum(not call.has_ended for call in calls))
    return in_flight


def test_slow_calls_are_not_piled_up(clock):
    assert max(run(CallQueue(8), clock, [0.01] * 20)) == 8
    # 1 s each: 2 s of work. 5 s each: the one that runs and no other.
    assert run(CallQueue(8), clock, [1.0] * 20)[-1] == 2
    assert run(CallQueue(8), clock, [5.0] * 20)[-1] == 1
    # One slow call, such as one that waited for a disk, does not slow what follows.
    assert run(CallQueue(4), clock, [0.01] * 10 + [9.0] + [0.01] * 10)[-1] == 4


def test_times_steps_and_first_losses_are_those_of_the_calls(clock):
    queue = CallQueue(2, first_losses=10)
    queue.start()
    run(queue, clock, [0.1, 0.2, 0.3, 0.4])
    assert queue.steps_done == 8
    queue.drain()
    assert list(queue.call_seconds) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert queue.last_end == queue.total_seconds == pytest.approx(1.0)
    assert queue.steps_done == 16
    assert queue.take_first_losses() == [0.0] * 4 + [1.0] * 4 + [2.0] * 2
    assert queue.take_first_losses() == []
    latest = queue.latest()
    assert latest is not None
    np.testing.assert_array_equal(latest[0], [3.0] * 4)
    statistics = step_statistics(queue)
    assert statistics is not None
    assert statistics["mean"] == pytest.approx(1.0 / 16)
    assert statistics["p50"] == pytest.approx(0.0625)
