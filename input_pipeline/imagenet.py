"""ImageNet (ILSVRC 2012) or any photographs in class folders, as squares of 256 pixels on disk.

`dawnjax prepare --dataset=imagenet --from=PATH --out=DIR` makes them once. They are mapped into
memory: a host reads the images of its own devices only, and random rectangles, resizing and flips
happen on the device (`--augmentation.crop_pixels`).

The squares are the middle of each photograph, whose shorter side is 256 pixels. An evaluation of
the middle 224 is the customary one. Training sees nothing of what lies beyond the square, unlike
training on rectangles of whole photographs.

Source: O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge" (2015).
"""

import dataclasses
import os
import pathlib
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline import prepared
from dawnjax.input_pipeline.dataset import DataError, DatasetSpec, Split

SIDE = 256
"""Height and width of the prepared images, in pixels."""

# Of pixel / 255, red, green, blue, as the usual recipes have them since
# https://github.com/facebookarchive/fb.resnet.torch; constants of the recipe, not of the files.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

NUM_EXAMPLES: dict[Split, int] = {"train": 1_281_167, "eval": 50_000}
NUM_CLASSES = 1000

LARGEST_VERIFIED_BYTES = 2**31
"""Images up to this size are read and compared with their checksums at each start."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageNet:
    """ImageNet as `dawnjax prepare` wrote it.

    Attributes:
      data_dir: The prepared directory. Empty takes `imagenet` in the directory that the environment
        variable DAWNJAX_DATA names, or `./data/imagenet` without it.
    """

    TAG: ClassVar[str] = "imagenet"
    data_dir: str = ""

    def spec(self) -> DatasetSpec:
        """Gives counts and shapes; reads metadata only.

        Raises:
          DataError: Missing, half-converted, of another dataset, or with metadata damaged.
        """
        description = self._description()
        return DatasetSpec(
            num_train_examples=description.num_examples("train"),
            num_eval_examples=description.num_examples("eval"),
            image_shape=description.image_shape,
            num_classes=len(description.classes),
            mean=MEAN,
            std=STD,
            fingerprint=description.fingerprint,
        )

    def load(self, split: Split) -> dict[str, np.ndarray]:
        """Gives the images uint8 [N, 256, 256, 3] and labels int32 [N] of one split, memory-mapped.

        Labels are verified. Images are where they have no more than 2 GiB; of larger ones only size
        and header were compared, since to read the whole of ImageNet takes minutes. `dawnjax
        prepare`, done again, compares all of it.

        Raises:
          DataError: Missing or damaged; one line that names the file.
        """
        description = self._description()
        num_bytes = description.files[f"{split}_images.npy"].num_bytes
        read = prepared.read_split if num_bytes <= LARGEST_VERIFIED_BYTES else prepared.map_split
        return read(self._directory(), description, split)

    def _directory(self) -> pathlib.Path:
        return pathlib.Path(self.data_dir).expanduser() if self.data_dir else default_directory()

    def _description(self) -> prepared.Description:
        directory = self._directory()
        if not prepared.is_prepared(directory):
            raise DataError(
                f"{directory}: no prepared ImageNet there; `dawnjax prepare --dataset=imagenet "
                f"--from=PATH --out={directory}` makes it from image folders or a TFDS directory "
                "(--data.data_dir names another place)"
            )
        description = prepared.read_description(directory)
        if (description.dataset, description.image_shape) != ("imagenet", (SIDE, SIDE, 3)):
            raise DataError(
                f"{directory / prepared.DESCRIPTION_FILE}: describes {description.dataset} with "
                f"images {description.image_shape}, not ImageNet"
            )
        return description


def default_directory() -> pathlib.Path:
    """Gives where ImageNet is looked for unless a place is named."""
    return pathlib.Path(os.environ.get("DAWNJAX_DATA") or "data") / "imagenet"
