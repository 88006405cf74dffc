"""Photographs into the prepared form, one part after another, for data larger than memory.

A line of the journal follows each part of `ROWS_AT_ONCE` images onto the disk; after a kill, a
second call resumes behind the last whole line, if the source has the same names and sizes.
"""

import concurrent.futures
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np

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
)
from dawnjax.input_pipeline.reading import image_set, manifest
from dawnjax.input_pipeline.reading.dataset import Split
from dawnjax.input_pipeline.reading.image_set import ImageManifest
from dawnjax.input_pipeline.reading.photographs import Photographs, Source

JOURNAL_FILE = "prepare_journal"
ROWS_AT_ONCE = 512
"""Images in a part: 100 MB of squares of 256 pixels."""


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
            with (directory / JOURNAL_FILE).open("a") as journal:
                for split, photographs in source.splits.items():
                    _write_split(
                        directory, split, photographs, side, done.get(split, 0), journal, progress
                    )
            arrays = {
                name: np.load(directory / name, mmap_mode="r", allow_pickle=False)
                for name in image_set.FILES
            }
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
            record = json.loads(line)
            done[record["split"]] = record["rows"]
    else:
        names = [f"{split}_images.npy" for split in source.splits]
        if done and all((directory / name).exists() for name in names):
            return done
    for split, photographs in source.splits.items():
        count = len(photographs.labels)
        np.lib.format.open_memmap(
            directory / f"{split}_images.npy",
            "w+",
            np.uint8,
            (count, side, side, 3),
            # The version that `manifest.npy_blocks` writes: checksums cover the header.
            version=(1, 0),
        ).flush()
        np.save(directory / f"{split}_labels.npy", np.asarray(photographs.labels).astype("<i4"))
    (directory / JOURNAL_FILE).write_text(header + "\n")
    return {}


def whole_lines(path: pathlib.Path) -> Iterator[str]:
    """Whole lines of a journal; a kill can leave the last one torn."""
    if path.exists():
        for line in path.read_text(errors="replace").splitlines(keepends=True):
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
    images = np.load(path, mmap_mode="r+", allow_pickle=False)
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
            journal.write(json.dumps({"split": split, "rows": rows.stop}) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
            progress(len(rows))
