"""Time as a measured quantity: one clock, and phases that sum to the total.

Durations come from the machine's monotonic clock and start with the program itself, so that imports
count and a corrected wall clock changes nothing. Exactly one phase runs at a time. The log holds
the phases' beginnings; `analysis` computes every duration from them.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import dawnjax

Phase = Literal[
    "setup",
    "compile",
    "restore",
    "gating",
    "self_play",
    "train",
    "eval",
    "checkpoint",
    "profile",
    "other",
]
"""Activity of a process, as the result reports it."""

PHASES: tuple[str, ...] = get_args(Phase)

GENERATION_PHASES = ("gating", "self_play")
"""Phases of a task that makes its examples; results of other tasks leave them out."""


class RunClock:
    """Seconds since this program started, by `dawnjax.program_start`, or since another start."""

    def __init__(self, start: float | None = None) -> None:
        self._start = dawnjax.program_start if start is None else start

    def now(self) -> float:
        return time.perf_counter() - self._start

    def moment(self) -> dict[str, Any]:
        """The present by three clocks: `t`, `boot_seconds`, `unix_seconds`."""
        return {
            "t": round(self.now(), 6),
            "boot_seconds": _round(boot_seconds()),
            "unix_seconds": round(time.time(), 3),
        }


class Phases:
    """The running phase; each change is reported."""

    def __init__(self, record: Callable[[Phase], None]):
        self._record = record
        self.current: Phase = "setup"
        record(self.current)

    @contextlib.contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Run a block as a phase, then return to the phase before."""
        before = self.current
        self.enter(name)
        try:
            yield
        finally:
            self.enter(before)

    def enter(self, name: Phase) -> None:
        """End the running phase and begin another; a repeated name does nothing."""
        if name != self.current:
            self.current = name
            self._record(name)


def boot_seconds() -> float | None:
    """Seconds since the machine started, suspension included; None where unknown."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return None if clock is None else time.clock_gettime(clock)


def boot_id() -> str | None:
    """Name of this boot of the machine; `boot_seconds` compare only within one boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
