"""Labelled images into their prepared form, in place: they may be larger than memory twice over.

A killed process leaves a half-converted directory, which a second call completes. Files of others
are never touched.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.preparation.writing import (
    Outcome,
    held,
    named_write_errors,
    write_manifest,
    write_synced,
)
from dawnjax.input_pipeline.reading import image_set, manifest, overlap
from dawnjax.input_pipeline.reading.dataset import DataError, Split
from dawnjax.input_pipeline.reading.image_set import (
    KIND,
    SPLITS,
    ImageFacts,
    ImageManifest,
    channel_statistics,
    check_classes,
    check_images,
    class_counts,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """Both splits of a labelled image dataset in memory.

    Attributes:
      images: Per split, uint8 [num_examples, height, width, channels].
      labels: Per split, int [num_examples], positions in `classes`.
      source: Names no path of this machine.
    """

    classes: tuple[str, ...]
    images: dict[Split, np.ndarray]
    labels: dict[Split, np.ndarray]
    source: dict[str, str]


def write(
    directory: pathlib.Path,
    read_examples: Callable[[], Examples],
    *,
    dataset: str,
    overwrite: bool = False,
) -> tuple[ImageManifest, Outcome]:
    """Write the prepared form of a dataset, or find that it is there already, intact.

    A dataset that was there before stays until `read_examples` has read the new one whole.
    """
    refuse_other_files(directory, overwrite)
    with only_writer(directory):
        examples = read_examples()
        arrays = _arrays(examples)
        wanted = describe(dataset, examples.classes, arrays, examples.source)
        same = (dataset, image_set.fingerprint(wanted))
        there = held(
            directory, KIND, lambda it: (it.dataset, image_set.fingerprint(it)) == same, overwrite
        )
        if there is not None:
            return there, "unchanged"
        # From here to the end there is no manifest, so a reader cannot mistake the files.
        with named_write_errors(directory / manifest.FILE):
            (directory / manifest.FILE).unlink(missing_ok=True)
        for name, array in arrays.items():
            write_synced(directory / name, manifest.npy_blocks(array))
        write_manifest(directory, wanted)
    return wanted, "written"


def describe(
    dataset: str,
    classes: tuple[str, ...],
    arrays: Mapping[str, np.ndarray],
    source: dict[str, str],
) -> ImageManifest:
    labels: dict[Split, np.ndarray] = {split: arrays[f"{split}_labels.npy"] for split in SPLITS}
    check_classes(f"{dataset}:", labels, classes)
    facts = ImageFacts(
        num_examples={split: len(labels[split]) for split in SPLITS},
        classes=classes,
        class_counts={split: class_counts(labels[split], len(classes)) for split in SPLITS},
        statistics={split: channel_statistics(arrays[f"{split}_images.npy"]) for split in SPLITS},
        overlap=overlap.shared(
            overlap.rows(arrays["train_images.npy"]),
            overlap.rows(arrays["eval_images.npy"]),
            "images",
        ),
    )
    return KIND.make(dataset, facts, arrays, source)


def refuse_other_files(
    directory: pathlib.Path, overwrite: bool, kind: manifest.Kind[Any] = KIND
) -> None:
    """Refuse a directory with files of others, unless `overwrite` lets them lie there."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise DataError(f"{directory}: is not a directory")
    if overwrite or kind.is_begun(directory):
        return
    for file in directory.iterdir():
        raise DataError(
            f"{directory}: holds other files ({file.name}); choose another directory, or give "
            "--overwrite to write beside them"
        )


@contextlib.contextmanager
def only_writer(directory: pathlib.Path, kind: manifest.Kind[Any] = KIND) -> Iterator[None]:
    """Mark a directory as unfinished until the body is done, and keep other writers out.

    The mark stays if the process is killed, or if files could not be written. It goes if the body
    fails before it wrote anything, and so do the directories made for it.
    """
    path = directory / manifest.UNFINISHED_FILE
    made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    was_unfinished = kind.is_begun(directory)
    with contextlib.ExitStack() as stack:
        with named_write_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            marker = records.open_append(path)
            stack.callback(os.close, marker)
        try:
            if not records.lock(marker):
                print(f"note: {records.no_lock(directory)}", file=sys.stderr)
        except BlockingIOError:
            raise DataError(f"{directory}: another process is writing to it") from None
        try:
            yield
        except Exception:
            whole = (directory / manifest.FILE).exists()
            begun = any((directory / name).exists() for name in kind.files)
            if whole or not (was_unfinished or begun):
                path.unlink(missing_ok=True)
            if not begun:
                with contextlib.suppress(OSError):  # others may have put something there
                    for folder in made:
                        folder.rmdir()
            raise
        path.unlink(missing_ok=True)


def _arrays(examples: Examples) -> dict[str, np.ndarray]:
    arrays = {}
    for split in SPLITS:
        images, labels = examples.images[split], examples.labels[split]
        check_images(f"{split}: images", images)
        if labels.shape != images.shape[:1]:
            raise DataError(f"{split}: {len(images)} images with labels {labels.shape}; wanted [n]")
        if not len(images):
            raise DataError(f"{split}: no images")
        arrays[f"{split}_images.npy"] = np.ascontiguousarray(images)
        arrays[f"{split}_labels.npy"] = labels.astype("<i4")
    return arrays
