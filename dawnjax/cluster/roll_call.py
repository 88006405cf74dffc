"""The host at fault when a run of several hosts is stuck, from each host's report on itself.

Nothing here uses a clock, a thread or a network: `watchdog` brings reports and time.
"""

import dataclasses
from typing import Any

from dawnjax.errors import ExitStatus

SHORT_SILENCE_SECONDS = 4.0
"""A host silent for this long is not waited for. Hosts report once a second."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """A process's report on itself.

    Attributes:
      beat: Number of the report; a count that stands still is the sign of a dead process.
      step: Steps handed to the devices; -1 before the first report.
      where: Line of code of its main thread, once it is idle for a while.
      waits: Its main thread waits for another thread, as in a collective, and not for a disk, a
        network or a clock. False where the system does not tell.
    """

    hostname: str = "not heard of"
    beat: int = 0
    step: int = -1
    phase: str = "start"
    reports: int = 0
    idle_seconds: float = 0.0
    where: str = ""
    waits: bool = False


@dataclasses.dataclass(frozen=True)
class Fault:
    """The host that ended the run, and why.

    Attributes:
      what: What it did, as the end of a sentence that begins with the host.
      is_silent: It says nothing any more, so it will not hear this either.
    """

    process_index: int
    hostname: str
    what: str
    step: int
    phase: str
    is_silent: bool = False
    exit_status: int = ExitStatus.FAILED

    def line(self, resume_command: str) -> str:
        at = f"step {self.step} ({self.phase})" if self.step >= 0 else "the start"
        line = f"host {self.process_index} ({self.hostname}) {self.what} at {at}"
        return f"{line}; resume with: {resume_command}" if resume_command else line

    @classmethod
    def about(cls, process_index: int, progress: Progress, what: str, **fields: Any) -> "Fault":
        return cls(process_index, progress.hostname, what, progress.step, progress.phase, **fields)


class RollCall:
    """Times of each process's last report and progress, and from them the host at fault."""

    def __init__(self, num_processes: int, silence_seconds: float, deadline_seconds: float):
        self._silence_seconds = silence_seconds
        self._deadline_seconds = deadline_seconds
        self._last = [Progress()] * num_processes
        self._heard_at = [0.0] * num_processes
        self._moved_at = [0.0] * num_processes

    def hear(self, process_index: int, progress: Progress, now: float) -> None:
        """Keep a process's report; `now` is in seconds on the listener's clock, from 0."""
        last = self._last[process_index]
        # The same report read twice is no sign of life.
        if progress.beat != last.beat:
            self._heard_at[process_index] = now
        if (progress.step, progress.reports) != (last.step, last.reports):
            self._moved_at[process_index] = now
        self._last[process_index] = progress

    def silent(self, now: float, seconds: float) -> Fault | None:
        """Blame the process that was silent for longest, if for more than `seconds`."""
        silence = now - min(self._heard_at)
        if silence <= seconds:
            return None
        quietest = self._heard_at.index(min(self._heard_at))
        what = f"gave no sign of life for {silence:.0f} s (killed, stopped or cut off)"
        return Fault.about(quietest, self._last[quietest], what, is_silent=True)

    def fault(self, now: float) -> Fault | None:
        """The host at fault and why; None while the run can continue."""
        silent = self.silent(now, self._silence_seconds)
        # A command that reports no progress at all is under no deadline.
        has_deadline = self._deadline_seconds and any(last.reports for last in self._last)
        if silent or not has_deadline or now - max(self._moved_at) <= self._deadline_seconds:
            return silent
        # All stand still: the likeliest to be at fault is behind the others, or waits for nobody.
        progress = min(self._last, key=lambda p: (p.step, p.reports, p.waits, -p.idle_seconds))
        behind = self._last.index(progress)
        what = f"made no progress for {now - self._moved_at[behind]:.0f} s"
        if progress.where:
            what += f" in {progress.where}"
        is_silent = now - self._heard_at[behind] > SHORT_SILENCE_SECONDS
        return Fault.about(behind, progress, what, is_silent=is_silent)
