"""Mask R-CNN on a ResNet with a feature pyramid: classes, boxes and masks of objects.

Source: He et al. 2017, "Mask R-CNN" (arXiv 1703.06870), section 3 and figure 4, right;
mlcommons/training v0.5, `object_detection/pytorch` (maskrcnn-benchmark), for sizes and starts.

The reference's ResNet-50 strides in the first 1x1 convolution of a block and takes blue, green and
red from 0 to 255. This one is `ResNet`, which strides in the 3x3 convolution and takes normalized
red, green and blue: backbone and images must fit the run that the parameters come from.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models import roi_align
from dawnjax.models.configs.anchors import RATIOS
from dawnjax.models.configs.mask_rcnn import MaskRCNN
from dawnjax.models.configs.types import ImageShape
from dawnjax.models.constant_norms import LayersWithFrozenBatchNorm, LayersWithGroupNorm
from dawnjax.models.convolution import convolve, he_normal_fan_out
from dawnjax.models.execution import Execution
from dawnjax.models.layers import Layers
from dawnjax.models.pyramid import Pyramid, RegionHead, uniform_of_unit_gain
from dawnjax.models.resnet import Trunk


class FirstStage(NamedTuple):
    """Maps of each level, and logits and codes of each level's anchors."""

    maps: list[jax.Array]
    scores: list[jax.Array]
    codes: list[jax.Array]


class MaskRCNNModule(Trunk):
    """Trunk, pyramid and region head; `box_head` and `mask_head` take features of boxes."""

    def __init__(
        self,
        config: MaskRCNN,
        *,
        image_shape: ImageShape,
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        if config.norm == "group":
            layers = LayersWithGroupNorm(config.backbone, execution, rngs, config.groups)
        else:
            layers = LayersWithFrozenBatchNorm(config.backbone, execution, rngs)
        super().__init__(config.backbone, image_shape[-1], layers)
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


def features_of(
    config: MaskRCNN, maps: list[jax.Array], corners: jax.Array, cells: int
) -> jax.Array:
    """Features of boxes float32 [batch, boxes, 4], in pixels: [batch, boxes, cells, cells, c].

    Boxes and not only features have no gradient.
    """
    corners = jax.lax.stop_gradient(corners)
    count = config.num_roi_levels
    levels = roi_align.levels_of(corners, count, config.canonical_side, config.canonical_level)
    strides = config.strides[:count]
    return roi_align.roi_align(maps[:count], corners, levels, strides=strides, cells=cells)
