"""A labelled set of images to evaluate on, in any of the forms in which such sets are found.

- a directory that `dawnjax prepare` wrote, or a TFDS directory: its evaluation split;
- class folders: `PATH/<class>/*`, JPEG or PNG whatever their names end with;
- arrays: an .npz of `images` (uint8 [n, height, width, channels]), `labels` and, if it knows them,
  `classes`; or two files `NAME_data.npy` and `NAME_labels.npy`, of which the first is given, as
  CIFAR-10.1 comes.

Its labels become those of the run that is evaluated, by the names of the classes.
"""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from dawnjax.input_pipeline import prepared, tfds_directory
from dawnjax.input_pipeline.dataset import DataError
from dawnjax.input_pipeline.image_files import decode_image, decode_square
from dawnjax.input_pipeline.rows_on_demand import RowsOnDemand

_EVALUATED = ("test", "validation")


@dataclasses.dataclass(frozen=True)
class LabelledImages:
    """One labelled set.

    Attributes:
      kind: What it was read from, in words.
      images: uint8 [n, height, width, channels].
      labels: int32 [n].
      classes: Name of each label; None where the source has numbers only.
      fingerprint: Hash that tells two contents apart, 16 hex digits.
    """

    kind: str
    images: np.ndarray | RowsOnDemand
    labels: np.ndarray
    classes: tuple[str, ...] | None
    fingerprint: str


def read(path: pathlib.Path, image_shape: tuple[int, int, int], *, resized: bool) -> LabelledImages:
    """Gives a labelled set, labels checked.

    Args:
      path: The directory or file.
      image_shape: What its images must be, (height, width, channels).
      resized: Whether files of images are of any size and become squares as `dawnjax prepare`
        makes them; otherwise they must have the shape.

    Raises:
      DataError: Missing, damaged, in no known form, or of another shape; one line.
    """
    height, width, channels = image_shape

    def decode(content: bytes, name: str) -> np.ndarray:
        try:
            if resized:
                return decode_square(content, height)
            return decode_image(content, height, width)
        except DataError as error:
            raise DataError(f"{name} {error}") from None

    if not path.exists():
        raise DataError(f"{path}: does not exist")
    if path.suffix in (".npz", ".npy"):
        found = _read_arrays(path)
    elif not path.is_dir():
        raise DataError(f"{path}: is no folder, .npz or .npy of labelled images")
    elif prepared.is_prepared(path):
        found = _read_prepared(path)
    elif channels != 3:
        raise DataError(f"{path}: images of {channels} channel are read from arrays only")
    else:
        version = tfds_directory.find_version(path)
        rows = (height, width, 3)
        found = _read_tfds(version, rows, decode) if version else _read_folders(path, rows, decode)
    if found.images.shape[1:] != image_shape or found.images.dtype != np.uint8:
        raise DataError(
            f"{path}: its images are {found.images.dtype} {found.images.shape[1:]}, the run's "
            f"uint8 {image_shape}"
        )
    if not len(found.labels):
        raise DataError(f"{path}: has no images")
    if len(found.labels) != len(found.images):
        raise DataError(f"{path}: {len(found.images)} images with {len(found.labels)} labels")
    return found


def labels_of_run(path: pathlib.Path, found: LabelledImages, classes: Sequence[str]) -> np.ndarray:
    """Gives a set's labels as those of a run, int32 [n].

    Args:
      path: Where the set is from, for messages.
      found: The set; it may lack some of the run's classes, but have none of its own.
      classes: Name of each of the run's labels.

    Raises:
      DataError: A class or label that the run does not know.
    """
    if found.classes is None:
        low, high = int(found.labels.min()), int(found.labels.max())
        if low < 0 or high >= len(classes):
            raise DataError(
                f"{path}: labels go from {low} to {high}, those of the run from 0 to "
                f"{len(classes) - 1}"
            )
        return found.labels.astype(np.int32)
    numbers = {name: number for number, name in enumerate(classes)}
    used = np.unique(found.labels)
    unknown = [found.classes[label] for label in used if found.classes[label] not in numbers]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise DataError(
            f"{path}: the run has no class {unknown[0]!r}{more}; its {len(classes)} classes are "
            f"{', '.join(classes[:3])}, ..."
        )
    places = np.array([numbers.get(name, -1) for name in found.classes], np.int32)
    return places[found.labels]


def _read_prepared(path: pathlib.Path) -> LabelledImages:
    description = prepared.read_description(path)
    arrays = prepared.verified_split(path, description, "eval")
    return LabelledImages(
        f"prepared {description.dataset}",
        arrays["image"],
        arrays["label"],
        description.classes,
        description.fingerprint,
    )


def _read_folders(
    path: pathlib.Path, shape: tuple[int, int, int], decode: Callable[[bytes, str], np.ndarray]
) -> LabelledImages:
    classes, files, labels = [], [], []
    digest = hashlib.sha256()
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            raise DataError(f"{entry.path}: lies outside the class folders of {path}")
        for file in sorted(os.scandir(entry.path), key=lambda file: file.name):
            if file.name.startswith("."):
                continue
            if not file.is_file():
                raise DataError(f"{file.path}: is no file; images lie in {path}/<class>/")
            files.append(file.path)
            labels.append(len(classes))
            digest.update(f"{entry.name}\0{file.name}\0{file.stat().st_size}\0".encode())
        classes.append(entry.name)

    def row(index: int) -> np.ndarray:
        try:
            content = pathlib.Path(files[index]).read_bytes()
        except OSError as error:
            raise DataError(f"{files[index]}: cannot be read ({error.strerror})") from None
        return decode(content, f"{files[index]}:")

    return LabelledImages(
        "class folders",
        RowsOnDemand(len(files), shape, "uint8", row),
        np.array(labels, np.int32),
        tuple(classes),
        digest.hexdigest()[:16],
    )


def _read_tfds(
    version: pathlib.Path, shape: tuple[int, int, int], decode: Callable[[bytes, str], np.ndarray]
) -> LabelledImages:
    info = tfds_directory.read_info(version)
    names = [split["name"] for split in info["splits"]]
    split = next((name for name in _EVALUATED if name in names), None)
    if split is None:
        raise DataError(f"{version}: has no split test or validation, only {', '.join(names)}")
    builder = tfds_directory.open_version(version)
    features = builder.info.features
    if not {"image", "label"} <= set(features) or not hasattr(features["label"], "names"):
        raise DataError(f"{version}: has no features image and label, with names of the classes")
    source = tfds_directory.open_split(version, builder, split, ["image"])

    def record(index: int) -> dict:
        try:
            return source[index]
        except Exception as error:
            raise tfds_directory.damaged(f"{version}: {split} example {index}", error) from None

    def row(index: int) -> np.ndarray:
        return decode(bytes(record(index)["image"]), f"{version}: {split} example {index}:")

    classes = tuple(features["label"].names)
    labels = np.array([record(index)["label"] for index in range(len(source))], np.int32)
    if labels.size and not 0 <= labels.min() <= labels.max() < len(classes):
        raise DataError(f"{version}: {split}: has a label out of range 0 to {len(classes) - 1}")
    text = repr([info["name"], info.get("version"), info["splits"], split])
    return LabelledImages(
        f"TensorFlow Datasets, split {split}",
        RowsOnDemand(len(source), shape, "uint8", row),
        labels,
        classes,
        hashlib.sha256(text.encode()).hexdigest()[:16],
    )


def _read_arrays(path: pathlib.Path) -> LabelledImages:
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                missing = [name for name in ("images", "labels") if name not in arrays]
                if missing:
                    raise DataError(f"{path}: has no array {missing[0]!r}, only {arrays.files}")
                images, labels = arrays["images"], arrays["labels"]
                names = arrays.get("classes")
        else:
            if not path.name.endswith("_data.npy"):
                raise DataError(f"{path}: give NAME_data.npy, beside which NAME_labels.npy lies")
            beside = path.with_name(path.name.removesuffix("_data.npy") + "_labels.npy")
            images = np.load(path, mmap_mode="r", allow_pickle=False)
            labels, names = np.load(beside, allow_pickle=False), None
    except DataError:
        raise
    except Exception as error:  # NumPy and zipfile raise many kinds on damaged files
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path}: cannot be read ({reason})") from None
    classes = None if names is None else tuple(str(name) for name in names.tolist())
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: labels are {labels.dtype} {labels.shape}, not whole numbers [n]")
    if classes is not None and labels.size and not 0 <= labels.min() <= labels.max() < len(classes):
        raise DataError(f"{path}: has a label out of range 0 to {len(classes) - 1}")
    digest = hashlib.sha256(np.ascontiguousarray(images).view(np.uint8).data)
    digest.update(labels.astype("<i8").tobytes() + repr(classes).encode())
    return LabelledImages("arrays", images, labels, classes, digest.hexdigest()[:16])
