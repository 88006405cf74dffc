"""`dawnjax launch`: one group on one machine, its output, its last line, and nobody left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dawnjax.__main__ import main
from dawnjax.cluster import launcher, node_devices

pytestmark = pytest.mark.waits

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "support" / "group_worker.py"
HEARTBEAT_SECONDS = 5  # where a test waits for it; 300 elsewhere, which no busy machine misses
# An idle machine takes a second or two; this one may be busy with other tests.
STOP_SECONDS = 20.0
END_SECONDS = HEARTBEAT_SECONDS + STOP_SECONDS

# What `dawnjax launch` does after its flags are read, with the worker in the place of a command.
DRIVER = """
import json, sys
from dawnjax.cluster.launcher import Launch, launch
plan = json.loads(sys.argv[1])
plan["program"] = (sys.executable, *plan["program"])
sys.exit(launch(Launch(**plan)))
"""


class Launch:
    """A launcher of two workers, and what they wrote."""

    def __init__(
        self,
        directory: Path,
        *,
        program: list[str] | None = None,
        stop_seconds: float = STOP_SECONDS,
        **settings,
    ):
        self.directory = directory
        arguments = {"events": str(directory), "heartbeat_timeout_seconds": 300}
        plan = {
            "command": [json.dumps(arguments | settings)],
            "num_processes": 2,
            "devices_per_process": 1,
            "platform": "cpu",
            "stop_seconds": stop_seconds,
            "launch_command": "dawnjax launch --processes=2 --",
            "program": program or [str(WORKER)],
        }
        with self.file("out").open("wb") as out, self.file("err").open("wb") as err:
            self.launcher = subprocess.Popen(
                [sys.executable, "-c", DRIVER, json.dumps(plan)],
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=out,
                stderr=err,
            )

    def file(self, name: str) -> Path:
        return self.directory / name

    def read(self, name: str) -> str:
        file = self.file(name)
        return file.read_text() if file.exists() else ""

    def events(self, process_id: int) -> list[str]:
        return self.read(str(process_id)).splitlines()

    def pid(self, process_id: int) -> int:
        return int(self.events(process_id)[0].removeprefix("pid "))

    def wait_for_event(self, process_id: int, event: str) -> None:
        self.wait_until(lambda: event in self.events(process_id), 120.0)

    def wait_until(self, holds, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                pytest.fail(f"not within {seconds} s: {self.read('err')}")
            time.sleep(0.02)

    def status(self, within: float) -> int:
        try:
            return self.launcher.wait(within)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the launcher still runs: {self.read('err')}")

    def nobody_is_left(self) -> bool:
        return not any(is_running(self.pid(process_id)) for process_id in (0, 1))

    def own_lines(self) -> list[str]:
        return [line for line in self.read("err").splitlines() if "dawnjax launch: " in line]


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def launched(tmp_path) -> Iterator:
    """Starts launchers; ends whatever is left of them."""
    launches: list[Launch] = []

    def start(**settings) -> Launch:
        launches.append(Launch(tmp_path, **settings))
        return launches[-1]

    yield start
    for group in launches:
        group.launcher.kill()
        group.launcher.wait()
        for process_id in (0, 1):
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(group.pid(process_id), signal.SIGKILL)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "no command given"),
        (["--"], "no command given"),
        (["train"], "'train' is no flag; write the command after --"),
        (["--process=3", "--", "train"], "unknown flag --process; did you mean --processes?"),
        (["--processes=0", "--", "train"], "--processes=0"),
        (["--platform=abacus", "--", "train"], "--platform=abacus"),
        (["--", "launch"], "launch cannot launch itself"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(argv, message, capsys):
    assert main(["launch", *argv]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dawnjax launch: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_gpu_that_is_not_there_is_not_replaced_by_the_cpu(capsys, monkeypatch):
    monkeypatch.setattr(launcher, "launch", lambda plan: 0)
    monkeypatch.setenv("JAX_PLATFORMS", "")
    monkeypatch.setattr(node_devices, "gpus", list)
    assert main(["launch", "--platform=gpu", "--", "train"]) == 2
    assert "--platform=gpu, but this machine shows no NVIDIA GPU" in capsys.readouterr().err
    assert main(["launch", "--", "train"]) == 0
    monkeypatch.setattr(node_devices, "gpus", lambda: ["/dev/nvidia0"])
    assert main(["launch", "--platform=gpu", "--", "train"]) == 0


def test_help_lists_the_flags(capsys):
    assert main(["launch", "--help"]) == 0
    output = capsys.readouterr().out
    for flag in ("--processes", "--devices_per_process", "--platform", "--stop_seconds"):
        assert flag in output


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([0, 0], 0),
        ([3, 0], 3),
        ([3, 5], 5),
        ([5, 4], 4),
        ([4, 2], 2),
        ([2, 1], 1),
        ([0, -signal.SIGKILL], 1),
        ([5, 77], 1),
    ],
)
def test_the_gravest_status_is_that_of_the_launch(statuses, status):
    assert launcher.joint_status(statuses) == status


def test_a_command_has_its_devices_and_its_output(tmp_path):
    # The whole way, with a command that says what it was given.
    package = tmp_path / "program.py"
    package.write_text(
        "import os, sys\n"
        "names = ['JAX_PLATFORMS', 'XLA_FLAGS', 'NPROC', 'DAWNJAX_PROCESS_ID']\n"
        "print(*[os.environ[name] for name in names], *sys.argv[1:], flush=True)\n"
        "print('trouble', file=sys.stderr)\n"
    )
    plan = {
        "command": ["train", "--seed=1"],
        "num_processes": 2,
        "devices_per_process": 3,
        "platform": "cpu",
        "stop_seconds": 5.0,
        "launch_command": "dawnjax launch --",
        "program": [str(package)],
    }
    flags = "--xla_force_host_platform_device_count=7 --xla_cpu_enable_fast_math=false"
    finished = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(plan)],
        env={k: v for k, v in os.environ.items() if k != "NPROC"}
        | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=300.0,
    )
    assert finished.returncode == 0
    given = "cpu --xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=3 16"
    assert finished.stdout == f"{given} 0 train --seed=1\n"
    assert sorted(finished.stderr.splitlines()) == [
        f"[1] {given} 1 train --seed=1",
        "[1] trouble",
        "trouble",
    ]


def test_each_process_has_its_own_gpus(tmp_path, capfd, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nprint(os.environ['JAX_PLATFORMS'], os.environ['JAX_LOCAL_DEVICE_IDS'])\n"
    )
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    plan = launcher.Launch(
        command=(),
        num_processes=2,
        devices_per_process=2,
        platform="gpu",
        stop_seconds=5.0,
        launch_command="dawnjax launch --",
        program=(sys.executable, str(program)),
    )
    assert launcher.launch(plan) == 0
    printed = capfd.readouterr()
    assert printed.out == "cuda,cpu 0,1\n"
    assert printed.err == "[1] cuda,cpu 2,3\n"


@pytest.mark.faults
def test_a_group_runs_to_its_end(launched):
    group = launched(steps=5, exit_status=3, gathers=True)
    assert group.status(within=120.0) == 3
    for process_id in (0, 1):
        assert 'gathered [{"process": 0}, {"process": 1}]' in group.events(process_id)
        assert group.events(process_id)[-1] == "step 5"
    assert group.own_lines() == []


@pytest.mark.faults
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_is_named_and_ends_the_others(launched, victim):
    group = launched(heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    group.wait_for_event(1, "step 20")
    os.kill(group.pid(victim), signal.SIGKILL)
    assert group.status(within=END_SECONDS) == 1
    (line,) = group.own_lines()
    died = f"host {victim} (pid {group.pid(victim)}) was killed by SIGKILL"
    assert line == f"dawnjax launch: {died}"
    if victim:  # the other names it, with its step and how to resume
        (last,) = [event for event in group.events(0) if event.startswith("on_death")]
        assert "on_death host 1 (" in last and " at step " in last
        assert last.endswith("resume with: dawnjax launch --processes=2 -- train --run_dir=there")
    assert group.nobody_is_left()


@pytest.mark.faults
def test_a_process_that_dies_before_it_joins_ends_the_others(launched, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, time\n"
        "open(f\"{sys.path[0]}/{os.environ['DAWNJAX_PROCESS_ID']}\", 'w')"
        ".write(f'pid {os.getpid()}\\n')\n"
        "sys.exit(1) if os.environ['DAWNJAX_PROCESS_ID'] == '1' else time.sleep(1000)\n"
    )
    # Process 0 knows of nothing, so it is asked to end.
    group = launched(program=[str(program)])
    assert group.status(within=STOP_SECONDS) == 1
    (line,) = group.own_lines()
    assert line.endswith("failed with exit status 1")
    assert group.nobody_is_left()


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_launcher_stops_all_at_one_step(launched, number):
    group = launched()
    group.wait_for_event(1, "step 5")
    group.launcher.send_signal(number)
    assert group.status(within=STOP_SECONDS) == 5
    assert group.events(0)[-1].startswith("stopped")
    assert group.events(0)[-1] == group.events(1)[-1]
    assert group.own_lines() == []


@pytest.mark.faults
def test_a_second_interrupt_of_the_launcher_ends_all_at_once(launched):
    group = launched(faults={"1 step 5": "hang"})
    group.wait_for_event(1, "step 4")
    group.launcher.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert group.launcher.poll() is None
    group.launcher.send_signal(signal.SIGINT)
    assert group.status(within=STOP_SECONDS) == 5
    assert group.nobody_is_left()


@pytest.mark.faults
def test_a_process_that_swallows_the_request_to_stop_is_killed(launched, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(f\"{sys.path[0]}/{os.environ['DAWNJAX_PROCESS_ID']}\", 'w')"
        ".write(f'pid {os.getpid()}\\n')\n"
        "time.sleep(1000)\n"
    )
    group = launched(program=[str(program)], stop_seconds=2.0)
    group.wait_until(lambda: group.events(0) and group.events(1), 120.0)
    group.launcher.send_signal(signal.SIGTERM)
    assert group.status(within=2.0 + STOP_SECONDS) == 1  # It has not stopped as it was asked to.
    assert group.nobody_is_left()


@pytest.mark.faults
def test_nobody_outlives_a_killed_launcher(launched):
    group = launched()
    group.wait_for_event(1, "step 1")
    group.launcher.kill()
    group.launcher.wait()
    group.wait_until(group.nobody_is_left, STOP_SECONDS)
