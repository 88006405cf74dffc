"""Orbax's checkpointer, set up for checkpoints of several processes, and quiet."""

import contextlib
import functools
import importlib
import logging
import os
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import jax

from dawnjax.checkpoints.agreement import TIMEOUT_SECONDS


class _FromOrbax(logging.Filter):
    """Drop what Orbax logs: it is noise, or repeats an exception that is raised anyway."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == "asyncio":  # What is left of a save that failed.
            return "orbax" not in record.getMessage()
        return f"{os.sep}orbax{os.sep}" not in record.pathname


@functools.cache
def mute_orbax() -> None:
    """Keep Orbax from filling the terminal, above all with tracebacks after a failed save."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_FromOrbax())
    # Coroutines of a failed save are dropped; there are none but Orbax's in this program.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    show = sys.unraisablehook

    def show_others(unraisable: Any) -> None:
        # Writes that end after the save that they belong to has failed.
        if str(unraisable.exc_value) != "Event loop is closed":
            show(unraisable)

    sys.unraisablehook = show_others


def open_checkpointer(meet: Callable[..., None]) -> Any:
    """Open Orbax for arrays that several processes save together.

    Orbax calls `meet(key=, timeout_ms=)` at each stage; it returns once all processes are there.
    """
    import orbax.checkpoint as ocp

    mute_orbax()
    _measure_orbax_by_the_monotonic_clock()
    # Orbax's default splits replicated arrays among the replicas, which compiles a program for
    # each shape and device at the first save: 15 s for 100 shapes on four devices.
    handler = ocp.type_handlers.ArrayHandler(use_replica_parallel=False)
    registry = ocp.type_handlers.create_type_handler_registry((jax.Array, handler))
    processes = ocp.options.MultiprocessingOptions()
    if jax.process_count() > 1:
        # Named, they meet at the coordination service instead of on their devices.
        processes = ocp.options.MultiprocessingOptions(
            active_processes=set(range(jax.process_count())), barrier_sync_key_prefix="dawnjax"
        )
    return ocp.AsyncCheckpointer(
        ocp.PyTreeCheckpointHandler(
            type_handler_registry=registry, multiprocessing_options=processes
        ),
        multiprocessing_options=processes,
        async_options=ocp.options.AsyncOptions(timeout_secs=TIMEOUT_SECONDS, barrier_sync_fn=meet),
    )


@functools.cache
def _measure_orbax_by_the_monotonic_clock() -> None:
    """Keep a wall clock that is set forward from ending a save that is under way."""
    # Orbax measures its time limits by `time.time`. A version with other modules keeps it.
    clock = types.SimpleNamespace(**{**vars(time), "time": time.monotonic})
    for name in ("future", "signaling_client"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(f"orbax.checkpoint._src.futures.{name}")
            vars(module)["time"] = clock
