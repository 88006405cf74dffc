"""Keeps what Orbax logs off the terminal."""

import functools
import logging
import os
import sys
import warnings
from typing import Any


class _FromOrbax(logging.Filter):
    """Drops what Orbax logs: it is noise, or repeats an exception that is raised anyway."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == "asyncio":  # What is left of a save that failed.
            return "orbax" not in record.getMessage()
        return f"{os.sep}orbax{os.sep}" not in record.pathname


@functools.cache
def mute_orbax() -> None:
    """Keeps Orbax from filling the terminal, above all with tracebacks after a failed save."""
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
