"""Runs that are killed, stopped and starved for real, and what they end with."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from quick_compilation import QUICK, REPEATED
from trained import evaluations_of, final_state_of, result_of

from dawnjax.__main__ import main
from dawnjax.commands.check import check_run
from dawnjax.runs.log import log_path, read_events

SUPPORT = Path(__file__).parents[1] / "support"

pytestmark = pytest.mark.faults

SMALL = [
    "--experiment=synthetic_image",
    "--data.num_train_examples=200",
    "--data.num_eval_examples=64",
    "--num_epochs=12",
    "--evaluation.every_epochs=4",
    "--global_batch_size=16",
    "--batch_norm_group_size=4",
    "--model.stage_sizes=1",
    "--model.stage_widths=16",
    "--targets.0.metric=loss",
    "--targets.0.direction=at_most",
    "--tensorboard=false",
    "--steps_per_call=2",
    "--checkpoint.every_steps=20",
    "--profile.after_run=false",
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


def run(argv: list[str], timeout: float = 120, **kwargs) -> subprocess.CompletedProcess:
    kwargs.setdefault("env", environment())
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, **kwargs)


def events_of(run_dir: Path) -> list[dict]:
    log = run_dir / "log" / "process_00000.jsonl"
    return read_events(log)[0] if log.exists() else []


def events_of_attempt(run_dir: Path, attempt: int) -> list[dict]:
    return [event for event in events_of(run_dir) if event["attempt"] == attempt]


def last_evaluation(events: list[dict]) -> dict:
    return next(event for event in reversed(events) if event["event"] == "evaluation")


def seconds_on_clock(events: list[dict]) -> float:
    """Gives the time from the start of an attempt's clock to its last record, by hand."""
    started = next(event["t"] for event in events if event["event"] == "run_start")
    return max(event["t"] for event in events) - started


def restored_step(run_dir: Path) -> int:
    return next(event["step"] for event in events_of(run_dir) if event["event"] == "restored")


def wait_for(condition, seconds: float = 90.0):
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


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, compile_cache):
    """A run that nothing disturbs; the others must end as it does."""
    run_dir = tmp_path_factory.mktemp("uninterrupted") / "run"
    done = run(command(run_dir, compile_cache))
    assert done.returncode == 3, done.stderr
    return run_dir


@pytest.fixture(scope="module")
def killed(tmp_path_factory, compile_cache):
    """A run that was killed after its checkpoint of step 60; not to be changed, but copied."""
    run_dir = tmp_path_factory.mktemp("killed") / "run"
    process = subprocess.Popen(command(run_dir, compile_cache), env=environment())
    wait_for(lambda: (run_dir / "checkpoints" / "60" / "manifest.json").exists())
    process.kill()
    assert process.wait() == -signal.SIGKILL
    return run_dir


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


def run_and_kill(argv: list[str], run_dir: Path, step: int, delay_seconds: float) -> bool:
    """Kills a run some moments after a step; tells whether it had not ended by then."""
    process = subprocess.Popen(
        argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: steps_reached(run_dir, step) or process.poll() is not None)
    time.sleep(delay_seconds)
    process.kill()
    return process.wait() == -signal.SIGKILL


@pytest.mark.processes
@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.long)])
def test_killed_at_random_moments_and_resumed_ends_the_same(
    count, uninterrupted, tmp_path, compile_cache, campaign
):
    kills = campaign(
        "kills",
        "`train` on one host, killed at a random moment, once or twice a run, and resumed",
        "the same evaluations and, bit for bit, the same parameters",
    )
    choose = random.Random(0)
    last_step = result_of(uninterrupted)["steps"]
    number = num_kills = 0
    while num_kills < count:
        number += 1
        run_dir = tmp_path / str(number)
        moments = []
        for step in sorted(choose.sample(range(last_step - 20), choose.randint(1, 2))):
            delay = choose.uniform(0.0, 0.3)
            if run_and_kill(command(run_dir, compile_cache), run_dir, step, delay):
                moments.append(f"{delay:.2f} s after step {step}")
        run(command(run_dir, compile_cache))
        why = why_not_the_same_end(run_dir, uninterrupted)
        for moment in moments:
            kills.tried(f"run {number}, {moment}", held=not why, why=why)
        num_kills += len(moments)
        result = result_of(run_dir)
        attempts = [event for event in events_of(run_dir) if event["event"] == "attempt_start"]
        assert result["interruptions"] == len(attempts) - 1
        assert sum(result["phases"].values()) == pytest.approx(result["total_seconds"], abs=1e-3)
    kills.finish()


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@pytest.mark.processes
@pytest.mark.parametrize("count", [4, pytest.param(160, marks=pytest.mark.long)])
def test_signals_in_every_phase_lose_nothing(
    count, uninterrupted, tmp_path, compile_cache, campaign
):
    signals = campaign(
        "signals",
        "`train` sent SIGINT, SIGTERM, SIGHUP or SIGUSR1 from 0.05 s after its start on, in every "
        "phase, up to eight times a run, and resumed",
        "ends with status 5 within 5 s, without a traceback; no step is lost, and the run ends "
        "with the same evaluations and parameters",
    )
    choose = random.Random(1)
    number = tries_of_run = 0
    run_dir = tmp_path / "run"
    while number < count:
        kind, moment = SIGNALS[(number + number // 4) % 4], number % 4
        delay = choose.uniform(*((0.05, 0.3), (0.3, 2.0), (2.0, 5.0), (0.0, 0.4))[moment])
        process = subprocess.Popen(
            command(run_dir, compile_cache),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if moment == 3:
            wait_for_training(process, run_dir)
        time.sleep(delay)
        has_ended, is_starting = process.poll() is not None, is_before_the_program(process.pid)
        process.send_signal(kind)
        seconds, stderr = seconds_to_end(process, within=30.0)
        status = process.returncode
        why = ""
        if seconds > 5.0:
            why = f"took {seconds:.1f} s, status {status}: {stderr[-300:]}"
        elif status not in (3, 5) and not (is_starting and status == -kind):
            why = f"status {status}: {stderr[-300:]}"  # 3 where the steps were over
        elif status == 5:
            why = stderr[-300:] if "Traceback" in stderr else why_steps_are_lost(run_dir)
        tries_of_run += 1
        if status == 3 or tries_of_run == 8 or number == count - 1:
            done = run(command(run_dir, compile_cache))
            why = why or why_not_the_same_end(run_dir, uninterrupted)
            if done.returncode != 3:
                why = why or f"the run ended with {done.returncode}: {done.stderr[-300:]}"
            shutil.rmtree(run_dir)
            tries_of_run = 0
        if why or not has_ended:
            when = "the first steps" if moment == 3 else "the start"
            label = f"{number}, {kind.name} {delay:.2f} s after {when}"
            signals.tried(label, held=not why, why=why, seconds=seconds)
            number += 1
    signals.finish()


IN_ITS_OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.processes
def test_a_lost_terminal_saves_and_ends(tmp_path, compile_cache):
    """As a connection that breaks: the terminal is gone, and the kernel sends SIGHUP."""
    ours, terminal = os.openpty()

    run_dir = tmp_path / "run"
    argv = command(run_dir, compile_cache, "--num_epochs=3000", "--checkpoint.every_steps=0")
    process = subprocess.Popen(
        [sys.executable, "-c", IN_ITS_OWN_TERMINAL, *argv],
        env=environment(),
        **dict.fromkeys(("stdin", "stdout", "stderr"), terminal),
    )
    os.close(terminal)
    os.set_blocking(ours, False)

    def has_begun() -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(ours, 65536)  # or the run would wait for its reader
        return steps_reached(run_dir, 20)

    wait_for(has_begun)
    os.close(ours)
    assert process.wait(timeout=10) == 5
    result = result_of(run_dir)
    assert result["status"] == "interrupted"
    assert final_state_of(run_dir)[0] == result["steps"] >= 20


def is_before_the_program(pid: int) -> bool:
    """Whether a process may still load Python itself: a signal then ends it, with no status."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return False
    return times.user + times.system <= 0.06  # loading JAX takes more than ten times as long


def wait_for_training(process: subprocess.Popen, run_dir: Path) -> None:
    """Waits until a run makes steps in an attempt that has not trained yet."""
    before = len(events_of(run_dir))
    wait_for(
        lambda: (
            process.poll() is not None
            or any(event.get("name") == "train" for event in events_of(run_dir)[before:])
        )
    )


def why_steps_are_lost(run_dir: Path) -> str:
    """Says what an interrupted attempt lost; nothing if it had made no steps."""
    events = events_of(run_dir)
    last = events_of_attempt(run_dir, events[-1]["attempt"]) if events else []
    if not any(event["event"] == "train" for event in last):
        return ""
    result = result_of(run_dir)
    if last[-1]["event"] != "attempt_end" or result["status"] != "interrupted":
        return f"it made steps and did not save them: {last[-1]}"
    saved = final_state_of(run_dir)[0]
    return "" if saved == result["steps"] else f"saved step {saved} of {result['steps']}"


@pytest.mark.processes
def test_killed_in_the_middle_of_a_save(uninterrupted, tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    process = subprocess.Popen(command(run_dir, compile_cache), env=environment())
    # Orbax writes a save into a folder of another name before it commits it.
    wait_for(lambda: list((run_dir / "checkpoints").glob("*orbax-checkpoint-tmp*")))
    process.kill()
    process.wait()
    done = run(command(run_dir, compile_cache))
    assert done.returncode == 3, done.stderr
    assert_same_end(run_dir, uninterrupted)


@pytest.mark.processes
def test_killed_between_the_target_and_the_last_save(tmp_path, compile_cache):
    """What stands on the disk then: the log up to the evaluation, and older checkpoints."""
    flags = ("--targets.0.value=100.0", "--checkpoint.every_steps=20")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(command(whole, compile_cache, *flags)).returncode == 0
    reached = final_state_of(whole)[0]
    shutil.copytree(whole, killed)
    (killed / "result.json").unlink()
    shutil.rmtree(killed / "checkpoints" / str(reached))
    log = killed / "log" / "process_00000.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    last = next(i for i, line in enumerate(lines) if '"reached":true' in line)
    log.write_text("".join(lines[: last + 1]))

    done = run(command(killed, compile_cache, *flags))
    assert done.returncode == 0, done.stderr
    assert restored_step(killed) < reached
    step, state = final_state_of(killed)
    assert step == reached == result_of(killed)["steps"]
    np.testing.assert_array_equal(state, final_state_of(whole)[1])
    for name in ("time_to_accuracy_seconds", "best", "evaluations"):
        assert result_of(killed)[name] == result_of(whole)[name]
    assert check_run(killed)[0] == []


@pytest.mark.processes
def test_asked_to_stop_in_the_profile_it_leaves_that_out(tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    flags = ("--targets.0.value=100.0", "--profile.after_run=true", "--profile.twin=false")
    slow = f"--experiment={SUPPORT / 'slow_inputs.py'}"
    argv = [slow if flag == SMALL[0] else flag for flag in command(run_dir, compile_cache, *flags)]
    environ = environment() | {"DAWNJAX_TEST_SLOW": "0:0.3"}
    process = subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE)
    wait_for(lambda: any(event.get("name") == "profile" for event in events_of(run_dir)))
    process.terminate()
    asked = time.monotonic()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert time.monotonic() - asked < 10.0
    assert b"SIGTERM: the steps are over; their profile is left out" in stderr
    result = result_of(run_dir)
    assert result["status"] == "reached" and result["time_to_accuracy_seconds"] > 0
    assert "asked to stop" in result["hosts"][0]["utilization"]["reasons"]["mfu"]
    assert final_state_of(run_dir)[0] == result["steps"]
    assert check_run(run_dir)[0] == []


@pytest.mark.processes
def test_the_clock_counts_all_but_the_gap(killed, tmp_path, compile_cache):
    run_dir = shutil.copytree(killed, tmp_path / "run")
    time.sleep(0.5)
    assert run(command(run_dir, compile_cache)).returncode == 3
    first, second = events_of_attempt(run_dir, 1), events_of_attempt(run_dir, 2)
    by_hand = seconds_on_clock(first) + last_evaluation(second)["t"]
    row = result_of(run_dir)["evaluations"][-1]
    assert row["seconds_since_run_start"] == pytest.approx(by_hand, abs=1e-4)
    gap = second[0]["boot_seconds"] - second[0]["t"] - first[-1]["boot_seconds"]
    assert gap > 0.4


@pytest.mark.processes
def test_a_log_that_lost_its_end_understates_no_time(tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    process = subprocess.Popen(command(run_dir, compile_cache), env=environment())
    wait_for(lambda: steps_reached(run_dir, 120))
    process.terminate()
    process.wait()
    before = result_of(run_dir)
    assert before["status"] == "interrupted"
    log = run_dir / "log" / "process_00000.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if b'"event":"run_start"' in line)
    log.write_bytes(b"".join(lines[: start + 4]))
    done = run(command(run_dir, compile_cache))
    assert done.returncode == 3, done.stderr
    assert "or its end was lost" in " ".join(done.stdout.split())
    result = result_of(run_dir)
    assert result["interruptions"] == 1 and len(result["first_losses"]) == 10
    last = last_evaluation(events_of_attempt(run_dir, 2))
    # The last save was made after the last evaluation of the first attempt.
    assert result["evaluations"][:2] == before["evaluations"]
    at_least = before["evaluations"][-1]["seconds_since_run_start"] + last["t"]
    at_most = at_least + before["total_seconds"] - before["phases"]["compile"]
    assert at_least < result["evaluations"][-1]["seconds_since_run_start"] < at_most
    made = result["steps"] * 16 / result["train_seconds"]
    assert result["examples_per_second"] == pytest.approx(made, rel=1e-3)
    assert check_run(run_dir)[0] == []

    # Then all of it is lost, as on another machine: the last save holds both attempts.
    shutil.rmtree(run_dir / "log")
    assert run(command(run_dir, compile_cache)).returncode == 3
    again = result_of(run_dir)
    assert again["interruptions"] == 2 and again["steps"] == result["steps"]
    for name in ("evaluations", "first_losses", "best", "compile_seconds_before_run_start"):
        assert again[name] == result[name]
    assert again["train_seconds"] == pytest.approx(result["train_seconds"], abs=1e-5)
    assert "or its end was lost" in again["warnings"][0]
    assert check_run(run_dir)[0] == []


@pytest.mark.processes
def test_a_damaged_newest_checkpoint_means_a_warning_and_the_one_before(
    uninterrupted, killed, tmp_path, compile_cache
):
    run_dir = shutil.copytree(killed, tmp_path / "run")
    steps = sorted(
        int(path.parent.name) for path in (run_dir / "checkpoints").glob("*/manifest.json")
    )
    newest = run_dir / "checkpoints" / str(steps[-1])
    largest = max(
        (file for file in newest.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size
    )
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    done = run(command(run_dir, compile_cache))
    assert done.returncode == 3, done.stderr
    assert f"checkpoints/{steps[-1]} is not used" in done.stderr
    assert restored_step(run_dir) == steps[-2]
    assert_same_end(run_dir, uninterrupted)


@pytest.mark.processes
def test_without_its_checkpoints_a_run_begins_again_and_says_so(
    uninterrupted, killed, tmp_path, compile_cache
):
    run_dir = shutil.copytree(killed, tmp_path / "run")
    shutil.rmtree(run_dir / "checkpoints")
    done = run(command(run_dir, compile_cache))
    assert done.returncode == 3, done.stderr
    message = "the run begins again from step 0, and the time so far counts"
    assert message in " ".join(done.stderr.split())
    before = seconds_on_clock(events_of_attempt(run_dir, 1))
    last = last_evaluation(events_of_attempt(run_dir, 2))
    result = result_of(run_dir)
    assert [message in warning for warning in result["warnings"]] == [True]
    row = result["evaluations"][-1]
    assert row["seconds_since_run_start"] == pytest.approx(before + last["t"], abs=1e-4)
    assert_same_end(run_dir, uninterrupted)


@pytest.mark.processes
def test_two_jobs_never_share_a_run_directory(tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    process = subprocess.Popen(command(run_dir, compile_cache), env=environment())
    wait_for(lambda: steps_reached(run_dir, 10))
    process.send_signal(signal.SIGSTOP)  # or it could end before the second begins
    second = run(command(run_dir, compile_cache))
    process.kill()
    process.wait()
    assert second.returncode == 1
    assert "in use" in second.stderr and "Traceback" not in second.stderr


@pytest.mark.processes
def test_a_checkpoint_directory_that_cannot_be_written_is_refused(tmp_path, compile_cache):
    (tmp_path / "file").touch()
    run_dir = tmp_path / "run"
    flag = f"--checkpoint.directory={tmp_path}/file/checkpoints"
    done = run(command(run_dir, compile_cache, flag))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "checkpoints cannot be written to" in done.stderr and "Not a directory" in done.stderr
    assert events_of(run_dir) == []  # no attempt: a later one is not called an interruption


@pytest.mark.processes
def test_resumes_on_another_number_of_devices(uninterrupted, tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    process = subprocess.Popen(command(run_dir, compile_cache), env=environment(4))
    wait_for(lambda: (run_dir / "checkpoints" / "60" / "manifest.json").exists())
    process.kill()
    process.wait()
    done = run(command(run_dir, compile_cache), env=environment(2))
    assert done.returncode == 3, done.stderr
    result = result_of(run_dir)
    assert result["num_devices"] == 2
    # Sums are split differently, which grows from the last bit: to less than 1e-2 in 50 steps.
    first, expected = evaluations_of(run_dir)[0], evaluations_of(uninterrupted)[0]
    assert first[0] == expected[0]
    assert first[1]["loss"] == pytest.approx(expected[1]["loss"], abs=1e-2)


def launch(run_dir: Path, compile_cache: str, *flags: str, layout: str = "2x2") -> list[str]:
    processes, devices = layout.split("x")
    return [
        *(sys.executable, "-m", "dawnjax", "launch", f"--processes={processes}"),
        *(f"--devices_per_process={devices}", "--", "train", *SMALL, NEVER),
        *(compile_cache, f"--run_dir={run_dir}", *flags),
    ]


def start_launch(argv: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def rank_of(child: psutil.Process) -> str:
    try:
        return child.environ().get("DAWNJAX_PROCESS_ID", "")
    except psutil.Error:
        return ""


def ranks_of(launcher: subprocess.Popen, count: int) -> list[psutil.Process]:
    """The processes of a launch, once all have started."""

    def ranks() -> list[psutil.Process] | None:
        children = psutil.Process(launcher.pid).children()
        ranked = {rank_of(child): child for child in children}
        return (
            [ranked[str(i)] for i in range(count)] if len(ranked.keys() - {""}) == count else None
        )

    return wait_for(ranks)


def why_not_ended(
    launcher: subprocess.Popen, ranks: list[psutil.Process], *, status: int, within: float
) -> tuple[str, float, str]:
    """Says how the end of a launch differs from what it must be; the seconds and what it wrote."""
    seconds, stderr = seconds_to_end(launcher, within=max(60.0, within))
    why = ""
    if seconds > within:
        why = f"took {seconds:.1f} s"
    elif launcher.returncode != status:
        why = f"status {launcher.returncode}: {stderr[-300:]}"
    elif "Traceback" in stderr:
        why = f"a traceback: {stderr[-300:]}"
    elif any(rank.is_running() for rank in ranks):
        why = "a process is left"
    return why, seconds, stderr


@pytest.mark.processes
@pytest.mark.parametrize("placement", ["device", "host"])
def test_two_processes_train_as_one_with_as_many_devices(
    tmp_path, compile_cache, placement, capsys
):
    """The same batches, first losses within 1e-5, the same counts from one checkpoint."""
    # 64 images are two batches and two thirds; from the host each process reads its own rows.
    flags = ["--num_epochs=4", f"--data_placement={placement}"]
    flags += ["--evaluation.global_batch_size=24"]
    one, two = tmp_path / "one", tmp_path / "two"
    # The same flags as this process has, which evaluates below.
    done = run(command(one, compile_cache, *flags), env=environment(4, QUICK))
    assert done.returncode == 3, done.stderr
    done = run(launch(two, compile_cache, *flags), env=environment(1, QUICK))
    assert done.returncode == 3, done.stderr
    np.testing.assert_allclose(
        result_of(two)["first_losses"], result_of(one)["first_losses"], atol=1e-5
    )
    assert [host["process_index"] for host in result_of(two)["hosts"]] == [0, 1]
    # Process 0 has compiled for both what no other test runs.
    compiled = [e for e in read_events(log_path(two, 1))[0] if e["event"] == "compiled"]
    assert {e["program"]: e["cache"] for e in compiled}["train"] == "warm"
    assert check_run(two)[0] == []
    evaluate = ["evaluate", str(one), f"--data_placement={placement}", compile_cache]
    launched = ["launch", "--processes=2", "--devices_per_process=2", "--", *evaluate]
    several = run([sys.executable, "-m", "dawnjax", *launched], env=environment(1, QUICK))
    assert several.returncode == 0, several.stderr
    capsys.readouterr()
    assert main(evaluate) == 0  # here, where there are four devices
    outputs = (capsys.readouterr().out, several.stdout)
    rows = [json.loads(output.splitlines()[-1]) for output in outputs]
    assert rows[0]["top_1_accuracy"] == rows[1]["top_1_accuracy"]
    assert rows[0]["top_5_accuracy"] == rows[1]["top_5_accuracy"]
    assert rows[0]["examples"] == rows[1]["examples"] == 64
    assert rows[0]["top_1_accuracy"] == evaluations_of(one)[-1][1]["top_1_accuracy"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("count", "layout"), [(1, "2x2"), pytest.param(20, "4x1", marks=pytest.mark.long)]
)
def test_one_process_killed_ends_all_and_resumed_ends_the_same(
    count, layout, tmp_path, compile_cache, campaign
):
    kills = campaign(
        "kills_of_one_process",
        "one of four processes of `launch -- train` killed at a random moment, and resumed",
        "all end within 20 s with a line that names the host; resumed, the same evaluations and, "
        "bit for bit, the same parameters",
    )
    flags = ("--num_epochs=6", "--evaluation.every_epochs=3")
    whole = tmp_path / "whole"
    done = run(launch(whole, compile_cache, *flags, layout=layout))
    assert done.returncode == 3, done.stderr
    choose = random.Random(2)
    last_step, num_processes = result_of(whole)["steps"], int(layout.split("x")[0])
    for number in range(count):
        run_dir = tmp_path / str(number)
        argv = launch(run_dir, compile_cache, *flags, layout=layout)
        victim, step = choose.randrange(num_processes), choose.randrange(last_step - 10)
        launcher = start_launch(argv)
        ranks = ranks_of(launcher, num_processes)
        wait_for(lambda r=run_dir, s=step, p=launcher: steps_reached(r, s) or p.poll() is not None)
        time.sleep(choose.uniform(0.0, 0.2))
        ranks[victim].kill()
        why, seconds, stderr = why_not_ended(launcher, ranks, status=1, within=20.0)
        if launcher.returncode == 3:
            why = ""  # the steps were over
        elif f"host {victim} " not in stderr or "resume with" not in stderr:
            why = why or f"no line names host {victim}: {stderr[-300:]}"
        done = run(argv)
        if done.returncode != 3:
            why = why or f"resumed, it ended with {done.returncode}: {done.stderr[-300:]}"
        why = why or why_not_the_same_end(run_dir, whole)
        label = f"{number}, host {victim} after step {step}"
        kills.tried(label, held=not why, why=why, seconds=seconds)
    kills.finish()


@pytest.mark.processes
def test_a_stopped_host_ends_the_others_and_the_run_goes_on_alone(
    uninterrupted, tmp_path, compile_cache
):
    run_dir = tmp_path / "run"
    heartbeat = "--processes.heartbeat_timeout_seconds=10"
    launcher = start_launch(launch(run_dir, compile_cache, heartbeat))
    ranks = ranks_of(launcher, 2)
    wait_for(lambda: (run_dir / "checkpoints" / "20" / "manifest.json").exists())
    ranks[1].send_signal(signal.SIGSTOP)
    why, _, stderr = why_not_ended(launcher, ranks, status=1, within=25.0)
    assert not why
    assert "host 1" in stderr and "step" in stderr and "resume with" in stderr, stderr
    done = run(command(run_dir, compile_cache), env=environment(4))
    assert done.returncode == 3, done.stderr
    assert result_of(run_dir)["interruptions"] == 1
    assert len(evaluations_of(run_dir)) == len(evaluations_of(uninterrupted))


@pytest.mark.processes
@pytest.mark.parametrize("count", [1, pytest.param(8, marks=pytest.mark.long)])
def test_a_worker_killed_before_all_have_met_ends_all_at_once(
    count, tmp_path, compile_cache, campaign
):
    kills = campaign(
        "kills_before_all_have_met",
        "one of two or four processes of `launch -- train` killed 0.3 to 1.8 s after its start",
        "all end within 5 s with status 1 and a line that names the host",
    )
    choose = random.Random(3)
    for number in range(count):
        num_processes, delay = 2 + 2 * (number % 2), choose.uniform(0.3, 1.8)
        victim = choose.randrange(num_processes)
        layout = f"{num_processes}x1"
        launcher = start_launch(launch(tmp_path / str(number), compile_cache, layout=layout))
        ranks = ranks_of(launcher, num_processes)
        time.sleep(delay)
        ranks[victim].kill()
        why, seconds, stderr = why_not_ended(launcher, ranks, status=1, within=5.0)
        if f"host {victim} (pid {ranks[victim].pid}) was killed by SIGKILL" not in stderr:
            why = why or f"no line names host {victim}: {stderr[-300:]}"
        label = f"{number}, {num_processes} processes, {delay:.2f} s"
        kills.tried(label, held=not why, why=why, seconds=seconds)
    kills.finish()


@pytest.mark.processes
@pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.long)])
def test_signals_to_a_launcher_that_has_just_begun(count, tmp_path, compile_cache, campaign):
    signals = campaign(
        "signals_to_launch",
        "`launch -- train` of two or four processes sent SIGINT, twice SIGINT, SIGTERM, SIGHUP or "
        "SIGUSR1 0.05 to 4 s after its start",
        "all end within 5 s with status 5, without a traceback",
    )
    choose = random.Random(4)
    for number in range(count):
        kinds = ([signal.SIGINT] * 2, *([kind] for kind in SIGNALS))[number % 5]
        num_processes, delay = 4 - 2 * (number % 2), choose.uniform(0.05, 4.0)
        layout = f"{num_processes}x1"
        launcher = start_launch(launch(tmp_path / str(number), compile_cache, layout=layout))
        time.sleep(delay)
        is_starting = is_before_the_program(launcher.pid)
        ranks = psutil.Process(launcher.pid).children()
        for kind in kinds:
            launcher.send_signal(kind)
            time.sleep(0.2)
        why, seconds, _ = why_not_ended(launcher, ranks, status=5, within=5.0)
        if is_starting and launcher.returncode == -kinds[0]:
            why = ""
        label = f"{number}, {len(kinds)} x {kinds[0].name} to {num_processes} after {delay:.2f} s"
        signals.tried(label, held=not why, why=why, seconds=seconds)
    signals.finish()


@pytest.mark.processes
@pytest.mark.long
def test_a_busy_host_raises_no_false_alarm(tmp_path, compile_cache, campaign):
    runs = campaign(
        "busy_host",
        "`launch -- train` of two processes beside two busy loops for each core",
        "no host is given up: the run ends by itself",
    )
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        for number in range(20):
            started = time.monotonic()
            # Without a cache it compiles too, which is when an interpreter is held longest.
            argv = launch(tmp_path / str(number), "--compile_cache_dir=none")
            done = run(argv, timeout=600)
            why = "" if done.returncode == 3 else f"status {done.returncode}: {done.stderr[-600:]}"
            seconds = time.monotonic() - started
            runs.tried(str(number), held=not why, why=why, seconds=seconds)
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()
    runs.finish()


@pytest.mark.processes
@pytest.mark.long
def test_a_stopped_process_is_given_up_within_20_seconds(tmp_path, compile_cache, campaign):
    stops = campaign(
        "stopped_process",
        "one of two processes of `launch -- train` stopped (SIGSTOP) in training",
        "all end within 20 s with a line that names the host",
    )
    for number in range(6):
        victim, run_dir = number % 2, tmp_path / str(number)
        launcher = start_launch(launch(run_dir, compile_cache, "--num_epochs=1000"))
        ranks = ranks_of(launcher, 2)
        wait_for(lambda r=run_dir: steps_reached(r, 20))
        ranks[victim].send_signal(signal.SIGSTOP)
        why, seconds, stderr = why_not_ended(launcher, ranks, status=1, within=20.0)
        if f"host {victim} " not in stderr:
            why = why or f"no line names host {victim}: {stderr[-300:]}"
        stops.tried(f"{number}, host {victim}", held=not why, why=why, seconds=seconds)
    stops.finish()


@pytest.mark.processes
def test_sigterm_to_the_launcher_saves_on_all_hosts(tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    launcher = subprocess.Popen(
        launch(run_dir, compile_cache),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: steps_reached(run_dir, 20))
    children = psutil.Process(launcher.pid).children(recursive=True)
    launcher.terminate()
    asked = time.monotonic()
    _, stderr = launcher.communicate(timeout=40)
    assert launcher.returncode == 5, stderr
    assert time.monotonic() - asked < 15
    assert result_of(run_dir)["status"] == "interrupted"
    assert final_state_of(run_dir)[0] == result_of(run_dir)["steps"]
    assert not [child for child in children if child.is_running()]


@pytest.mark.processes
def test_a_full_disk_ends_in_one_line_and_loses_nothing(uninterrupted, tmp_path, compile_cache):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here, so no disk can be filled")
    try:
        run_dir = disk / "run"
        done = run(command(run_dir, compile_cache, "--tensorboard=true"))
        assert done.returncode in (1, 3), done.stderr
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        assert not [fault for fault in check_run(run_dir)[0] if "damaged" in fault]
        grown = ["mount", "-o", "remount,size=64m", str(disk)]
        subprocess.run(grown, check=True, capture_output=True)
        if done.returncode == 1:
            done = run(command(run_dir, compile_cache, "--tensorboard=true"))
            assert done.returncode == 3, done.stderr
        assert evaluations_of(run_dir) == evaluations_of(uninterrupted)
    finally:
        subprocess.run(["umount", str(disk)], check=False, capture_output=True)


DISKS = [round(32 * 512 ** (number / 19)) for number in range(20)]
"""KiB: 20 sizes from 32 KiB to 16 MiB, each 1.39 times the one before."""


@pytest.mark.processes
@pytest.mark.parametrize(
    "sizes", [[DISKS[9]], pytest.param(DISKS, marks=pytest.mark.long)], ids=["one", "all"]
)
def test_a_small_disk_costs_no_result_unsaid(tmp_path, compile_cache, campaign, sizes):
    """The save, the log, the result or the profile after the target: which fails is the size's."""
    tries = campaign(
        "small_disks",
        "a run and its profile on a disk of 32 KiB to 16 MiB",
        "it reaches its target with a whole `result.json`, or ends with a line that names the file",
    )
    flags = ("--targets.0.value=100.0", "--profile.after_run=true", "--profile.twin=false")
    disk = tmp_path / "disk"
    disk.mkdir()
    for size in sizes:  # KiB
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("a small file system cannot be mounted here, so no disk can be filled")
        try:
            done = run(command(disk / "run", compile_cache, *flags))
            whole = (disk / "run" / "result.json").exists() and result_of(disk / "run")["reached"]
            faults = check_run(disk / "run")[0] if whole else []
            named = done.returncode == 1 and "cannot write" in done.stderr.splitlines()[-1]
            held = "Traceback" not in done.stderr and not faults
            held &= whole if done.returncode == 0 else whole or named
            tries.tried(f"{size} KiB", held=held, why=f"{done.returncode} {faults} {done.stderr}")
        finally:
            subprocess.run(["umount", str(disk)], check=False, capture_output=True)
    tries.finish()


@pytest.mark.processes
def test_a_run_outlives_the_reader_of_its_output(tmp_path, compile_cache):
    process = subprocess.Popen(
        command(tmp_path / "run", compile_cache, "--num_epochs=4"),
        env=environment() | {"PYTHONUNBUFFERED": ""},  # what is buffered is tried again at exit
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stderr.readline()
    process.stderr.close()
    process.stdout.close()
    assert process.wait(timeout=120) == 3
    assert result_of(tmp_path / "run")["status"] == "not_reached"


STUCK = '''
import dataclasses, time
from dawnjax.experiments import synthetic_image
from dawnjax.input_pipeline.datasets.synthetic import Synthetic

@dataclasses.dataclass(frozen=True, kw_only=True)
class Stuck(Synthetic):
    """Data on a disk that never answers."""

    TAG = "stuck"

    def load(self, split):
        time.sleep(600)

EXPERIMENT = dataclasses.replace(synthetic_image.EXPERIMENT, name="stuck", data=Stuck())
'''


@pytest.mark.processes
def test_a_host_that_is_alive_but_stuck_before_step_1_ends_in_one_line(
    uninterrupted, tmp_path, compile_cache
):
    # The run before it has filled the cache of programs, so that nothing but the data is slow.
    assert uninterrupted.exists()
    file = tmp_path / "stuck.py"
    file.write_text(STUCK)
    started = time.monotonic()
    done = run(
        [
            *(sys.executable, "-m", "dawnjax", "train", *SMALL, f"--experiment={file}"),
            *(
                compile_cache,
                f"--run_dir={tmp_path / 'run'}",
                "--processes.progress_deadline_seconds=15",
            ),
        ]
    )
    assert done.returncode == 1
    assert time.monotonic() - started < 60
    line = done.stderr.strip().splitlines()[-1]
    assert "no progress" in line and "load" in line and "resume with" in line
    assert "Traceback" not in done.stderr


# Compiled as for a user: with no more flags.
DIGITS = [
    *(sys.executable, "-m", "dawnjax", "train", "--experiment=digits"),
    "--profile.after_run=false",
]


@pytest.mark.processes
def test_digits_saves_and_ends_within_5_seconds_of_sigterm(tmp_path, compile_cache):
    flags = [compile_cache, f"--run_dir={tmp_path / 'run'}"]
    flags += ["--targets.0.value=1.0", "--num_epochs=300"]
    process = subprocess.Popen(
        [*DIGITS, *flags], env=environment(1, ""), stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: steps_reached(tmp_path / "run", 60))
    process.terminate()
    asked = time.monotonic()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 5, stderr
    assert time.monotonic() - asked < 5.0
    assert final_state_of(tmp_path / "run")[0] == result_of(tmp_path / "run")["steps"] >= 60


@pytest.mark.processes
def test_one_process_and_two_reach_the_target_on_four_devices(tmp_path, compile_cache):
    # The runs of one process are here for their first losses, and stop at their first evaluation.
    commands = {"plain": [*DIGITS, compile_cache, "--targets.0.value=0.0"]}
    for processes, devices in ((1, 4), (2, 2)):
        command = [sys.executable, "-m", "dawnjax", "launch", f"--processes={processes}"]
        command += [f"--devices_per_process={devices}", "--", *DIGITS[3:], compile_cache]
        commands[f"{processes}x{devices}"] = command
    commands["1x4"].append("--targets.0.value=0.0")
    losses = {}
    for name, command in commands.items():
        run_dir = tmp_path / name
        done = run([*command, f"--run_dir={run_dir}"], env=environment(4))
        assert done.returncode == 0, done.stderr
        result = result_of(run_dir)
        assert result["reached"] and result["num_devices"] == 4
        assert result["num_processes"] == (2 if name == "2x2" else 1)
        assert check_run(run_dir)[0] == []
        losses[name] = result["first_losses"]
        assert len(losses[name]) == 10
    assert result_of(tmp_path / "2x2")["best"]["top_1_accuracy"] >= 0.9915
    np.testing.assert_allclose(losses["2x2"], losses["1x4"], rtol=0, atol=1e-5)
    # A process that was not launched adds its devices' gradients up in another order. Sums differ
    # in the last bit, until that puts a value on the other side of a ReLU: by the tenth step the
    # losses are 3e-3 apart.
    np.testing.assert_allclose(losses["2x2"][:4], losses["plain"][:4], atol=1e-5)
