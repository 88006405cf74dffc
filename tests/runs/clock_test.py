"""Tests of when a program's time begins."""

import random
import shutil
import subprocess
import sys
import time

import pytest
from trained import SMALL, result_of

from dawnjax import attempt
from dawnjax.__main__ import main
from dawnjax.commands.check import check_run
from dawnjax.errors import RunError
from dawnjax.journal import Journal
from dawnjax.runs.log import RunLog

pytestmark = pytest.mark.processes

PRINT_AGE = "from dawnjax.runs.clock import RunClock; print(RunClock().now())"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("before", "last"), [("sleep 1", ""), ("while ((SECONDS < 2)); do :; done", "exec ")]
)
def test_what_a_shell_did_before_is_not_of_the_program(before, last):
    code = f"{PRINT_AGE}; import time; print(time.time())"
    command = f'date +%s.%N; {before}; date +%s.%N; {last}"{sys.executable}" -c "{code}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    first, begun, age, now = map(float, done.stdout.split())
    assert 0 < age < now - begun
    assert begun - first > 0.5  # else the shell did too little to be seen


def test_a_command_that_is_called_from_python_begins_at_the_call():
    code = (
        f"import dawnjax, time; time.sleep(0.5); {PRINT_AGE}; "  # imports count
        "first = time.perf_counter(); import dawnjax.__main__; time.sleep(1.0); "
        f"dawnjax.__main__.main(['list', 'digits']); {PRINT_AGE}; "
        "print(time.perf_counter() - first)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, *_, age, elapsed = done.stdout.splitlines()
    assert 0.5 < float(imported) < 60.0
    assert 0 < float(age) < float(elapsed) - 0.99


JUMPS = (3600.0, -3600.0, 86400.0, -86400.0)
"""Seconds by which the wall clock is set: an hour and a day, forward and back."""


class Stopwatch:
    """Fails the first attempt at its first evaluation, and times the run beside its own clocks.

    Attributes:
      moments: By `time.perf_counter`: `run_start`, `last_event` of the first attempt, and `target`,
        the evaluation of the second.
    """

    def __init__(self, monkeypatch):
        self.moments = {}
        start_clock, record = Journal.start_clock, Journal.record_evaluation
        append = RunLog.append

        def started(journal, is_running):
            start_clock(journal, is_running)
            self.moments.setdefault("run_start", time.perf_counter())

        def recorded(journal, step, metrics):
            if "failed" not in self.moments:
                self.moments["failed"] = time.perf_counter()
                raise RunError("made to fail")
            self.moments["target"] = time.perf_counter()
            return record(journal, step, metrics)

        def appended(log, event, **fields):
            append(log, event, **fields)
            if log.attempt == 1:
                self.moments["last_event"] = time.perf_counter()

        monkeypatch.setattr(RunLog, "append", appended)
        monkeypatch.setattr(Journal, "start_clock", started)
        monkeypatch.setattr(Journal, "record_evaluation", recorded)


@pytest.mark.parametrize("count", [1, pytest.param(24, marks=pytest.mark.long)])
def test_a_wall_clock_that_is_set_changes_no_time(
    count, campaign, tmp_path, compile_cache, monkeypatch
):
    clocks = campaign(
        "clocks",
        "the wall clock set by an hour or a day, forward or back, in and between two attempts",
        "time to accuracy right within 0.5 s; a gap between two boots is flagged",
    )
    for number in range(count):
        draw, offset, wall_clock = random.Random(number), [0.0], time.time
        is_rebooted = number % 2 == 1

        def stepped(draw=draw, offset=offset, wall_clock=wall_clock):
            offset[0] += draw.choice(JUMPS) if draw.random() < 0.3 else 0.0
            return wall_clock() + offset[0]

        with monkeypatch.context() as patch:
            patch.setattr(time, "time", stepped)
            watch = Stopwatch(patch)
            argv = ["train", *SMALL, "--num_epochs=2", "--targets.0.value=0", compile_cache]
            argv.append(f"--run_dir={tmp_path / str(number)}")
            assert main(argv) == 1
            time.sleep(0.7)  # more than the tolerance
            if is_rebooted:
                patch.setattr(attempt, "boot_id", lambda: "another")
            begun = time.perf_counter()
            assert main(argv) == 0
        result, moments = result_of(tmp_path / str(number)), watch.moments
        elapsed = moments["target"] - moments["run_start"]
        gap = begun - moments["last_event"]
        errors = [result["time_to_accuracy_seconds"] - (elapsed - gap)]
        if not is_rebooted:
            errors.append(result["elapsed_seconds_to_accuracy"] - elapsed)
        flagged = any("two boots or machines" in warning for warning in result["warnings"])
        worst = max(map(abs, errors))
        held = worst < 0.5 and flagged == is_rebooted
        held &= check_run(tmp_path / str(number))[0] == []
        held &= min(result["phases"].values()) >= 0
        clocks.tried(
            f"clock {number}", held=held, why=f"{errors}, {result['warnings']}", seconds=worst
        )
    clocks.finish()
