"""Host memory that programs for a CPU compute in, kept between their calls.

XLA asks for all of a program's temporary memory at each call and frees it at the end. glibc gives
blocks of that size back to Linux at once, and the next call finds every page absent: each is
cleared anew when it is first written. Of a step of `multi30k_transformer` in float32 on two cores
that was 60 of 390 ms, and of `cifar10_record` 2.3 of 12.1 s (`docs/measurements.md`). Kept blocks
cost memory instead: they break into pieces, so that a step of 6.3 GB came to hold 19.6 GB, and once
24.9 GB. So there must be room for twice the program, and what is held is watched.

Source: mallopt(3) of the Linux man-pages. A thread's own arena cannot hold a block beyond 64 MiB
(HEAP_MAX_SIZE of glibc), so that the threads which run programs must use the main one.
"""

import ctypes
import importlib.metadata
import importlib.util
import math
import platform
from pathlib import Path
from typing import Any

import jax
import psutil

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
"""Parameters of mallopt, from glibc's malloc.h."""

_TRIM_THRESHOLD_DEFAULT, _MMAP_MAX_DEFAULT = 128 * 1024, 65536
"""Their values at the start, from mallopt(3)."""

SMALLEST_BYTES = 32 * 2**20
"""Blocks below it are kept by glibc itself, which learns from those that it sees freed."""

LARGE_BATCH_ELEMENTS = 2**18
"""Programs of smaller batches want an arena for each thread: with one for all, `digits` took 1.11
times as long an epoch and 1.25 times as long to compile (16 runs each, two cores)."""

ROOM = 2
"""For how many times a program's memory there must be room for it to be kept."""

MOST_TIMES = 4
MOST_OF_AVAILABLE = 0.75
"""How many times a program's memory may be held in the end, and how much of what was available."""

_CGROUP = Path("/sys/fs/cgroup")

_prepared: list[bool] = []

_most_bytes: float = math.inf
"""What the process may hold before the kept memory is given back; infinite while none is kept."""


def prepare(batch_elements: int) -> None:
    """Has threads that start from now on share one arena, where large programs will run on a CPU.

    To be called before JAX's first use of a device. Without glibc it does nothing.

    Args:
      batch_elements: Of the largest array that a step is known to need.
    """
    is_large = batch_elements >= LARGE_BATCH_ELEMENTS
    if is_large and _will_compute_on_cpu() and _mallopt(_M_ARENA_MAX, 1):
        _prepared.append(True)


def keep_freed(program: Any) -> bool:
    """Keeps what a program frees for its next call, if that is much and there is room for it.

    Where `prepare` saw a need; without it there would be nothing to gain.

    Args:
      program: Compiled; of one for an accelerator nothing is kept.

    Returns:
      Whether it is kept, from now on and of all programs.
    """
    if not _prepared or jax.default_backend() != "cpu":
        return False
    memory = program.memory_analysis()
    if memory is None or memory.temp_size_in_bytes < SMALLEST_BYTES:
        return False
    needed = memory.temp_size_in_bytes + memory.argument_size_in_bytes
    needed += memory.output_size_in_bytes - memory.alias_size_in_bytes
    needed *= jax.device_count()
    available = available_bytes()
    if ROOM * needed > available:
        return False
    if not (_mallopt(_M_MMAP_MAX, 0) and _mallopt(_M_TRIM_THRESHOLD, -1)):
        return False
    global _most_bytes
    before = 0 if math.isinf(_most_bytes) else _most_bytes
    room = min(MOST_TIMES * needed, MOST_OF_AVAILABLE * available)
    _most_bytes = max(before, psutil.Process().memory_info().rss + room)
    return True


def give_back_beyond_limit(resident_bytes: int) -> str:
    """Gives kept memory back, for good, where it has grown beyond what there was room for.

    Args:
      resident_bytes: What the process holds.

    Returns:
      What was done, as one line; empty where nothing was.
    """
    global _most_bytes
    if resident_bytes <= _most_bytes:
        return ""
    _most_bytes = math.inf
    _prepared.clear()  # nor is that of later programs kept
    _mallopt(_M_MMAP_MAX, _MMAP_MAX_DEFAULT)
    _mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_DEFAULT)
    ctypes.CDLL(None).malloc_trim(0)
    return (
        f"memory kept between steps had grown to {resident_bytes / 1e9:.1f} GB and was given back: "
        "steps on this CPU take longer from here on"
    )


def available_bytes() -> int:
    """Gives the memory that this process can still get, within its container's limit."""
    available = psutil.virtual_memory().available
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no limit ("max"), or no such file
        return available
    return min(available, max(0, limit - used))


def _will_compute_on_cpu() -> bool:
    """Says whether JAX will choose a CPU, without making it choose."""
    platforms: str | None = getattr(jax.config, "jax_platforms")  # noqa: B009 - not declared
    if platforms:
        return platforms.split(",")[0] == "cpu"
    has_plugin = importlib.util.find_spec("jax_plugins") is not None
    has_plugin = has_plugin or bool(importlib.metadata.entry_points(group="jax_plugins"))
    return not has_plugin and importlib.util.find_spec("libtpu") is None


def _mallopt(parameter: int, value: int) -> bool:
    if platform.libc_ver()[0] != "glibc":
        return False
    return ctypes.CDLL(None).mallopt(parameter, value) == 1
