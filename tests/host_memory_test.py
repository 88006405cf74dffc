"""Tests of the memory that programs for a CPU keep between their calls."""

import math
import platform
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest

from dawnjax.machine import host_memory

CALLS = 24
TEMPORARY_BYTES = 3000 * 3000 * 4

PROGRAM = f"""
import resource
import jax, jax.numpy as jnp
from dawnjax import compilation, host_memory, programs

compilation.configure("none", BATCH)
host_memory.available_bytes = lambda: AVAILABLE
a = jnp.ones((3000, 32))
f = lambda a: jnp.sin(a @ a.T) @ a
program = programs.compile_program("f", f, (a,), None, (), lambda *_: None)
assert program.memory_analysis().temp_size_in_bytes >= {TEMPORARY_BYTES}
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({CALLS}):
    program(a).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(available: int, batch_elements: int = 2**18) -> int:
    """Gives the page faults of a program's calls in a process of its own."""
    code = PROGRAM.replace("AVAILABLE", str(available)).replace("BATCH", str(batch_elements))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_program_finds_its_memory_again():
    pages = CALLS * TEMPORARY_BYTES // 4096
    kept, cleared = page_faults(2**40), min(page_faults(0), page_faults(2**40, 1000))
    # A few calls find the heap in pieces that are too small, until there are enough of this size.
    assert kept < pages / 2
    assert cleared > 2 * kept


def compiled(temporary: int) -> SimpleNamespace:
    memory = SimpleNamespace(
        temp_size_in_bytes=temporary,
        argument_size_in_bytes=2 * 2**30,
        output_size_in_bytes=2**30,
        alias_size_in_bytes=2**30,
    )
    return SimpleNamespace(memory_analysis=lambda: memory)


@pytest.mark.parametrize(
    ("temporary", "available", "kept"),
    [
        (2**30, 2 * 3 * 2**30 * 4, True),  # of each of 4 simulated devices, twice
        (2**30, 2 * 3 * 2**30 * 4 - 1, False),
        (2**20, 2**50, False),  # glibc keeps that much by itself
    ],
)
def test_memory_is_kept_where_there_is_room(monkeypatch, temporary, available, kept):
    asked = []
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    monkeypatch.setattr(host_memory, "_prepared", [True])
    monkeypatch.setattr(host_memory, "available_bytes", lambda: available)
    monkeypatch.setattr(host_memory, "_mallopt", lambda *given: asked.append(given) or True)
    assert host_memory.keep_freed(compiled(temporary)) == kept
    assert asked == ([(-4, 0), (-1, -1)] if kept else [])
    # Beyond three quarters of what there was it is given back.
    resident = host_memory.psutil.Process().memory_info().rss
    expected = 0.75 * available + resident if kept else math.inf
    assert host_memory._most_bytes == pytest.approx(expected, rel=0.01)
    host_memory._most_bytes = math.inf


GROWN = """
import time
import jax, jax.numpy as jnp, psutil
from dawnjax import compilation, host_memory, programs

compilation.configure("none", 2**18)
a = jnp.ones((6000, 32))
program = programs.compile_program(
    "f", lambda a: jnp.sin(a @ a.T) @ a, (a,), None, (), lambda *_: None
)
for _ in range(4):
    program(a).block_until_ready()
time.sleep(1)  # the result is ready before a thread frees what it was made in
resident = lambda: psutil.Process().memory_info().rss
before = resident()
assert host_memory.give_back_beyond_limit(before) == ""
assert resident() > 0.9 * before
assert "was given back" in host_memory.give_back_beyond_limit(2**50)
print(before - resident())
assert host_memory.give_back_beyond_limit(2**50) == ""
program(a).block_until_ready()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_what_has_grown_too_large_is_given_back():
    done = subprocess.run(
        [sys.executable, "-c", GROWN], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0.9 * 6000 * 6000 * 4


def test_accelerators_are_left_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(host_memory, "_mallopt", lambda *given: asked.append(given) or True)
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 2**50)
    monkeypatch.setattr(host_memory, "_prepared", [True])
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert not host_memory.keep_freed(compiled(2**30))
    for platforms, arenas in (("cuda,cpu", []), ("tpu", []), ("cpu", [(-8, 1)])):
        asked.clear()
        monkeypatch.setattr(host_memory, "jax", SimpleNamespace(config=config_of(platforms)))
        host_memory.prepare(2**18 - 1)
        assert asked == []
        host_memory.prepare(2**18)
        assert asked == arenas


def config_of(platforms: str) -> SimpleNamespace:
    return SimpleNamespace(jax_platforms=platforms)


def test_a_container_s_limit_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(host_memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(
        host_memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000)
    )
    assert host_memory.available_bytes() == 1000
    (tmp_path / "memory.current").write_text("300\n")
    for limit, available in (("max", 1000), ("700", 400), ("200", 0), ("5000", 1000)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert host_memory.available_bytes() == available
