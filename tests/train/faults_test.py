"""Runs that are killed, stopped and starved for real, and what they end with."""

import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from fault_runs import (
    SIGNALS,
    assert_same_end,
    command,
    environment,
    events_of,
    is_death_by,
    run,
    seconds_to_end,
    start,
    steps_reached,
    stopped_once,
    wait_for,
    why_not_the_same_end,
)
from trained import at_call, final_state_of, result_of, saves_of

from dawnjax.__main__ import main
from dawnjax.checkpoints.saved import SavePoint
from dawnjax.commands.check import check_run

pytestmark = pytest.mark.faults


def events_of_attempt(run_dir: Path, attempt: int) -> list[dict]:
    return [event for event in events_of(run_dir) if event["attempt"] == attempt]


def run_and_kill(argv: list[str], run_dir: Path, step: int, delay_seconds: float) -> bool:
    """Kills a run some moments after a step; tells whether it had not ended by then."""
    process = start(argv)
    wait_for(lambda: steps_reached(run_dir, step) or process.poll() is not None)
    time.sleep(delay_seconds)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.processes
def test_killed_at_random_moments_and_resumed_ends_the_same(
    uninterrupted, tmp_path, compile_cache, campaign
):
    """At each change test_the_clock_counts_all_but_the_gap kills one run after a save."""
    kills = campaign(
        "kills",
        "`train` on one host, killed at a random moment, once or twice a run, and resumed",
        "the same evaluations and, bit for bit, the same parameters",
    )
    choose = random.Random(0)
    last_step = result_of(uninterrupted)["steps"]
    number = num_kills = 0
    while num_kills < 100:
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
@pytest.mark.parametrize("count", [1, pytest.param(160, marks=pytest.mark.long)])
def test_signals_in_every_phase_lose_nothing(
    count, uninterrupted, tmp_path, compile_cache, campaign
):
    signals = campaign(
        "signals",
        "`train` sent SIGINT (twice in 10 ms), SIGTERM, SIGHUP or SIGUSR1 from 0.05 s on, in every "
        "phase, up to eight times a run, and resumed",
        "ends within 5 s: by the signal before the first step, with status 5 after it; no step is "
        "lost, and the run ends with the same evaluations and parameters",
    )
    choose = random.Random(1)
    number = tries_of_run = 0
    run_dir = tmp_path / "run"
    while number < count:
        kind, moment = SIGNALS[(number + number // 4) % 4], (number + 3) % 4
        delay = choose.uniform(*((0.05, 0.3), (0.3, 2.0), (2.0, 5.0), (0.0, 0.4))[moment])
        known = len(events_of(run_dir))
        process = start(command(run_dir, compile_cache))
        if moment == 3:
            wait_for(lambda p=process, n=known: p.poll() is not None or steps_since(run_dir, n))
        time.sleep(delay)
        has_ended = process.poll() is not None
        process.send_signal(kind)
        sent = time.clock_gettime(time.CLOCK_BOOTTIME)
        if kind == signal.SIGINT:  # as `timeout -s INT` and terminals send it
            time.sleep(0.01)
            process.send_signal(kind)
        seconds, stderr = seconds_to_end(process, within=60.0)
        status, steps = process.returncode, steps_since(run_dir, known)
        why = ""
        if seconds > signals.within(5.0):
            why = f"took {seconds:.1f} s, status {status}: {stderr[-300:]}"
        elif status not in (3, 5) and (steps or not is_death_by(kind, status, stderr)):
            why = f"status {status} after {len(steps)} records of steps: {stderr[-300:]}"
        elif status == 3 and not has_ended and steps[-1]["boot_seconds"] > sent + 2.0:
            why = "it trained on to its end"
        elif status == 5:
            why = stderr[-300:] if "Traceback" in stderr else ""
            why = why or (why_steps_are_lost(run_dir) if steps else "")
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


def steps_since(run_dir: Path, known: int) -> list[dict]:
    """Records of steps after those of the first so many events."""
    return [event for event in events_of(run_dir)[known:] if event["event"] == "train"]


def why_steps_are_lost(run_dir: Path) -> str:
    """Says what an interrupted attempt that made steps lost."""
    last, result = events_of(run_dir)[-1], result_of(run_dir)
    if last["event"] != "attempt_end" or result["status"] != "interrupted":
        return f"it made steps and did not save them: {last}"
    saved = final_state_of(run_dir)[0]
    return "" if saved == result["steps"] else f"saved step {saved} of {result['steps']}"


@pytest.mark.compiles
def test_killed_between_the_target_and_the_last_save(tmp_path, compile_cache, kept_programs):
    """Resume from the log up to the evaluation, and from an older checkpoint."""
    flags = ("--targets.0.value=100.0", "--checkpoint.every_steps=20")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main(command(whole, compile_cache, *flags)[3:]) == 0
    reached = final_state_of(whole)[0]
    shutil.copytree(whole, killed)
    (killed / "result.json").unlink()
    shutil.rmtree(saves_of(killed)[SavePoint(reached)])
    log = killed / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    last = next(i for i, line in enumerate(lines) if '"reached":true' in line)
    log.write_text("".join(lines[: last + 1]))

    assert main(command(killed, compile_cache, *flags)[3:]) == 0
    assert next(e["step"] for e in events_of(killed) if e["event"] == "restored") < reached
    step, state = final_state_of(killed)
    assert step == reached == result_of(killed)["steps"]
    np.testing.assert_array_equal(state, final_state_of(whole)[1])
    for name in ("time_to_accuracy_seconds", "best", "evaluations"):
        assert result_of(killed)[name] == result_of(whole)[name]
    assert check_run(killed)[0] == []


@pytest.mark.processes
def test_asked_to_stop_in_its_profile_a_run_keeps_its_result(tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    argv = command(run_dir, compile_cache, "--targets.0.value=100.0", "--profile.after_run=true")
    slow = f"--experiment={Path(__file__).parents[1] / 'support' / 'slow_inputs.py'}"
    argv[argv.index("--experiment=synthetic_image")] = slow
    process = start(argv, environment() | {"DAWNJAX_TEST_SLOW": "0:0.3"})
    wait_for(lambda: any(event.get("name") == "profile" for event in events_of(run_dir)))
    process.terminate()
    assert process.communicate(timeout=60) and process.returncode == 0
    result = result_of(run_dir)
    assert result["status"] == "reached" and result["time_to_accuracy_seconds"] > 0
    assert final_state_of(run_dir)[0] == result["steps"]
    assert check_run(run_dir)[0] == []


@pytest.mark.processes
@pytest.mark.parametrize("keeps_checkpoints", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_clock_counts_all_but_the_gap(
    keeps_checkpoints, uninterrupted, tmp_path, compile_cache
):
    run_dir = tmp_path / "run"
    argv = command(run_dir, compile_cache)
    assert stopped_once(lambda: SavePoint(60) in saves_of(run_dir), argv, run_dir) < 0
    if not keeps_checkpoints:
        shutil.rmtree(run_dir / "checkpoints")
    time.sleep(0.5)
    done = run(argv)
    assert done.returncode == 3, done.stderr
    first, second = events_of_attempt(run_dir, 1), events_of_attempt(run_dir, 2)
    started = next(event["t"] for event in first if event["event"] == "run_start")
    last = next(event["t"] for event in reversed(second) if event["event"] == "evaluation")
    by_hand = max(event["t"] for event in first) - started + last
    result = result_of(run_dir)
    assert result["interruptions"] == 1
    assert sum(result["phases"].values()) == pytest.approx(result["total_seconds"], abs=1e-3)
    seconds = result["evaluations"][-1]["seconds_since_run_start"]
    assert seconds == pytest.approx(by_hand, abs=1e-4)
    assert second[0]["boot_seconds"] - second[0]["t"] - first[-1]["boot_seconds"] > 0.4
    message = "the run begins again from step 0, and the time so far counts"
    assert [message in line for line in result["warnings"]] == [True] * (not keeps_checkpoints)
    assert_same_end(run_dir, uninterrupted)


@pytest.mark.compiles
def test_a_log_that_lost_its_end_understates_no_time(
    tmp_path, compile_cache, kept_programs, capsys
):
    run_dir = tmp_path / "run"
    argv = command(run_dir, compile_cache)[3:]
    with at_call(55, lambda: signal.raise_signal(signal.SIGTERM)):  # after step 110
        assert main(argv) == 5
    before = result_of(run_dir)
    log = run_dir / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if b'"event":"run_start"' in line)
    log.write_bytes(b"".join(lines[: start + 4]))
    capsys.readouterr()
    assert main(argv) == 3
    assert "the end of an earlier log was lost" in " ".join(capsys.readouterr().out.split())
    result = result_of(run_dir)
    assert result["interruptions"] == 1 and len(result["first_losses"]) == 10
    # The last save was made after the last evaluation of the first attempt.
    # FLOPs are counted once a run has trained: a stopped run has none.
    evaluations = [dict(row) for row in result["evaluations"][:2]]
    assert all(row.pop("flops") > 0 for row in evaluations)
    assert evaluations == before["evaluations"]
    second = events_of_attempt(run_dir, 2)
    last = next(event["t"] for event in reversed(second) if event["event"] == "evaluation")
    at_least = before["evaluations"][-1]["seconds_since_run_start"] + last
    at_most = at_least + before["total_seconds"] - before["phases"]["compile"]
    assert at_least < result["evaluations"][-1]["seconds_since_run_start"] < at_most
    assert check_run(run_dir)[0] == []
