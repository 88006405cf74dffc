"""Labelled photographs of any size: listed first, then read in any order.

- class folders: `train/<class>/*` and `val/<class>/*` (or `validation`, `eval`, `test`), JPEG or
  PNG whatever their names end with;
- TensorFlow Datasets: ArrayRecord files with features `image` and `label`, read without TensorFlow.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import tfds_directory
from dawnjax.input_pipeline.reading.dataset import DataError, Split
from dawnjax.input_pipeline.reading.image_files import decode_part
from dawnjax.input_pipeline.reading.preparing import is_evaluated
from dawnjax.input_pipeline.reading.rows_on_demand import DrawnRows, RowsOnDemand

SIDE = 256
"""Height and width of squares in pixels, unless others are asked for."""

LARGEST_BYTES = 64 * 2**20
"""Limit of a photograph's file."""

_NO_CLASSES = frozenset(
    ("lost+found", "__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information")
)
"""Folders that file systems, archivers and servers put beside a person's own."""

_ATTEMPTS = 10

# Second word of the Philox key, beyond those of epochs; the first is the seed.
_PARTS_STREAM = 2**63 + 4

_EVAL_FOLDERS = ("val", "validation", "eval", "test")


@dataclasses.dataclass(frozen=True)
class Photographs:
    """Photographs of one split.

    Attributes:
      labels: int32 [n], positions in the source's classes; some sources read them on demand.
      read: Returns the file at a position, and its name for messages.
    """

    labels: np.ndarray | RowsOnDemand
    read: Callable[[int], tuple[bytes, str]]

    def decoded(self, index: int, decode: Callable[[bytes], np.ndarray]) -> np.ndarray:
        """One photograph as `decode` makes it; a DataError names the file."""
        content, name = self.read(index)
        try:
            return decode(content)
        except DataError as error:
            raise DataError(f"{name} {error}") from None

    def part(self, rows: np.ndarray) -> "Photographs":
        """Photographs at some positions, in their order."""
        return Photographs(self.labels[rows], lambda index: self.read(int(rows[index])))

    def drawn_parts(self, side: int) -> DrawnRows:
        """A random part of each photograph, anew in each epoch: uint8 [n, side, side, 3]."""

        def draw(index: int, epoch: int, seed: int) -> np.ndarray:
            key = np.array([seed, _PARTS_STREAM], np.uint64)
            counter = np.array([index, epoch, 0, 0], np.uint64)
            raw = np.random.Philox(key=key, counter=counter).random_raw(4 * _ATTEMPTS)
            draws = (raw >> np.uint64(11)).reshape(_ATTEMPTS, 4) * 2.0**-53

            def choose(height: int, width: int) -> tuple[int, int, int, int]:
                return random_part(height, width, draws)

            return self.decoded(index, lambda content: decode_part(content, side, choose))

        return DrawnRows(len(self.labels), (side, side, 3), "uint8", draw)

    def rows(
        self, shape: tuple[int, int, int], decode: Callable[[bytes], np.ndarray]
    ) -> RowsOnDemand:
        return RowsOnDemand(
            len(self.labels), shape, "uint8", lambda index: self.decoded(index, decode)
        )


@dataclasses.dataclass(frozen=True)
class Source:
    """A listed source; another `listing`, a hash of names and sizes, means other data."""

    kind: str
    classes: tuple[str, ...]
    splits: dict[Split, Photographs]
    listing: str


def random_part(height: int, width: int, draws: np.ndarray) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random part of an image.

    Its area is uniform from 8 % to the whole of the image's, the logarithm of its aspect ratio
    uniform from 3/4 to 4/3. The first of ten draws that fits the image is taken, and else the
    middle with the nearest aspect ratio that is allowed.

    Args:
      draws: Uniform numbers of [0, 1), float64 [10, 4].

    Source: Szegedy et al. 2015, "Going Deeper with Convolutions", section 6; torchvision's
    `RandomResizedCrop` for what is done with draws that do not fit.
    """
    for area, aspect, top, left in draws.tolist():
        pixels = (0.08 + 0.92 * area) * height * width
        ratio = (3 / 4) ** (1 - 2 * aspect)
        rows, columns = round(math.sqrt(pixels / ratio)), round(math.sqrt(pixels * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            return (
                int(top * (height - rows + 1)),
                int(left * (width - columns + 1)),
                rows,
                columns,
            )
    rows, columns = min(height, round(width * 4 / 3)), min(width, round(height * 4 / 3))
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def open_source(
    path: pathlib.Path, title: str, tfds_name: str = "*", eval_fraction: float = 0.0
) -> Source:
    """List a source, without decoding an image; messages call it `title`.

    With `eval_fraction`, class folders are divided by a hash of each file's content.
    """
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise DataError(
            f"{path}: {what}; {title} is read from train/<class>/* and val/<class>/*, or from a "
            "TFDS directory"
        )
    if eval_fraction:
        return _divided(path, eval_fraction)
    version = tfds_directory.find_version(path, tfds_name)
    return open_tfds(version) if version else _open_folders(path, title)


def _open_folders(path: pathlib.Path, title: str) -> Source:
    folders: dict[Split, pathlib.Path] = {"train": path / "train"}
    names = [name for name in _EVAL_FOLDERS if (path / name).is_dir()]
    if not folders["train"].is_dir() or not names:
        raise DataError(
            f"{path}: has no known form of {title} (train/<class>/* and val/<class>/*, or TFDS "
            "ArrayRecord files)"
        )
    folders["eval"] = path / names[0]
    classes = class_folders(folders["train"])
    splits: dict[Split, Photographs] = {}
    listing = hashlib.sha256(json.dumps(classes).encode())
    for split, folder in folders.items():
        splits[split] = list_folder(folder, classes, split, listing)
        if not len(splits[split].labels):
            raise DataError(f"{folder}: has no images")
    return Source("image folders", classes, splits, listing.hexdigest()[:16])


def _divided(path: pathlib.Path, fraction: float) -> Source:
    if any((path / name).is_dir() for name in ("train", *_EVAL_FOLDERS)):
        raise DataError(f"{path}: has folders of splits, so leave out --eval_fraction")
    classes, listing = class_folders(path), hashlib.sha256(repr(fraction).encode())
    whole = list_folder(path, classes, "train", listing)
    evaluated = np.array(
        [is_evaluated(whole.read(row)[0], fraction) for row in range(len(whole.labels))], bool
    )
    splits: dict[Split, Photographs] = {
        "train": whole.part(np.flatnonzero(~evaluated)),
        "eval": whole.part(np.flatnonzero(evaluated)),
    }
    for split, part in splits.items():
        if not len(part.labels):
            raise DataError(f"{path}: no image is left for {split}; choose another --eval_fraction")
    return Source("class folders", classes, splits, listing.hexdigest()[:16])


def class_folders(folder: pathlib.Path) -> tuple[str, ...]:
    """Names of the class folders in a folder, sorted; one or more."""
    with _named(folder):
        classes = tuple(entry.name for entry in _entries(folder) if entry.is_dir())
    if not classes:
        raise DataError(f"{folder}: has no class folders")
    return classes


def _entries(folder: str | pathlib.Path) -> list[os.DirEntry[str]]:
    """Entries of a folder, sorted, without hidden ones and those that hold nobody's images."""
    # os.scandir and text: a million pathlib.Path objects take half a minute to make.
    found = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    return sorted((e for e in found if e.name not in _NO_CLASSES), key=lambda entry: entry.name)


@contextlib.contextmanager
def _named(folder: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # a link that leads to itself, or no right to read
        raise DataError(f"{error.filename or folder}: cannot be read ({error.strerror})") from None


def list_folder(
    folder: pathlib.Path, classes: Sequence[str], split: str, listing: Any
) -> Photographs:
    """List the files in `folder/<class>/`, sorted; all names and sizes are added to `listing`."""
    numbers = {name: number for number, name in enumerate(classes)}
    files: list[str] = []
    labels: list[int] = []
    with _named(folder):
        for entry in _entries(folder):
            if not entry.is_dir():
                raise DataError(f"{entry.path}: lies outside the class folders of {folder}")
            if entry.name not in numbers:
                raise DataError(f"{entry.path}: is in no class of {folder.parent / 'train'}")
            names = []
            for file in _entries(entry.path):
                if not file.is_file():
                    raise DataError(f"{file.path}: is not a file; put images in {folder}/<class>/")
                files.append(file.path)
                labels.append(numbers[entry.name])
                names.append(json.dumps([split, entry.name, file.name, file.stat().st_size]))
            if split == "train" and not names:
                raise DataError(f"{entry.path}: has no images; remove the folder, or fill it")
            listing.update("".join(names).encode())

    def read(index: int) -> tuple[bytes, str]:
        try:
            return records.read_plain(files[index], LARGEST_BYTES), f"{files[index]}:"
        except records.BoundError as error:
            raise DataError(f"{files[index]}: {error}") from None
        except OSError as error:
            raise DataError(f"{files[index]}: cannot be read ({error.strerror})") from None

    return Photographs(np.array(labels, np.int32), read)


def open_tfds(version: pathlib.Path) -> Source:
    """List a version of a TFDS dataset of labelled images."""
    evaluated = tfds_directory.first_split(version, ("validation", "test"))
    if tfds_directory.first_split(version, ("train",)) is None or evaluated is None:
        path = version / tfds_directory.INFO_FILE
        raise DataError(f"{path}: has no splits train and validation")
    classes, splits = open_tfds_splits(version, {"train": "train", "eval": evaluated})
    listing = tfds_directory.fingerprint(version)
    return Source("TensorFlow Datasets (ArrayRecord)", classes, splits, listing)


def open_tfds_splits(
    version: pathlib.Path, names: dict[Split, str]
) -> tuple[tuple[str, ...], dict[Split, Photographs]]:
    """Classes, and photographs of some splits of a version, by TFDS's name of each."""
    builder = tfds_directory.open_version(version)
    features = builder.info.features
    if not {"image", "label"} <= set(features) or not hasattr(features["label"], "names"):
        raise DataError(f"{version}: has no features image and label, with names of the classes")
    classes = tuple(features["label"].names)
    splits: dict[Split, Photographs] = {}
    for split, name in names.items():
        count, record = tfds_directory.open_split(version, builder, name, ["image", "label"])
        where = f"{version}: {name} example"

        def label(index: int, record: Any = record, where: str = where) -> int:
            number = int(record(index)["label"])
            if not 0 <= number < len(classes):
                most = len(classes) - 1
                raise DataError(f"{where} {index}: label {number} is out of range 0 to {most}")
            return number

        def read(index: int, record: Any = record, where: str = where) -> tuple[bytes, str]:
            return bytes(record(index)["image"]), f"{where} {index}:"

        splits[split] = Photographs(RowsOnDemand(count, (), "int32", label), read)
    return classes, splits
