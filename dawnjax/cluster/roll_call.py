"""Who is at fault when a run of several hosts cannot go on, from what each host says of itself.

Nothing here knows a clock, a thread or a network: `watchdog` brings the words and the time.
"""

import dataclasses
from typing import Any

from dawnjax.errors import ExitStatus

SHORT_SILENCE_SECONDS = 4.0
"""After this long without a word from a host, its answer is not waited for. Hosts speak once a
second."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """What a process says of itself.

    Attributes:
      hostname: Its host.
      beat: Counts what it said; one that no longer changes is the sign of a dead process.
      step: Steps handed to the devices; -1 before the first report.
      phase: What it is doing.
      reports: How often it reported progress; all processes report alike.
      idle_seconds: Time since the last report or step.
      where: The line of code that its main thread stands at, once it is idle for a while.
      waits: Its main thread waits for another thread, as in a collective, and not for a disk, a
        network or a clock. False where the system does not tell.
      left: It ended in good order and will say no more.
    """

    hostname: str
    beat: int = 0
    step: int = -1
    phase: str = "start"
    reports: int = 0
    idle_seconds: float = 0.0
    where: str = ""
    waits: bool = False
    left: bool = False


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Which host ended the run, and why.

    Attributes:
      process_index: The host at fault.
      hostname: Its name.
      what: What it did, as the end of a sentence that begins with the host.
      step: The last step that it was seen at; -1 before its first report.
      phase: What it was doing.
      is_silent: It says nothing any more, so it will not hear this either.
      exit_status: What every process ends with.
    """

    process_index: int
    hostname: str
    what: str
    step: int
    phase: str
    is_silent: bool = False
    exit_status: int = ExitStatus.FAILED

    def line(self, resume_command: str) -> str:
        """Gives the verdict as one line.

        Args:
          resume_command: The command that goes on with the run; empty where there is none.
        """
        at = f"step {self.step} ({self.phase})" if self.step >= 0 else "the start"
        line = f"host {self.process_index} ({self.hostname}) {self.what} at {at}"
        return f"{line}; resume with: {resume_command}" if resume_command else line

    @classmethod
    def about(cls, process_index: int, progress: Progress, what: str, **fields: Any) -> "Verdict":
        """Gives the verdict about a host that was last seen so far."""
        return cls(
            process_index=process_index,
            hostname=progress.hostname,
            what=what,
            step=progress.step,
            phase=progress.phase,
            **fields,
        )


class RollCall:
    """Who was heard of when, and from that, who is at fault."""

    def __init__(self, num_processes: int, silence_seconds: float, deadline_seconds: float):
        """Args:
        num_processes: Processes of the run.
        silence_seconds: One that says nothing for this long is at fault.
        deadline_seconds: No progress of any for this long is a fault; 0 sets no deadline.
        """
        self._silence_seconds = silence_seconds
        self._deadline_seconds = deadline_seconds
        self._last = [Progress(hostname="not heard of") for _ in range(num_processes)]
        self._heard_at = [0.0] * num_processes
        self._moved_at = [0.0] * num_processes

    def hear(self, process_index: int, progress: Progress, now: float) -> None:
        """Notes what a process says of itself.

        Args:
          process_index: The process.
          progress: What it says; nothing new is no sign of life.
          now: Seconds on the listener's clock, from 0.
        """
        last = self._last[process_index]
        if progress.beat != last.beat:
            self._heard_at[process_index] = now
        if (progress.step, progress.reports) != (last.step, last.reports):
            self._moved_at[process_index] = now
        self._last[process_index] = progress

    def silent(self, now: float, seconds: float) -> Verdict | None:
        """Gives the host that was silent for longest, if it was so for more than some seconds."""
        present = [i for i, progress in enumerate(self._last) if not progress.left]
        if not present:
            return None
        quietest = min(present, key=lambda i: self._heard_at[i])
        silence = now - self._heard_at[quietest]
        if silence <= seconds:
            return None
        what = f"gave no sign of life for {silence:.0f} s (killed, stopped or cut off)"
        return Verdict.about(quietest, self._last[quietest], what, is_silent=True)

    def verdict(self, now: float) -> Verdict | None:
        """Gives the host at fault, or None."""
        present = [i for i, progress in enumerate(self._last) if not progress.left]
        if not present:
            return None
        silent = self.silent(now, self._silence_seconds)
        if silent is not None:
            return silent
        if not self._deadline_seconds or not any(self._last[i].reports for i in present):
            # A command that reports no progress at all is under no deadline.
            return None
        idle = min(now - self._moved_at[i] for i in present)
        if idle <= self._deadline_seconds:
            return None
        behind = min(present, key=lambda i: _order_of_blame(self._last[i]))
        progress = self._last[behind]
        what = f"made no progress for {now - self._moved_at[behind]:.0f} s"
        if progress.where:
            what += f" in {progress.where}"
        is_silent = now - self._heard_at[behind] > SHORT_SILENCE_SECONDS
        return Verdict.about(behind, progress, what, is_silent=is_silent)


def _order_of_blame(progress: Progress) -> tuple[int, int, bool, float]:
    """Gives what orders processes that all stand still, the one at fault first."""
    return progress.step, progress.reports, progress.waits, -progress.idle_seconds
