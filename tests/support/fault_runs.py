"""Runs that tests kill, stop and starve: how they begin, and how their ends compare."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import trained
from quick_compilation import REPEATED
from trained import evaluations_of, final_state_of, result_of

from dawnjax.commands.check import check_run
from dawnjax.errors import ExitStatus
from dawnjax.runs.log import read_events

SMALL = [
    *(*trained.SMALL, "--data.num_train_examples=200", "--data.num_eval_examples=64"),
    *("--num_epochs=12", "--evaluation.every_epochs=4", "--model.stage_widths=16"),
    *("--targets.0.metric=loss", "--targets.0.direction=at_most"),
    *("--steps_per_call=2", "--checkpoint.every_steps=20"),
]
NEVER = "--targets.0.value=0.0"


def environment(num_devices: int = 1, more_flags: str = REPEATED) -> dict[str, str]:
    flags = f"--xla_force_host_platform_device_count={num_devices} {more_flags}"
    return {**os.environ, "JAX_PLATFORMS": "cpu", "NPROC": "16", "XLA_FLAGS": flags}


def command(run_dir: Path, compile_cache: str, *flags: str) -> list[str]:
    return [
        *(sys.executable, "-m", "dawnjax", "train", *SMALL, NEVER),
        *(compile_cache, f"--run_dir={run_dir}", *flags),
    ]


def run(argv: list[str], timeout: float = 300, **kwargs) -> subprocess.CompletedProcess[str]:
    kwargs.setdefault("env", environment())
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, **kwargs)


def start(argv: list[str], env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a process, of whose output the errors can be read."""
    out, err = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(argv, env=env or environment(), stdout=out, stderr=err, text=True)


def events_of(run_dir: Path) -> list[dict]:
    log = run_dir / "log.jsonl"
    return read_events(log) if log.exists() else []


def wait_for(condition, seconds: float = 240.0):
    """Waits until a condition gives something, and gives that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("what the test waits for did not come")


def steps_reached(run_dir: Path, step: int) -> bool:
    return any(event.get("step", 0) >= step for event in events_of(run_dir))


def stopped_once(ready: Callable[[], object], argv: list[str], run_dir: Path) -> int:
    """Start a run and kill it once something holds; returns its exit status.

    It begins anew where a busy machine let it end before this process saw the moment.
    """
    for _ in range(10):
        process = start(argv)
        wait_for(lambda process=process: ready() or process.poll() is not None)
        process.kill()
        process.communicate()
        if process.returncode != ExitStatus.BUDGET_SPENT:
            return process.returncode
        shutil.rmtree(run_dir)
    raise AssertionError("it ended each time before it could be stopped")


def assert_same_end(run_dir: Path, uninterrupted: Path) -> None:
    assert evaluations_of(run_dir) == evaluations_of(uninterrupted)
    assert result_of(run_dir)["first_losses"] == result_of(uninterrupted)["first_losses"]
    step, state = final_state_of(run_dir)
    expected_step, expected = final_state_of(uninterrupted)
    assert step == expected_step
    np.testing.assert_array_equal(state, expected)
    assert check_run(run_dir)[0] == []


def why_not_the_same_end(run_dir: Path, uninterrupted: Path) -> str:
    """Says how the end of a run differs from that of one without an interruption."""
    try:
        assert_same_end(run_dir, uninterrupted)
    except (AssertionError, OSError) as error:
        return f"another end: {error}"
    return ""


def seconds_to_end(process: subprocess.Popen, within: float) -> tuple[float, str]:
    """Waits for a process that was asked to end; returns the seconds and its standard error."""
    asked = time.monotonic()
    try:
        _, stderr = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        _, stderr = process.communicate()
    return time.monotonic() - asked, stderr


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def is_death_by(number: signal.Signals, status: int, stderr: str) -> bool:
    """True if a process without a handler ended by a signal; Python's own start has status 1."""
    return status == -number or (status == 1 and "KeyboardInterrupt" in stderr)


def launch(run_dir: Path, compile_cache: str, *flags: str, layout: str = "2x2") -> list[str]:
    processes, devices = layout.split("x")
    return [
        *(sys.executable, "-m", "dawnjax", "launch", f"--processes={processes}"),
        *(f"--devices_per_process={devices}", "--", "train", *SMALL, NEVER),
        *(compile_cache, f"--run_dir={run_dir}", *flags),
    ]


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[], object]]:
    """A file system of some KiB at a folder; gives what makes it a large one."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here, so no disk can be filled")
    grow = ["mount", "-o", "remount,size=64m", str(folder)]
    try:
        yield lambda: subprocess.run(grow, check=True, capture_output=True)
    finally:
        subprocess.run(["umount", str(folder)], check=False, capture_output=True)
