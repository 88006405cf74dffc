"""Child processes that end with their parent, however that ends.

A signal that asks the parent to stop is handed on, so that a child can save. A parent that is
killed takes its children with it, and so do they theirs: nothing keeps a GPU that nobody waits for,
and no folder of theirs is left.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import IO, Any

from dawnjax.cluster import stop_signals

Child = subprocess.Popen[bytes]

_POLL_SECONDS = 0.05

_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""First steps of a child, in a Python of its own: JAX's threads forbid code between fork and exec.

It asks to be killed when its parent ends (prctl(2), PR_SET_PDEATHSIG = 1; other systems than Linux
have no such call), unless the parent has ended already. A terminal may be set to stop what writes
to it from outside its foreground group, so it ignores that (SIGTTOU). Both outlast the exec.
"""


_REMOVE_AFTER_PARENT = """
import shutil, sys, time
sys.stdin.read()
for _ in range(20):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    time.sleep(0.1)
"""
"""Removes a folder when the parent ends, and again: children write until they are killed too."""


def start(command: Sequence[str], **options: Any) -> Child:
    """Start a process in a group of its own, which dies when this process does, even killed.

    `options` are those of `subprocess.Popen`. The thread that calls this must last as long as the
    child: Linux takes its end for the parent's.
    """
    bound = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
    with stop_signals.blocked():
        # Its own group, so that Ctrl-C reaches it through this process alone, and once.
        return subprocess.Popen[bytes](bound, process_group=0, **options)


def send(child: Child, number: int) -> None:
    """Send a signal to a child and to what it has started in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder for children, which goes with the block or with this process, even killed."""
    # A child that was killed may leave files that appear while they are removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-I", "-S", "-c", _REMOVE_AFTER_PARENT, folder]
        with stop_signals.blocked():  # it ends by the end of its input alone
            remover = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)
        with remover:
            try:
                yield folder
            finally:
                remover.kill()


def request_to(number: int) -> int:
    """Signal by which a child is asked to stop: a lost terminal or a time limit is one to it."""
    return signal.SIGINT if number == signal.SIGINT else signal.SIGTERM


class Children:
    """Children in a block, each with its own last words; none is left after the block.

    Attributes:
      asked: Signals that asked this process to stop; each was handed to the children.
    """

    def __init__(self, stop_seconds: float):
        """`stop_seconds` is the time that children may take to save and end once asked to."""
        self.asked: list[signal.Signals] = []
        self._stop_seconds = stop_seconds
        self._stop_at = float("inf")
        self._running: list[Child] = []
        self._hearing = contextlib.ExitStack()

    def __enter__(self) -> "Children":
        self._hearing.enter_context(stop_signals.heard_by(self._hear))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for child in self._running:
            send(child, signal.SIGKILL)
            child.wait()
        self._hearing.close()

    def start(self, command: Sequence[str], stderr: IO[bytes], **options: Any) -> Child:
        """Start a child whose errors go to a file: nobody reads a pipe before its end."""
        child = start(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, **options
        )
        self._running.append(child)
        if self.asked:  # it began between the signal and now
            send(child, request_to(self.asked[0]))
        return child

    def wait_for_one(self) -> list[Child]:
        """Wait until a child ends; returns those that have ended, whose groups are killed."""
        while self._running:
            ended = [child for child in self._running if child.poll() is not None]
            for child in ended:
                self._running.remove(child)
                send(child, signal.SIGKILL)  # what it started and left
            if ended:
                return ended
            if time.monotonic() > self._stop_at:
                for child in self._running:
                    send(child, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        return []

    def _hear(self, number: signal.Signals) -> None:
        self.asked.append(number)
        # A second Ctrl-C ends them at once; should one not hear it, it is made to.
        is_second = self.asked.count(signal.SIGINT) > 1
        seconds = 1.0 if is_second else self._stop_seconds
        self._stop_at = min(self._stop_at, time.monotonic() + seconds)
        for child in list(self._running):
            send(child, request_to(number))


def last_line(stderr: IO[bytes]) -> str:
    """Last line that a child wrote to its file of errors; empty without one."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - 10_000))
    lines = stderr.read().decode(errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "")
