"""Residual networks: for ImageNet with 18 to 152 layers, for CIFAR-10, and for 8x8 digits.

Source: He et al. 2015, "Deep Residual Learning for Image Recognition" (arXiv 1512.03385), sections
3.3, 3.4 and 4.2, table 1.
"""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.activations import Activation, activate, relu_of_sum
from dawnjax.models.batch_norm import BatchNorm
from dawnjax.models.configs.resnet import EXPANSION, ResNet
from dawnjax.models.configs.types import ImageShape
from dawnjax.models.convolution import Conv, uniform_fan_in
from dawnjax.models.execution import Execution
from dawnjax.models.layers import Layers
from dawnjax.models.pooling import max_pool


class Trunk(nnx.Module):
    """Stem and stages of residual blocks; every network on it has their parameters' names.

    `strides` are those of the stages' first blocks, by default 1 and then 2.
    """

    def __init__(
        self,
        config: ResNet,
        in_channels: int,
        layers: Layers,
        strides: tuple[int, ...] | None = None,
    ):
        width = config.stage_widths[0] // EXPANSION[config.block]
        self.execution = layers.execution
        self.has_pooled_stem = config.stem != "small_images"
        size, stride = (7, 2) if self.has_pooled_stem else (3, 1)
        self.stem = layers.conv(in_channels, width, size, stride)
        self.stem_norm = _norm(width, config, layers)
        self.activation: Activation | None = "relu" if config.rectifies else None
        block_class = {"basic": BasicBlock, "bottleneck": BottleneckBlock}[config.block]
        blocks = {}
        sizes, widths = config.stage_sizes, config.stage_widths
        for name, out_width, stride in stage_blocks(sizes, widths, strides):
            blocks[name] = block_class(width, out_width, stride, config, layers)
            width = out_width
        self.order = tuple(blocks)
        self.ends = tuple(itertools.accumulate(sizes))
        self.blocks = nnx.Dict(blocks)

    def features(
        self, images: jax.Array, *, train: bool, num_stages: int | None = None
    ) -> list[jax.Array]:
        """Result of each stage, or of the first ones, [batch, height, width, channels]."""
        if num_stages == 0:
            return []
        hidden = self.stem_norm(self.stem(images), train=train, activation=self.activation)
        if self.has_pooled_stem:
            pads = ((1, 1), (1, 1))
            hidden = max_pool(
                hidden, (3, 3), strides=(2, 2), padding=pads, execution=self.execution
            )
        results = []
        for place, name in enumerate(self.order, start=1):
            hidden = self.blocks[name](hidden, train=train)
            if place in self.ends:
                results.append(hidden)
            if len(results) == num_stages:
                break
        return results


class ResNetModule(Trunk):
    """Trunk, mean over positions, linear classifier."""

    def __init__(
        self,
        config: ResNet,
        *,
        image_shape: ImageShape,
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        layers = Layers(config, execution, rngs)
        super().__init__(config, image_shape[-1], layers)
        std = config.classifier_std
        initializer = jax.nn.initializers.normal(std) if std else uniform_fan_in
        self.classifier = layers.classifier(config.stage_widths[-1], num_classes, initializer)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        return self.classifier(self.features(images, train=train)[-1].mean((1, 2)))


def stage_blocks(
    sizes: tuple[int, ...], widths: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> Iterator[tuple[str, int, int]]:
    """Name, width and stride of each block; a stage's first has the stage's stride, 1 or 2."""
    strides = strides or (1, *(2 for _ in sizes[1:]))
    for stage, (size, width) in enumerate(zip(sizes, widths, strict=True), start=1):
        for block in range(1, size + 1):
            yield f"stage_{stage}_block_{block}", width, strides[stage - 1] if block == 1 else 1


class BasicBlock(nnx.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, in_width: int, out_width: int, stride: int, config: ResNet, layers: Layers):
        self.conv_1 = layers.conv(in_width, out_width, 3, stride)
        self.norm_1 = _norm(out_width, config, layers)
        self.conv_2 = layers.conv(out_width, out_width, 3)
        self.norm_2 = _norm(out_width, config, layers, config.last_scale)
        self.execution = layers.execution
        self.activation: Activation | None = "relu" if config.rectifies else None
        self.projection, self.projection_norm = _projection(
            in_width, out_width, stride, config, layers
        )

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Map [batch, height, width, in_width] to [batch, height / stride, ..., out_width]."""
        hidden = self.norm_1(self.conv_1(images), train=train, activation=self.activation)
        hidden = self.norm_2(self.conv_2(hidden), train=train)
        hidden = hidden + _shortcut(self, images, hidden, train)
        return hidden if self.activation is None else relu_of_sum(hidden, self.execution)


class BottleneckBlock(nnx.Module):
    """1x1, 3x3 and 1x1 convolution, a quarter of the channels inside, and a shortcut."""

    def __init__(self, in_width: int, out_width: int, stride: int, config: ResNet, layers: Layers):
        width = out_width // EXPANSION["bottleneck"]
        self.conv_1 = layers.conv(in_width, width)
        self.norm_1 = _norm(width, config, layers)
        self.conv_2 = layers.conv(width, width, 3, stride)
        self.norm_2 = _norm(width, config, layers)
        self.conv_3 = layers.conv(width, out_width)
        self.norm_3 = _norm(out_width, config, layers, config.last_scale)
        self.execution = layers.execution
        self.activation: Activation | None = "relu" if config.rectifies else None
        self.projection, self.projection_norm = _projection(
            in_width, out_width, stride, config, layers
        )

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Map [batch, height, width, in_width] to [batch, height / stride, ..., out_width]."""
        hidden = self.norm_1(self.conv_1(images), train=train, activation=self.activation)
        hidden = self.norm_2(self.conv_2(hidden), train=train, activation=self.activation)
        hidden = self.norm_3(self.conv_3(hidden), train=train)
        hidden = hidden + _shortcut(self, images, hidden, train)
        return hidden if self.activation is None else relu_of_sum(hidden, self.execution)


class Unnormalized(nnx.Module):
    """The activation alone, in the place of a BatchNorm."""

    def __call__(
        self, inputs: jax.Array, *, train: bool, activation: Activation | None = None
    ) -> jax.Array:
        return inputs if activation is None else activate(inputs, activation)


Norm = BatchNorm | Unnormalized


def _norm(width: int, config: ResNet, layers: Layers, scale: float = 1.0) -> Norm:
    return layers.norm(width, scale) if config.normalizes else Unnormalized()


def _projection(
    in_width: int, out_width: int, stride: int, config: ResNet, layers: Layers
) -> tuple[Conv, "Norm"] | tuple[None, None]:
    if (stride == 1 and in_width == out_width) or config.shortcut == "zero_padding":
        return None, None
    return layers.conv(in_width, out_width, 1, stride), _norm(out_width, config, layers)


def _shortcut(
    block: BasicBlock | BottleneckBlock, images: jax.Array, hidden: jax.Array, train: bool
) -> jax.Array:
    if block.projection is not None and block.projection_norm is not None:
        return block.projection_norm(block.projection(images), train=train)
    # Option A of the paper: every `stride`th pixel, and zeros for the new channels.
    stride = -(-images.shape[1] // hidden.shape[1])
    images = images[:, ::stride, ::stride].astype(hidden.dtype)
    missing = hidden.shape[-1] - images.shape[-1]
    return jnp.pad(images, ((0, 0), (0, 0), (0, 0), (0, missing)))
