"""CIFAR-10: 60,000 photographs of 32x32 pixels in ten classes, prepared or as TFDS keeps it.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009).
"""

import dataclasses
import pathlib
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets import cifar10_tfds, published
from dawnjax.input_pipeline.reading import class_subset, image_set, manifest
from dawnjax.input_pipeline.reading.dataset import (
    DataError,
    DatasetSpec,
    MissingDataError,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.image_set import ImageFacts

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGE_SHAPE = (32, 32, 3)

# Of pixel / 255 over the 50,000 training images of the original, red, green, blue, to four digits.
# They are constants of the recipe: a JPEG copy, whose std is a little lower, uses them too.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)


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
        version_directory = self._tfds_version(directory)
        if version_directory is not None:
            counts, fingerprint = cifar10_tfds.read_counts(version_directory)
            facts = ImageFacts(num_examples=counts, classes=CLASSES)
        else:
            there = _read_manifest(directory)
            facts, fingerprint = there.facts, image_set.fingerprint(there)
        spec = DatasetSpec(
            num_train_examples=facts.num_examples["train"],
            num_eval_examples=facts.num_examples["eval"],
            image_shape=IMAGE_SHAPE,
            num_classes=len(CLASSES),
            mean=MEAN,
            std=STD,
            fingerprint=fingerprint,
            declaration=published.declare_images(published.CIFAR10, facts),
        )
        if not self.kept_classes:
            return spec
        if not facts.class_counts:
            raise ValueError(
                f"data.kept_classes: {directory} does not say how many images each class has; "
                "prepare it (`dawnjax prepare --dataset=cifar10`)"
            )
        return class_subset.subset_spec(spec, self.kept_classes, facts.class_counts, "CIFAR-10")

    def published_spec(self) -> DatasetSpec:
        return published.images_spec(published.CIFAR10, IMAGE_SHAPE, MEAN, STD)

    def load(self, split: Split) -> dict[str, np.ndarray]:
        """Images uint8 [N, 32, 32, 3] and labels int32 [N], verified: 0.1 s, or some seconds for
        TFDS.
        """
        arrays = self._load(split)
        return class_subset.subset(arrays, self.kept_classes) if self.kept_classes else arrays

    def _load(self, split: Split) -> dict[str, np.ndarray]:
        directory = self._directory()
        version_directory = self._tfds_version(directory)
        if version_directory is None:
            return image_set.read_split(directory, _read_manifest(directory), split)
        images, labels = cifar10_tfds.read_split(version_directory, split)
        return {"image": images, "label": labels.astype(np.int32)}

    def classes(self) -> tuple[str, ...]:
        return tuple(CLASSES[label] for label in self.kept_classes) or CLASSES

    def _directory(self) -> pathlib.Path:
        return directory_of("cifar10", self.data_dir)

    def _tfds_version(self, directory: pathlib.Path) -> pathlib.Path | None:
        if image_set.KIND.is_begun(directory):
            return None
        version_directory = cifar10_tfds.find_version(directory)
        if version_directory is None:
            raise MissingDataError(
                f"{directory}: no prepared CIFAR-10 there; `dawnjax prepare --dataset=cifar10 "
                f"--from=PATH --out={directory}` makes it from the original archive, image files, "
                "an .npz or a TFDS directory (--data.data_dir names another place)"
            )
        return version_directory


def _read_manifest(directory: pathlib.Path) -> image_set.ImageManifest:
    there = image_set.read(directory)
    classes, shape = there.facts.classes, image_set.image_shape(there)
    if (there.dataset, classes, shape) != ("cifar10", CLASSES, IMAGE_SHAPE):
        raise DataError(
            f"{directory / manifest.FILE}: describes {there.dataset} with {len(classes)} classes "
            f"and images {shape}, not CIFAR-10"
        )
    return there
