"""Settings of single-shot detectors, and the sizes of their maps."""

import dataclasses
import math
from typing import ClassVar

import numpy as np

from dawnjax.limits import Counts, OneOrMore, require, require_as_many
from dawnjax.models.configs.default_boxes import DefaultBoxes
from dawnjax.models.configs.network import ImageNetwork
from dawnjax.models.configs.resnet import ResNet
from dawnjax.models.configs.types import ImageShape

Size = tuple[int, int]
"""Height and width."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SSD(ImageNetwork):
    """A ResNet up to its third stage, and further maps of half the size and less.

    The defaults are the reference's for 300 x 300: maps of 38, 19, 10, 5, 3 and 1 cells a side,
    8,732 default boxes and, with 80 classes and the background, 19,972,534 parameters.

    Attributes:
      backbone: The ResNet; its last stage, which the reference leaves out, is none of it.
      backbone_strides: Of the stages' first blocks: the last stage keeps its size.
      inner_widths: Channels between the two convolutions of each further map.
      widths: Channels of each further map.
      strides: Of their 3x3 convolutions; one of stride 1 has no padding.
      boxes: The default boxes, of the backbone's map and of the further ones.
    """

    TAG: ClassVar[str] = "ssd"
    NETWORK: ClassVar[str] = "ssd.SSDModule"
    has_batch_norm_groups: ClassVar[bool] = True
    pretrained_parts: ClassVar[tuple[str, ...]] = ("stem", "stem_norm", "blocks")

    backbone: ResNet = ResNet(stage_sizes=(3, 4, 6), stage_widths=(64, 128, 256), stem="imagenet")
    backbone_strides: Counts = (1, 2, 1)
    inner_widths: Counts = (256, 256, 128, 128, 128)
    widths: Counts = (512, 512, 256, 256, 256)
    strides: Counts = (2, 2, 2, 1, 1)
    boxes: DefaultBoxes = DefaultBoxes()

    def check_together(self, prefix: str) -> None:
        require_as_many(self, "inner_widths", "widths", prefix)
        require_as_many(self, "strides", "widths", prefix)
        sizes = self.backbone.stage_sizes
        name = f"{prefix}backbone_strides"
        fits = len(self.backbone_strides) == len(sizes)
        require(fits, name, self.backbone_strides, f"have a value for each of {len(sizes)} stages")
        maps, wanted = len(self.boxes.steps), len(self.widths) + 1
        require(maps == wanted, f"{prefix}boxes.steps", self.boxes.steps, f"have {wanted} values")

    def map_sizes(self, image_shape: ImageShape) -> tuple[Size, ...]:
        """Rows and columns of each feature map."""
        size = image_shape[:2]
        halvings = [2, 2] if self.backbone.stem != "small_images" else []
        for stride in (*halvings, *self.backbone_strides):
            size = (-(-size[0] // stride), -(-size[1] // stride))
        sizes = [size]
        for stride in self.strides:
            pad = 1 if stride > 1 else 0
            size = tuple((side + 2 * pad - 3) // stride + 1 for side in size)
            sizes.append((size[0], size[1]))
        return tuple(sizes)

    def default_boxes(self, image_shape: ImageShape) -> np.ndarray:
        """Centred boxes as fractions of the image, float32 [boxes, 4]."""
        sizes = self.map_sizes(image_shape)
        if min(min(size) for size in sizes) < 1:
            height, width, _ = image_shape
            raise ValueError(f"images of {height}x{width} are too small for {len(sizes)} maps")
        return self.boxes.centred(sizes, image_shape[:2])

    def tiny(self) -> "SSD":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(
            self,
            backbone=dataclasses.replace(self.backbone, stage_sizes=(1, 1), stage_widths=(8, 16)),
            backbone_strides=(1, 2),
            inner_widths=(8,),
            widths=(16,),
            strides=(2,),
            boxes=DefaultBoxes(steps=(8, 16), scales=(8, 20, 40), num_ratios=(1, 2)),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallSSD(ImageNetwork):
    """Stages of 3x3 convolutions with GroupNorm, which halve the image, and heads on the last ones.

    It needs no pretrained backbone, and an example's result does not depend on the others.

    Attributes:
      widths: Channels of each stage; its first convolution has stride 2.
      convolutions: In each stage.
      groups: Of channels that are normalized together.
      boxes: The default boxes, of as many last stages as it has steps.
    """

    TAG: ClassVar[str] = "small_ssd"
    NETWORK: ClassVar[str] = "ssd.SmallSSDModule"

    widths: Counts = (16, 32, 64, 64, 64)
    convolutions: OneOrMore[int] = 2
    groups: OneOrMore[int] = 8
    boxes: DefaultBoxes = DefaultBoxes(
        steps=(8, 16, 32), scales=(10, 28, 46, 64), num_ratios=(2, 2, 2), centres="map"
    )

    def check_together(self, prefix: str) -> None:
        stages, maps = len(self.widths), len(self.boxes.steps)
        name = f"{prefix}boxes.steps"
        require(maps <= stages, name, self.boxes.steps, f"have {stages} values or fewer")
        whole = all(width % self.groups == 0 for width in self.widths)
        require(whole, f"{prefix}widths", self.widths, f"be multiples of {self.groups} groups")

    def default_boxes(self, image_shape: ImageShape) -> np.ndarray:
        """Centred boxes as fractions of the image, float32 [boxes, 4]."""
        size, sizes = image_shape[:2], []
        for _ in self.widths:
            size = (math.ceil(size[0] / 2), math.ceil(size[1] / 2))
            sizes.append(size)
        return self.boxes.centred(tuple(sizes[-len(self.boxes.steps) :]), image_shape[:2])

    def tiny(self) -> "SmallSSD":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(self, widths=(8,) * len(self.widths), convolutions=1)
