"""A labelled set of images to evaluate on, in any of the forms that such sets come in.

- a directory that `dawnjax prepare` wrote, or a TFDS directory: its evaluation split;
- class folders: `PATH/<class>/*`, JPEG or PNG;
- arrays: an .npz of `images` (uint8 [n, height, width, channels]), `labels` and maybe `classes`; or
  `NAME_data.npy` (the PATH) beside `NAME_labels.npy`, as CIFAR-10.1 comes.
"""

import collections
import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from dawnjax.input_pipeline.reading import (
    archives,
    columns,
    image_set,
    npy_files,
    tfds_directory,
)
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError
from dawnjax.input_pipeline.reading.image_files import decode_image, decode_square
from dawnjax.input_pipeline.reading.photographs import class_folders, list_folder, open_tfds_splits
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

Decode = Callable[[bytes], np.ndarray]

_LARGEST_SMALL, _MOST_EXPANSION = 64 * 2**20, 100


@dataclasses.dataclass(frozen=True)
class LabelledImages:
    """A labelled set: images uint8 [n, height, width, channels], labels int32 [n].

    `kind` is its source in words; `classes` is None where the source has numbers only.
    """

    kind: str
    images: np.ndarray | RowsOnDemand
    labels: np.ndarray
    classes: tuple[str, ...] | None
    fingerprint: str


def read(path: pathlib.Path, image_shape: tuple[int, int, int], *, resized: bool) -> LabelledImages:
    """Labels and images of one shape; a square shape lets `resized` files have any size."""
    height, width, channels = image_shape

    def decode(content: bytes) -> np.ndarray:
        if resized and height == width:
            return decode_square(content, height)
        return decode_image(content, height, width)

    if not path.exists():
        raise MissingDataError(f"{path}: does not exist")
    if path.suffix in (".npz", ".npy"):
        labelled = _read_arrays(path)
    elif not path.is_dir():
        raise DataError(f"{path}: is not a folder, .npz or .npy of labelled images")
    elif (path / columns.FILE).exists() and not (path / tfds_directory.INFO_FILE).exists():
        labelled = _read_prepared(path)
    elif channels != 3:
        raise DataError(f"{path}: images with {channels} channel are read only from arrays")
    else:
        version = tfds_directory.find_version(path)
        read_files = _read_folders if version is None else _read_tfds
        labelled = read_files(version or path, image_shape, decode)
    images, labels = labelled.images, labelled.labels
    if images.shape[1:] != image_shape or images.dtype != np.uint8:
        raise DataError(
            f"{path}: its images are {images.dtype} {images.shape[1:]}, the run's uint8 "
            f"{image_shape}"
        )
    if not len(labels):
        raise DataError(f"{path}: has no images")
    if len(labels) != len(images):
        raise DataError(f"{path}: {len(images)} images with {len(labels)} labels")
    return labelled


def labels_of_run(
    path: pathlib.Path, labelled: LabelledImages, classes: Sequence[str]
) -> np.ndarray:
    """Labels of a run, int32 [n], by names of classes; a class that the run lacks is refused."""
    labels, names = labelled.labels, labelled.classes
    if names is None:
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(classes):
            raise DataError(
                f"{path}: labels go from {low} to {high}, the run's from 0 to {len(classes) - 1}"
            )
        return labels.astype(np.int32)
    numbers = {name: number for number, name in enumerate(classes)}
    unknown = [names[label] for label in np.unique(labels) if names[label] not in numbers]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise DataError(
            f"{path}: the run has no class {unknown[0]!r}{more}; its {len(classes)} classes are "
            f"{', '.join(classes[:3])}, ..."
        )
    # A class that no example has may be unknown to the run: its -1 is never taken.
    return np.array([numbers.get(name, -1) for name in names], np.int32)[labels]


def _read_prepared(path: pathlib.Path) -> LabelledImages:
    prepared = image_set.read(path)
    arrays = image_set.read_split(prepared, "eval", most_bytes=image_set.LARGEST_VERIFIED_BYTES)
    classes = prepared.facts.classes
    return LabelledImages(
        f"prepared {prepared.dataset}",
        arrays["image"],
        arrays["label"],
        classes,
        prepared.fingerprint(classes),
    )


def _read_folders(
    path: pathlib.Path, shape: tuple[int, int, int], decode: Decode
) -> LabelledImages:
    classes = class_folders(path)
    listing = hashlib.sha256()
    photographs = list_folder(path, classes, "eval", listing)
    images, labels = photographs.rows(shape, decode), np.asarray(photographs.labels)
    return LabelledImages("class folders", images, labels, classes, listing.hexdigest()[:16])


def _read_tfds(
    version: pathlib.Path, shape: tuple[int, int, int], decode: Decode
) -> LabelledImages:
    split = tfds_directory.first_split(version, ("test", "validation"))
    if split is None:
        raise DataError(f"{version}: has no split test or validation")
    classes, splits = open_tfds_splits(version, {"eval": split})
    photographs = splits["eval"]
    return LabelledImages(
        f"TensorFlow Datasets, split {split}",
        photographs.rows(shape, decode),
        np.asarray(photographs.labels),
        classes,
        tfds_directory.fingerprint(version, split),
    )


def read_npz(path: pathlib.Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """All arrays of an .npz; raises DataError where it cannot be read or lacks one of `names`."""
    if path.is_dir() or archives.kind_of(path) != "zip":
        raise DataError(f"{path}: is {'a directory' if path.is_dir() else 'no .npz'}")
    # Its arrays may be larger than files of another archive; one that unpacks to far more than its
    # size is a bomb.
    most = _LARGEST_SMALL + _MOST_EXPANSION * path.stat().st_size
    arrays = {}
    for member in archives.members(path, archives.Limits(member_bytes=most, total_bytes=most)):
        try:
            arrays[member.name.removesuffix(".npy")] = npy_files.array_of(member.read())
        except DataError as error:
            raise DataError(f"{path}: {member.name} {error}") from None
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(f"{path}: has no array {missing[0]!r}, only {', '.join(arrays)}")
    return arrays


def class_names_of(where: str, names: np.ndarray) -> tuple[str, ...]:
    """Names of classes in an array of texts, or of bytes as Python 2 wrote them."""
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise DataError(f"{where} classes are {names.dtype} {names.shape}; wanted texts [n]")
    try:
        decoded = [name.decode() if isinstance(name, bytes) else name for name in names.tolist()]
    except UnicodeDecodeError:
        raise DataError(f"{where} a class name is not UTF-8") from None
    again = [name for name, count in collections.Counter(decoded).items() if count > 1 or not name]
    if again:
        raise DataError(f"{where} the class name {again[0]!r} is empty or repeated")
    return tuple(decoded)


def _read_arrays(path: pathlib.Path) -> LabelledImages:
    if path.suffix == ".npz":
        arrays = read_npz(path, ("images", "labels"))
        images, labels, names = arrays["images"], arrays["labels"], arrays.get("classes")
    else:
        if not path.name.endswith("_data.npy"):
            raise DataError(f"{path}: give NAME_data.npy with NAME_labels.npy beside it")
        beside = path.with_name(path.name.removesuffix("_data.npy") + "_labels.npy")
        images, labels, names = npy_files.map_array(path), npy_files.map_array(beside), None
    classes = None if names is None else class_names_of(f"{path}:", names)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: labels are {labels.dtype} {labels.shape}, not whole numbers [n]")
    if classes is not None and labels.size and not 0 <= labels.min() <= labels.max() < len(classes):
        raise DataError(f"{path}: has a label out of range 0 to {len(classes) - 1}")
    digest = hashlib.sha256(np.ascontiguousarray(images).view(np.uint8).data)
    # Hash labels as int64, so that equal content in another dtype is the same data.
    digest.update(labels.astype("<i8").tobytes() + repr(classes).encode())
    return LabelledImages("arrays", images, labels, classes, digest.hexdigest()[:16])
