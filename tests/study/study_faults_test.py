"""Studies that are killed, stopped and starved: no trial is lost, counted twice or left running."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from fault_runs import NEVER, SIGNALS, SMALL, is_death_by, run, small_disk, start, wait_for
from shared_runs import made_once
from trained import evaluations_of

pytestmark = [pytest.mark.faults, pytest.mark.processes, pytest.mark.long]

SEEDS = 2


def study(out: Path, compile_cache: str, *flags: str) -> list[str]:
    return [
        *(sys.executable, "-m", "dawnjax", "study", *SMALL, NEVER, compile_cache),
        *(f"--seeds={SEEDS}", f"--out={out}", *flags),
    ]


def evaluations(out: Path) -> list:
    return [evaluations_of(out / "trials" / "all" / f"seed_{seed}") for seed in range(SEEDS)]


def why_not_the_same(out: Path, compile_cache: str, expected: list) -> str:
    """Continue a study to its end; says how that differs from one without an interruption."""
    done = run(study(out, compile_cache))
    if done.returncode or "Traceback" in done.stderr:
        return f"continued with {done.returncode}: {done.stderr[-300:]}"
    [arm] = json.loads((out / "result.json").read_text())["arms"]
    if arm["trials"] != SEEDS:
        return f"{arm['trials']} of {SEEDS} trials"
    return "" if evaluations(out) == expected else "other evaluations"


def is_left(family: list[psutil.Process]) -> bool:
    return bool(psutil.wait_procs(family, timeout=20)[1])


def family_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="module")
def expected(tmp_path_factory, compile_cache):
    """Evaluations of each trial of a study without an interruption."""

    def make(folder: Path) -> None:
        done = run(study(folder / "s", compile_cache))
        assert done.returncode == 0, done.stderr

    return evaluations(made_once(tmp_path_factory, "study", make) / "s")


def test_a_killed_study_continues_to_the_same_trials(expected, tmp_path, compile_cache, campaign):
    """At each change study_test.py stops a study in its process, which continues."""
    kills = campaign(
        "study_kills",
        "`study`, each second one with `--side_by_side=2`, killed at a random moment and continued",
        "no process is left after 5 s; each trial counts once, with the same evaluations",
    )
    choose = random.Random(11)
    for number in range(40):
        out, delay = tmp_path / str(number), choose.uniform(1.0, 12.0)
        process = start(study(out, compile_cache, f"--side_by_side={1 + number % 2}"))
        time.sleep(delay)
        family = family_of(process)
        process.kill()
        process.communicate()
        why = "a process is left" if is_left(family) else ""
        why = why or why_not_the_same(out, compile_cache, expected)
        kills.tried(f"{number}, after {delay:.1f} s", held=not why, why=why)
        shutil.rmtree(out)
    kills.finish()


def test_signals_to_a_study_leave_nobody_and_lose_nothing(
    expected, tmp_path, compile_cache, campaign
):
    """At each change cluster/children_test.py stops a group of processes."""
    signals = campaign(
        "study_signals",
        "`study`, in turn alone and with `--side_by_side=2`, sent SIGINT, SIGTERM, SIGHUP or "
        "SIGUSR1 0.05 to 12 s after its start, and continued",
        "ends within 10 s, by the signal or with status 5, and leaves no process; each trial "
        "counts once, with the same evaluations",
    )
    choose = random.Random(12)
    for number in range(40):
        out, kind = tmp_path / str(number), SIGNALS[(number // 2) % 4]
        delay = choose.uniform(0.05, 12.0)
        process = start(study(out, compile_cache, f"--side_by_side={2 - number % 2}"))
        if number < 2:  # once with trials that run for certain
            wait_for(lambda out=out: list(out.glob("trials/all/*/log.jsonl")))
        time.sleep(delay)
        family = family_of(process)
        asked = time.monotonic()
        process.send_signal(kind)
        stderr = process.communicate(timeout=240)[1]
        seconds, status = time.monotonic() - asked, process.returncode
        why = "a process is left" if is_left(family) else ""
        if status not in (0, 5) and not is_death_by(kind, status, stderr):
            why = why or f"status {status}: {stderr[-300:]}"  # 0 where the trials were over
        if seconds > signals.within(10.0) or ("Traceback" in stderr and status == 5):
            why = why or f"took {seconds:.1f} s: {stderr[-300:]}"
        why = why or why_not_the_same(out, compile_cache, expected)
        label = f"{number}, {kind.name} after {delay:.2f} s"
        signals.tried(label, held=not why, why=why, seconds=seconds)
        shutil.rmtree(out, ignore_errors=True)
    signals.finish()


DISKS = [round(32 * 256 ** (number / 11)) for number in range(12)]
"""KiB: 12 sizes from 32 KiB to 8 MiB."""


def test_a_small_disk_costs_no_trial_unsaid(expected, tmp_path, compile_cache, campaign):
    tries = campaign(
        "study_disks",
        "a study on a disk of 32 KiB to 8 MiB, continued on one of 64 MiB",
        "it ends with a line that names the file, or with a whole `result.json`; continued, each "
        "trial that did not fail counts once, with the same evaluations",
    )
    out = tmp_path / "disk" / "s"
    for size in DISKS:
        with small_disk(out.parent, size) as grow:
            done = run(study(out, compile_cache))
            why = done.stderr[-300:] if "Traceback" in done.stderr else ""
            is_named = "cannot write" in done.stderr or "No space left on device" in done.stderr
            if done.returncode not in (0, 1) or (done.returncode and not is_named):
                why = why or f"{done.returncode}: {done.stderr[-300:]}"
            grow()
            # A trial that failed is a result, by its log; its folder is removed to repeat it.
            for log in out.glob("trials/all/*/log.jsonl"):
                if '"status":"failed"' in log.read_text():
                    shutil.rmtree(log.parent)
            why = why or why_not_the_same(out, compile_cache, expected)
            tries.tried(f"{size} KiB", held=not why, why=why)
    tries.finish()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_scaling_study_that_ends_leaves_no_trial(number, tmp_path, compile_cache):
    flags = ("--kind=scaling", "--devices=2", "--processes=2", "--num_epochs=4000")
    process = start(study(tmp_path / "s", compile_cache, *flags))
    wait_for(lambda: list((tmp_path / "s").glob("trials/*/*/log.jsonl")))
    family = family_of(process)
    assert len(family) >= 3, "the launcher and its two processes"
    process.send_signal(number)
    process.communicate(timeout=240)
    assert process.returncode == (5 if number == signal.SIGTERM else -number)
    assert not is_left(family)
