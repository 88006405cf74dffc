"""ImageNet in the forms in which it is found: image folders, or TensorFlow Datasets on disk.

- image folders: `train/<class>/*` and `val/<class>/*` (or `validation`, `eval`, `test`), JPEG or
  PNG whatever their names end with;
- TensorFlow Datasets: a directory of `imagenet2012` in ArrayRecord files, read without TensorFlow.

A source is listed first, then its images are read in any order.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dawnjax.input_pipeline import tfds_directory
from dawnjax.input_pipeline.dataset import DataError, Split
from dawnjax.input_pipeline.image_files import decode_square
from dawnjax.input_pipeline.rows_on_demand import RowsOnDemand

_EVAL_FOLDERS = ("val", "validation", "eval", "test")
_TFDS_NAME = "imagenet2012"


@dataclasses.dataclass(frozen=True)
class Photographs:
    """The photographs of one split.

    Attributes:
      labels: int32 [n], positions in the source's classes; some sources read them on demand.
      read: Gives the file of one photograph, and its name for messages.
    """

    labels: np.ndarray | RowsOnDemand
    read: Callable[[int], tuple[bytes, str]]

    def square(self, index: int, side: int) -> np.ndarray:
        """Gives one photograph as uint8 [side, side, 3].

        Raises:
          DataError: It cannot be read or decoded; one line that names it.
        """
        content, name = self.read(index)
        try:
            return decode_square(content, side)
        except DataError as error:
            raise DataError(f"{name} {error}") from None

    def squares(self, side: int) -> RowsOnDemand:
        """Gives all of them as uint8 [n, side, side, 3], each decoded when it is asked for."""
        return RowsOnDemand(
            len(self.labels), (side, side, 3), "uint8", lambda index: self.square(index, side)
        )


@dataclasses.dataclass(frozen=True)
class Source:
    """A listed source.

    Attributes:
      kind: What it is, in words.
      classes: Name of each class, sorted.
      splits: Its photographs.
      listing: Hash of all names and sizes: another one means other data.
    """

    kind: str
    classes: tuple[str, ...]
    splits: dict[Split, Photographs]
    listing: str


def is_source(path: pathlib.Path) -> bool:
    """Says whether a folder looks like one of these forms."""
    return (path / "train").is_dir() or tfds_directory.find_version(path, _TFDS_NAME) is not None


def open_source(path: pathlib.Path) -> Source:
    """Lists a source, without reading an image.

    Raises:
      DataError: Not found, in no known form, or not whole.
    """
    if not path.is_dir():
        what = "is no folder" if path.exists() else "does not exist"
        raise DataError(
            f"{path}: {what}; ImageNet is read from train/<class>/* and val/<class>/*, or from a "
            "TFDS directory"
        )
    version = tfds_directory.find_version(path, _TFDS_NAME)
    return _open_tfds(version) if version else _open_folders(path)


def _open_folders(path: pathlib.Path) -> Source:
    folders: dict[Split, pathlib.Path] = {"train": path / "train"}
    found = [name for name in _EVAL_FOLDERS if (path / name).is_dir()]
    if not folders["train"].is_dir() or not found:
        raise DataError(
            f"{path}: holds no known form of ImageNet (train/<class>/* and val/<class>/*, or TFDS "
            "ArrayRecord files)"
        )
    folders["eval"] = path / found[0]
    classes = tuple(sorted(entry.name for entry in folders["train"].iterdir() if entry.is_dir()))
    if not classes:
        raise DataError(f"{folders['train']}: has no class folders")
    numbers = {name: number for number, name in enumerate(classes)}
    splits: dict[Split, Photographs] = {}
    digest = hashlib.sha256(json.dumps(classes).encode())
    for split, folder in folders.items():
        files: list[str] = []
        labels: list[int] = []
        # os.scandir and text: a million pathlib.Path objects take half a minute to make.
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            if not entry.is_dir():
                raise DataError(f"{entry.path}: lies outside the class folders")
            if entry.name not in numbers:
                raise DataError(f"{entry.path}: is of no class that {folders['train']} has")
            for file in sorted(os.scandir(entry.path), key=lambda file: file.name):
                if file.name.startswith("."):
                    continue
                if not file.is_file():
                    raise DataError(f"{file.path}: is no file")
                files.append(file.path)
                labels.append(numbers[entry.name])
                named = [split, entry.name, file.name, file.stat().st_size]
                digest.update(json.dumps(named).encode())
        if not files:
            raise DataError(f"{folder}: has no images")
        splits[split] = Photographs(np.array(labels, np.int32), _file_reader(files))
    return Source("image folders", classes, splits, digest.hexdigest()[:16])


def _file_reader(files: Sequence[str]) -> Callable[[int], tuple[bytes, str]]:
    def read(index: int) -> tuple[bytes, str]:
        path = files[index]
        try:
            return pathlib.Path(path).read_bytes(), f"{path}:"
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None

    return read


def _open_tfds(version: pathlib.Path) -> Source:
    info = tfds_directory.read_info(version)
    names = {split["name"] for split in info["splits"]}
    evaluated = next((name for name in ("validation", "test") if name in names), None)
    if "train" not in names or evaluated is None:
        path = version / tfds_directory.INFO_FILE
        raise DataError(f"{path}: has no splits train and validation")
    builder = tfds_directory.open_version(version)
    features = builder.info.features
    if not {"image", "label"} <= set(features) or not hasattr(features["label"], "names"):
        raise DataError(f"{version}: has no features image and label, with names of the classes")
    classes = tuple(features["label"].names)
    folders: dict[Split, str] = {"train": "train", "eval": evaluated}
    splits: dict[Split, Photographs] = {}
    for split, name in folders.items():
        source = tfds_directory.open_split(version, builder, name, ["image"])
        where = f"{version}: {name}"
        splits[split] = Photographs(
            _tfds_labels(source, where, len(classes)), _tfds_reader(source, where)
        )
    text = json.dumps([info["name"], info.get("version"), info["splits"]], sort_keys=True)
    listing = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Source("TensorFlow Datasets (ArrayRecord)", classes, splits, listing)


def _tfds_labels(source: Any, name: str, num_classes: int) -> RowsOnDemand:
    """Gives the labels; a record is read for each that is asked for, but no image decoded."""

    def label(index: int) -> int:
        try:
            found = int(source[index]["label"])
        except Exception as error:
            raise tfds_directory.damaged(f"{name} example {index}", error) from None
        if not 0 <= found < num_classes:
            raise DataError(
                f"{name} example {index}: label {found} is out of range 0 to {num_classes - 1}"
            )
        return found

    return RowsOnDemand(len(source), (), "int32", label)


def _tfds_reader(source: Any, name: str) -> Callable[[int], tuple[bytes, str]]:
    def read(index: int) -> tuple[bytes, str]:
        try:
            return bytes(source[index]["image"]), f"{name} example {index}:"
        except Exception as error:
            raise tfds_directory.damaged(f"{name} example {index}", error) from None

    return read
