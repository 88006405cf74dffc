"""The values of a `dawnjax prepare` command line, and a dataset's way to be prepared."""

import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from dawnjax.input_pipeline.datasets.published import PublishedImages, declare_images
from dawnjax.input_pipeline.preparation.writing import Outcome
from dawnjax.input_pipeline.reading.dataset import directory_of, overlap_line
from dawnjax.input_pipeline.reading.image_set import ImageManifest, image_shape

SECONDS_BETWEEN_LINES = 2.0


class FlagError(Exception):
    """A flag that is missing, out of range or at odds with another; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag that only some datasets have."""

    name: str
    text: str
    kind: type[str] | type[int] = str


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
      overwrite: Replace other content in the directory, or write beside other files.
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
        """Directory to write to; without one, where the dataset is looked for."""
        return self.out or directory_of(dataset)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation:
    """One dataset's way from its originals to disk.

    Attributes:
      usage: Rest of a command line after `--dataset=NAME`; a text for each form.
      takes: The originals that it is prepared from, as lines of the help.
      flags: The flags that it has besides `--dataset`, `--from`, `--out` and `--overwrite`.
      run: Prepares it; returns what to print. Raises FlagError, or DataError for the data.
    """

    name: str
    usage: tuple[str, ...]
    takes: str
    flags: tuple[Flag, ...] = ()
    run: Callable[[Request], str]


def report_images(
    request: Request,
    out: pathlib.Path,
    prepared: tuple[ImageManifest, Outcome],
    published: PublishedImages | None = None,
) -> str:
    """Line about the images that a directory holds, and one if they are not the published set."""
    manifest, outcome = prepared
    facts = manifest.facts
    height, width, channels = image_shape(manifest)
    mean, std = (" ".join(f"{value:.4f}" for value in part) for part in facts.statistics["train"])
    line = (
        f"{out}: {DONE[outcome]}: {facts.num_examples['train']:,} train and "
        f"{facts.num_examples['eval']:,} eval images {height}x{width}x{channels} in "
        f"{len(facts.classes)} classes, from {manifest.source['kind']}, in "
        f"{request.progress.seconds:.1f} s; train mean {mean}, std {std}"
    )
    line += overlap_line(facts.overlap, "\nnote: ")
    declaration = None if published is None else declare_images(published, facts)
    if published is None or declaration is None or declaration.benchmark:
        return line
    return (
        f"{line}\nnote: this is not {published.benchmark}, and no result of it is one of "
        f"{published.benchmark}: {declaration.evidence}"
    )


DONE: dict[Outcome, str] = {
    "written": "written",
    "unchanged": "holds this already, nothing written",
}
"""Words for an outcome."""
