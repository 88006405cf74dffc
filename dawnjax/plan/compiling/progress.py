"""Progress of compilation on standard error: what is compiled now, and how long it took."""

import concurrent.futures
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from dawnjax.page import words
from dawnjax.text import escaped

Asked = TypeVar("Asked")
Made = TypeVar("Made")

AT_ONCE = 2
"""Systems side by side; the compilers of one took 0.8 to 3 GB together."""


class Compiling:
    """What is compiled now; a live line each at a terminal, plain lines elsewhere."""

    def __init__(self, experiment: str):
        self._experiment = experiment
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False))
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Show programs while they are compiled, and how long that took."""
        text = escaped(f"compiling {self._experiment} for {name}")
        console = self._progress.console
        if not console.is_terminal:
            console.print(Text(text))
        shown, began = self._progress.add_task(text, total=None), time.monotonic()
        try:
            yield
        finally:
            self._progress.remove_task(shown)
        console.print(Text(f"{escaped(name)} took {words.duration(time.monotonic() - began)}"))

    def map(self, make: Callable[[Asked], Made], asked: Iterable[Asked]) -> list[Made]:
        """Results of `make`, by `AT_ONCE` threads: XLA compiles in processes of its own."""
        with self._progress, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(make, asked))
