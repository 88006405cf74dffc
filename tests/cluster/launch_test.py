"""`dawnjax launch`: one group on one machine, its devices, its output, its last line."""

import os
import signal
import sys

import pytest

from dawnjax.__main__ import main
from dawnjax.cluster import launcher, node_devices


def test_a_gpu_that_is_not_there_is_not_replaced_by_the_cpu(capsys, monkeypatch):
    monkeypatch.setattr(launcher, "launch", lambda plan: launcher.Ended(0, ""))
    monkeypatch.setenv("JAX_PLATFORMS", "")
    monkeypatch.setattr(node_devices, "gpus", list)
    assert main(["launch", "--platform=gpu", "--", "train"]) == 2
    assert "--platform=gpu, but this machine shows no NVIDIA GPU" in capsys.readouterr().err
    assert main(["launch", "--", "train"]) == 0
    monkeypatch.setattr(node_devices, "gpus", lambda: ["/dev/nvidia0"])
    assert main(["launch", "--platform=gpu", "--", "train"]) == 0


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([0, 0, 3, 5, 4, 2, 1], 1),
        ([0, 3, 5, 4, 2], 2),
        ([0, 3, 5, 4], 4),
        ([0, 3, 5], 5),
        ([0, 3], 3),
        ([3, 7], 7),
        ([3, 7, 6], 6),
        ([0, -signal.SIGKILL], 1),
        ([5, 77], 1),
    ],
)
def test_the_gravest_status_is_that_of_the_launch(statuses, status):
    assert launcher.joint_status(statuses) == status


def launched(tmp_path, program: str, **settings) -> int:
    """Status of a launch of two processes that run a program in the place of a command."""
    file = tmp_path / "program.py"
    file.write_text(f"import os, sys, time\nrank = os.environ['DAWNJAX_PROCESS_ID']\n{program}")
    given = {
        "command": ("train", "--seed=1"),
        "num_processes": 2,
        "devices_per_process": 2,
        "platform": "cpu",
        "stop_seconds": 5.0,
        "launch_command": "dawnjax launch --",
        "program": (sys.executable, str(file)),
    }
    return launcher.launch(launcher.Launch(**given | settings)).status


def test_a_command_has_its_devices_and_its_output(tmp_path, capfd, monkeypatch):
    flags = "--xla_force_host_platform_device_count=7 --xla_cpu_enable_fast_math=false"
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.delenv("NPROC", raising=False)
    names = "['JAX_PLATFORMS', 'XLA_FLAGS', 'NPROC']"
    program = f"print(*[os.environ[name] for name in {names}], rank, *sys.argv[1:], flush=True)\n"
    assert launched(tmp_path, program + "print('trouble', file=sys.stderr)\n") == 0
    given = "cpu --xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=2 16"
    printed = capfd.readouterr()
    assert printed.out == f"{given} 0 train --seed=1\n"
    assert sorted(printed.err.splitlines()) == [
        f"[1] {given} 1 train --seed=1",
        "[1] trouble",
        "trouble",
    ]


def test_each_process_has_its_own_gpus(tmp_path, capfd):
    program = "print(os.environ['JAX_PLATFORMS'], os.environ['JAX_LOCAL_DEVICE_IDS'])\n"
    assert launched(tmp_path, program, platform="gpu") == 0
    printed = capfd.readouterr()
    assert printed.out == "cuda,cpu 0,1\n"
    assert printed.err == "[1] cuda,cpu 2,3\n"


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("sys.exit(1)", "failed with exit status 1"),
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
    ],
)
def test_one_that_dies_is_named_and_ends_the_others(end, how, tmp_path, capfd):
    program = (
        "if rank == '0':\n    open(sys.argv[0] + '0', 'w').write(str(os.getpid()))\n"
        "    time.sleep(1000)\n"
        f"while not os.path.exists(sys.argv[0] + '0'): time.sleep(0.01)\ntime.sleep(0.2)\n{end}\n"
    )
    command = ("train", "--run_dir=there")
    assert launched(tmp_path, program, command=command) == 1
    line = capfd.readouterr().err
    assert line.startswith("dawnjax launch: host 1 (pid ") and line.count("\n") == 1
    assert f") {how}; resume with: dawnjax launch -- train --run_dir=there" in line
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "program.py0").read_text()), 0)


@pytest.mark.parametrize(
    ("handler", "status"),
    [
        ("sys.exit(5)", 5),
        ("None", 1),  # it does not stop as it was asked to, and is killed
    ],
)
def test_a_request_to_stop_is_handed_on(handler, status, tmp_path):
    program = (
        f"import signal\nsignal.signal(signal.SIGTERM, lambda *_: {handler})\n"
        "open(sys.argv[0] + rank, 'w').close()\n"
        "while not all(os.path.exists(sys.argv[0] + each) for each in '01'): time.sleep(0.01)\n"
        "rank == '0' and os.kill(os.getppid(), signal.SIGHUP)\n"
        "end = time.monotonic() + 60\nwhile time.monotonic() < end: time.sleep(0.1)\n"
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert launched(tmp_path, program, stop_seconds=2.0) == status
    finally:
        signal.signal(signal.SIGHUP, before)
