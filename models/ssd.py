"""Single-shot detectors: MLPerf's SSD with a ResNet-34, and a small one without a pretrained start.

Source: Liu et al. 2016, "SSD: Single Shot MultiBox Detector" (arXiv 1512.02325), sections 2.1 and
2.2; mlcommons/training v0.5, `single_stage_detector/ssd` (`base_model.py`, `ssd300.py`), for the
network of `SSD`, whose parameters it shares one by one.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.configs.ssd import SSD, SmallSSD
from dawnjax.models.configs.types import ImageShape
from dawnjax.models.execution import Execution
from dawnjax.models.group_norm import GroupNorm
from dawnjax.models.layers import Layers
from dawnjax.models.resnet import Trunk

xavier_uniform = jax.nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
"""Source: Glorot and Bengio 2010, equation 16."""


class SSDModule(Trunk):
    """Trunk, further maps, and heads on all of them."""

    def __init__(
        self,
        config: SSD,
        *,
        image_shape: ImageShape,
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        layers = Layers(config.backbone, execution, rngs)
        super().__init__(config.backbone, image_shape[-1], layers, config.backbone_strides)
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

    def drawn(key, shape, dtype=None, out_sharding=None):
        return jax.random.uniform(key, shape, dtype or jnp.float32, -bound, bound)

    return drawn


class SmallSSDModule(nnx.Module):
    """Stages, and heads on the last of them."""

    def __init__(
        self,
        config: SmallSSD,
        *,
        image_shape: ImageShape,
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        layers = Layers(config, execution, rngs)
        stages, width = [], image_shape[-1]
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
