"""Progress of compilation on standard error: which programs, how many, and how long still."""

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.status import Status
from rich.text import Text

from dawnjax.page import words
from dawnjax.text import escaped

Asked = TypeVar("Asked")
Made = TypeVar("Made")

AT_ONCE = 2
"""Systems side by side; the compilers of one took 0.8 to 3 GB together."""

USUAL_SECONDS = (5, 120)
"""Of one system on two cores, before any was compiled here: 5 to 77 s were measured."""

PLAIN_SECONDS = 10.0
"""Seconds between lines where the output is no terminal."""


class Compiling:
    """What is compiled now, of how many; a live line at a terminal, lines elsewhere."""

    def __init__(self, experiment: str, total: int):
        self._experiment, self._total = experiment, total
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        self._took: list[float] = []
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._status: Status | None = None

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Show a program as being compiled; one without a compiler does not count."""
        with self._lock:
            if self._status is None and self._console.is_terminal:
                self._status = self._console.status(self)
                self._status.start()
            self._began[name] = time.monotonic()
        self._show(self.text())
        compiled = False
        try:
            yield
            compiled = True
        finally:
            with self._lock:
                seconds = time.monotonic() - self._began.pop(name)
                if compiled:
                    self._took.append(seconds)
                else:
                    self._total -= 1
            if compiled:
                took = words.duration(round(seconds))
                self._console.print(Text(f"{escaped(name)} took {took}"))

    def map(self, make: Callable[[Asked], Made], asked: Iterable[Asked]) -> list[Made]:
        """Results of `make` by `AT_ONCE` threads; says every few seconds what is compiled still."""
        # XLA compiles outside Python's lock, so threads are enough.
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            futures = [pool.submit(make, each) for each in asked]
            try:
                while concurrent.futures.wait(futures, timeout=PLAIN_SECONDS).not_done:
                    if self._began:
                        self._show(self.text())
            finally:
                if self._status is not None:
                    self._status.stop()
        return [future.result() for future in futures]

    def text(self) -> str:
        """Programs that are compiled now, how many are done, and about how long still."""
        with self._lock:
            now = time.monotonic()
            running = {name: now - began for name, began in self._began.items()}
            done = len(self._took)
        parts = [f"{name} ({seconds:.0f} s)" for name, seconds in running.items()]
        total = max(self._total, done + len(running))  # a damaged entry is compiled anew
        left = time_left(total - done, list(running.values()), self._took)
        return (
            f"compiling {self._experiment} for {' and '.join(parts)}: "
            f"{done} of {total} done, {left}"
        )

    def _show(self, text: str) -> None:
        if self._status is None:  # a live line refreshes itself
            self._console.print(Text(escaped(text)))

    def __rich__(self) -> Text:
        return Text(escaped(self.text()))


def time_left(left: int, running: Sequence[float], took: Sequence[float]) -> str:
    """About how long still: from the programs that were compiled, or else as such things take.

    Args:
      left: Programs that are not compiled yet, those that run now included.
      running: Seconds for which each of these runs.
      took: Seconds that each finished program took.
    """
    if not took:
        rounds = -(-left // AT_ONCE)
        low, high = (rounds * seconds for seconds in USUAL_SECONDS)
        if max(running, default=0.0) > high:
            return f"longer than the usual {words.duration(high)}"
        return f"usually {words.duration(low)} to {words.duration(high)} in all"
    mean = sum(took) / len(took)
    still = sum(max(0.0, mean - seconds) for seconds in running) + mean * (left - len(running))
    if still < 1:
        return f"longer than the {words.duration(round(mean))} of the others"
    return f"about {words.duration(round(still / min(AT_ONCE, left)) or 1)} left"
