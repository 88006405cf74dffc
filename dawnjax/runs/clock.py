"""Time as a measured quantity: one clock, and phases that sum to the total.

Durations come from the machine's monotonic clock and start with the program itself, so that
imports count and a wall clock that is set changes nothing. At each moment exactly one phase runs;
entering the next ends it. A phase's beginning is an event of the log, from which `analysis`
computes every duration; nothing is summed here.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import dawnjax

Phase = Literal["setup", "compile", "restore", "train", "eval", "checkpoint", "profile", "other"]
"""What a process is doing, as the result reports it."""

PHASES: tuple[str, ...] = get_args(Phase)


class RunClock:
    """Seconds since this program started, as `dawnjax.program_start` says."""

    def __init__(self) -> None:
        self._start = dawnjax.program_start

    def now(self) -> float:
        return time.perf_counter() - self._start

    def moment(self) -> dict[str, Any]:
        """The present by three clocks, as the fields `t`, `boot_seconds`, `unix_seconds`."""
        return {
            "t": round(self.now(), 6),
            "boot_seconds": _round(boot_seconds()),
            "unix_seconds": round(time.time(), 3),
        }


class Phases:
    """The phase that runs now; each change is reported."""

    def __init__(self, record: Callable[[Phase], None], first: Phase = "setup"):
        """Starts in the first phase."""
        self._record = record
        self.current: Phase = first
        record(first)

    @contextlib.contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Runs a block as a phase, then goes back to the one before."""
        before = self.current
        self.enter(name)
        try:
            yield
        finally:
            self.enter(before)

    def enter(self, name: Phase) -> None:
        """End the running phase and begin another; the same phase is not begun anew."""
        if name != self.current:
            self.current = name
            self._record(name)


def boot_seconds() -> float | None:
    """Seconds since the machine started, suspension included; None where unknown."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return None if clock is None else time.clock_gettime(clock)


def boot_id() -> str | None:
    """The name of this boot of this machine; `boot_seconds` compare only within one boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
