"""A data set's way to be prepared: what `dawnjax prepare` asks of it and is given to write."""

import dataclasses
import hashlib
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from dawnjax.input_pipeline.reading import columns
from dawnjax.input_pipeline.reading.columns import Made
from dawnjax.input_pipeline.reading.dataset import directory_of

SECONDS_BETWEEN_LINES = 2.0


class FlagError(Exception):
    """A flag that is missing, out of range or at odds with another; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag that only some datasets have."""

    name: str
    text: str
    kind: type[str] | type[int] | type[float] = str


class Progress:
    """Line on standard error, every other second, with the number of examples read."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self._count = 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def add(self, count: int) -> None:
        self._count += count
        now = time.perf_counter()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            self.say(f"{self._count:,} images read in {self.seconds:.0f} s")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Values of a command line.

    Attributes:
      overwrite: Replace other content of the directory.
      flags: The values of the dataset's own flags, None where one was not given.
    """

    source: pathlib.Path | None
    out: pathlib.Path | None
    overwrite: bool
    flags: Mapping[str, Any]
    progress: Progress

    def required_source(self) -> pathlib.Path:
        """Value of `--from`; raises FlagError where it was not given."""
        if self.source is None:
            raise FlagError("--from is missing: the archive, folder or .npz to convert")
        return self.source

    def out_for(self, dataset: str) -> pathlib.Path:
        """Directory to write to; without one, where the dataset is looked for.

        DataError if it holds something else, before anything is read.
        """
        out = self.out or directory_of(dataset)
        columns.refuse_strangers(out)
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation:
    """One dataset's way from its originals to disk.

    Attributes:
      usage: Rest of a command line after `--dataset=NAME`; a text for each form.
      takes: The originals that it is prepared from, as lines of the help.
      flags: The flags that it has besides `--dataset`, `--from`, `--out` and `--overwrite`.
      run: Reads the originals; returns what to write. Raises FlagError, or DataError for the data.
    """

    name: str
    usage: tuple[str, ...]
    takes: str
    flags: tuple[Flag, ...] = ()
    run: Callable[[Request], Made[Any]]


def check_fraction(fraction: float | None) -> None:
    """Refuse a fraction of a whole that leaves nothing on a side."""
    if fraction is not None and not 0 < fraction < 1:
        raise FlagError(f"--eval_fraction={fraction} must lie between 0 and 1")


def is_evaluated(content: bytes, fraction: float) -> bool:
    """Whether an example is of the part to evaluate: equal contents are of one part."""
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64
