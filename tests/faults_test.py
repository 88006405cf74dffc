"""Runs that are killed, stopped and starved for real, and what they end with.

DAWNJAX_TEST_KILLS sets how many runs are killed at random moments, most of them more than once; the
count in the documentation was made with 75 (`-s` shows the kills).
"""

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

pytestmark = pytest.mark.faults

KILLS = int(os.environ.get("DAWNJAX_TEST_KILLS", "3"))

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


def run_and_kill(argv: list[str], run_dir: Path, step: int, delay_seconds: float) -> bool:
    """Kills a run some moments after a step; tells whether it had not ended by then."""
    process = subprocess.Popen(
        argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: steps_reached(run_dir, step) or process.poll() is not None)
    time.sleep(delay_seconds)
    process.kill()
    return process.wait() == -signal.SIGKILL


def test_killed_at_random_moments_and_resumed_ends_the_same(uninterrupted, tmp_path, compile_cache):
    choose = random.Random(0)
    last_step = result_of(uninterrupted)["steps"]
    killed = 0
    for number in range(KILLS):
        run_dir = tmp_path / str(number)
        for step in sorted(choose.sample(range(last_step - 20), choose.randint(1, 2))):
            delay_seconds = choose.uniform(0.0, 0.3)
            killed += run_and_kill(command(run_dir, compile_cache), run_dir, step, delay_seconds)
        run(command(run_dir, compile_cache))
        assert_same_end(run_dir, uninterrupted)
        result = result_of(run_dir)
        attempts = [event for event in events_of(run_dir) if event["event"] == "attempt_start"]
        assert result["interruptions"] == len(attempts) - 1
        assert sum(result["phases"].values()) == pytest.approx(result["total_seconds"], abs=1e-3)
    assert killed >= KILLS / 2
    print(f"{killed} kills in {KILLS} runs: every run ended as the one without a kill")


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


def test_asked_to_stop_in_the_profile_it_leaves_that_out(tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    flags = ("--targets.0.value=100.0", "--profile.after_run=true", "--profile.twin=false")
    slow = f"--experiment={Path(__file__).parent / 'slow_inputs.py'}"
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_saves_and_ends_at_once(uninterrupted, tmp_path, compile_cache, number):
    run_dir = tmp_path / "run"
    process = subprocess.Popen(
        command(run_dir, compile_cache), env=environment(), stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: steps_reached(run_dir, 20))
    process.send_signal(number)
    asked = time.monotonic()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 5, stderr
    assert time.monotonic() - asked < 5.0
    assert "Traceback" not in stderr
    result = result_of(run_dir)
    assert result["status"] == "interrupted"
    assert final_state_of(run_dir)[0] == result["steps"]  # no step is lost
    assert run(command(run_dir, compile_cache)).returncode == 3
    assert restored_step(run_dir) == result["steps"]
    assert_same_end(run_dir, uninterrupted)


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


def test_a_checkpoint_directory_that_cannot_be_written_is_refused(tmp_path, compile_cache):
    (tmp_path / "file").touch()
    run_dir = tmp_path / "run"
    flag = f"--checkpoint.directory={tmp_path}/file/checkpoints"
    done = run(command(run_dir, compile_cache, flag))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "checkpoints cannot be written to" in done.stderr and "Not a directory" in done.stderr
    assert events_of(run_dir) == []  # no attempt: a later one is not called an interruption


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


def launch(run_dir: Path, compile_cache: str, *flags: str) -> list[str]:
    return [
        *(sys.executable, "-m", "dawnjax", "launch", "--processes=2", "--devices_per_process=2"),
        *("--", "train", *SMALL, NEVER, compile_cache, f"--run_dir={run_dir}", *flags),
    ]


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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_host_ends_the_others_and_the_run_goes_on_alone(
    uninterrupted, tmp_path, compile_cache, number
):
    run_dir = tmp_path / "run"
    launcher = subprocess.Popen(
        launch(run_dir, compile_cache, "--processes.heartbeat_timeout_seconds=10"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: (run_dir / "checkpoints" / "20" / "manifest.json").exists())
    children = psutil.Process(launcher.pid).children(recursive=True)
    victim = next(
        c
        for c in children
        if "DAWNJAX_PROCESS_ID" in c.environ() and c.environ()["DAWNJAX_PROCESS_ID"] == "1"
    )
    victim.send_signal(number)
    lost = time.monotonic()
    _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert time.monotonic() - lost < 25
    assert "host 1" in stderr and "step" in stderr and "resume with" in stderr, stderr
    assert "Traceback" not in stderr
    assert not [child for child in children if child.is_running()]
    done = run(command(run_dir, compile_cache), env=environment(4))
    assert done.returncode == 3, done.stderr
    assert result_of(run_dir)["interruptions"] == 1
    assert len(evaluations_of(run_dir)) == len(evaluations_of(uninterrupted))


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
from dawnjax.input_pipeline.synthetic import Synthetic

@dataclasses.dataclass(frozen=True, kw_only=True)
class Stuck(Synthetic):
    """Data on a disk that never answers."""

    TAG = "stuck"

    def load(self, split):
        time.sleep(600)

EXPERIMENT = dataclasses.replace(synthetic_image.EXPERIMENT, name="stuck", data=Stuck())
'''


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


def test_one_process_and_two_reach_the_target_on_four_devices(tmp_path, compile_cache):
    # The plain run is compiled as for a user. The launched runs compile other programs, with flags
    # that take less time.
    commands = {"plain": ([*DIGITS, compile_cache], environment(4, ""))}
    for processes, devices in ((1, 4), (2, 2)):
        command = [sys.executable, "-m", "dawnjax", "launch", f"--processes={processes}"]
        command += [f"--devices_per_process={devices}", "--", *DIGITS[3:], compile_cache]
        commands[f"{processes}x{devices}"] = command, environment(devices)
    losses = {}
    for name, (command, variables) in commands.items():
        run_dir = tmp_path / name
        done = run([*command, f"--run_dir={run_dir}"], env=variables)
        assert done.returncode == 0, done.stderr
        result = result_of(run_dir)
        assert result["reached"] and result["num_devices"] == 4
        assert result["num_processes"] == (2 if name == "2x2" else 1)
        assert result["best"]["top_1_accuracy"] >= 0.9915
        assert check_run(run_dir)[0] == []
        losses[name] = result["first_losses"]
        assert len(losses[name]) == 10
    np.testing.assert_allclose(losses["2x2"], losses["1x4"], rtol=0, atol=1e-5)
    # A process that was not launched adds its devices' gradients up in another order. Sums differ
    # in the last bit, until that puts a value on the other side of a ReLU: by the tenth step the
    # losses are 3e-3 apart.
    np.testing.assert_allclose(losses["2x2"][:4], losses["plain"][:4], atol=1e-5)
