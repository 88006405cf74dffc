"""A process that the judge started in a sandbox, heard by a pipe and bounded from outside."""

import contextlib
import math
import os
import select
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import psutil

from dawnjax.cluster import children
from dawnjax.race.tracks import Limits

_LOOK_SECONDS = 0.25
"""Between two looks at memory, processes and files."""

_MOST_FILES = 20_000


class LimitError(Exception):
    """The process broke a limit, or ended before its word; one line."""


class Guarded:
    """A process in a block; none of what it started is left after the block.

    Attributes:
      began: Moment of its start, by this process's clock.
    """

    def __init__(self, limits: Limits, writes_to: Path):
        """`writes_to` is the folder that the process may fill."""
        self._limits, self._folder = limits, writes_to
        # The process inherits one end of each; its numbers go into its command.
        self._say_reader, self.say = os.pipe()
        self.hear, self._hear_writer = os.pipe()
        self._open = {self._say_reader, self.say, self.hear, self._hear_writer}
        self._stack = contextlib.ExitStack()
        self._child: children.Child | None = None
        self.began = 0.0

    def __enter__(self) -> "Guarded":
        self._stderr = self._stack.enter_context(tempfile.TemporaryFile())
        self._children = self._stack.enter_context(children.Children(stop_seconds=0.0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.end()
        self._stack.close()
        self._close(*self._open)

    def _close(self, *numbers: int) -> None:
        for number in numbers:
            self._open.remove(number)
            os.close(number)

    def start(self, command: Sequence[str], env: dict[str, str]) -> None:
        self.began = time.monotonic()
        self._child = self._children.start(
            command, self._stderr, env=env, pass_fds=(self.say, self.hear)
        )
        # Else the pipe would not end with the process.
        self._close(self.say, self.hear)

    def wait_for(self, word: bytes) -> float:
        """Wait until the process says a word; returns the moment.

        Raises:
          LimitError: It ended, said something else, or broke a limit.
          KeyboardInterrupt: This process was asked to stop.
        """
        while True:
            ready, _, _ = select.select([self._say_reader], [], [], _LOOK_SECONDS)
            moment = time.monotonic()
            # First: a process that ended with this one broke no rule.
            if self._children.asked:
                raise KeyboardInterrupt
            if ready:
                said = os.read(self._say_reader, 1)
                if said == word:
                    return moment
                raise LimitError(self._last_words() if not said else "it spoke out of turn")
            self._refuse_excess(moment)

    def tell(self, word: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended; the next wait says so
            os.write(self._hear_writer, word)

    def end(self) -> None:
        """End the process and all that it started, at once."""
        if self._child is not None:
            children.send(self._child, signal.SIGKILL)
            self._child.wait()

    def _last_words(self) -> str:
        assert self._child is not None
        with contextlib.suppress(Exception):  # its pipe may have ended a moment before it
            self._child.wait(timeout=2.0)
        line = children.last_line(self._stderr)
        return f"it ended: {line or f'status {self._child.returncode}'}"[:400]

    def _refuse_excess(self, moment: float) -> None:
        if moment - self.began > self._limits.seconds:
            raise LimitError(f"it took more than {self._limits.seconds:g} s")
        assert self._child is not None
        memory = count = 0
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(self._child.pid)
            for process in [parent, *parent.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    memory += process.memory_info().rss
                    count += 1
        if memory > self._limits.memory_gib * 2**30:
            raise LimitError(f"it took more than {self._limits.memory_gib:g} GiB of memory")
        if count > self._limits.processes:
            raise LimitError(f"it had more than {self._limits.processes} processes")
        said = os.fstat(self._stderr.fileno()).st_size
        if _bytes_in(self._folder) + said > self._limits.disk_gib * 2**30:
            raise LimitError(f"it saved more than {self._limits.disk_gib:g} GiB")


def _bytes_in(folder: Path) -> float:
    """Bytes of the files in a folder; infinite for more than 20,000 of them. No link is followed.

    Files may come and go meanwhile.
    """
    waiting, size, count = [os.fspath(folder)], 0, 0
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as items:
            for item in items:
                count += 1
                if count > _MOST_FILES:
                    return math.inf
                if item.is_dir(follow_symlinks=False):
                    waiting.append(item.path)
                else:
                    size += item.stat(follow_symlinks=False).st_size
    return size
