"""CIFAR-10: 60,000 photographs of 32x32 pixels in ten classes, prepared or as TFDS keeps it.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009);
https://www.cs.toronto.edu/~kriz/cifar.html for the layout of the archives.
"""

import dataclasses
import pathlib
import pickle
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets import images
from dawnjax.input_pipeline.datasets.images import ImageDirectory
from dawnjax.input_pipeline.reading import archives, class_subset, tfds_directory
from dawnjax.input_pipeline.reading.columns import Content, Made
from dawnjax.input_pipeline.reading.dataset import (
    NO_FINGERPRINT,
    DataError,
    DatasetSpec,
    Declaration,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.image_files import decode_image
from dawnjax.input_pipeline.reading.image_set import ImageFacts
from dawnjax.input_pipeline.reading.photographs import open_source
from dawnjax.input_pipeline.reading.preparing import Preparation, Request
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
IMAGE_SHAPE = (SIDE, SIDE, 3)

# Of pixel / 255 over the 50,000 training images of the original, red, green, blue, to four digits.
# They are constants of the recipe: a JPEG copy, whose std is a little lower, uses them too.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)

ARCHIVES = {
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce": "cifar-10-python.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd": "cifar-10-binary.tar.gz",
}
"""The published archives, by SHA-256. Source: Keras's `datasets/cifar10.py` for the first,
TensorFlow Datasets' `url_checksums/cifar10.txt` (4.9) for the second."""

_BATCHES: dict[str, Split] = {
    **{f"data_batch_{number}": "train" for number in range(1, 6)},
    "test_batch": "eval",
}
_FOLDERS: dict[str, Split] = {"train": "train", "test": "eval"}

Splits = dict[Split, tuple[np.ndarray, np.ndarray]]
"""Images uint8 [n, 32, 32, 3] and labels of each split."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cifar10:
    """CIFAR-10 as `dawnjax prepare` wrote it, or as TensorFlow Datasets did in ArrayRecord form.

    Attributes:
      data_dir: The prepared directory or the TFDS data directory. Empty takes `cifar10` in the
        directory that the environment variable DAWNJAX_DATA names, or `./data/cifar10` without it.
      kept_classes: Labels to keep, which are numbered from 0 on in this order; empty keeps all ten.
    """

    TAG: ClassVar[str] = "cifar10"
    data_dir: str = ""
    kept_classes: tuple[int, ...] = ()

    def spec(self) -> DatasetSpec:
        directory = self._directory()
        facts = directory.facts()[0]
        if facts.classes != CLASSES:
            raise DataError(f"{directory.path}: its classes are not CIFAR-10's")
        spec = directory.spec(MEAN, STD)
        if not self.kept_classes:
            return spec
        if not facts.class_counts:
            raise ValueError(
                f"data.kept_classes: {directory.path} does not record how many images each class "
                "has; prepare it (`dawnjax prepare --dataset=cifar10`)"
            )
        return class_subset.subset_spec(spec, self.kept_classes, facts.class_counts, "CIFAR-10")

    def published_spec(self) -> DatasetSpec:
        return DatasetSpec(
            num_train_examples=50_000,
            num_eval_examples=10_000,
            image_shape=IMAGE_SHAPE,
            num_classes=len(CLASSES),
            mean=MEAN,
            std=STD,
            fingerprint=NO_FINGERPRINT,
        )

    def load(self, split: Split) -> dict[str, np.ndarray | RowsOnDemand]:
        """Images uint8 [N, 32, 32, 3] and labels int32 [N], verified: 0.1 s, or some seconds for
        TFDS.
        """
        arrays = self._directory().load(split)
        if not self.kept_classes:
            return arrays
        return {**class_subset.subset(arrays, self.kept_classes)}

    def classes(self) -> tuple[str, ...]:
        return tuple(CLASSES[label] for label in self.kept_classes) or CLASSES

    def _directory(self) -> ImageDirectory:
        return ImageDirectory(
            path=directory_of("cifar10", self.data_dir),
            dataset="cifar10",
            title="CIFAR-10",
            command="--dataset=cifar10",
            tfds_name="cifar10",
            side=SIDE,
            sides=range(SIDE, SIDE + 1),
            declare=declare,
            decode=lambda content, side: decode_image(content, side, side),
        )


def declare(facts: ImageFacts, source: str) -> Declaration:
    """Declaration of images: CIFAR-10 if a published archive holds them."""
    published = next((name for digest, name in ARCHIVES.items() if digest in source), "")
    if published:
        return Declaration(
            name="CIFAR-10",
            benchmark="CIFAR-10",
            evidence=f"made from {published}, whose SHA-256 is the published one",
            overlap=facts.overlap,
        )
    counts = facts.num_examples
    return Declaration(
        name=f"{counts['train']:,} + {counts['eval']:,} images in {len(facts.classes)} classes, "
        "not CIFAR-10",
        evidence=f"not made from a published archive ({', '.join(ARCHIVES.values())})",
        overlap=facts.overlap,
    )


def _prepare(request: Request) -> Made:
    path, out = request.required_source(), request.out_for("cifar10")
    kind = archives.kind_of(path)
    digest = "" if kind == "folder" else archives.sha256(path)
    source = f"{kind}, sha256 {digest}" if digest else ""
    if digest in ARCHIVES:
        splits = _published(path, ARCHIVES[digest])
    elif kind == "folder" and tfds_directory.find_version(path, "cifar10"):
        splits = _tfds(path, request)
    elif path.suffix == ".npz":
        _, arrays, numbers = images.read_splits(path)
        splits = {split: (arrays[split], numbers[split]) for split in arrays}
    else:
        splits = _image_files(path, request)
    for split, (array, _) in splits.items():
        if array.dtype != np.uint8 or array.shape[1:] != IMAGE_SHAPE:
            raise DataError(
                f"{path}: its images for {split} are {array.dtype} {array.shape}, but should be "
                f"uint8 [n, {SIDE}, {SIDE}, 3]"
            )
    pixels: dict[Split, Content] = {split: both[0] for split, both in splits.items()}
    labels: dict[Split, np.ndarray] = {split: both[1] for split, both in splits.items()}
    return images.made(out, "cifar10", CLASSES, pixels, labels, source=source, declare=declare)


def _published(path: pathlib.Path, name: str) -> Splits:
    """Batches of an archive whose SHA-256 is known: its pickles are the author's."""
    parts: dict[Split, list[tuple[np.ndarray, np.ndarray]]] = {"train": [], "eval": []}
    batches = {}
    for member in archives.members(path):
        batch = member.name.rsplit("/", 1)[-1].removesuffix(".bin")
        if batch in _BATCHES:
            batches[batch] = _batch(member.read(), is_pickled=name == "cifar-10-python.tar.gz")
    for batch, split in _BATCHES.items():
        parts[split].append(batches[batch])
    return {
        split: (np.concatenate([p for p, _ in both]), np.concatenate([lab for _, lab in both]))
        for split, both in parts.items()
    }


def _batch(content: bytes, *, is_pickled: bool) -> tuple[np.ndarray, np.ndarray]:
    if is_pickled:
        batch = pickle.loads(content, encoding="bytes")
        rows, labels = batch[b"data"], np.array(batch[b"labels"])
    else:  # a record is a byte of label and the pixels
        table = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * SIDE * SIDE)
        rows, labels = table[:, 1:], table[:, 0]
    # A row holds the red, then the green, then the blue plane.
    return rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), labels.astype(np.int64)


def _tfds(path: pathlib.Path, request: Request) -> Splits:
    source = open_source(path, "CIFAR-10", "cifar10")
    splits: Splits = {}
    for split, photographs in source.splits.items():
        rows = photographs.rows(IMAGE_SHAPE, lambda content: decode_image(content, SIDE, SIDE))
        splits[split] = np.asarray(rows), np.asarray(photographs.labels)
        request.progress.add(len(rows))
    return splits


def _image_files(path: pathlib.Path, request: Request) -> Splits:
    """Images of `train/<class>/*` and `test/<class>/*` in a folder or an archive."""
    decoded: dict[Split, list[tuple[int, str, np.ndarray]]] = {"train": [], "eval": []}
    for member, folder, label in _labelled_members(path):
        content = member.read()
        try:
            if label not in CLASSES:
                raise DataError(f"is in no class of CIFAR-10 ({', '.join(CLASSES)})")
            image = decode_image(content, SIDE, SIDE)
        except DataError as error:
            raise DataError(f"{member.source}: {archives.shown(member.name)} {error}") from None
        decoded[_FOLDERS[folder]].append((CLASSES.index(label), member.name, image))
        request.progress.add(1)
    if not decoded["train"] or not decoded["eval"]:
        raise DataError(
            f"{path}: is not a published archive of CIFAR-10 ({', '.join(ARCHIVES.values())}, by "
            "SHA-256), and holds no train/<class>/*.jpg|png and test/<class>/*, nor arrays or TFDS "
            "ArrayRecord files"
        )
    splits: Splits = {}
    for split, found in decoded.items():
        found.sort(key=lambda item: item[:2])
        labels = np.array([label for label, _, _ in found])
        splits[split] = np.stack([image for _, _, image in found]), labels
    return splits


def _labelled_members(path: pathlib.Path) -> Iterator[tuple[archives.Member, str, str]]:
    for member in archives.members(path):
        *_, folder, label, file = ("", "", *member.name.split("/"))
        # macOS adds such files to folders and archives.
        is_hidden = file.startswith(".") or "__MACOSX" in member.name.split("/")
        if folder in _FOLDERS and not is_hidden:
            yield member, folder, label


PREPARATION = Preparation(
    name="cifar10",
    usage=("--from=PATH [--out=DIR] [--overwrite]",),
    takes="""PATH is one of these:

  the original archive   cifar-10-python.tar.gz or cifar-10-binary.tar.gz, recognized by its
                         SHA-256: nothing else may be called CIFAR-10
  image files            train/<class>/*.jpg|png and test/<class>/*.jpg|png: a folder, or a .tar,
                         .tar.gz, .tar.xz, .tar.bz2 or .zip of it
  arrays                 an .npz of train_x, train_y, test_x, test_y
  TensorFlow Datasets    a data directory with ArrayRecord files""",
    run=_prepare,
)
