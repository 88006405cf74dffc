"""CIFAR-10 as TensorFlow Datasets keeps it in ArrayRecord files, which takes seconds to decode."""

import pathlib
from collections.abc import Callable

import numpy as np

from dawnjax.input_pipeline.reading import tfds_directory
from dawnjax.input_pipeline.reading.dataset import DataError, Split
from dawnjax.input_pipeline.reading.image_files import decode_image

_SPLITS: dict[Split, str] = {"train": "train", "eval": "test"}
_RECORDS_AT_ONCE = 1000


def find_version(directory: pathlib.Path) -> pathlib.Path | None:
    """Newest version; None where TFDS has no CIFAR-10."""
    return tfds_directory.find_version(directory, "cifar10")


def read_counts(version_directory: pathlib.Path) -> tuple[dict[Split, int], str]:
    """Number of examples of each split, and the metadata's fingerprint of 16 hex digits."""
    path = version_directory / tfds_directory.INFO_FILE
    info = tfds_directory.read_info(version_directory)
    if info["name"] != "cifar10":
        raise DataError(f"{path}: is of the dataset {info['name']!r}, not cifar10")
    numbers = tfds_directory.num_examples(info)
    if not set(_SPLITS.values()) <= set(numbers):
        raise DataError(f"{path}: damaged or without train and test")
    # A missing package must end a run here, before its clock starts, and not in `load`.
    tfds_directory.import_tfds(version_directory)
    counts: dict[Split, int] = {ours: numbers[theirs] for ours, theirs in _SPLITS.items()}
    return counts, tfds_directory.fingerprint(version_directory)


def read_split(
    version_directory: pathlib.Path,
    split: Split,
    progress: Callable[[int], None] = lambda count: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [N, 32, 32, 3] and labels int64 [N]; `progress` takes numbers of examples."""
    count = read_counts(version_directory)[0][split]
    name = _SPLITS[split]
    builder = tfds_directory.open_version(version_directory)
    source = tfds_directory.open_split(version_directory, builder, name, ["image"])
    images = np.empty((count, 32, 32, 3), np.uint8)
    labels = np.empty(count, np.int64)
    try:
        for start in range(0, count, _RECORDS_AT_ONCE):
            rows = range(start, min(start + _RECORDS_AT_ONCE, count))
            for row, record in zip(rows, source.__getitems__(list(rows)), strict=True):
                images[row] = decode_image(record["image"], 32, 32)
                labels[row] = record["label"]
            progress(len(rows))
    except Exception as error:
        raise tfds_directory.damaged(f"{version_directory}: split {name}", error) from None
    if ((labels < 0) | (labels > 9)).any():
        raise DataError(f"{version_directory}: split {name}: has a label out of range 0 to 9")
    return images, labels
