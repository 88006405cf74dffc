"""Groups of processes: how they agree and part, and how one that dies or hangs ends all.

That a run names a process that was killed or stopped is in tests/train/launch_faults_test.py.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_runs import wait_for
from ports import free_port
from quick_compilation import QUICK, flags_with

pytestmark = [pytest.mark.waits, pytest.mark.faults]

ROOT = Path(__file__).parents[2]
HEARTBEAT_SECONDS = 5
DEADLINE_SECONDS = 6.0
# An idle machine takes a second or two; this one may be busy with other tests.
STOP_SECONDS = 20.0


class Group:
    """Two workers, or one of them, and what they wrote."""

    def __init__(
        self, folder: Path, only: tuple[int, ...], steps: int, faults: dict, options: dict
    ):
        self.folder = folder
        address = f"127.0.0.1:{free_port()}"
        bind = {"JAX_COORDINATOR_BIND_ADDRESS": address, "XLA_FLAGS": flags_with(QUICK, "", 1)}
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | bind
        settings = {"events": str(folder), "steps": steps, "faults": faults}
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        for index in only:
            meeting = {"coordinator_address": address, "num_processes": 2, "process_id": index}
            given = json.dumps({**settings, "options": meeting | options})
            with (folder / f"output_{index}").open("wb") as output:
                self.workers[index] = subprocess.Popen(
                    [sys.executable, str(ROOT / "tests/support/group_worker.py"), given],
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )

    def output(self, index: int) -> str:
        return (self.folder / f"output_{index}").read_text()

    def events(self, index: int) -> list[str]:
        file = self.folder / str(index)
        return file.read_text().splitlines() if file.exists() else []

    def line(self, index: int) -> str:
        """The line that a process says to its user."""
        (line,) = [x for x in self.output(index).splitlines() if x.startswith("dawnjax: ")]
        return line.removeprefix("dawnjax: ")


@pytest.fixture
def group(tmp_path) -> Iterator[Callable[..., Group]]:
    """Starts a group; ends whatever is left of it."""
    groups = []

    def start(only: tuple[int, ...] = (0, 1), steps: int = 0, faults=None, **options) -> Group:
        options = {"heartbeat_timeout_seconds": 300, "progress_deadline_seconds": 0.0} | options
        folder = tmp_path / str(len(groups))
        folder.mkdir()
        groups.append(Group(folder, only, steps, faults or {}, options))
        return groups[-1]

    yield start
    for started in groups:
        for worker in started.workers.values():
            worker.kill()
            worker.wait()


def test_a_group_agrees_and_parts_together(group):
    pair = group(steps=5)
    assert [worker.wait(120) for worker in pair.workers.values()] == [3, 3]
    for index in (0, 1):
        events = pair.events(index)
        assert 'gathered [{"process": 0}, {"process": 1}]' in events
        assert "cache cold" in events
        assert {"same from 0", "from first 0", "failed on 0"} <= set(events)
        # Two processes of one machine are one host.
        assert {"machines 1", "devices host 0 of 1 uses 2 CPU devices; warning ''"} <= set(events)
        assert events[-1] == "step 4" and "dawnjax: " not in pair.output(index)


def test_a_host_that_waits_in_vain_says_so(group):
    # Process 1 never comes; in the other group it is process 0, the one that they meet at.
    groups = [group(only=(index,), initialization_timeout_seconds=2) for index in (0, 1)]
    for index, alone in enumerate(groups):
        assert alone.workers[index].wait(120) == 1
        line = alone.line(index)
        reason = "(flags): not all of them came within 2 s; "
        assert line.startswith(f"cannot join the other processes {reason}")
        assert line.endswith("or run alone with --processes.mode=off")


HEARTBEAT = {"heartbeat_timeout_seconds": HEARTBEAT_SECONDS}
DEADLINE = {"progress_deadline_seconds": DEADLINE_SECONDS}
SILENT = r"gave no sign of life for \d+ s \(killed, stopped or cut off\) at step \d+ \(\w+\)"


@pytest.mark.parametrize(
    ("at_fault", "fault", "options", "line"),
    [
        (0, signal.SIGSTOP, HEARTBEAT, SILENT),
        (0, "hang at step 5", DEADLINE, r"made no progress for \d+ s at step 4 \(train\)"),
        (1, "bug at step 5", {}, r"failed \(KeyError: 'bug'\) at step 4 \(train\)"),
        pytest.param(
            *(0, "run_error at step 5", {}, r"failed \(its own output says why\) at step 4 .*"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_host_at_fault_is_named_and_ends_the_other(at_fault, fault, options, line, group):
    survivor = 1 - at_fault
    if isinstance(fault, str):
        kind, _, moment = fault.partition(" at ")
        pair = group(faults={f"{at_fault} {moment}": kind}, **options)
    else:
        pair = group(**options)
        wait_for(lambda: "step 60" in pair.events(survivor))  # after two notes
        pair.workers[at_fault].send_signal(fault)
    assert pair.workers[survivor].wait(120) == 1
    said = pair.line(survivor)
    host = re.escape(f"host {at_fault} ({socket.gethostname()})")
    resume = "resume with: dawnjax train --run_dir=there"
    assert re.fullmatch(f"{host} {line}; {resume}", said)
    assert f"on_death {said}" in pair.events(survivor)
    # One that was stopped finds, should it go on, that the other is gone.
    pair.workers[at_fault].send_signal(signal.SIGCONT)
    assert pair.workers[at_fault].wait(HEARTBEAT_SECONDS + STOP_SECONDS) in (1, -signal.SIGABRT)
