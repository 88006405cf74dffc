"""Stops inside the steps: who asks, and after which call all follow."""

import os
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from dawnjax.call_queue import CallMetrics
from dawnjax.machine.mesh import make_mesh
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.stops import ONE_REQUEST_SECONDS, Stops, Wish


@pytest.fixture
def stops():
    return Stops(make_mesh(MeshShape(), jax.devices()[:1]), calls_back=2)


def results(*wishes: float) -> CallMetrics:
    """Results of a call in which so many devices had each wish."""
    return CallMetrics(None, np.int32(0), np.array(wishes))  # pyright: ignore[reportArgumentType]


def test_a_process_alone_follows_its_own_wish_and_the_greater_wins(stops):
    alone = CallMetrics(None, np.int32(0))  # pyright: ignore[reportArgumentType]
    assert stops.row() == () and stops.after_call(alone) == Wish.NONE
    stops.ask(Wish.SAVE)
    assert stops.after_call(alone) == stops.when_drained() == Wish.SAVE
    stops.has_saved()
    assert stops.after_call(alone) == Wish.NONE
    stops.ask(Wish.INTERRUPT)
    stops.ask(Wish.BUDGET)
    stops.has_saved()
    assert stops.after_call(alone) == Wish.INTERRUPT


def test_several_follow_the_sum_of_the_call_before_the_last_two(monkeypatch):
    mesh = make_mesh(MeshShape(), jax.devices()[:1])
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    stops = Stops(mesh, calls_back=2)
    stops.ask(Wish.INTERRUPT)  # its own wish counts by the sum alone
    sums = [(0, 0, 0), (4, 0, 2), (0, 0, 0), (0, 1, 0)]
    assert [stops.after_call(results(*each)) for each in sums] == [0, 0, 0, Wish.INTERRUPT]
    # Once drained, the calls that nobody has looked at count too.
    assert stops.when_drained() == Wish.BUDGET
    assert stops.when_drained() == Wish.NONE  # whatever this process alone wishes


PROGRAM = """
import os, signal, sys, time
import jax
from dawnjax.machine.mesh import make_mesh
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.stops import Stops, Wish
stops = Stops(make_mesh(MeshShape(), jax.devices()[:1]))
with stops.listening():
    for number, seconds in {sent}:
        time.sleep(seconds)
        signal.raise_signal(number)
        print(stops.wish.name, flush=True)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("sent", "status", "printed"),
    [
        # `timeout -s INT` sends two at once, for one request; the other signals end nothing.
        (
            [(name, 0) for name in ("SIGINT", "SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")],
            0,
            ["INTERRUPT"] * 5 + ["True"],
        ),
        ([("SIGINT", 0), ("SIGINT", ONE_REQUEST_SECONDS + 0.1)], 5, ["INTERRUPT"]),
    ],
)
def test_the_first_signal_asks_and_a_second_ctrl_c_ends_at_once(sent, status, printed):
    numbers = [(int(getattr(signal, name)), seconds) for name, seconds in sent]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(sent=numbers)],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert (done.returncode, done.stdout.split()) == (status, printed), done.stderr
    assert done.stderr == f"dawnjax: {sent[0][0]}: saving and stopping after this step\n"


@pytest.mark.processes
def test_a_lost_terminal_is_no_reason_not_to_save():
    """The kernel sends SIGHUP, and nobody reads the line that would say so."""
    reader, terminal = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(sent=[(int(signal.SIGHUP), 0)])],
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    os.close(terminal)
    assert (done.returncode, done.stdout.split()) == (0, ["INTERRUPT", "True"])
