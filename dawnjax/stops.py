"""Stops inside the steps: to save, because the time is spent, or because a signal asks for it.

All processes must stop after the same call, or the others wait in a collective for the one that
stopped. So each process sends its wish with every call, the devices add the wishes up, and each
reads the sum of the call that lies a fixed number of calls back. That call has ended, so nobody
waits, and all read the same sum. A process alone looks at its own wish.
"""

import collections
import contextlib
import enum
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dawnjax.call_queue import CallMetrics, CallQueue
from dawnjax.cluster import processes
from dawnjax.errors import ExitStatus

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""A machine is taken back, Ctrl-C, a lost terminal, and a batch system's warning of its limit."""

ONE_REQUEST_SECONDS = 1.0
"""`timeout -s INT` sends a signal to the process and to its group: twice, for one request."""


class Wish(enum.IntEnum):
    """Why the steps should stop; the greater wins."""

    NONE = 0
    SAVE = 1
    BUDGET = 2
    INTERRUPT = 3


def wishes_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of the wishes of a call: float32 [devices, 3], a row on each device."""
    return NamedSharding(mesh, PartitionSpec(mesh.axis_names))


def wishes_shape(mesh: Mesh) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Last argument of a train call, as a shape; none for a process alone."""
    if jax.process_count() == 1:
        return ()
    shape = (mesh.size, len(Wish) - 1)
    return (jax.ShapeDtypeStruct(shape, np.float32, sharding=wishes_sharding(mesh)),)


class Stops:
    """This process's wish to stop, and what all processes agreed on.

    Attributes:
      wish: The greatest wish of this process.
    """

    def __init__(self, mesh: Mesh, calls_back: int = 1):
        """`calls_back` is the number of calls after which a wish is read, the same on all."""
        self.wish = Wish.NONE
        self._asked_at, self._is_alone = 0.0, jax.process_count() == 1
        self._calls_back = calls_back
        self._sums: collections.deque[jax.Array] = collections.deque()
        self._rows = {wish: _row(mesh, wish) for wish in Wish}

    def ask(self, wish: Wish) -> None:
        self.wish = max(self.wish, wish)

    def has_saved(self) -> None:
        if self.wish == Wish.SAVE:
            self.wish = Wish.NONE

    def row(self) -> tuple[jax.Array, ...]:
        """Last argument of the next call."""
        return self._rows[self.wish]

    def after_call(self, metrics: CallMetrics) -> Wish:
        """What all processes do after the call with these results."""
        if metrics.wishes is None:  # a process alone
            return self.wish
        self._sums.append(metrics.wishes)
        return self._oldest() if len(self._sums) > self._calls_back else Wish.NONE

    def when_drained(self) -> Wish:
        """What all processes do now that every call has ended."""
        if self._is_alone:
            return self.wish
        return max((self._oldest() for _ in range(len(self._sums))), default=Wish.NONE)

    def seconds_ahead(self, queue: CallQueue) -> float:
        """Seconds from a wish of this process until all follow it; 0 for a process alone."""
        if self._is_alone or not queue.steps_done:
            return 0.0
        return self._calls_back * queue.total_seconds / len(queue.seen_steps or [1])

    def agreed(self) -> Wish:
        """The greatest wish of any process; waits for all of them, who must ask alike."""
        return Wish(max(processes.gather(int(self.wish))))

    def is_interrupted(self) -> bool:
        return self.agreed() == Wish.INTERRUPT

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take signals as requests inside a block; in a thread other than the main one, do nothing.

        The first saves and ends the run, a second Ctrl-C ends the process at once.
        """
        earlier = {}
        for number in NUMBERS:
            # `nohup` ignores SIGHUP, and so do we then.
            if signal.getsignal(number) != signal.SIG_IGN:
                with contextlib.suppress(ValueError):
                    earlier[number] = signal.signal(number, self._hear)
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.wish == Wish.INTERRUPT:
            if number == signal.SIGINT and time.monotonic() - self._asked_at > ONE_REQUEST_SECONDS:
                os._exit(ExitStatus.INTERRUPTED)
            return
        self.ask(Wish.INTERRUPT)
        self._asked_at = time.monotonic()
        name = signal.Signals(number).name
        with contextlib.suppress(OSError):  # a lost terminal is why SIGHUP comes
            os.write(2, f"dawnjax: {name}: saving and stopping after this step\n".encode())

    def _oldest(self) -> Wish:
        sums = np.asarray(self._sums.popleft())
        return Wish(max(np.flatnonzero(sums) + 1, default=0))


def _row(mesh: Mesh, wish: Wish) -> tuple[jax.Array, ...]:
    rows = np.zeros((mesh.size, len(Wish) - 1), np.float32)
    if wish:
        rows[:, wish - 1] = 1.0
    # Each process makes the rows of its own devices: they differ where the wishes do.
    return tuple(
        jax.make_array_from_callback(shape.shape, shape.sharding, lambda index: rows[index])
        for shape in wishes_shape(mesh)
    )
