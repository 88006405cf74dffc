"""Measured peaks of a CPU, which no data sheet gives: a large matrix product and a large copy.

Simulated devices share them. Figures measured without other work beside them are kept.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.machine import jax_settings
from dawnjax.machine.hardware import MeasuredPeaks
from dawnjax.machine.hosts import processor_name, visible_cores

CACHE = "~/.cache/dawnjax/peaks.json"

_REPETITIONS = 7

CPU_SIZES = (1536, 2**25)
"""The side of the product's matrices, and the elements of the copy."""


def measured_peaks(device: Any, dtype: str = "float32", *, at_least: float = 0.0) -> MeasuredPeaks:
    """Measure the peaks of a CPU, or read them from `CACHE` where their key is the same.

    A program reached `at_least` FLOP/s: a kept peak below them was too low.
    """
    flags = str(jax_settings.recorded()["numbers"].get("XLA_FLAGS", ""))
    host = [device.device_kind, processor_name(), str(visible_cores())]
    key = "|".join([*host, jax.__version__, jaxlib.version.__version__, flags, dtype])
    path = None
    with contextlib.suppress(RunError):  # no home directory
        path = records.in_home(CACHE)
    kept = {} if path is None else read_kept(path)
    old = kept.get(key)
    if old is not None and not old.fault and old.flops_per_second >= at_least:
        return old
    new = _measure(device, dtype)
    if path is not None:
        with contextlib.suppress(RunError):  # costs a measurement the next time
            records.write_json(path, records.plain({**kept, key: new}), indent=1)
    return new


def _measure(device: Any, dtype: str) -> MeasuredPeaks:
    side, elements = CPU_SIZES
    with jax.default_device(device):
        matrix = jnp.ones((side, side), dtype)
        # A second operand that depends on nothing else keeps the product from being simplified.
        multiply = jax.jit(lambda a, b: a @ b).lower(matrix, matrix).compile()
        started, used, waited = time.perf_counter(), time.process_time(), _waited_seconds()
        seconds, spread = _best(lambda: multiply(matrix, matrix))
        core_seconds = (time.perf_counter() - started) * visible_cores()
        # The product uses all cores. What they did not give is other work's, if threads waited.
        not_used = 1 - (time.process_time() - used) / core_seconds
        other_work = min(not_used, (_waited_seconds() - waited) / core_seconds)
        vector = jnp.ones(elements, jnp.float32)
        copy = jax.jit(lambda a: a + 1, donate_argnums=0).lower(vector).compile()

        def copy_in_place() -> Any:
            # A new result would have the machine find and clear its memory, page by page, which
            # takes five times as long as the copy.
            nonlocal vector
            vector = copy(vector)
            return vector

        copy_seconds, copy_spread = _best(copy_in_place)
    return MeasuredPeaks(
        flops_per_second=round(2 * side**3 / seconds),
        bytes_per_second=round(2 * vector.nbytes / copy_seconds),
        spread=round(max(spread, copy_spread), 4),
        other_work=round(max(0.0, other_work), 4),
    )


def _best(run: Callable[[], Any]) -> tuple[float, float]:
    """Shortest time of some repetitions, and how much longer the median took, as a fraction."""
    jax.block_until_ready(run())
    times = []
    for _ in range(_REPETITIONS):
        started = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - started)
    best = min(times)
    return best, float(np.median(times)) / best - 1


def _waited_seconds() -> float:
    """Time that the threads of this process were ready and waited for a core; 0 if not known."""
    total = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread may have ended
            total += int(file.read_text().split()[1])
    return total / 1e9


def read_kept(path: Path) -> dict[str, MeasuredPeaks]:
    """Read the cache, by key; empty where it is absent, damaged or of another version."""
    try:
        return records.read_json(path, dict[str, MeasuredPeaks])
    except (OSError, ValueError):
        return {}
