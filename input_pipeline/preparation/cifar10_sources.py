"""CIFAR-10 in the forms that it comes in, read into memory for `dawnjax prepare`.

The form is recognized by content, in a folder or an archive of it:

- the original python version: `data_batch_1` to `data_batch_5` and `test_batch`, pickled;
- the original binary version: the same names with `.bin`;
- image files: `train/<class>/*.jpg` and `test/<class>/*.jpg`, or .jpeg or .png;
- arrays: `train_x.npy`, `train_y.npy`, `test_x.npy`, `test_y.npy`, as in an .npz;
- TensorFlow Datasets on disk, in ArrayRecord files (a folder only).

Source: https://www.cs.toronto.edu/~kriz/cifar.html for the layout of the original versions.
"""

import contextlib
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.datasets import cifar10_tfds, published
from dawnjax.input_pipeline.datasets.cifar10 import CLASSES
from dawnjax.input_pipeline.preparation import archives, image_writer
from dawnjax.input_pipeline.preparation.image_writer import Examples
from dawnjax.input_pipeline.preparation.pickled_batches import read_pickled_batch
from dawnjax.input_pipeline.preparation.request import Preparation, Request, report_images
from dawnjax.input_pipeline.reading import npy_files
from dawnjax.input_pipeline.reading.dataset import DataError, Split
from dawnjax.input_pipeline.reading.image_files import decode_image

Form = Literal["python", "binary", "images", "arrays"]
Progress = Callable[[int], None]
Splits = dict[Split, tuple[np.ndarray, np.ndarray]]

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE

_BATCHES: dict[str, Split] = {
    **{f"data_batch_{number}": "train" for number in range(1, 6)},
    "test_batch": "eval",
}
_ARRAYS = ("train_x.npy", "train_y.npy", "test_x.npy", "test_y.npy")
_FOLDERS: dict[str, Split] = {"train": "train", "test": "eval"}
_FORM_NAMES: dict[Form, str] = {
    "python": "original python version",
    "binary": "original binary version",
    "images": "image files",
    "arrays": "arrays",
}


def read_source(path: pathlib.Path, progress: Progress = lambda count: None) -> Examples:
    """Read and check all examples; `progress` takes the number read since its last call."""
    kind = archives.kind_of(path)
    if kind == "folder":
        version_directory = cifar10_tfds.find_version(path)
        if version_directory is not None:
            splits: Splits = {
                split: cifar10_tfds.read_split(version_directory, split, progress)
                for split in ("train", "eval")
            }
            return _examples(splits, {"kind": "TensorFlow Datasets (ArrayRecord)"})
    form, members = _members_of_one_form(path)
    readers = {
        "python": _read_batches,
        "binary": _read_batches,
        "images": _read_images,
        "arrays": _read_arrays,
    }
    splits = readers[form](path, members, progress)
    source = {"kind": f"{_FORM_NAMES[form]} ({kind})"}
    if kind != "folder":
        with records.open_plain(path) as file:
            source["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    return _examples(splits, source)


def _examples(splits: Splits, source: dict[str, str]) -> Examples:
    return Examples(
        classes=CLASSES,
        images={split: images for split, (images, _) in splits.items()},
        labels={split: labels for split, (_, labels) in splits.items()},
        source=source,
    )


def _members_of_one_form(path: pathlib.Path) -> tuple[Form, Iterator[archives.Member]]:
    """Form of a source and its files of that form; other files are passed over."""

    def known() -> Iterator[tuple[Form, archives.Member]]:
        for member in archives.members(path):
            form = _form_of(member.name)
            if form is not None:
                yield form, member

    of_known_form = known()
    first = next(of_known_form, None)
    if first is None:
        raise DataError(
            f"{path}: holds no known form of CIFAR-10 (data_batch_1 ..., data_batch_1.bin ..., "
            "train/<class>/*.jpg|png, train_x.npy ..., or TFDS ArrayRecord files)"
        )

    def members() -> Iterator[archives.Member]:
        for form, member in itertools.chain([first], of_known_form):
            if form != first[0]:
                raise DataError(
                    f"{path}: mixes {_FORM_NAMES[first[0]]} ({first[1].name!r}) and "
                    f"{_FORM_NAMES[form]} ({member.name!r}); keep one of them"
                )
            yield member

    return first[0], members()


def _form_of(name: str) -> Form | None:
    parts = name.split("/")
    file = parts[-1]
    # macOS adds such files to folders and archives.
    if file.startswith(".") or "__MACOSX" in parts:
        return None
    if file in _BATCHES:
        return "python"
    if file.removesuffix(".bin") in _BATCHES:
        return "binary"
    if file in _ARRAYS:
        return "arrays"
    if len(parts) >= 3 and parts[-3] in _FOLDERS:
        return "images"
    return None


def _read_batches(
    path: pathlib.Path, members: Iterator[archives.Member], progress: Progress
) -> Splits:
    batches: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for member in members:
        file = member.name.rsplit("/", 1)[-1]
        name = file.removesuffix(".bin")
        if name in batches:
            raise DataError(f"{path}: has {file} in two places")
        read = _read_binary_batch if file.endswith(".bin") else read_pickled_batch
        content = member.read()
        with _naming(member):
            pixels, labels = read(content)
            if pixels.shape != (len(labels), _PIXELS):
                raise DataError(
                    f"holds data of shape {pixels.shape} for {len(labels)} labels, but a CIFAR-10 "
                    f"image has {_PIXELS} values"
                )
            _check_labels(labels)
        batches[name] = pixels, labels
        progress(len(labels))
    missing = [name for name in _BATCHES if name not in batches]
    if missing:
        raise DataError(f"{path}: lacks {', '.join(missing)}; it is not whole")
    splits: Splits = {}
    for split in ("train", "eval"):
        parts = [batches[name] for name in _BATCHES if _BATCHES[name] == split]
        pixels = np.concatenate([pixels for pixels, _ in parts])
        # A row holds the red, then the green, then the blue plane.
        images = pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
        splits[split] = images, np.concatenate([labels for _, labels in parts])
    return splits


def _read_binary_batch(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Pixels [n, 3072] and labels [n]: a record is a byte of label and the pixels."""
    if len(content) % (1 + _PIXELS):
        raise DataError(f"is cut short: {len(content):,} bytes are no multiple of {1 + _PIXELS}")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _read_images(
    path: pathlib.Path, members: Iterator[archives.Member], progress: Progress
) -> Splits:
    decoded: dict[Split, list[tuple[int, str, np.ndarray]]] = {"train": [], "eval": []}
    root = None
    for member in members:
        *folders, split, label, file = member.name.split("/")
        if root is None:
            root = folders
        content = member.read()
        with _naming(member):
            if folders != root:
                raise DataError(f"lies apart from the other images, in {'/'.join(root) or '.'!r}")
            if label not in CLASSES:
                raise DataError(f"is of no class of CIFAR-10 ({', '.join(CLASSES)})")
            image = decode_image(content, _SIDE, _SIDE)
        decoded[_FOLDERS[split]].append((CLASSES.index(label), file, image))
        progress(1)
    splits: Splits = {}
    for folder, split in _FOLDERS.items():
        lacking = set(range(len(CLASSES))) - {label for label, _, _ in decoded[split]}
        if lacking:
            names = ", ".join(f"{folder}/{CLASSES[label]}" for label in sorted(lacking))
            raise DataError(f"{path}: has no images in {names}")
        decoded[split].sort(key=lambda item: item[:2])
        images = np.stack([image for _, _, image in decoded[split]])
        splits[split] = images, np.array([label for label, _, _ in decoded[split]])
    return splits


def _read_arrays(
    path: pathlib.Path, members: Iterator[archives.Member], progress: Progress
) -> Splits:
    arrays: dict[str, np.ndarray] = {}
    for member in members:
        name = member.name.rsplit("/", 1)[-1]
        if name in arrays:
            raise DataError(f"{path}: has {name} in two places")
        content = member.read()
        with _naming(member):
            arrays[name] = npy_files.array_of(content)
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise DataError(f"{path}: lacks {', '.join(missing)}")
    splits: Splits = {}
    for folder, split in _FOLDERS.items():
        images, labels = arrays[f"{folder}_x.npy"], arrays[f"{folder}_y.npy"]
        if images.dtype != np.uint8 or images.shape[1:] != (_SIDE, _SIDE, 3):
            raise DataError(
                f"{path}: {folder}_x is {images.dtype} {images.shape}, but should be uint8 "
                f"[n, {_SIDE}, {_SIDE}, 3]"
            )
        if labels.dtype.kind not in "iu" or labels.size != len(images):
            raise DataError(
                f"{path}: {folder}_y is {labels.dtype} {labels.shape}, but should be integers "
                f"[{len(images)}]"
            )
        labels = labels.reshape(-1)
        try:
            _check_labels(labels)
        except DataError as error:
            raise DataError(f"{path}: {folder}_y {error}") from None
        splits[split] = images, labels
        progress(len(labels))
    return splits


def _check_labels(labels: np.ndarray) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= len(CLASSES)))
    if wrong.size:
        raise DataError(
            f"has label {labels[wrong[0]]} at {wrong[0]}, out of range 0 to {len(CLASSES) - 1}"
        )


@contextlib.contextmanager
def _naming(member: archives.Member) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise DataError(f"{member.source}: {archives.shown(member.name)} {error}") from None


def _prepare(request: Request) -> str:
    source, out = request.required_source(), request.out_for("cifar10")
    written = image_writer.write(
        out,
        lambda: read_source(source, request.progress.add),
        dataset="cifar10",
        overwrite=request.overwrite,
    )
    return report_images(request, out, written, published.CIFAR10)


PREPARATION = Preparation(
    name="cifar10",
    usage=("--from=PATH [--out=DIR] [--overwrite]",),
    takes="""PATH is one of these:

  the original archive   cifar-10-python.tar.gz or cifar-10-binary.tar.gz, or its folder
  image files            train/<class>/*.jpg|png and test/<class>/*.jpg|png: a folder, or a .tar,
                         .tar.gz, .tar.xz, .tar.bz2 or .zip of it
  arrays                 an .npz of train_x, train_y, test_x, test_y
  TensorFlow Datasets    a data directory with ArrayRecord files""",
    run=_prepare,
)
