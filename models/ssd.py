"""Single-shot detectors: MLPerf's SSD with a ResNet-34, and a small one without a pretrained start.

Source: Liu et al. 2016, "SSD: Single Shot MultiBox Detector" (arXiv 1512.02325), sections 2.1 and
2.2; mlcommons/training v0.5, `single_stage_detector/ssd` (`base_model.py`, `ssd300.py`), for the
network of `SSD`, whose parameters it shares one by one.
"""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dawnjax.limits import Counts, OneOrMore, check_fields, require, require_as_many
from dawnjax.models.default_boxes import DefaultBoxes
from dawnjax.models.execution import Execution
from dawnjax.models.group_norm import GroupNorm
from dawnjax.models.layers import ImageShape, Layers
from dawnjax.models.resnet import ResNet, Trunk

xavier_uniform = jax.nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
"""Source: Glorot and Bengio 2010, equation 16."""

Size = tuple[int, int]
"""Height and width."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SSD:
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

    def build(
        self, *, image_shape: ImageShape, num_classes: int, execution: Execution, rngs: nnx.Rngs
    ) -> nnx.Module:
        check_fields(self, "model.")
        return SSDModule(self, image_shape[-1], num_classes, Layers(self.backbone, execution, rngs))


class SSDModule(Trunk):
    """Trunk, further maps, and heads on all of them."""

    def __init__(self, config: SSD, in_channels: int, num_classes: int, layers: Layers):
        super().__init__(config.backbone, in_channels, layers, config.backbone_strides)
        width = config.backbone.stage_widths[-1]
        maps, extra = [width], {}
        rows = zip(config.inner_widths, config.widths, config.strides, strict=True)
        for number, (inner, out, stride) in enumerate(rows, start=2):
            extra[f"map_{number}"] = ExtraMap(width, inner, out, stride, layers)
            width = out
            maps.append(width)
        self.extra_order = tuple(extra)
        self.extra = nnx.Dict(extra)
        self.heads = Heads(maps, config.boxes.boxes_a_cell(), num_classes, layers)

    def __call__(self, images: jax.Array, *, train: bool) -> tuple[jax.Array, jax.Array]:
        """Codes of boxes and logits of classes of images [batch, height, width, channels].

        Float32 [batch, boxes, 4] and [batch, boxes, 1 + classes]; class 0 is the background.
        """
        maps = [self.features(images, train=train)[-1]]
        for name in self.extra_order:
            maps.append(self.extra[name](maps[-1]))
        return self.heads(maps)


class ExtraMap(nnx.Module):
    """A 1x1 and a 3x3 convolution, each with a bias and ReLU, and without normalization."""

    def __init__(self, in_width: int, inner: int, out_width: int, stride: int, layers: Layers):
        pads = ((1, 1), (1, 1)) if stride > 1 else "VALID"
        self.conv_1 = _conv(in_width, inner, 1, 1, None, layers)
        self.conv_2 = _conv(inner, out_width, 3, stride, pads, layers)

    def __call__(self, images: jax.Array) -> jax.Array:
        return jax.nn.relu(self.conv_2(jax.nn.relu(self.conv_1(images))))


class Heads(nnx.Module):
    """A 3x3 convolution for the boxes of each map, and one for their classes."""

    def __init__(
        self, widths: list[int], boxes_a_cell: tuple[int, ...], num_classes: int, layers: Layers
    ):
        counts = list(zip(widths, boxes_a_cell, strict=True))
        self.num_logits = num_classes + 1
        self.boxes = nnx.List([_conv(w, 4 * n, 3, 1, None, layers) for w, n in counts])
        self.classes = nnx.List(
            [_conv(width, self.num_logits * n, 3, 1, None, layers) for width, n in counts]
        )

    def __call__(self, maps: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        def values(heads: nnx.List, count: int) -> jax.Array:
            # A cell's channels are those of its first box, then of its second, ...
            parts = [
                head(image).astype(jnp.float32).reshape(len(image), -1, count)
                for head, image in zip(heads, maps, strict=True)
            ]
            return jnp.concatenate(parts, axis=1)

        return values(self.boxes, 4), values(self.classes, self.num_logits)


def _conv(in_width: int, out_width: int, size: int, stride: int, padding, layers: Layers):
    return layers.conv(
        in_width,
        out_width,
        size,
        stride,
        padding,
        kernel_initializer=xavier_uniform,
        bias_initializer=_uniform_bias(size * size * in_width),
    )


def _uniform_bias(fan_in: int) -> jax.nn.initializers.Initializer:
    """Uniform in +-1 / sqrt(fan in), PyTorch's default of a bias."""
    bound = fan_in**-0.5
    return lambda key, shape, dtype=jnp.float32, **_: jax.random.uniform(
        key, shape, dtype, -bound, bound
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallSSD:
    """Stages of 3x3 convolutions with GroupNorm, which halve the image, and heads on the last ones.

    It needs no pretrained backbone, and an example's result does not depend on the others.

    Attributes:
      widths: Channels of each stage; its first convolution has stride 2.
      convolutions: In each stage.
      groups: Of channels that are normalized together.
      boxes: The default boxes, of as many last stages as it has steps.
    """

    TAG: ClassVar[str] = "small_ssd"

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

    def build(
        self, *, image_shape: ImageShape, num_classes: int, execution: Execution, rngs: nnx.Rngs
    ) -> nnx.Module:
        check_fields(self, "model.")
        return SmallSSDModule(self, image_shape[-1], num_classes, Layers(self, execution, rngs))


class SmallSSDModule(nnx.Module):
    """Stages, and heads on the last of them."""

    def __init__(self, config: SmallSSD, in_channels: int, num_classes: int, layers: Layers):
        stages, width = [], in_channels
        for out_width in config.widths:
            stages.append(Stage(width, out_width, config, layers))
            width = out_width
        self.stages = nnx.List(stages)
        self.num_maps = len(config.boxes.steps)
        widths = list(config.widths[-self.num_maps :])
        self.heads = Heads(widths, config.boxes.boxes_a_cell(), num_classes, layers)

    def __call__(self, images: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Codes of boxes and logits of classes, as of `SSDModule`."""
        maps = []
        for stage in self.stages:
            images = stage(images)
            maps.append(images)
        return self.heads(maps[-self.num_maps :])


class Stage(nnx.Module):
    """3x3 convolutions, each with GroupNorm and ReLU."""

    def __init__(self, in_width: int, out_width: int, config: SmallSSD, layers: Layers):
        convolutions, norms = [], []
        for number in range(config.convolutions):
            first = number == 0
            conv = layers.conv(in_width if first else out_width, out_width, 3, 2 if first else 1)
            convolutions.append(conv)
            norms.append(GroupNorm(out_width, config.groups))
        self.convolutions, self.norms = nnx.List(convolutions), nnx.List(norms)

    def __call__(self, images: jax.Array) -> jax.Array:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            images = jax.nn.relu(norm(convolution(images)))
        return images
