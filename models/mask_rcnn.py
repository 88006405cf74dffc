"""Mask R-CNN on a ResNet with a feature pyramid: classes, boxes and masks of objects.

Source: He et al. 2017, "Mask R-CNN" (arXiv 1703.06870), section 3 and figure 4, right;
mlcommons/training v0.5, `object_detection/pytorch` (maskrcnn-benchmark), for sizes and starts.

The reference's ResNet-50 strides in the first 1x1 convolution of a block and takes blue, green and
red from 0 to 255. This one is `ResNet`, which strides in the 3x3 convolution and takes normalized
red, green and blue: backbone and images must fit the run that the parameters come from.
"""

import dataclasses
import math
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dawnjax.limits import Counts, NonNegative, OneOrMore, Positive, check_fields, require
from dawnjax.models import roi_align
from dawnjax.models.anchors import RATIOS, anchors_of_level
from dawnjax.models.constant_norms import LayersWithFrozenBatchNorm, LayersWithGroupNorm
from dawnjax.models.convolution import convolve, he_normal_fan_out
from dawnjax.models.execution import Execution
from dawnjax.models.layers import ImageShape, Layers
from dawnjax.models.pyramid import Pyramid, RegionHead, uniform_of_unit_gain
from dawnjax.models.resnet import ResNet, Trunk, imagenet_resnet


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskRCNN:
    """A two-stage detector whose objects have masks.

    The defaults are the reference's: 44,347,573 parameters with 80 classes, of which 44,125,173 are
    trained, and 53,120 constants of BatchNorm's scale and shift that are none.

    Attributes:
      backbone: The ResNet; each of its stages gives a level of the pyramid.
      norm: `frozen_batch` keeps the backbone's BatchNorm as it came, so it needs a pretrained
        backbone; `group` normalizes groups of channels, and learns from the start.
      groups: Of channels, for `group`.
      frozen_stages: Stages of the backbone that are not trained, with its stem; 0 for none.
      width: Channels of the pyramid and of the heads' convolutions.
      anchor_sides: Side of each level's square anchor, in pixels. As many levels as there are more
        sides than stages follow the pyramid's, each of half the size; boxes are not read from them.
      canonical_side: Side of the boxes that are read from the level `canonical_level`, in pixels.
      canonical_level: From 0, the finest. A box of half the side is read from the level before.
      roi_form: How features of boxes are read: see `roi_align`.
      box_cells: Along each side of a box's features for its class.
      mask_cells: Along each side of its features for its mask, which has twice as many.
      box_width: Of the two linear layers for classes and boxes.
      mask_convolutions: Before the mask is enlarged.
    """

    TAG: ClassVar[str] = "mask_rcnn"
    pretrained_parts: ClassVar[tuple[str, ...]] = ("stem", "stem_norm", "blocks")

    backbone: ResNet = dataclasses.replace(imagenet_resnet(50), last_scale=1.0)
    norm: Literal["frozen_batch", "group"] = "frozen_batch"
    groups: OneOrMore[int] = 32
    frozen_stages: NonNegative[int] = 1
    width: OneOrMore[int] = 256
    anchor_sides: Counts = (32, 64, 128, 256, 512)
    canonical_side: Positive[float] = 224.0
    canonical_level: NonNegative[int] = 2
    roi_form: roi_align.Form = "gather"
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
        return roi_align.strides_of(first, len(self.anchor_sides))

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
        positions = roi_align.positions_of((height, width), self.strides)
        parts = zip(positions, self.strides, self.anchor_sides, strict=True)
        return [anchors_of_level(*part) for part in parts]

    def features_of(self, maps: list[jax.Array], corners: jax.Array, cells: int) -> jax.Array:
        """Features of boxes float32 [batch, boxes, 4], in pixels: [batch, boxes, cells, cells, c].

        Boxes and not only features have no gradient.
        """
        corners = jax.lax.stop_gradient(corners)
        count = self.num_roi_levels
        levels = roi_align.levels_of(corners, count, self.canonical_side, self.canonical_level)
        strides = self.strides[:count]
        return roi_align.roi_align(
            maps[:count], corners, levels, strides=strides, cells=cells, form=self.roi_form
        )

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

    def build(
        self, *, image_shape: ImageShape, num_classes: int, execution: Execution, rngs: nnx.Rngs
    ) -> nnx.Module:
        check_fields(self, "model.")
        if self.norm == "group":
            layers = LayersWithGroupNorm(self.backbone, execution, rngs, self.groups)
        else:
            layers = LayersWithFrozenBatchNorm(self.backbone, execution, rngs)
        return MaskRCNNModule(self, image_shape[-1], num_classes, layers)


class FirstStage(NamedTuple):
    """Maps of each level, and logits and codes of each level's anchors."""

    maps: list[jax.Array]
    scores: list[jax.Array]
    codes: list[jax.Array]


class MaskRCNNModule(Trunk):
    """Trunk, pyramid and region head; `box_head` and `mask_head` take features of boxes."""

    def __init__(self, config: MaskRCNN, in_channels: int, num_classes: int, layers: Layers):
        super().__init__(config.backbone, in_channels, layers)
        stage_widths, width = config.backbone.stage_widths, config.width
        num_extra = len(config.anchor_sides) - len(stage_widths)
        self.pyramid = Pyramid(stage_widths, width, num_extra, layers)
        self.regions = RegionHead(width, len(RATIOS), layers)
        self.box_head = BoxHead(config, num_classes, layers)
        self.mask_head = MaskHead(config, num_classes, layers)

    def __call__(self, images: jax.Array, *, train: bool) -> FirstStage:
        maps = self.pyramid(self.features(images, train=train))
        return FirstStage(maps, *self.regions(maps))


class BoxHead(nnx.Module):
    """Two linear layers, and the class of a box and its code for each class."""

    def __init__(self, config: MaskRCNN, num_classes: int, layers: Layers):
        normal = jax.nn.initializers.normal
        inside = config.box_cells**2 * config.width
        self.linear_1 = layers.classifier(inside, config.box_width, uniform_of_unit_gain)
        self.linear_2 = layers.classifier(config.box_width, config.box_width, uniform_of_unit_gain)
        self.classes = layers.classifier(config.box_width, 1 + num_classes, normal(0.01))
        self.codes = layers.classifier(config.box_width, 4 * (1 + num_classes), normal(0.001))

    def __call__(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Logits [batch, boxes, 1 + classes] and codes [batch, boxes, 1 + classes, 4], float32.

        Class 0 is the background. `features` are [batch, boxes, cells, cells, channels].
        """
        hidden = features.reshape(*features.shape[:2], math.prod(features.shape[2:]))
        hidden = jax.nn.relu(self.linear_1(hidden))
        hidden = jax.nn.relu(self.linear_2(hidden))
        logits, codes = self.classes(hidden), self.codes(hidden)
        return logits, codes.reshape(*logits.shape, 4)


class MaskHead(nnx.Module):
    """3x3 convolutions, an enlargement to twice the side, and a mask for each class."""

    def __init__(self, config: MaskRCNN, num_classes: int, layers: Layers):
        width, zeros = config.width, jax.nn.initializers.zeros
        self.convolutions = nnx.List(
            [
                layers.conv(width, width, 3, bias_initializer=zeros)
                for _ in range(config.mask_convolutions)
            ]
        )
        self.enlarge = Enlargement(width, layers)
        self.masks = layers.conv(width, 1 + num_classes, 1, bias_initializer=zeros)

    def __call__(self, features: jax.Array, classes: jax.Array) -> jax.Array:
        """Logits of the masks of one class of each box: float32 [batch, boxes, 2 n, 2 n].

        Args:
          features: [batch, boxes, n, n, channels].
          classes: int32 [batch, boxes].
        """
        batch, boxes = classes.shape
        hidden = features.reshape(-1, *features.shape[2:])
        for convolution in self.convolutions:
            hidden = jax.nn.relu(convolution(hidden))
        hidden = jax.nn.relu(self.enlarge(hidden))
        masks = self.masks(hidden)
        masks = masks.reshape(batch, boxes, *masks.shape[1:]).astype(jnp.float32)
        return jnp.take_along_axis(masks, classes[:, :, None, None, None], axis=-1)[..., 0]


class Enlargement(nnx.Module):
    """A transposed 2x2 convolution of stride 2: each position becomes four."""

    def __init__(self, width: int, layers: Layers):
        shape = (2, 2, width, width)
        self.kernel = nnx.Param(he_normal_fan_out(layers.rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(width, jnp.float32))
        self.execution = layers.execution

    def __call__(self, images: jax.Array) -> jax.Array:
        """Map [batch, height, width, channels] to [batch, 2 height, 2 width, channels]."""
        batch, height, width, channels = images.shape
        kernel = self.kernel[...].transpose(2, 0, 1, 3).reshape(1, 1, channels, 4 * channels)
        four = convolve(images, kernel, execution=self.execution)
        four = four.reshape(batch, height, width, 2, 2, channels).transpose(0, 1, 3, 2, 4, 5)
        return four.reshape(batch, 2 * height, 2 * width, channels) + self.bias[...].astype(
            four.dtype
        )
