"""Tests of when a program's time begins."""

import shutil
import subprocess
import sys
import time

import pytest

PRINT_AGE = "from dawnjax.runs.clock import RunClock; print(RunClock().now())"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("before", ["sleep 1", "while ((SECONDS < 2)); do :; done"])
@pytest.mark.parametrize("last", ["exec ", ""])
def test_what_a_shell_did_before_is_not_of_the_program(before, last):
    seconds = {}
    for shell in (before, ":"):
        started = time.perf_counter()
        command = f'{shell}; {last}"{sys.executable}" -c "{PRINT_AGE}"'
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        seconds[shell] = (float(done.stdout), time.perf_counter() - started)
    age, elapsed = seconds[before]
    assert 0 < age < elapsed - 0.8 * (elapsed - seconds[":"][1])
    assert elapsed > 0.5 + seconds[":"][1]  # else the shell did too little to be seen


def test_imports_after_the_first_line_count():
    code = f"import dawnjax, time; time.sleep(0.5); {PRINT_AGE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.5 < float(done.stdout) < 5.0


def test_a_command_that_is_called_from_python_begins_at_the_call():
    code = (
        "import time; first = time.perf_counter(); import dawnjax.__main__; time.sleep(1.0); "
        f"dawnjax.__main__.main(['list']); {PRINT_AGE}; print(time.perf_counter() - first)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    age, elapsed = map(float, done.stdout.splitlines()[-2:])
    assert 0 < age < elapsed - 0.99
