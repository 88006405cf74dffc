"""Tests of when a program's time begins."""

import shutil
import subprocess
import sys
import time

import pytest

PRINT_AGE = "from dawnjax.clock import RunClock; print(RunClock().now())"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("last", ["exec ", ""])
def test_what_a_shell_did_before_is_not_of_the_program(last):
    started = time.perf_counter()
    command = f'sleep 4 && {last}"{sys.executable}" -c "{PRINT_AGE}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    elapsed = time.perf_counter() - started
    assert 0 < float(done.stdout) < elapsed - 4


def test_time_before_the_first_line_and_imports_after_it_count():
    code = f"sum(range(10**7)); import dawnjax, time; time.sleep(0.5); {PRINT_AGE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0.55
