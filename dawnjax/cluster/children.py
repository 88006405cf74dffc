"""Child processes that end with their parent, however that ends.

Each has a process group of its own, so that Ctrl-C reaches it through this process alone, and what
it started ends with it. A signal that asks this process to stop is handed on, so that a child can
save. The kernel kills a child whose parent was killed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any

Child = subprocess.Popen[bytes]

REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""Signals that ask a process to stop. SIGHUP comes when a terminal is lost, SIGUSR1 where a batch
system warns of its time limit."""

_POLL_SECONDS = 0.05

_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""First steps of a child on Linux, in a Python of its own: JAX's threads forbid code between fork
and exec. It asks to be killed when its parent ends. Source: prctl(2), PR_SET_PDEATHSIG."""


def start(command: Sequence[str], **options: Any) -> Child:
    """Start a process in a group of its own, which dies when this process does, even killed.

    `options` are those of `subprocess.Popen`. The thread that calls this must last as long as the
    child: Linux takes its end for the parent's.
    """
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, *command]
    return subprocess.Popen[bytes](command, process_group=0, **options)


def send(child: Child, number: int) -> None:
    """Send a signal to a child and to what it has started in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


class Children:
    """Children in a block, each with its own last words; none is left after the block.

    Attributes:
      asked: Signals that asked this process to stop; each was handed to the children.
      running: Children that have not ended.
    """

    def __init__(self, stop_seconds: float):
        """`stop_seconds` is the time that children may take to save and end once asked to."""
        self.asked: list[signal.Signals] = []
        self.running: list[Child] = []
        self._stop_seconds = stop_seconds
        self._stop_at = float("inf")
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Children":
        for number in REQUESTS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as by nohup
                with contextlib.suppress(ValueError):  # outside the main thread
                    self._earlier[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for child in self.running:
            send(child, signal.SIGKILL)
            child.wait()
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def start(self, command: Sequence[str], stderr: Any, **options: Any) -> Child:
        """Start a child whose errors go to a file: nobody reads a pipe before its end."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **options}
        child = start(command, stderr=stderr, **given)
        self.running.append(child)
        if self.asked:  # it began between the signal and now
            send(child, signal.SIGTERM)
        return child

    def wait_for_one(self, seconds: float = float("inf")) -> list[Child]:
        """Wait until a child ends; returns those that have ended, whose groups are killed."""
        until = time.monotonic() + seconds
        while self.running and time.monotonic() < until:
            ended = [child for child in self.running if child.poll() is not None]
            for child in ended:
                self.running.remove(child)
                send(child, signal.SIGKILL)  # what it started and left
            if ended:
                return ended
            if time.monotonic() > self._stop_at:
                for child in self.running:
                    send(child, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        return []

    def ask(self, seconds: float) -> None:
        """Ask the children to stop, and kill those that still run after a time."""
        self._stop_at = min(self._stop_at, time.monotonic() + seconds)
        for child in list(self.running):
            send(child, signal.SIGTERM)

    def _hear(self, number: int, _: object) -> None:
        self.asked.append(signal.Signals(number))
        # A second Ctrl-C ends them at once.
        self.ask(0.0 if self.asked.count(signal.SIGINT) > 1 else self._stop_seconds)


def last_line(stderr: IO[bytes]) -> str:
    """Last line that a child wrote to its file of errors; empty without one."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - 10_000))
    lines = stderr.read().decode(errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "")
