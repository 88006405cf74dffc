"""Settings of Mask R-CNN, and the geometry of its levels."""

import dataclasses
from typing import ClassVar, Literal

import numpy as np

from dawnjax.limits import Counts, NonNegative, OneOrMore, Positive, require
from dawnjax.models.configs.anchors import anchors_of_level, positions_of, strides_of
from dawnjax.models.configs.network import ImageNetwork
from dawnjax.models.configs.resnet import ResNet, imagenet_resnet
from dawnjax.models.configs.types import ImageShape


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskRCNN(ImageNetwork):
    """A two-stage detector whose objects have masks.

    The defaults are the reference's: 44,347,573 parameters with 80 classes, of which 44,125,173 are
    trained, and 53,120 constants of BatchNorm's scale and shift that are none.

    Attributes:
      backbone: The ResNet; each of its stages gives a level of the pyramid.
      norm: `frozen_batch` keeps the BatchNorm of the pretrained backbone that it needs; `group`
        normalizes groups of channels, and can train from scratch.
      groups: Groups of channels, for `group`.
      frozen_stages: Stages of the backbone that are not trained, with its stem; 0 for none.
      width: Channels of the pyramid and of the heads' convolutions.
      anchor_sides: Side of each level's square anchor, in pixels. Each side beyond the number of
        stages adds a level of half the size after the pyramid's; boxes are not read from these.
      canonical_side: Side, in pixels, of boxes that are read from the level `canonical_level`.
      canonical_level: Level, from 0 for the finest. A box of half the side is read from the next
        finer level.
      box_cells: Cells along each side of a box's features for its class.
      mask_cells: Cells along each side of a box's features for its mask, which has twice as many.
      box_width: Width of the two linear layers for classes and boxes.
      mask_convolutions: Convolutions before the mask is enlarged.
    """

    TAG: ClassVar[str] = "mask_rcnn"
    NETWORK: ClassVar[str] = "mask_rcnn.MaskRCNNModule"
    pretrained_parts: ClassVar[tuple[str, ...]] = ("stem", "stem_norm", "blocks")

    backbone: ResNet = dataclasses.replace(imagenet_resnet(50), last_scale=1.0)
    norm: Literal["frozen_batch", "group"] = "frozen_batch"
    groups: OneOrMore[int] = 32
    frozen_stages: NonNegative[int] = 1
    width: OneOrMore[int] = 256
    anchor_sides: Counts = (32, 64, 128, 256, 512)
    canonical_side: Positive[float] = 224.0
    canonical_level: NonNegative[int] = 2
    box_cells: OneOrMore[int] = 7
    mask_cells: OneOrMore[int] = 14
    box_width: OneOrMore[int] = 1024
    mask_convolutions: OneOrMore[int] = 4

    def check_together(self, prefix: str) -> None:
        stages = len(self.backbone.stage_sizes)
        sides = len(self.anchor_sides)
        rule = f"have {stages} values or more, one for each stage of the backbone"
        require(sides >= stages, f"{prefix}anchor_sides", self.anchor_sides, rule)
        name = f"{prefix}frozen_stages"
        require(self.frozen_stages <= stages, name, self.frozen_stages, f"be at most {stages}")
        if self.norm == "group":
            first = self.backbone.stage_widths[0]
            widths = (first // 4 if self.backbone.block == "bottleneck" else first,)
            whole = all(w % self.groups == 0 for w in widths + self.backbone.stage_widths)
            rule = f"divide all widths of the backbone, such as {widths[0]}"
            require(whole, f"{prefix}groups", self.groups, rule)

    @property
    def frozen_parts(self) -> tuple[str, ...]:
        """Beginnings of the paths of parameters that are not trained."""
        if not self.frozen_stages:
            return ()
        stages = (f"blocks/stage_{n}_block_" for n in range(1, self.frozen_stages + 1))
        return ("stem/", "stem_norm/", *stages)

    @property
    def strides(self) -> tuple[int, ...]:
        """Pixels between positions of each level, those without a stage included."""
        first = 1 if self.backbone.stem == "small_images" else 4
        return strides_of(first, len(self.anchor_sides))

    @property
    def num_roi_levels(self) -> int:
        return len(self.backbone.stage_sizes)

    @property
    def mask_side(self) -> int:
        return 2 * self.mask_cells

    def anchors(self, image_shape: ImageShape) -> list[np.ndarray]:
        """Corners of each level's anchors in pixels, float32 [anchors, 4].

        ValueError: A level would have no whole number of positions.
        """
        height, width, _ = image_shape
        coarsest = self.strides[self.num_roi_levels - 1]
        if height % coarsest or width % coarsest:
            raise ValueError(
                f"images of {height}x{width} must have sides that are multiples of {coarsest}"
            )
        positions = positions_of((height, width), self.strides)
        parts = zip(positions, self.strides, self.anchor_sides, strict=True)
        return [anchors_of_level(*part) for part in parts]

    def tiny(self) -> "MaskRCNN":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(
            self,
            backbone=dataclasses.replace(self.backbone, stage_sizes=(1, 1), stage_widths=(32, 64)),
            width=16,
            anchor_sides=(8, 16, 32),
            canonical_side=32,
            canonical_level=1,
            box_cells=4,
            mask_cells=4,
            box_width=32,
            mask_convolutions=1,
        )
