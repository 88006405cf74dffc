"""Calls in flight: how many, for how long, what they say, and those that make examples."""

import functools
import math
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax import call_queue
from dawnjax.attempt import Attempt
from dawnjax.call_queue import CallMetrics, CallQueue, step_statistics
from dawnjax.generations import Generations
from dawnjax.machine.mesh import make_mesh
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.stepper import Stepper, calls_in_flight
from dawnjax.stops import Stops, Wish
from dawnjax.tasks.generation import CALLS
from dawnjax.tasks.self_play import SelfPlay
from dawnjax.train import train_until


class Device:
    """A device that runs calls one after another, and the clock of the host that makes them."""

    def __init__(self):
        self.now = 0.0
        self.busy_until = 0.0

    def perf_counter(self) -> float:
        return self.now


class Losses:
    """The losses of a call that was made now and takes the device some seconds."""

    def __init__(self, device: Device, seconds: float, loss: float = 0.0):
        self._device, self._loss = device, loss
        self._end = device.busy_until = max(device.busy_until, device.now) + seconds
        self.was_waited_for = False

    def is_ready(self) -> bool:
        return self._device.now >= self._end

    def block_until_ready(self) -> None:
        self._device.now = max(self._device.now, self._end)
        self.was_waited_for = True

    def __array__(self, *_, **__):
        assert self.is_ready()
        return np.full(4, self._loss, np.float32)


@pytest.fixture
def device(monkeypatch):
    made = Device()
    monkeypatch.setattr(call_queue, "time", made)
    return made


def run(
    queue: CallQueue, device: Device, seconds: list[float], host_seconds: float = 0.0
) -> list[int]:
    """Adds calls of some seconds, which the host takes time to make; gives those then in flight."""
    calls, in_flight = [], []
    for number, each in enumerate(seconds):
        device.now += host_seconds
        calls.append(Losses(device, each, float(number)))
        queue.add(CallMetrics(calls[-1], np.int32(0)), 4)  # pyright: ignore
        in_flight.append(sum(not call.was_waited_for for call in calls))
    return in_flight


def test_slow_calls_are_not_piled_up(device):
    assert max(run(CallQueue(8), device, [0.01] * 20)) == 8
    # 1 s each: 2 s of work. 5 s each: the one that runs and no other.
    assert run(CallQueue(8), device, [1.0] * 20)[-1] == 2
    assert run(CallQueue(8), device, [5.0] * 20)[-1] == 1
    # One slow call, such as one that waited for a disk, does not slow what follows.
    assert run(CallQueue(4), device, [0.01] * 10 + [9.0] + [0.01] * 10)[-1] == 4


@pytest.mark.parametrize(
    ("platform", "placement", "limit"),
    [("gpu", "host", 2), ("cuda", "device", 32), ("cpu", "device", 4), ("METAL", "device", 32)],
)
def test_few_batches_of_the_host_lie_on_a_device(platform, placement, limit):
    mesh: Any = SimpleNamespace(devices=np.array([SimpleNamespace(platform=platform)]))
    recipe: Any = SimpleNamespace(mesh=mesh)
    shapes: Any = SimpleNamespace(placement=placement)
    assert calls_in_flight(recipe, shapes, 1) == limit


@pytest.mark.parametrize(
    ("call_seconds", "limit_seconds", "steps"),
    # The second call begins before the limit, at 9 s. The time of the first is not known before.
    [(9.0, 15.0, 2), (0.25, 2.0, 9), (30.0, 15.0, 1), (1.0, math.inf, 40)],
)
def test_a_budget_of_time_ends_within_a_call(device, call_seconds, limit_seconds, steps):
    def call(state: None, *_: Any) -> tuple[None, CallMetrics]:
        return state, CallMetrics(Losses(device, call_seconds), np.int32(0))  # pyright: ignore

    stops = Stops(make_mesh(MeshShape(), jax.devices()[:1]))
    journal = SimpleNamespace(run_seconds=lambda: device.now, record_at=math.inf)
    attempt: Any = SimpleNamespace(journal=journal, save_at=math.inf, _is_first=True, _stops=stops)
    attempt.spend = functools.partial(Attempt.spend, attempt)
    feed = SimpleNamespace(inputs=lambda *call: None, resident=None, wait_seconds=0)
    programs = SimpleNamespace(train=call, steps_per_call=1)
    queue = CallQueue(4)
    watchdog = SimpleNamespace(step=0)
    held: Any = (None, programs, feed, None, 0, None, [None, None], queue, watchdog, stops)
    stepper = Stepper(*held)
    wish = train_until(40, stepper, attempt, limit_seconds)
    assert (stepper.step, wish == Wish.BUDGET) == (steps, limit_seconds < math.inf)
    assert device.now <= limit_seconds + call_seconds


def test_devices_are_busy_until_the_newest_call_ends(device):
    queue = CallQueue(4)
    assert not queue.is_busy()
    run(queue, device, [1.0, 1.0])
    device.now = 1.5
    assert queue.is_busy()
    device.now = 2.0
    assert not queue.is_busy()


def test_times_steps_and_losses_are_those_of_the_calls(device):
    queue = CallQueue(2)
    queue.start()
    run(queue, device, [0.1, 0.2, 0.3, 0.4])
    assert queue.steps_done == 8
    queue.drain()
    assert list(queue.seen_seconds) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert queue.last_end == queue.total_seconds == pytest.approx(1.0)
    assert queue.steps_done == 16
    kept = queue.take_losses()
    assert [point.step for point in kept] == list(range(1, 17))
    assert [point.loss for point in kept[::4]] == [0.0, 1.0, 2.0, 3.0]
    assert queue.take_losses() == []
    latest: Any = queue.latest()
    np.testing.assert_array_equal(latest[0], [3.0] * 4)
    statistics: Any = step_statistics(queue)
    assert statistics["mean"] == pytest.approx(1.0 / 16)
    assert statistics["p50"] == pytest.approx(0.0625)


@pytest.mark.parametrize("num_calls", [20, 100])
def test_the_hosts_pace_is_not_taken_for_the_devices(device, num_calls):
    # All of the short stretch is made before the first call is waited for.
    queue = CallQueue(32)
    queue.start()
    run(queue, device, [0.4] * num_calls, host_seconds=0.1)
    queue.drain()
    statistics: Any = step_statistics(queue)
    assert sum(queue.seen_steps) == 4 * num_calls
    assert device.now == pytest.approx(0.1 + 0.4 * num_calls)
    assert statistics["mean"] == pytest.approx(device.now / (4 * num_calls))
    assert statistics["p50"] == pytest.approx(0.1, rel=0.1)
    assert statistics["p99"] == pytest.approx(0.1, rel=0.1)


def test_devices_that_wait_for_the_host_show_its_pace_and_its_pauses(device):
    queue = CallQueue(32)
    queue.start()
    run(queue, device, [0.1] * 30, host_seconds=0.4)
    device.now += 8.0  # such as for an input that is late
    run(queue, device, [0.1] * 30, host_seconds=0.4)
    queue.drain()
    statistics: Any = step_statistics(queue)
    assert statistics["mean"] == pytest.approx(device.now / 240)
    assert statistics["p50"] == pytest.approx(0.1, rel=0.1)
    assert statistics["p99"] > 1.0


def test_the_losses_that_are_kept_are_of_the_same_steps_in_every_attempt(device):
    queue = CallQueue(2, first_step=8186)
    queue.start()
    run(queue, device, [0.1] * 4)
    queue.drain()
    # Every second step up to 8,192, every fourth after it; calls of four steps begin after 8,186.
    kept = [(point.step, point.loss) for point in queue.take_losses()]
    assert kept == [(8188, 0.0), (8190, 0.0), (8192, 1.0), (8196, 2.0), (8200, 3.0)]


def test_norms_stand_beside_the_losses(device):
    queue = CallQueue(2)
    losses = jnp.array([[0.1, 3.0], [2.5, jnp.nan], [0.0, 0.0]], jnp.float32)
    queue.add(CallMetrics(losses, jnp.int32(0)), 2)
    queue.drain()
    (first, second), latest = queue.take_losses(), cast(Any, queue.latest())
    assert first == (1, 0.1, 3.0)
    assert second[:2] == (2, 2.5) and math.isnan(second.gradient_norm or 0)
    assert latest[0].tolist() == pytest.approx([0.1, 2.5])


@pytest.mark.parametrize(
    ("step", "done", "phase", "since"),
    [
        # Four steps a generation, which takes a match and three moves; the first has no match.
        (0, 1, "self_play", 0),
        (0, 3, "self_play", 2),
        (0, 4, "", 3),
        (1, 4, "", 0),
        (4, 4, "gating", 0),
        (4, 5, "self_play", 1),
        (4, 8, "", 4),
        (5, 8, "", 0),
    ],
)
def test_calls_are_counted_since_the_newest_step(step, done, phase, since):
    task = SelfPlay(gating_games=2, moves=3)
    experiment = SimpleNamespace(task=task, epoch_of_step=lambda step, spec: step / 4)
    recipe = SimpleNamespace(experiment=experiment, spec=None)
    generations = Generations(recipe, {}, {CALLS: done})  # pyright: ignore[reportArgumentType]
    assert generations.next_phase(step) == phase
    assert generations.calls_since(step) == since


def test_other_tasks_make_no_calls():
    recipe = SimpleNamespace(
        experiment=SimpleNamespace(task=None, epoch_of_step=lambda step, spec: step / 4), spec=None
    )
    generations = Generations(recipe, {}, {})  # pyright: ignore[reportArgumentType]
    assert [generations.next_phase(step) for step in (0, 4)] == ["", ""]
    assert [generations.calls_since(step) for step in (0, 5)] == [0, 0]
