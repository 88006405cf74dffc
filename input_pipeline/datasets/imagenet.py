"""ImageNet (ILSVRC 2012), as squares of one size or as whole photographs.

Squares are fast: random rectangles of them are cut on the device
(`--task.augmentation.crop_pixels`), and nothing outside of a photograph's middle is seen. Of whole
photographs each host cuts the published random rectangles, 8 to 100 % of the area, for its own
devices; flips happen on the device.

Source: O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge" (2015); Table 2
for its counts. The synset ids are those of TensorFlow Datasets' `imagenet2012` (4.9).
"""

import dataclasses
import hashlib
from typing import ClassVar, Literal

import numpy as np

from dawnjax.input_pipeline.datasets.images import FLAGS, ImageDirectory, squares
from dawnjax.input_pipeline.reading.dataset import (
    NO_FINGERPRINT,
    DatasetSpec,
    Declaration,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.image_files import decode_part, decode_square
from dawnjax.input_pipeline.reading.image_set import ImageFacts
from dawnjax.input_pipeline.reading.photographs import SIDE
from dawnjax.input_pipeline.reading.preparing import Preparation
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

# Of pixel / 255, red, green, blue, as the usual recipes have them since
# https://github.com/facebookarchive/fb.resnet.torch; constants of the recipe, not of the files.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

TFDS_NAME = "imagenet2012"

SIDES = range(32, 1025)
"""Heights and widths that may be asked for, in pixels."""

NUM_EXAMPLES: dict[Split, int] = {"train": 1_281_167, "eval": 50_000}
IMAGES_A_CLASS: dict[Split, tuple[int, int]] = {"train": (732, 1_300), "eval": (50, 50)}
CLASSES_SHA256 = "385e0240499426c022b773be1ae4da780f057b89c9694c7f47199f62746b6edd"
"""Hash of the 1,000 synset ids, sorted and joined by newlines."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageNet:
    """ImageNet, prepared or as TensorFlow Datasets keeps it.

    Attributes:
      data_dir: The directory that `dawnjax prepare` wrote, or a TFDS directory in ArrayRecord
        files. Empty takes `imagenet` in the directory that the environment variable DAWNJAX_DATA
        names, or `./data/imagenet` without it.
      image_side: Height and width of the images in pixels; prepared ones must have them.
      form: `squares`, or `photographs`: a random part of each is resized to `image_side` in
        training, in evaluation the middle square of 7/8 of the shorter side.
    """

    TAG: ClassVar[str] = "imagenet"
    RESIZES: ClassVar[bool] = True
    data_dir: str = ""
    image_side: int = SIDE
    form: Literal["squares", "photographs"] = "squares"

    def spec(self) -> DatasetSpec:
        return self._directory().spec(MEAN, STD)

    def published_spec(self) -> DatasetSpec:
        return DatasetSpec(
            num_train_examples=NUM_EXAMPLES["train"],
            num_eval_examples=NUM_EXAMPLES["eval"],
            image_shape=(self.image_side, self.image_side, 3),
            num_classes=1000,
            mean=MEAN,
            std=STD,
            fingerprint=NO_FINGERPRINT,
            is_drawn=self.form == "photographs",
        )

    def load(self, split: Split) -> dict[str, np.ndarray | RowsOnDemand]:
        return self._directory().load(split)

    def classes(self) -> tuple[str, ...]:
        return self._directory().classes()

    def _directory(self) -> ImageDirectory:
        return ImageDirectory(
            path=directory_of("imagenet", self.data_dir),
            dataset="imagenet",
            title="ImageNet",
            command="--dataset=imagenet",
            tfds_name=TFDS_NAME,
            side=self.image_side,
            sides=SIDES,
            declare=declare,
            decode=decode_middle if self.form == "photographs" else decode_square,
            is_drawn=self.form == "photographs",
        )


def decode_middle(content: bytes, side: int) -> np.ndarray:
    """Middle square of 7/8 of an image's shorter side, resized, as evaluations see it.

    Source: He et al. 2016, "Deep Residual Learning", section 3.4: 224 of 256 pixels.
    """

    def middle(height: int, width: int) -> tuple[int, int, int, int]:
        seen = max(1, round(min(height, width) * 7 / 8))
        return (height - seen) // 2, (width - seen) // 2, seen, seen

    return decode_part(content, side, middle)


def declare(facts: ImageFacts, source: str) -> Declaration:
    """Declaration of images, by the ids of their classes and the number of images of each.

    Pixels are not compared: decoders and sizes differ.
    """
    del source  # there are many copies in many forms
    difference, counts = _difference(facts), facts.num_examples
    if difference:
        return Declaration(
            name=f"{counts['train']:,} + {counts['eval']:,} images in {len(facts.classes):,} "
            "classes, not ImageNet",
            evidence=difference,
            overlap=facts.overlap,
        )
    return Declaration(
        name="ImageNet",
        benchmark="ImageNet",
        evidence="equal: counts of both splits and of each class, class names",
        overlap=facts.overlap,
    )


def _difference(facts: ImageFacts) -> str:
    if facts.num_examples != NUM_EXAMPLES:
        wanted, here = (
            " + ".join(f"{count:,}" for count in counts.values())
            for counts in (NUM_EXAMPLES, facts.num_examples)
        )
        return f"ImageNet has {wanted} images, and these are {here}"
    names = "\n".join(sorted(facts.classes)).encode()
    if hashlib.sha256(names).hexdigest() != CLASSES_SHA256:
        return "its class names are not ImageNet's"
    for split, wanted in IMAGES_A_CLASS.items():
        counts = facts.class_counts.get(split)
        if not counts:
            return "its labels were not counted: prepare it to compare it with ImageNet"
        if (min(counts), max(counts)) != wanted:
            return (
                f"ImageNet has {wanted[0]:,} to {wanted[1]:,} images of a class to {split}, and "
                f"here are {min(counts):,} to {max(counts):,}"
            )
    return ""


PREPARATION = Preparation(
    name="imagenet",
    usage=("--from=PATH [--out=DIR] [--overwrite]\n[--image_side=PIXELS] [--form=photographs]",),
    takes="""PATH is a folder with train/<class>/* and val/<class>/* (JPEG or PNG), or a TensorFlow
Datasets directory with ArrayRecord files. Each photograph becomes a square of 256 pixels (197 KB)
or --image_side; --form=photographs keeps them whole, in ArrayRecord shards that TensorFlow Datasets
and Grain open (pip install "dawnjax[tfds]").""",
    flags=FLAGS,
    run=lambda request: squares(request, "imagenet", "ImageNet", TFDS_NAME, SIDES, declare),
)
