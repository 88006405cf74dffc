"""How long the other processes of a run wait for this one, where collectives go over TCP (Gloo).

Before a collective, each process tells its peers that it has come. A process whose peers have
spoken since its own last word is the one that they wait for, wherever its delay is: in its input,
its Python, or within the step, which takes equally long on all hosts. The kernel keeps the times.

Source: Linux, `include/uapi/linux/tcp.h`, `struct tcp_info`, for the places of the fields.
"""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence

PERIOD_SECONDS = 0.05
"""Between two looks at the sockets, of some microseconds each."""

LEAST_MILLISECONDS = 8
"""By how much the peers must have spoken later: the kernel's clock may tick every 4 ms, and what
all say as they come crosses on the way. A wait shorter than this is not seen."""

_LAST_SENT, _LAST_RECEIVED = 44, 52
"""Places of `tcpi_last_data_sent` and `tcpi_last_data_recv`, milliseconds, in the structure."""

Ends = tuple[tuple[str, int], tuple[str, int]]
"""Address and port of a connection here, and there."""


def connections(without_port: int) -> dict[int, Ends]:
    """TCP connections of this process by file descriptor, but those with a port at an end."""
    found: dict[int, Ends] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
        # A copy, which may be closed.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6):
                here, there = copy.getsockname()[:2], copy.getpeername()[:2]
                if without_port not in (here[1], there[1]):
                    found[int(name)] = (here, there)
    return found


def between(
    own: Mapping[int, Ends], of_all: Sequence[Sequence[Sequence[Sequence[str | int]]]]
) -> list[int]:
    """Descriptors of the connections whose other end is a process of the run."""
    ends = {(tuple(there), tuple(here)) for connections in of_all for here, there in connections}
    return [number for number, pair in own.items() if pair in ends]


class Waits:
    """Time that the peers have waited for this process, counted in a thread of its own.

    Attributes:
      owed_seconds: At the least; 0 before the first look.
    """

    def __init__(self, descriptors: Sequence[int], counts: Callable[[], bool]):
        """Begin to look; only moments at which `counts` holds are counted."""
        self._counts = counts
        self.owed_seconds = 0.0
        self._descriptors = list(descriptors)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        then = time.perf_counter()
        while not self._stopped.wait(PERIOD_SECONDS):
            now = time.perf_counter()
            try:
                times = [_last_words(number) for number in self._descriptors]
            except OSError:  # a connection was closed: the run ends
                return
            silent, heard = (min(column) for column in zip(*times, strict=True))
            if silent - heard >= LEAST_MILLISECONDS and self._counts():
                self.owed_seconds += now - then
            then = now


def _last_words(descriptor: int) -> tuple[int, int]:
    """Milliseconds since a connection has sent data, and since it has received any."""
    # Without a copy of the descriptor, which would keep the connection from being closed.
    view = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        told = view.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_RECEIVED + 4)
    finally:
        view.detach()
    (sent,) = struct.unpack_from("=I", told, _LAST_SENT)
    (received,) = struct.unpack_from("=I", told, _LAST_RECEIVED)
    return sent, received
