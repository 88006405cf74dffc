"""Labelled images of one size, prepared: four columns, and facts of what they hold.

train_images.npy   uint8 [num_train_examples, height, width, channels]
train_labels.npy   int32 [num_train_examples]
eval_images.npy    uint8 [num_eval_examples, height, width, channels]
eval_labels.npy    int32 [num_eval_examples]
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from dawnjax.input_pipeline.reading import columns, overlap
from dawnjax.input_pipeline.reading.columns import Columns
from dawnjax.input_pipeline.reading.dataset import DataError, Overlap, Split

KIND = "images"
SPLITS: tuple[Split, ...] = ("train", "eval")

MOST_COLOURS = 4
"""Channels of a photograph; an axis of so few that comes first is no height."""

MOST_CLASSES = 2**20

LARGEST_VERIFIED_BYTES = 2**31
"""Images in a larger file stay unread when a run begins: 2 GiB."""

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of pixel / 255, per channel."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """Facts of labelled images.

    Attributes:
      num_examples: Images of each split.
      classes: Name of each class; a label is a position in it.
      class_counts: Images of each class, in each split; empty where labels were not counted.
      statistics: Of each split that was measured.
      overlap: Images in both splits; None where they were not compared.
    """

    num_examples: dict[Split, int]
    classes: tuple[str, ...]
    class_counts: dict[Split, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    statistics: dict[Split, Statistics] = dataclasses.field(default_factory=dict)
    overlap: Overlap | None = None


ImageColumns = Columns[ImageFacts]


def read(directory: pathlib.Path, command: str = "") -> ImageColumns:
    return columns.read(directory, KIND, ImageFacts, command)


def image_shape(prepared: ImageColumns) -> tuple[int, int, int]:
    height, width, channels = prepared.files["train_images.npy"].shape[1:]
    return height, width, channels


def read_split(
    prepared: ImageColumns, split: Split, *, most_bytes: int | None = None
) -> dict[str, np.ndarray]:
    """Map a split, verified: `image` uint8 [num_examples, height, width, channels], `label` int32.

    Of images of more than `most_bytes`, only the header is read.
    """
    name = f"{split}_images.npy"
    is_read = most_bytes is None or math.prod(prepared.files[name].shape) <= most_bytes
    images = prepared.array(name, verified=is_read)
    return {"image": images, "label": prepared.array(f"{split}_labels.npy")}


def facts_of(classes: tuple[str, ...], written: Columns[None]) -> ImageFacts:
    """Facts of labelled images, from their columns."""
    arrays = {name: written.array(name, verified=False) for name in written.files}
    images = {split: arrays[f"{split}_images.npy"] for split in SPLITS}
    return ImageFacts(
        num_examples={split: len(images[split]) for split in SPLITS},
        classes=classes,
        class_counts={
            split: class_counts(arrays[f"{split}_labels.npy"], len(classes)) for split in SPLITS
        },
        statistics={split: channel_statistics(images[split]) for split in SPLITS},
        overlap=overlap.shared(
            overlap.rows(images["train"]), overlap.rows(images["eval"]), "images"
        ),
    )


def check_labels(where: str, labels: np.ndarray, num_classes: int) -> None:
    """Refuse labels outside 0 to num_classes - 1 by a DataError that begins with `where`."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise DataError(
            f"{where} label {labels[wrong[0]]} of example {wrong[0]} is out of range "
            f"0 to {num_classes - 1}"
        )


def check_images(where: str, images: np.ndarray) -> None:
    """Refuse arrays that are no images, or have their channels before height and width."""
    shape = images.shape
    if images.dtype != np.uint8 or images.ndim != 4 or 0 in shape[1:]:
        raise DataError(
            f"{where} {images.dtype} {shape}; wanted uint8 [n, height, width, channels]"
        )
    if shape[1] <= MOST_COLOURS < min(shape[2:]):
        raise DataError(
            f"{where} {shape}, which looks like [n, channels, height, width]; wanted [n, height, "
            "width, channels]: transpose(0, 2, 3, 1)"
        )


def check_classes(
    where: str, labels: Mapping[Split, np.ndarray], names: Sequence[str] | None
) -> int:
    """Number of classes; refuse labels that `names` lacks, and classes without a training image.

    Without names, the labels are the classes: they count from 0 and leave none out.
    """
    for split in SPLITS:
        check_labels(
            f"{where} {split}", labels[split], MOST_CLASSES if names is None else len(names)
        )
    trained = np.unique(labels["train"])
    missing = np.flatnonzero(trained != np.arange(len(trained)))
    lacking = int(missing[0]) if missing.size else len(trained)
    if names is not None:
        if lacking < len(names):
            raise DataError(
                f"{where} no training image is in class {names[lacking]!r} (label {lacking}); "
                "leave the class out"
            )
    elif missing.size and not lacking:
        raise DataError(f"{where} labels begin at {trained[0]}; they must count from 0")
    elif missing.size:
        raise DataError(
            f"{where} no training image has label {lacking}, but some have {trained[-1]}; labels "
            "must not skip numbers"
        )
    unknown = np.setdiff1d(labels["eval"], trained)
    if unknown.size:
        raise DataError(
            f"{where} the evaluation has label {unknown[0]}, but no training image has it"
        )
    return len(trained)


def class_counts(labels: np.ndarray, num_classes: int) -> tuple[int, ...]:
    return tuple(np.bincount(labels, minlength=num_classes).tolist())


def channel_statistics(images: np.ndarray) -> Statistics:
    """Mean and deviation of pixel / 255 per channel, to six digits."""
    channels = images.shape[-1]
    counts = np.zeros((channels, 256), np.int64)
    # In chunks: the images may be memory-mapped and larger than memory.
    for start in range(0, len(images), 1024):
        chunk = images[start : start + 1024].reshape(-1, channels)
        for channel in range(channels):
            counts[channel] += np.bincount(chunk[:, channel], minlength=256)
    # From counts of levels no rounding error grows with the number of pixels.
    levels = np.arange(256) / 255
    mean = counts @ levels / counts.sum(axis=1)
    variance = counts @ levels**2 / counts.sum(axis=1) - mean**2
    # A channel of one level has no deviation to divide by; take 1.
    std = [round(math.sqrt(max(0.0, value)), 6) or 1.0 for value in variance]
    return tuple(round(float(value), 6) for value in mean), tuple(std)
