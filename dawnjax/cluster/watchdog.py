"""Watchdog: ends a run that is stuck, with the name of the host at fault.

In a run of several hosts, one that is gone or stuck leaves all others waiting in a collective,
where they neither fail nor learn why. So each process leaves a note on itself in JAX's key-value
store every second. Process 0 reads all notes and judges; the others read its note and its verdict.

A run ends when a process is silent for most of the heartbeat timeout, when no process makes
progress for the progress deadline, or when a process fails and says so. JAX's own heartbeat, a
little slower, stands behind this one. When process 0 is killed, the store goes with it, and JAX
ends the others with a page of its own.
"""

import contextlib
import dataclasses
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from dawnjax import records
from dawnjax.cluster import launched
from dawnjax.cluster.key_value_store import KeyValueStore
from dawnjax.errors import ExitStatus

BEAT_SECONDS = 1.0
"""Seconds between a process's notes."""

SILENCE_FRACTION = 0.7
"""Part of the heartbeat timeout after which a silent process is given up. The others need the rest
to hear of it."""

_FOLDER = "dawnjax/watchdog"


class Note(NamedTuple):
    """A process's note on itself.

    Attributes:
      beat: Number of the note; a count that stands still is the sign of a dead process.
      step: Steps handed to the devices; -1 before the first report.
      pace: A `slow_hosts.Pace`; empty before training.
    """

    hostname: str
    beat: int
    step: int
    phase: str
    reports: int
    pace: Sequence[float] = ()


@dataclasses.dataclass
class Heard:
    """The last note of a process, and when this process heard a new one and of new progress."""

    heard_at: float
    moved_at: float
    note: Note = Note("not heard of", 0, -1, "start", 0)

    def hear(self, note: Note, now: float) -> None:
        if note.beat != self.note.beat:  # the same note read twice is no sign of life
            self.heard_at = now
        if (note.step, note.reports) != (self.note.step, self.note.reports):
            self.moved_at = now
        self.note = note


def judge(
    heard: Sequence[Heard], now: float, silence_seconds: float, deadline_seconds: float
) -> tuple[int, str] | None:
    """The process at fault and what it did; None while the run can continue."""
    heard_at = [each.heard_at for each in heard]
    silence = now - min(heard_at)
    if silence > silence_seconds:
        quietest = heard_at.index(min(heard_at))
        return quietest, f"gave no sign of life for {silence:.0f} s (killed, stopped or cut off)"
    # A command that reports no progress at all is under no deadline.
    has_deadline = deadline_seconds > 0 and any(each.note.reports for each in heard)
    if not has_deadline or now - max(each.moved_at for each in heard) <= deadline_seconds:
        return None

    progress = [(each.note.step, each.note.reports, each.moved_at) for each in heard]
    behind = progress.index(min(progress))
    return behind, f"made no progress for {now - heard[behind].moved_at:.0f} s"


class Watchdog:
    """Watches this process and, where there are several, the others, until `leave`.

    Attributes:
      store: Where the processes leave notes; None for one process alone.
      resume_command: Command that resumes the run, for the line about its end; empty until known.
      step: Steps handed to the devices; -1 before the first report. The innermost loop writes it
        just before each call, with the steps done once it is made; that too is progress.
      pace: Returns what a note tells of this host's pace.
      on_death: Called with that line before the process ends, such as to log it; it has 2 seconds.
    """

    def __init__(
        self,
        store: KeyValueStore | None,
        *,
        heartbeat_timeout_seconds: float,
        progress_deadline_seconds: float,
    ):
        self.store = store
        self.resume_command = ""
        self.on_death: Callable[[str], object] | None = None
        self.pace: Callable[[], Sequence[float]] = tuple
        self.process_index = 0 if store is None else store.process_index
        self.num_processes = 1 if store is None else store.num_processes
        self.step = -1
        self._heartbeat_timeout_seconds = heartbeat_timeout_seconds
        silence = SILENCE_FRACTION * heartbeat_timeout_seconds
        self._silence_seconds = float("inf") if store is None else silence
        # Process 0 judges all, and the others judge its silence alone.
        is_first, now = self.process_index == 0, time.monotonic()
        self._deadline_seconds = progress_deadline_seconds if is_first else 0.0
        self._heard = [Heard(now, now) for _ in range(self.num_processes if is_first else 1)]
        self._hostname = socket.gethostname()
        self._phase, self._reports, self._beat = "start", 0, 0
        self._failure = "its own output says why"
        self._has_left = threading.Event()
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def report(self, phase: str, step: int) -> None:
        """Report that this process makes progress, and its phase.

        Report before each thing that waits for other hosts, and in the same order on all: the host
        with the fewest steps and reports is the one that the others wait for.
        """
        self._phase, self.step = phase, step
        self._reports += 1

    @property
    def notes(self) -> list[Note]:
        """Newest note of each process, on process 0; elsewhere of process 0 alone."""
        return [heard.note for heard in self._heard]

    def explain(self, error: BaseException) -> None:
        """Handle the error of the main thread; returns if it is this process's own failure.

        A host that dies shows in the others as a broken connection in a collective, which names no
        host. So this waits for the verdict, which ends the process. Without one the process ends
        with the error's text.
        """
        self._failure = f"{type(error).__name__}: {first_line(error)}"
        if self.store is None or not is_broken_connection(error):
            return
        time.sleep(self._heartbeat_timeout_seconds + 2 * BEAT_SECONDS)
        self._end(self._line(f"lost another host ({first_line(error)})"))

    def leave(self, exit_status: int) -> int:
        """End the watch, and this process's part in the run; returns the exit status.

        A status that all processes reach together waits for all of them. A failure of this process
        alone (1, 2) ends it here, and the others with it: they would wait for it in vain.
        """
        store = self.store
        if store is not None:
            if exit_status in (ExitStatus.FAILED, ExitStatus.WRONG_USE):
                line = self._line(f"failed ({self._failure})")
                self._end(line, exit_status, announce=False)
            if self._reports:
                self.report("end", self.step)
            try:
                store.wait_for_all(f"{_FOLDER}/end")
            except Exception as error:
                self.explain(error)
                self._end(self._line(f"could not end ({first_line(error)})"))
        self._has_left.set()
        self._thread.join(timeout=2 * BEAT_SECONDS)
        if store is not None:
            import jax

            with contextlib.suppress(Exception):  # all results are written
                jax.distributed.shutdown()
        return exit_status

    # The methods below run in the watchdog's own thread: the main thread may never come back.

    def _watch(self) -> None:
        while not self._has_left.wait(BEAT_SECONDS if self._beat else 0.0):
            self._beat += 1
            if self.store is None:
                self._heard[0].hear(self._note(), time.monotonic())
            else:
                # A message to a host that is stopped does not come back.
                _within(self._silence_seconds, self._exchange)
            limits = self._silence_seconds, self._deadline_seconds
            if found := judge(self._heard, time.monotonic(), *limits):
                index, what = found
                self._end(self._line(what, index, self._heard[index].note))

    def _exchange(self) -> None:
        store, note = self.store, self._note()
        assert store is not None
        if self.process_index == 0:
            self._heard[0].hear(note, time.monotonic())
            store.put(f"{_FOLDER}/group/first", json.dumps(note))
            for index, text in store.read(f"{_FOLDER}/others").items():
                self._heard[int(index)].hear(Note(*records.load_json(text)), time.monotonic())
        else:
            store.put(f"{_FOLDER}/others/{self.process_index}", json.dumps(note))
        group = store.read(f"{_FOLDER}/group")
        if self.process_index != 0 and "first" in group:
            self._heard[0].hear(Note(*records.load_json(group["first"])), time.monotonic())
        if "verdict" in group:
            self._end(*records.load_json(group["verdict"]))

    def _note(self) -> Note:
        beat = self._hostname, self._beat, self.step, self._phase, self._reports
        return Note(*beat, self.pace())

    def _line(self, what: str, index: int | None = None, note: Note | None = None) -> str:
        index, note = self.process_index if index is None else index, note or self._note()
        if note.step < 0 <= self.step:  # it died before its first note of a step: name this one's
            note = note._replace(step=self.step, phase=self._phase)
        at = f"step {note.step} ({note.phase})" if note.step >= 0 else "the start"
        return f"host {index} ({note.hostname}) {what} at {at}"

    def _end(
        self, line: str, exit_status: int = ExitStatus.FAILED, *, announce: bool = True
    ) -> NoReturn:
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()  # another thread ends the process
        store, on_death = self.store, self.on_death
        if store is not None:
            verdict = json.dumps([line, int(exit_status)])
            _within(BEAT_SECONDS, lambda: store.put(f"{_FOLDER}/group/verdict", verdict))
        if command := launched.resume_command(self.resume_command):
            line = f"{line}; resume with: {command}"
        if announce:
            # A live display hides the cursor of a terminal and leaves it on the display's line.
            before = "\x1b[?25h\n" if os.isatty(2) else ""
            with contextlib.suppress(OSError):  # its terminal may be gone
                os.write(2, f"{before}dawnjax: {line}\n".encode())
        if on_death is not None:
            _within(2.0, lambda: on_death(line))  # its disk may hang
        if store is not None and self.process_index == 0:
            time.sleep(2.5 * BEAT_SECONDS)  # the others read the verdict; the store goes with this
        _within(1.0, lambda: (sys.stdout.flush(), sys.stderr.flush()))
        os._exit(exit_status)


def is_broken_connection(error: BaseException) -> bool:
    """True if an error, or its cause, looks like the echo of another host's end."""
    return bool(_BROKEN_CONNECTION.search(f"{error} {error.__cause__} {error.__context__}"))


_BROKEN_CONNECTION = re.compile(
    "Gloo|NCCL|RCCL|Connection (closed|reset) by peer|coordination service|CoordinationService|"
    "stopped sending heartbeats"
)
"""Texts of the runtimes, which have no type or code of their own for it."""


def first_line(error: BaseException) -> str:
    """First line of an error's message, at most 200 characters of it."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 200 else text[:197] + "..."


def _within(seconds: float, function: Callable[[], object]) -> None:
    """Run a function that may hang or fail, and return after this time at the latest."""

    def run() -> None:
        with contextlib.suppress(Exception):
            function()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
