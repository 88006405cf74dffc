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

import forked
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
                self.workers[process_id] = forked.start(
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


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


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
        assert "same from 0" in events
        assert "cache cold" in events
        assert events[-1] == "step 5"
        assert pair.lines(process_id) == []
        # Gloo's greetings are kept out of standard output, and nothing else is.
        assert "[Gloo]" not in pair.output(process_id)
        assert {"by Python", "by another library"} <= set(pair.output(process_id).splitlines())
    turns = [
        [json.loads(event[5:]) for event in pair.events(process_id) if event.startswith("turn")]
        for process_id in (0, 1)
    ]
    assert [waits for waits, *_ in turns[0]] == [True, False]
    for (waits, _, first_ended), (_, second_began, _) in zip(*turns, strict=True):
        assert (second_began >= first_ended) == waits


@pytest.mark.faults
def test_a_host_that_waits_in_vain_says_so(group):
    # Process 1 never comes; in the other group it is process 0, the one that they meet at.
    first = group("first", only=0, initialization_timeout_seconds=2)
    second = group("second", only=1, initialization_timeout_seconds=2)
    assert first.statuses(0, within=120.0) == [1]
    assert first.lines(0) == [
        "dawnjax: waited 2 s for 2 processes (flags), but not all of them came; start the same "
        "command on every host, or run alone with --processes.mode=off"
    ]
    assert second.statuses(1, within=120.0) == [1]
    (line,) = second.lines(1)
    assert "but process 0 does not answer at 127.0.0.1:" in line


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_host_that_waits_for_the_others_can_be_interrupted(group, number):
    alone = group(only=0, initialization_timeout_seconds=300)
    wait_until(lambda: alone.events(0), 120.0, lambda: alone.output(0))
    wait_until(lambda: listens(alone.port), 120.0, lambda: alone.output(0))  # for the others
    alone.signal(0, number)
    assert alone.statuses(0, within=STOP_SECONDS) == [5]
    (line,) = alone.output(0).splitlines()
    assert line == (
        f"dawnjax: ended by {number.name} while it waited for the other processes (flags)"
    )


@pytest.mark.faults
def test_a_port_in_use_is_one_line(group, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        alone = group(only=0, coordinator_address=address)
        assert alone.statuses(0, within=120.0) == [1]
    (line,) = alone.lines(0)
    assert line.startswith(f"dawnjax: process 0 cannot serve at {address}: something answers there")


# How they die.


@pytest.mark.faults
def test_a_killed_host_ends_the_others_within_the_heartbeat(group):
    # Connections break too, so that nobody waits for a long heartbeat timeout.
    trio = group("trio", num_processes=3, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    pair = group("pair")
    for killed, victims in ((2, trio), (1, pair)):
        victims.wait_for_event(killed, "step 5")
        victims.signal(killed, signal.SIGKILL)
    for killed, victims, within in ((2, trio, END_SECONDS), (1, pair, 15.0 + STOP_SECONDS)):
        survivors = range(killed)
        assert victims.statuses(*survivors, within=within) == [1] * killed
        for survivor in survivors:
            (line,) = victims.lines(survivor)
            host = f"host {killed} ({socket.gethostname()})"
            assert line.startswith(f"dawnjax: {host} gave no sign of life")
            assert " at step " in line
            assert line.endswith(RESUME)
            assert f"on_death {line.removeprefix('dawnjax: ')}" in victims.events(survivor)


@pytest.mark.faults
def test_the_others_survive_the_end_of_process_0_long_enough_to_name_it(group):
    pair = group(heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    pair.wait_for_event(1, "step 5")
    pair.signal(0, signal.SIGKILL)
    # JAX's runtime aborts them when its service is gone; they end with a line all the same.
    assert pair.statuses(1, within=END_SECONDS) == [1]
    (line,) = pair.lines(1)
    assert line.startswith("dawnjax: host 0 (")
    assert "is gone (killed, or cut off) at step " in line
    assert line.endswith(RESUME)


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
    assert pair.statuses(stopped, within=END_SECONDS) == [1]


@pytest.mark.faults
def test_a_lost_host_is_named_too_where_the_judge_is_late(group):
    # As on a machine so busy that the judge's clock runs slow: JAX aborts the others, or the
    # connection to one that was killed breaks. All wait at once, since that is all they do.
    cases = [(0, signal.SIGSTOP), (1, signal.SIGSTOP), (1, signal.SIGKILL)]
    trios = []
    for lost, number in cases:
        trio = group(
            f"{lost}_{number.name}",
            num_processes=3,
            judges_late=True,
            heartbeat_timeout_seconds=3,
        )
        trio.wait_for_event(0, "step 5")
        trio.signal(lost, number)
        trios.append(trio)
    for (lost, number), trio in zip(cases, trios, strict=True):
        survivors = [process_id for process_id in range(3) if process_id != lost]
        statuses = trio.statuses(*survivors, within=END_SECONDS + STOP_SECONDS)
        assert all(statuses), (number, [trio.output(process_id) for process_id in survivors])
        for survivor in survivors:
            (line,) = trio.lines(survivor)
            assert line.startswith(f"dawnjax: host {lost} ("), (number, trio.output(survivor))
            assert line.endswith(RESUME)


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
            assert "in misbehave (group_worker.py:" in line
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
    told = re.search(r"made no progress for (\d+) s in misbehave", line)
    assert told is not None and int(told[1]) >= DEADLINE_SECONDS
    assert line.endswith(f"at step 2 (train); {RESUME}")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("failing", "fault", "printed", "reason"),
    [
        (0, "run_error", "dawnjax: the disk is full", "failed (its own output says why)"),
        (1, "bug", "KeyError: 'bug'", "failed (KeyError: 'bug')"),
        (0, "abort", "", "aborted (its own output says why)"),
    ],
)
def test_a_host_that_fails_ends_the_others_at_once(group, failing, fault, printed, reason):
    pair = group(faults={f"{failing} step 5": fault})
    pair.wait_for_event(failing, "step 4")
    survivor = 1 - failing
    failed, survived = pair.statuses(failing, survivor, within=STOP_SECONDS)
    assert failed == (-signal.SIGABRT if fault == "abort" else 1)
    assert survived == 1
    lines = pair.output(failing).splitlines()
    if fault == "abort":
        assert "Traceback (most recent call last):" not in lines
    else:
        assert printed in lines
    (line,) = pair.lines(survivor)
    assert line.startswith(f"dawnjax: host {failing} ({socket.gethostname()}) {reason} at step 4")


# How they stop when asked.


@pytest.mark.faults
@pytest.mark.parametrize(("asked", "number"), [(1, signal.SIGTERM), (0, signal.SIGINT)])
def test_a_signal_to_one_stops_all_at_one_step(group, number, asked):
    pair = group()
    pair.wait_for_event(1, "step 5")
    pair.signal(asked, number)
    assert pair.statuses(0, 1, within=STOP_SECONDS) == [5, 5]
    last = [pair.events(process_id)[-2:] for process_id in (0, 1)]
    assert last[0] == last[1]
    assert last[0][1] == last[0][0].replace("step", "stopped")
    (line,) = pair.lines(asked)
    assert line.startswith(f"dawnjax: {number.name}: saving and stopping after this step")


@pytest.mark.faults
def test_a_signal_before_the_first_step_ends_all_at_once(group):
    pair = group(faults={"0 before step 1": "hang", "1 before step 1": "hang"})
    pair.wait_for_event(0, "ready")
    pair.wait_for_event(1, "ready")
    pair.signal(1, signal.SIGTERM)
    assert pair.statuses(0, 1, within=STOP_SECONDS) == [5, 5]
    for process_id in (0, 1):
        (line,) = pair.lines(process_id)
        assert "host 1 (" in line
        assert "was told to stop by SIGTERM at step 0 (compile)" in line


@pytest.mark.faults
def test_a_second_interrupt_ends_at_once_though_the_main_thread_hangs(group):
    alone = group(num_processes=0, faults={"0 step 3": "hang"})
    alone.wait_for_event(0, "step 2")
    time.sleep(0.2)
    alone.signal(0, signal.SIGINT)
    wait_until(lambda: alone.lines(0), STOP_SECONDS)
    assert alone.workers[0].poll() is None
    time.sleep(1.1)  # a second request, not the first one twice
    alone.signal(0, signal.SIGINT)
    assert alone.statuses(0, within=STOP_SECONDS) == [5]
    assert "was interrupted twice, without saving, at step 2 (train)" in alone.lines(0)[-1]
