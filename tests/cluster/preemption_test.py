"""All processes stop at one step boundary, wherever each is when one is asked to."""

import random
import signal
import threading
import time

import pytest

from dawnjax.cluster import preemption as preemption_module
from dawnjax.cluster.preemption import Preemption

pytestmark = pytest.mark.waits


class MemoryStore:
    """A store in the memory of one process, for processes that are threads."""

    def __init__(self, process_index: int, num_processes: int, notes: dict[str, str]):
        self.process_index, self.num_processes = process_index, num_processes
        self._notes = notes

    def put(self, key: str, value: str) -> None:
        self._notes[key] = value

    def put_first(self, key: str, value: str) -> None:
        self._notes.setdefault(key, value)

    def read(self, folder: str) -> dict[str, str]:
        prefix = folder + "/"
        notes = dict(self._notes)
        return {k.removeprefix(prefix): v for k, v in notes.items() if k.startswith(prefix)}


class Silent:
    """A watchdog that watches nothing."""

    def __init__(self, store=None):
        self.store = store
        self.step = 0
        self.calls = 0
        self.ended = threading.Event()
        self.end_call: tuple = ()

    def report(self, phase: str, step: int) -> None:
        pass

    def end(self, what: str, exit_status: int) -> None:
        self.end_call = (what, exit_status)
        self.ended.set()


@pytest.mark.parametrize("seed", range(6))
def test_all_stop_at_one_boundary_however_far_apart_they_are(seed, monkeypatch):
    monkeypatch.setattr(preemption_module, "POLL_SECONDS", 0.2)
    # Each process may run ahead of the others by the calls in flight, here without any bound.
    rng = random.Random(seed)
    num_processes = 3
    notes: dict[str, str] = {}
    paces = [rng.uniform(0.0005, 0.01) for _ in range(num_processes)]
    watchdogs = [Silent(MemoryStore(i, num_processes, notes)) for i in range(num_processes)]
    group = [Preemption(watchdog) for watchdog in watchdogs]  # pyright: ignore
    stopped_at = {}

    def run(process_index: int) -> None:
        # Outside the main thread, so the signals of the test's own process stay as they are.
        preemption, watchdog = group[process_index], watchdogs[process_index]
        preemption.install()
        preemption.begin(0)
        step = 0
        while step < 100_000:
            step += 1
            time.sleep(paces[process_index])
            watchdog.step = step
            if preemption.holding and preemption.stops_at(step):
                stopped_at[process_index] = step
                return

    threads = [threading.Thread(target=run, args=[i]) for i in range(num_processes)]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.05, 0.3))
    # One or two are asked, at once or one after the other.
    asked = rng.sample(range(num_processes), rng.choice([1, 2]))
    for process_index in asked:
        group[process_index].ask(signal.SIGTERM)
        time.sleep(rng.choice([0.0, 0.3]))
    for thread in threads:
        thread.join(timeout=100.0)
    for preemption in group:
        preemption.close()
    assert len(stopped_at) == num_processes
    assert len(set(stopped_at.values())) == 1


def test_nothing_stops_unasked_and_the_signals_are_given_back():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    preemption = Preemption(Silent())  # pyright: ignore
    preemption.install()
    preemption.begin(0)
    assert not any(preemption.stops_at(step) for step in range(1, 1000))
    assert not preemption.holding
    preemption.close()
    preemption.close()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_process_alone_at_its_next_boundary(number, capfd):
    watchdog = Silent()
    preemption = Preemption(watchdog)  # pyright: ignore
    preemption.install()
    try:
        preemption.begin(0)
        watchdog.step = 1
        assert not preemption.stops_at(1)
        signal.raise_signal(number)
        end = time.monotonic() + 60.0
        while not preemption.stops_at(2) and time.monotonic() < end:
            time.sleep(0.001)
        assert preemption.holding and preemption.stops_at(3)
        assert watchdog.end_call == ()
        assert f"{number.name}: saving and stopping" in capfd.readouterr().err
    finally:
        preemption.close()


@pytest.mark.parametrize("steps_began", [False, True])
def test_a_signal_before_the_first_step_ends_at_once(steps_began):
    watchdog = Silent()
    preemption = Preemption(watchdog)  # pyright: ignore
    preemption.install()
    watchdog.step = 7
    if steps_began:
        preemption.begin(7)  # restored, and no call made since
    try:
        signal.raise_signal(signal.SIGTERM)
        assert watchdog.ended.wait(60.0)
        assert watchdog.end_call == ("was told to stop by SIGTERM", 5)
    finally:
        preemption.close()


def test_a_second_interrupt_ends_at_once_and_a_second_termination_does_not():
    watchdog = Silent()
    preemption = Preemption(watchdog)  # pyright: ignore
    preemption.begin(0)
    watchdog.step = 1
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        preemption.ask(number)
        assert not watchdog.ended.is_set()
    preemption.ask(signal.SIGINT)
    assert watchdog.end_call == ("was interrupted twice, without saving,", 5)
    preemption.close()
