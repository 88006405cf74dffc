"""The memory that programs for a CPU keep between their calls, where a run asks for it."""

import platform
import subprocess
import sys

import pytest

from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.machine import host_memory

CALLS = 24
TEMPORARY_BYTES = 3000 * 3000 * 4

PROGRAM = f"""
import ctypes, resource
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a fault clears one small page
import jax, jax.numpy as jnp
from dawnjax.machine import host_memory

KEEP
a = jnp.ones((3000, 32))
program = jax.jit(lambda a: jnp.sin(a @ a.T) @ a).lower(a).compile()
assert program.memory_analysis().temp_size_in_bytes >= {TEMPORARY_BYTES}
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({CALLS}):
    program(a).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(keep: str) -> int:
    """Counts the page faults of a program's calls in a process of its own."""
    code = PROGRAM.replace("KEEP", keep)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.processes
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_program_finds_its_memory_again_where_that_is_asked_for():
    pages = CALLS * TEMPORARY_BYTES // 4096
    kept, cleared = page_faults("host_memory.keep_freed()"), page_faults("")
    # A few calls find the heap in pieces that are too small, until there are enough of this size.
    assert kept < pages / 2
    assert cleared > 2 * kept
    assert not RunOptions().keep_freed_memory


def test_it_is_refused_without_glibc(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    with pytest.raises(ConfigError, match="keep_freed_memory=true needs glibc.*leave it out"):
        host_memory.keep_freed()
