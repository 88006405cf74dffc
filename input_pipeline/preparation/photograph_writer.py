"""Photographs into the prepared form, one part after another, for data larger than memory.

A line of the journal follows each part of `ROWS_AT_ONCE` images onto the disk; after a kill, a
second call resumes behind the last whole line, if the source has the same names and sizes.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.preparation.image_writer import (
    describe,
    only_writer,
    refuse_other_files,
)
from dawnjax.input_pipeline.preparation.writing import (
    Outcome,
    held,
    named_write_errors,
    write_manifest,
    write_synced,
)
from dawnjax.input_pipeline.reading import image_set, manifest, npy_files
from dawnjax.input_pipeline.reading.dataset import Split
from dawnjax.input_pipeline.reading.image_set import ImageManifest
from dawnjax.input_pipeline.reading.photographs import Photographs, Source

JOURNAL_FILE = "prepare_journal"
ROWS_AT_ONCE = 512
"""Images in a part: 100 MB of squares of 256 pixels."""


@dataclasses.dataclass(frozen=True)
class _Part:
    """Line of the journal: so many rows of a split are on disk."""

    split: Split
    rows: int


def write(
    directory: pathlib.Path,
    source: Source,
    *,
    dataset: str,
    side: int,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> tuple[ImageManifest, Outcome]:
    """Write prepared squares of `side` pixels, or find that they are there, intact."""
    refuse_other_files(directory, overwrite)
    with only_writer(directory):
        same = (dataset, (side, side, 3), source.listing)
        there = held(
            directory,
            image_set.KIND,
            lambda it: (it.dataset, image_set.image_shape(it), it.source.get("listing")) == same,
            overwrite,
        )
        if there is not None:
            return there, "unchanged"
        with named_write_errors(directory):
            (directory / manifest.FILE).unlink(missing_ok=True)
            done = _begin_or_resume(directory, source, side)
            with os.fdopen(records.open_append(directory / JOURNAL_FILE), "a") as journal:
                for split, photographs in source.splits.items():
                    _write_split(
                        directory, split, photographs, side, done.get(split, 0), journal, progress
                    )
            arrays = {name: npy_files.map_array(directory / name) for name in image_set.FILES}
        made_from = {"kind": source.kind, "listing": source.listing}
        wanted = describe(dataset, source.classes, arrays, made_from)
        write_manifest(directory, wanted)
        (directory / JOURNAL_FILE).unlink(missing_ok=True)
    return wanted, "written"


def _begin_or_resume(directory: pathlib.Path, source: Source, side: int) -> dict[Split, int]:
    """Rows of each split that are on disk; the files are made where none are."""
    header = json.dumps({"listing": source.listing, "side": side})
    done: dict[Split, int] = {}
    for index, line in enumerate(whole_lines(directory / JOURNAL_FILE)):
        if index == 0 and line != header:
            break
        if index > 0:
            try:
                record = records.decode(line, _Part)
            except ValueError:
                break
            if record.split not in source.splits:
                break
            # More rows than there are would leave images that nobody wrote.
            if not 1 <= record.rows <= len(source.splits[record.split].labels):
                break
            done[record.split] = record.rows
    else:
        files = [directory / f"{split}_images.npy" for split in source.splits]
        if done and all(file.is_file() and not file.is_symlink() for file in files):
            return done
    for split, photographs in source.splits.items():
        count = len(photographs.labels)
        images = directory / f"{split}_images.npy"
        images.unlink(missing_ok=True)  # a link would be followed
        # The version that `manifest.npy_blocks` writes: checksums cover the header.
        version = (1, 0)
        shape = (count, side, side, 3)
        np.lib.format.open_memmap(images, "w+", np.uint8, shape, version=version).flush()
        labels = np.asarray(photographs.labels).astype("<i4")
        write_synced(directory / f"{split}_labels.npy", manifest.npy_blocks(labels))
    records.write(directory / JOURNAL_FILE, header + "\n")
    return {}


def whole_lines(path: pathlib.Path) -> Iterator[str]:
    """Whole lines of a journal; a kill can leave the last one torn."""
    if path.is_file():
        text = records.read_plain(path).decode(errors="replace")
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                yield line.rstrip("\n")


def _write_split(
    directory: pathlib.Path,
    split: Split,
    photographs: Photographs,
    side: int,
    first: int,
    journal: IO[str],
    progress: Callable[[int], None],
) -> None:
    path = directory / f"{split}_images.npy"
    images = np.lib.format.open_memmap(path, "r+")
    count = len(photographs.labels)
    # OpenCV lets other threads run while it decodes.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        for start in range(first, count, ROWS_AT_ONCE):
            rows = range(start, min(start + ROWS_AT_ONCE, count))
            squares = threads.map(lambda row: photographs.square(row, side), rows)
            for row, square in zip(rows, squares, strict=True):
                images[row] = square
            # Pixels before the journal's line, which vouches for them.
            images.flush()
            journal.write(json.dumps(records.plain(_Part(split, rows.stop))) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
            progress(len(rows))
