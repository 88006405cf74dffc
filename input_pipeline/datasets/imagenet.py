"""ImageNet (ILSVRC 2012), as squares of one size.

The squares are the middle of each photograph, its shorter side resized; training sees nothing
beyond them. Random rectangles and flips happen on the device (`--task.augmentation.crop_pixels`).
Prepared squares are mapped into memory. From image folders and TFDS directories each host decodes
the photographs of its own devices, by threads ahead of the step.

Source: O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge" (2015).
"""

import dataclasses
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets import published
from dawnjax.input_pipeline.datasets.photograph_directory import PhotographDirectory
from dawnjax.input_pipeline.reading.dataset import DatasetSpec, Split, directory_of
from dawnjax.input_pipeline.reading.photographs import SIDE
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

# Of pixel / 255, red, green, blue, as the usual recipes have them since
# https://github.com/facebookarchive/fb.resnet.torch; constants of the recipe, not of the files.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

TFDS_NAME = "imagenet2012"

SIDES = range(32, 1025)
"""Heights and widths that may be asked for, in pixels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageNet:
    """ImageNet, prepared or in its original form.

    Attributes:
      data_dir: The directory that `dawnjax prepare` wrote, or image folders (train/<class>/* and
        val/<class>/*), or a TFDS directory in ArrayRecord files. Empty takes `imagenet` in the
        directory that the environment variable DAWNJAX_DATA names, or `./data/imagenet` without it.
      image_side: Height and width of the images in pixels; prepared ones must have them.
    """

    TAG: ClassVar[str] = "imagenet"
    RESIZES: ClassVar[bool] = True
    data_dir: str = ""
    image_side: int = SIDE

    def spec(self) -> DatasetSpec:
        return self._directory().spec(MEAN, STD)

    def published_spec(self) -> DatasetSpec:
        shape = (self.image_side, self.image_side, 3)
        return published.images_spec(published.IMAGENET, shape, MEAN, STD)

    def load(self, split: Split) -> dict[str, np.ndarray | RowsOnDemand]:
        return self._directory().load(split)

    def classes(self) -> tuple[str, ...]:
        return self._directory().classes()

    def _directory(self) -> PhotographDirectory:
        return PhotographDirectory(
            path=directory_of("imagenet", self.data_dir),
            dataset="imagenet",
            title="ImageNet",
            command="--dataset=imagenet",
            tfds_name=TFDS_NAME,
            side=self.image_side,
            sides=SIDES,
            published=published.IMAGENET,
        )
