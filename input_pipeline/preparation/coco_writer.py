"""Images with objects into their prepared form, in place: COCO's images have 19 GB.

A line of the journal follows each part of `FILES_AT_ONCE` images onto the disk; after a kill, a
second call resumes behind the last whole line, if names, sizes and annotations are the same.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import mmap
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.datasets.coco import ARRAYS, KIND, SPLITS, ObjectFacts
from dawnjax.input_pipeline.preparation.archives import Member
from dawnjax.input_pipeline.preparation.coco_annotations import Annotations
from dawnjax.input_pipeline.preparation.image_writer import only_writer, refuse_other_files
from dawnjax.input_pipeline.preparation.photograph_writer import JOURNAL_FILE, whole_lines
from dawnjax.input_pipeline.preparation.writing import (
    Outcome,
    held,
    named_write_errors,
    write_manifest,
    write_synced,
)
from dawnjax.input_pipeline.reading import manifest, overlap
from dawnjax.input_pipeline.reading.dataset import DataError, Overlap, Split
from dawnjax.input_pipeline.reading.image_files import decode_image
from dawnjax.input_pipeline.reading.manifest import Manifest, npy_blocks

FILES_AT_ONCE = 256

Spans = dict[Split, dict[int, tuple[int, int]]]
"""First byte and number of bytes of each image, by split and row."""


@dataclasses.dataclass(frozen=True)
class _Part:
    """Line of the journal: so many files are on disk, and where the newest images lie.

    An image is its split, row, first byte and number of bytes.
    """

    files: int
    images: list[tuple[Split, int, int, int]]


Place = tuple[Split, int]
"""A split and the position of an image in it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Images with objects, before they are prepared.

    Attributes:
      name: Of the data set.
      annotations: Of each split.
      places: The images that a file of the source is, by its name there; all are in it.
      members: Yields the files in an order that does not change.
      listing: Hash of names, sizes and annotations.
    """

    name: str
    annotations: dict[Split, Annotations]
    places: dict[str, list[Place]]
    members: Callable[[], Iterator[Member]]
    listing: str


def write(
    directory: pathlib.Path,
    source: Source,
    *,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> tuple[Manifest[ObjectFacts], Outcome]:
    """Write the prepared form, or find that it is there, intact."""
    refuse_other_files(directory, overwrite, KIND)
    with only_writer(directory, KIND):
        same = (source.name, source.listing)
        there = held(
            directory, KIND, lambda it: (it.dataset, it.source.get("listing")) == same, overwrite
        )
        if there is not None:
            return there, "unchanged"
        with named_write_errors(directory):
            (directory / manifest.FILE).unlink(missing_ok=True)
            spans = _copy_images(directory, source, progress)
        contents: dict[str, Any] = {}
        for split in SPLITS:
            arrays, masks = _arrays(source.annotations[split], spans[split])
            for name, array in arrays.items():
                contents[f"{split}_{name}.npy"] = array
                write_synced(directory / f"{split}_{name}.npy", npy_blocks(array))
            contents[f"{split}_masks.bin"] = masks
            write_synced(directory / f"{split}_masks.bin", [masks])
            contents[f"{split}_images.bin"] = _mapped(directory / f"{split}_images.bin")
        facts = dataclasses.replace(_facts(source), overlap=_overlap(contents))
        made = KIND.make(source.name, facts, contents, {"listing": source.listing})
        write_manifest(directory, made)
        (directory / JOURNAL_FILE).unlink(missing_ok=True)
    return made, "written"


def _mapped(path: pathlib.Path) -> memoryview:
    if not path.stat().st_size:
        return memoryview(b"")
    with records.open_plain(path) as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _facts(source: Source) -> ObjectFacts:
    train, evaluated = (source.annotations[split] for split in SPLITS)
    return ObjectFacts(
        classes=train.objects.names,
        category_ids=tuple(category.id for category in train.categories),
        counts={"train": train.counts, "eval": evaluated.counts},
        most_objects={
            split: int(source.annotations[split].objects.counts.max()) for split in SPLITS
        },
        has_masks=train.objects.masks is not None,
    )


def _overlap(contents: dict[str, Any]) -> Overlap | None:
    """Images whose bytes are in both splits."""

    def reader(split: Split) -> Callable[[int], bytes]:
        starts, lengths = (contents[f"{split}_{name}.npy"] for name in ("starts", "lengths"))
        images = contents[f"{split}_images.bin"]
        return lambda row: bytes(images[starts[row] : starts[row] + lengths[row]])

    sizes = (contents["train_lengths.npy"], contents["eval_lengths.npy"])
    return overlap.shared_files(sizes, (reader("train"), reader("eval")), "images")


def _arrays(
    annotations: Annotations, spans: dict[int, tuple[int, int]]
) -> tuple[dict[str, np.ndarray], bytes]:
    objects = annotations.objects
    arrays = {name: getattr(objects, name) for name in ARRAYS if hasattr(objects, name)}
    in_order = np.array([spans[row] for row in range(len(annotations.images))], np.int64)
    arrays["starts"], arrays["lengths"] = in_order[:, 0].copy(), in_order[:, 1].copy()
    masks = list(objects.masks or ())
    arrays["mask_ends"] = np.cumsum([len(mask) for mask in masks], dtype=np.int64)
    return arrays, b"".join(masks)


def _copy_images(directory: pathlib.Path, source: Source, progress: Callable[[int], None]) -> Spans:
    """Check and copy all images; returns where each lies."""
    done, spans = _begin_or_resume(directory, source)
    wanted = (member for member in source.members() if member.name in source.places)
    places = [p for member in itertools.islice(wanted, done) for p in source.places[member.name]]
    if sorted(places) != sorted((split, row) for split in SPLITS for row in spans[split]):
        raise DataError(f"{directory / JOURNAL_FILE}: is damaged; remove it, and prepare again")
    files = {s: os.fdopen(records.open_append(path), "ab") for s, path in _paths(directory).items()}
    threads = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1)
    journal = os.fdopen(records.open_append(directory / JOURNAL_FILE), "a")
    with files["train"], files["eval"], threads, journal:
        # A tar is read in its order; what is decoded at once was read before.
        while contents := [(m, m.read()) for m in itertools.islice(wanted, FILES_AT_ONCE)]:
            jobs = [threads.submit(check_image, source, member, data) for member, data in contents]
            for job in jobs:
                job.result()
            written = []
            for member, data in contents:
                for split, row in source.places[member.name]:
                    written.append((split, row, files[split].tell(), len(data)))
                    files[split].write(data)
            for file in files.values():  # before the journal's line, which vouches for them
                file.flush()
                os.fsync(file.fileno())
            done += len(contents)
            journal.write(json.dumps(records.plain(_Part(done, written))) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
            for split, row, start, length in written:
                spans[split][row] = (start, length)
            progress(len(contents))
    return spans


def check_image(source: Source, member: Member, data: bytes) -> None:
    for split, row in source.places[member.name]:
        annotations = source.annotations[split]
        image = annotations.images[row]
        try:
            decode_image(data, image.height, image.width)
        except DataError as error:
            raise DataError(
                f"{member.source}: {member.name} {error} (image {image.id} of "
                f"{annotations.where[row]})"
            ) from None


def _paths(directory: pathlib.Path) -> dict[Split, pathlib.Path]:
    return {split: directory / f"{split}_images.bin" for split in SPLITS}


def _begin_or_resume(directory: pathlib.Path, source: Source) -> tuple[int, Spans]:
    """Files of the source that are on disk, and where each image lies."""
    header = json.dumps({"listing": source.listing})
    paths, journal = _paths(directory), directory / JOURNAL_FILE
    lines = list(whole_lines(journal))
    there = _spans_of(lines[1:], source) if lines[:1] == [header] else None
    if there is not None:
        done, spans = there
        ends = {s: sum(length for _, length in spans[s].values()) for s in SPLITS}
        if all(_holds(paths[split], ends[split]) for split in SPLITS):
            for split in SPLITS:  # a kill can leave bytes that no line vouches for
                os.truncate(paths[split], ends[split])
            records.write(journal, "".join(f"{line}\n" for line in lines))
            return done, spans
    for path in paths.values():
        write_synced(path, [])
    records.write(journal, header + "\n")
    return 0, {split: {} for split in SPLITS}


def _spans_of(lines: list[str], source: Source) -> tuple[int, Spans] | None:
    """Files and spans that the lines of a journal vouch for; None if one is damaged."""
    done = 0
    spans: Spans = {split: {} for split in SPLITS}
    ends = dict.fromkeys(SPLITS, 0)
    for line in lines:
        try:
            part = records.decode(line, _Part)
        except ValueError:
            return None
        if not done < part.files <= len(source.places):
            return None
        done = part.files
        for split, row, start, length in part.images:
            rows = range(len(source.annotations[split].images))
            if row not in rows or row in spans[split] or start != ends[split] or length < 1:
                return None
            spans[split][row] = (start, length)
            ends[split] += length
    return done, spans


def _holds(path: pathlib.Path, num_bytes: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size >= num_bytes
