"""Groups of processes: how they meet, agree and part, and how one that dies or hangs ends all."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port
from quick_compilation import QUICK, flags_with

pytestmark = pytest.mark.waits


ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "support" / "group_worker.py"
HEARTBEAT_SECONDS = 5  # where a test waits for it; 300 elsewhere, which no busy machine misses
DEADLINE_SECONDS = 6.0
# An idle machine takes a second or two; this one may be busy with other tests.
STOP_SECONDS = 20.0
END_SECONDS = HEARTBEAT_SECONDS + STOP_SECONDS
RESUME = "resume with: dawnjax train --run_dir=there"


class Group:
    """Worker processes, and what they wrote; with `num_processes=0`, one that knows no others."""

    def __init__(
        self, directory: Path, num_processes: int = 2, only: int | None = None, **settings
    ):
        self.directory = directory
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.port = free_port()
        address = f"127.0.0.1:{self.port}"
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": flags_with(QUICK, "", 1),
            "JAX_COORDINATOR_BIND_ADDRESS": address,
        }
        for process_id in range(max(1, num_processes)) if only is None else [only]:
            arguments = {
                "process_id": process_id if num_processes else -1,
                "num_processes": num_processes,
                "coordinator_address": address if num_processes else "",
                "events": str(directory),
                "heartbeat_timeout_seconds": 300,
                **settings,
            }
            with self._output_file(process_id).open("wb") as output:
                self.workers[process_id] = subprocess.Popen(
                    [sys.executable, str(WORKER), json.dumps(arguments)],
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )

    def _output_file(self, process_id: int) -> Path:
        return self.directory / f"output_{process_id}"

    def output(self, process_id: int) -> str:
        return self._output_file(process_id).read_text()

    def events(self, process_id: int) -> list[str]:
        file = self.directory / str(process_id)
        return file.read_text().splitlines() if file.exists() else []

    def wait_for_event(self, process_id: int, event: str) -> None:
        wait_until(lambda: event in self.events(process_id), 120.0, lambda: self.output(process_id))

    def signal(self, process_id: int, number: signal.Signals) -> None:
        self.workers[process_id].send_signal(number)

    def statuses(self, *process_ids: int, within: float) -> list[int]:
        """Exit statuses of processes that must end within a time."""
        end = time.monotonic() + within
        ended = []
        for process_id in process_ids:
            try:
                ended.append(self.workers[process_id].wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                pytest.fail(f"process {process_id} still runs: {self.output(process_id)}")
        return ended

    def lines(self, process_id: int) -> list[str]:
        """Lines that a process says to its user."""
        output = self.output(process_id).splitlines()
        return [line for line in output if line.startswith("dawnjax: ")]


def wait_until(holds, seconds: float, explain=lambda: "") -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds} s: {explain()}")
        time.sleep(0.02)


@pytest.fixture
def group(tmp_path) -> Iterator:
    """Starts groups; ends whatever is left of them."""
    groups = []

    def start(name: str = "", **settings) -> Group:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        groups.append(Group(directory, **settings))
        return groups[-1]

    yield start
    for started in groups:
        for worker in started.workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            worker.wait()


@pytest.mark.faults
def test_a_group_agrees_and_parts_together(group):
    pair = group(gathers=True, steps=5, exit_status=3)
    assert pair.statuses(0, 1, within=120.0) == [3, 3]
    for process_id in (0, 1):
        events = pair.events(process_id)
        assert 'gathered [{"process": 0}, {"process": 1}]' in events
        assert "cache cold" in events
        assert {"same from 0", "from first 0", "failed on 0"} <= set(events)
        # Two processes of one machine are one host.
        assert {"machines 1", "devices host 0 of 1 uses 2 CPU devices; warning ''"} <= set(events)
        assert events[-1] == "step 5"
        assert pair.lines(process_id) == []


@pytest.mark.faults
def test_a_host_that_waits_in_vain_says_so(group):
    # Process 1 never comes; in the other group it is process 0, the one that they meet at.
    first = group("first", only=0, initialization_timeout_seconds=2)
    second = group("second", only=1, initialization_timeout_seconds=2)
    for process_id, alone in ((0, first), (1, second)):
        assert alone.statuses(process_id, within=120.0) == [1]
        (line,) = alone.lines(process_id)
        assert line.startswith(
            "dawnjax: cannot join the other processes (flags): not all of them came within 2 s; "
        )
        assert line.endswith("or run alone with --processes.mode=off")


# How they die.


@pytest.mark.faults
def test_a_killed_host_ends_the_others_within_the_heartbeat(group):
    trio = group(num_processes=3, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    trio.wait_for_event(2, "step 5")
    trio.signal(2, signal.SIGKILL)
    assert trio.statuses(0, 1, within=END_SECONDS) == [1, 1]
    for survivor in (0, 1):
        (line,) = trio.lines(survivor)
        host = f"host 2 ({socket.gethostname()})"
        assert line.startswith(f"dawnjax: {host} gave no sign of life")
        assert " at step " in line
        assert line.endswith(RESUME)
        assert f"on_death {line.removeprefix('dawnjax: ')}" in trio.events(survivor)


@pytest.mark.faults
def test_the_end_of_process_0_ends_the_others(group):
    pair = group(heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    pair.wait_for_event(1, "step 5")
    pair.signal(0, signal.SIGKILL)
    # JAX aborts those that lose its service, with a page of its own.
    assert pair.statuses(1, within=END_SECONDS) == [-signal.SIGABRT]
    assert "This most likely indicates that another task died" in pair.output(1)


@pytest.mark.faults
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_host_ends_the_other_within_the_heartbeat(group, stopped):
    pair = group(f"stopped_{stopped}", heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    pair.wait_for_event(0, "step 5")
    pair.signal(stopped, signal.SIGSTOP)
    assert pair.statuses(1 - stopped, within=END_SECONDS) == [1]
    (line,) = pair.lines(1 - stopped)
    assert line.startswith(f"dawnjax: host {stopped} (")
    assert " gave no sign of life for " in line
    assert " s (killed, stopped or cut off) at step " in line
    # Should the stopped one go on, it finds that the others are gone.
    pair.signal(stopped, signal.SIGCONT)
    assert pair.statuses(stopped, within=END_SECONDS)[0] in (1, -signal.SIGABRT)


@pytest.mark.faults
def test_a_stuck_host_is_found_and_named(group):
    cases = [(1, "before step 1", "ready"), (0, "step 5", "step 4")]
    pairs = [
        group(
            moment,
            progress_deadline_seconds=DEADLINE_SECONDS,
            faults={f"{stuck} {moment}": "hang"},
        )
        for stuck, moment, _ in cases
    ]
    for (stuck, _, event), pair in zip(cases, pairs, strict=True):
        pair.wait_for_event(stuck, event)
    end = time.monotonic() + DEADLINE_SECONDS + STOP_SECONDS
    for (stuck, moment, _), pair in zip(cases, pairs, strict=True):
        assert pair.statuses(0, 1, within=end - time.monotonic()) == [1, 1]
        step = {"before step 1": "step 0 (compile)", "step 5": "step 4 (train)"}[moment]
        for process_id in (0, 1):
            (line,) = pair.lines(process_id)
            assert line.startswith(f"dawnjax: host {stuck} (")
            assert line.endswith(f"at {step}; {RESUME}")


@pytest.mark.faults
def test_a_process_alone_that_is_stuck_ends(group):
    alone = group(
        num_processes=0,
        progress_deadline_seconds=DEADLINE_SECONDS,
        faults={"0 step 3": "hang"},
    )
    assert alone.statuses(0, within=120.0) == [1]
    (line,) = alone.lines(0)
    told = re.search(r"made no progress for (\d+) s at", line)
    assert told is not None and int(told[1]) >= DEADLINE_SECONDS
    assert line.endswith(f"at step 2 (train); {RESUME}")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("failing", "fault", "printed", "reason"),
    [
        (0, "run_error", "dawnjax: the disk is full", "failed (its own output says why)"),
        (1, "bug", "KeyError: 'bug'", "failed (KeyError: 'bug')"),
    ],
)
def test_a_host_that_fails_ends_the_others_at_once(group, failing, fault, printed, reason):
    pair = group(faults={f"{failing} step 5": fault})
    pair.wait_for_event(failing, "step 4")
    survivor = 1 - failing
    failed, survived = pair.statuses(failing, survivor, within=STOP_SECONDS)
    assert (failed, survived) == (1, 1)
    assert printed in pair.output(failing).splitlines()
    (line,) = pair.lines(survivor)
    assert line.startswith(f"dawnjax: host {failing} ({socket.gethostname()}) {reason} at step 4")
