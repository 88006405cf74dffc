"""ImageNet (ILSVRC 2012) or any photographs in class folders, as squares of one size.

`dawnjax prepare --dataset=imagenet --from=PATH --out=DIR` makes them once. They are mapped into
memory: a host reads the images of its own devices only, and random rectangles, resizing and flips
happen on the device (`--task.augmentation.crop_pixels`). Image folders and TFDS directories can be
trained on as they are, too: then each host decodes the photographs of its own devices, by threads
ahead of the step, into the same squares.

The squares are the middle of each photograph, whose shorter side is 256 pixels unless another is
chosen. An evaluation of the middle 224 is the customary one. Training sees nothing of what lies
beyond the square, unlike training on rectangles of whole photographs.

Source: O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge" (2015).
"""

import dataclasses
import os
import pathlib
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline import imagenet_sources, prepared
from dawnjax.input_pipeline.dataset import DataError, DatasetSpec, Split
from dawnjax.input_pipeline.rows_on_demand import RowsOnDemand

SIDE = 256
"""Height and width of the images in pixels, unless others are asked for."""

SIDES = range(32, 1025)
"""Heights and widths that may be asked for."""

# Of pixel / 255, red, green, blue, as the usual recipes have them since
# https://github.com/facebookarchive/fb.resnet.torch; constants of the recipe, not of the files.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

NUM_EXAMPLES: dict[Split, int] = {"train": 1_281_167, "eval": 50_000}
NUM_CLASSES = 1000

_listed: dict[pathlib.Path, imagenet_sources.Source] = {}
"""The sources that `spec` has listed, so that `load` reads what it counted; listing ImageNet takes
minutes on some disks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageNet:
    """ImageNet, prepared or as it was found.

    Attributes:
      data_dir: The directory that `dawnjax prepare` wrote, or image folders (train/<class>/* and
        val/<class>/*), or a TFDS directory in ArrayRecord files. Empty takes `imagenet` in the
        directory that the environment variable DAWNJAX_DATA names, or `./data/imagenet` without it.
      image_side: Height and width of the images in pixels; prepared ones must have them.
    """

    TAG: ClassVar[str] = "imagenet"
    data_dir: str = ""
    image_side: int = SIDE

    def spec(self) -> DatasetSpec:
        """Gives counts and shapes; reads metadata only: of image folders, names and sizes.

        Raises:
          DataError: Missing, half-converted, of another dataset, or with metadata damaged.
          ValueError: Images of another size were prepared, or the size is out of range.
        """
        if self.image_side not in SIDES:
            raise ValueError(
                f"data.image_side={self.image_side} must lie in [{SIDES[0]}, {SIDES[-1]}]"
            )
        directory = self._directory()
        if self._is_prepared():
            description = self._description()
            counts = {split: description.num_examples(split) for split in ("train", "eval")}
            classes, fingerprint = description.classes, description.fingerprint
        else:
            source = _listed[directory] = imagenet_sources.open_source(directory)
            counts = {
                split: len(photographs.labels) for split, photographs in source.splits.items()
            }
            classes, fingerprint = source.classes, source.listing
        return DatasetSpec(
            num_train_examples=counts["train"],
            num_eval_examples=counts["eval"],
            image_shape=(self.image_side, self.image_side, 3),
            num_classes=len(classes),
            mean=MEAN,
            std=STD,
            fingerprint=fingerprint,
        )

    def load(self, split: Split) -> dict[str, np.ndarray | RowsOnDemand]:
        """Gives the images uint8 [N, side, side, 3] and labels int32 [N] of one split.

        Prepared ones are memory-mapped. Labels are verified. Images are where they have no more
        than 2 GiB; of larger ones only size and header were compared, since to read the whole of
        ImageNet takes minutes. `dawnjax prepare`, done again, compares all of it.

        Others are read and decoded when a batch asks for them; a damaged photograph is found then.

        Raises:
          DataError: Missing or damaged; one line that names the file.
        """
        directory = self._directory()
        if not self._is_prepared():
            source = _listed.get(directory) or imagenet_sources.open_source(directory)
            photographs = source.splits[split]
            return {"image": photographs.squares(self.image_side), "label": photographs.labels}
        return {**prepared.verified_split(directory, self._description(), split)}

    def classes(self) -> tuple[str, ...]:
        """Gives the name of each class; a label is a position in it."""
        directory = self._directory()
        if self._is_prepared():
            return self._description().classes
        return (_listed.get(directory) or imagenet_sources.open_source(directory)).classes

    def _is_prepared(self) -> bool:
        """Says whether the directory is prepared; one that holds nothing known is refused."""
        directory = self._directory()
        if prepared.is_prepared(directory):
            return True
        if imagenet_sources.is_source(directory):
            return False
        raise DataError(
            f"{directory}: no ImageNet there, neither prepared nor image folders nor TFDS; "
            f"`dawnjax prepare --dataset=imagenet --from=PATH --out={directory}` prepares it "
            "(--data.data_dir names another place)"
        )

    def _description(self) -> prepared.Description:
        directory = self._directory()
        description = prepared.read_description(directory)
        height, width, channels = description.image_shape
        if (description.dataset, height, channels) != ("imagenet", width, 3):
            raise DataError(
                f"{directory / prepared.DESCRIPTION_FILE}: describes {description.dataset} with "
                f"images {description.image_shape}, not ImageNet"
            )
        if height != self.image_side:
            raise ValueError(
                f"data.image_side={self.image_side}, but {directory} was prepared with {height}; "
                f"give --data.image_side={height}, or prepare another with "
                f"--image_side={self.image_side}"
            )
        return description

    def _directory(self) -> pathlib.Path:
        return pathlib.Path(self.data_dir).expanduser() if self.data_dir else default_directory()


def default_directory() -> pathlib.Path:
    """Gives where ImageNet is looked for unless a place is named."""
    return pathlib.Path(os.environ.get("DAWNJAX_DATA") or "data") / "imagenet"
