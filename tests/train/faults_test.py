"""Runs that are killed, stopped and starved for real, and what they end with."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import numpy as np
import pytest
from fault_runs import (
    SIGNALS,
    SMALL,
    assert_same_end,
    command,
    environment,
    events_of,
    is_before_the_program,
    run,
    seconds_to_end,
    steps_reached,
    stopped_once,
    wait_for,
    why_not_the_same_end,
)
from shared_runs import made_once
from trained import evaluations_of, final_state_of, result_of, saves_of

from dawnjax.checkpoints.saved import SavePoint
from dawnjax.commands.check import check_run

pytestmark = pytest.mark.faults


SUPPORT = Path(__file__).parents[1] / "support"


def events_of_attempt(run_dir: Path, attempt: int) -> list[dict]:
    return [event for event in events_of(run_dir) if event["attempt"] == attempt]


def last_evaluation(events: list[dict]) -> dict:
    return next(event for event in reversed(events) if event["event"] == "evaluation")


def seconds_on_clock(events: list[dict]) -> float:
    """Time from the start of an attempt's clock to its last record, by hand."""
    started = next(event["t"] for event in events if event["event"] == "run_start")
    return max(event["t"] for event in events) - started


def restored_step(run_dir: Path) -> int:
    return next(event["step"] for event in events_of(run_dir) if event["event"] == "restored")


@pytest.fixture(scope="module")
def killed(tmp_path_factory, compile_cache):
    """A run that was killed after its checkpoint of step 60; not to be changed, but copied."""

    def make(folder: Path) -> None:
        run_dir = folder / "run"
        status = stopped_once(
            lambda: SavePoint(60) in saves_of(run_dir), command(run_dir, compile_cache), run_dir
        )
        assert status == -signal.SIGKILL

    return made_once(tmp_path_factory, "killed", make) / "run"


def run_and_kill(argv: list[str], run_dir: Path, step: int, delay_seconds: float) -> bool:
    """Kills a run some moments after a step; tells whether it had not ended by then."""
    process = forked.start(
        argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: steps_reached(run_dir, step) or process.poll() is not None)
    time.sleep(delay_seconds)
    process.kill()
    return process.wait() == -signal.SIGKILL


@pytest.mark.processes
@pytest.mark.parametrize("count", [1, pytest.param(100, marks=pytest.mark.long)])
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


@pytest.mark.processes
@pytest.mark.parametrize("count", [4, pytest.param(160, marks=pytest.mark.long)])
def test_signals_in_every_phase_lose_nothing(
    count, uninterrupted, tmp_path, compile_cache, campaign
):
    signals = campaign(
        "signals",
        "`train` sent SIGINT (twice in 10 ms), SIGTERM, SIGHUP or SIGUSR1 from 0.05 s on, in every "
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
        sent = time.clock_gettime(time.CLOCK_BOOTTIME)
        if kind == signal.SIGINT:  # as `timeout -s INT` and terminals send it
            time.sleep(0.01)
            process.send_signal(kind)
        seconds, stderr = seconds_to_end(process, within=60.0)
        status = process.returncode
        why = ""
        if seconds > signals.within(5.0):
            why = f"took {seconds:.1f} s, status {status}: {stderr[-300:]}"
        elif status not in (3, 5) and not (is_starting and status in (-kind, 1)):
            why = f"status {status}: {stderr[-300:]}"  # 3 where the steps were over
        elif status == 3 and last_step_at(run_dir) > sent + 2.0:
            why = "it trained on to its end"
        elif status == 5:
            why = stderr[-300:] if "Traceback" in stderr else why_steps_are_lost(run_dir)
            if "saving and stopping" in stderr and "; resume with: dawnjax train" not in stderr:
                why = why or f"no command that resumes: {stderr[-300:]}"
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
    assert process.wait(timeout=60) == 5
    result = result_of(run_dir)
    assert result["status"] == "interrupted"
    assert final_state_of(run_dir)[0] == result["steps"] >= 20


def wait_for_training(process: subprocess.Popen, run_dir: Path) -> None:
    """Waits until a run makes steps in an attempt that has not trained yet."""
    before = len(events_of(run_dir))
    wait_for(
        lambda: (
            process.poll() is not None
            or any(event.get("name") == "train" for event in events_of(run_dir)[before:])
        )
    )


def last_step_at(run_dir: Path) -> float:
    """Seconds since boot at which the last steps of a run were recorded."""
    return max(event["boot_seconds"] for event in events_of(run_dir) if event["event"] == "train")


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
    # Orbax writes a save into a folder of another name before it commits it.
    stopped_once(
        lambda: list((run_dir / "checkpoints").glob("*orbax-checkpoint-tmp*")),
        command(run_dir, compile_cache),
        run_dir,
    )
    done = run(command(run_dir, compile_cache))
    assert done.returncode == 3, done.stderr
    assert_same_end(run_dir, uninterrupted)


@pytest.mark.processes
def test_killed_between_the_target_and_the_last_save(tmp_path, compile_cache):
    """Resume from the log up to the evaluation, and from an older checkpoint."""
    flags = ("--targets.0.value=100.0", "--checkpoint.every_steps=20")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(command(whole, compile_cache, *flags)).returncode == 0
    reached = final_state_of(whole)[0]
    shutil.copytree(whole, killed)
    (killed / "result.json").unlink()
    shutil.rmtree(saves_of(killed)[SavePoint(reached)])
    log = killed / "log.jsonl"
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
    flags = ("--targets.0.value=100.0", "--profile.after_run=true")
    slow = f"--experiment={SUPPORT / 'slow_inputs.py'}"
    argv = [slow if flag == SMALL[0] else flag for flag in command(run_dir, compile_cache, *flags)]
    environ = environment() | {"DAWNJAX_TEST_SLOW": "0:0.3"}
    process = forked.start(argv, env=environ, stderr=subprocess.PIPE)
    wait_for(lambda: any(event.get("name") == "profile" for event in events_of(run_dir)))
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
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
    argv = command(run_dir, compile_cache)
    stopped_once(lambda: steps_reached(run_dir, 110), argv, run_dir, signal.SIGTERM)
    before = result_of(run_dir)
    assert before["status"] == "interrupted"
    log = run_dir / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if b'"event":"run_start"' in line)
    log.write_bytes(b"".join(lines[: start + 4]))
    done = run(command(run_dir, compile_cache))
    assert done.returncode == 3, done.stderr
    assert "the end of an earlier log was lost" in " ".join(done.stdout.split())
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
    (run_dir / "log.jsonl").unlink()
    assert run(command(run_dir, compile_cache)).returncode == 3
    again = result_of(run_dir)
    assert again["interruptions"] == 2 and again["steps"] == result["steps"]
    for name in ("evaluations", "first_losses", "best", "compile_seconds_before_run_start"):
        assert again[name] == result[name]
    assert again["train_seconds"] == pytest.approx(result["train_seconds"], abs=1e-5)
    assert "the end of an earlier log was lost" in again["warnings"][0]
    assert check_run(run_dir)[0] == []


@pytest.mark.processes
def test_a_damaged_newest_checkpoint_means_a_warning_and_the_one_before(
    uninterrupted, killed, tmp_path, compile_cache
):
    run_dir = shutil.copytree(killed, tmp_path / "run")
    before, newest = sorted(saves_of(run_dir).items())
    for file in newest[1].glob("state/**/d/*"):
        file.write_bytes(file.read_bytes()[:-1])
    done = run(command(run_dir, compile_cache))
    assert done.returncode == 3, done.stderr
    assert f"{newest[1].name} cannot be restored" in " ".join(done.stderr.split())
    assert restored_step(run_dir) == before[0].step
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
    argv = command(run_dir, compile_cache, "--num_epochs=3000", "--checkpoint.every_steps=0")
    process = forked.start(argv, env=environment())
    wait_for(lambda: steps_reached(run_dir, 10))
    process.send_signal(signal.SIGSTOP)  # or it could end before the second begins
    second = run(argv)
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
    is_saved = lambda: SavePoint(60) in saves_of(run_dir)  # noqa: E731
    stopped_once(is_saved, command(run_dir, compile_cache), run_dir, env=environment(4))
    done = run(command(run_dir, compile_cache), env=environment(2))
    assert done.returncode == 3, done.stderr
    result = result_of(run_dir)
    assert result["num_devices"] == 2
    # Sums are split differently, which grows from the last bit: to less than 1e-2 in 50 steps.
    first, expected = evaluations_of(run_dir)[0], evaluations_of(uninterrupted)[0]
    assert first[0] == expected[0]
    assert first[1]["loss"] == pytest.approx(expected[1]["loss"], abs=1e-2)
