"""CIFAR-10 as TensorFlow Datasets keeps it on disk in ArrayRecord files, without TensorFlow.

`tfds.builder("cifar10", data_dir=..., file_format="array_record").download_and_prepare()` makes
such a directory. Reading all 60,000 images from it takes some seconds, on the clock, in each run;
`dawnjax prepare --from` reads it once.
"""

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dawnjax.input_pipeline.dataset import DataError, Split
from dawnjax.input_pipeline.image_files import decode_image

_INFO_FILE = "dataset_info.json"
_SPLITS: dict[Split, str] = {"train": "train", "eval": "test"}
_RECORDS_AT_ONCE = 1000


def find_version(directory: pathlib.Path) -> pathlib.Path | None:
    """Gives the directory of the newest version, or None where TFDS has no CIFAR-10.

    Args:
      directory: A TFDS data directory (with `cifar10/<version>/`), its `cifar10`, or a version.
    """
    patterns = (_INFO_FILE, f"[0-9]*/{_INFO_FILE}", f"cifar10/[0-9]*/{_INFO_FILE}")
    for pattern in patterns:
        versions = [path.parent for path in directory.glob(pattern)]
        if versions:
            return max(versions, key=_version_key)
    return None


def _version_key(path: pathlib.Path) -> list[int]:
    return [int(part) for part in path.name.split(".") if part.isdecimal()]


def read_counts(version_directory: pathlib.Path) -> tuple[dict[Split, int], str]:
    """Gives the number of examples of each split and a fingerprint of 16 hex digits.

    It reads metadata only. The fingerprint is of the metadata, which has the size of each split in
    bytes but no checksum of it.

    Raises:
      DataError: Damaged metadata, another dataset, another file format, or TFDS is not installed.
    """
    path = version_directory / _INFO_FILE
    try:
        info = json.loads(path.read_bytes())
        name, file_format = info["name"], info.get("fileFormat", "tfrecord")
        splits = {split["name"]: split for split in info["splits"]}
        counts: dict[Split, int] = {
            ours: sum(int(length) for length in splits[theirs]["shardLengths"])
            for ours, theirs in _SPLITS.items()
        }
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: damaged or without train and test ({error!r})") from None
    if name != "cifar10":
        raise DataError(f"{path}: is of the dataset {name!r}, not cifar10")
    if file_format != "array_record":
        raise DataError(
            f"{path}: is in the format {file_format!r}; only array_record can be read without "
            "TensorFlow: build it with tfds.builder(..., file_format='array_record')"
        )
    _import_tfds(version_directory)
    text = json.dumps([name, info.get("version"), info["splits"]], sort_keys=True)
    return counts, hashlib.sha256(text.encode()).hexdigest()[:16]


def read_split(
    version_directory: pathlib.Path,
    split: Split,
    progress: Callable[[int], None] = lambda count: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Gives the images uint8 [N, 32, 32, 3] and labels int64 [N] of one split, decoded and checked.

    Args:
      version_directory: What `find_version` gave.
      split: Which split.
      progress: Called now and then with the number of examples read since the last call.

    Raises:
      DataError: Damaged, not CIFAR-10, or TFDS is not installed.
    """
    count = read_counts(version_directory)[0][split]
    tfds = _import_tfds(version_directory)
    where = f"{version_directory}: split {_SPLITS[split]}"
    images = np.empty((count, 32, 32, 3), np.uint8)
    labels = np.empty(count, np.int64)
    try:
        builder = tfds.builder_from_directory(str(version_directory))
        source = builder.as_data_source(
            split=_SPLITS[split], decoders={"image": tfds.decode.SkipDecoding()}
        )
        for start in range(0, count, _RECORDS_AT_ONCE):
            rows = range(start, min(start + _RECORDS_AT_ONCE, count))
            for row, record in zip(rows, source.__getitems__(list(rows)), strict=True):
                images[row] = decode_image(record["image"], 32, 32)
                labels[row] = record["label"]
            progress(len(rows))
    except ImportError as error:
        raise _not_installed(version_directory, error) from None
    except Exception as error:
        # ArrayRecord and TFDS raise many kinds of errors on damaged files.
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{where}: damaged or cut short: {reason}") from None
    if ((labels < 0) | (labels > 9)).any():
        raise DataError(f"{where}: has a label out of range 0 to 9")
    return images, labels


def _import_tfds(where: pathlib.Path) -> Any:
    try:
        import tensorflow_datasets as tfds  # an optional dependency
    except ImportError as error:
        raise _not_installed(where, error) from None
    return tfds


def _not_installed(where: pathlib.Path, error: ImportError) -> DataError:
    return DataError(
        f"{where}: reading TensorFlow Datasets needs packages that are not installed ({error}): "
        "pip install 'dawnjax[tfds]'"
    )
