"""Residual networks: for ImageNet with 18 to 152 layers, for CIFAR-10, and for 8x8 digits.

Source: He et al. 2015, "Deep Residual Learning for Image Recognition" (arXiv 1512.03385), sections
3.3, 3.4 and 4.2, table 1.
"""

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.activations import relu_of_sum
from dawnjax.models.batch_norm import BatchNorm
from dawnjax.models.convolution import Conv, Linear, convolve, he_normal_fan_out, uniform_fan_in
from dawnjax.models.execution import Execution, Platform
from dawnjax.models.pooling import max_pool

Block = Literal["basic", "bottleneck"]
Stem = Literal["small_images", "imagenet", "imagenet_space_to_depth"]
Shortcut = Literal["projection", "zero_padding"]

EXPANSION: dict[Block, int] = {"basic": 1, "bottleneck": 4}
"""Channels that a block gives for each channel of its 3x3 convolution."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNet:
    """A residual network of post-activation blocks.

    The defaults are ResNet-18 for 32x32 images, 11,173,962 parameters with 10 classes.
    `imagenet_resnet` and `cifar_resnet` give the published ones by their depth.

    Attributes:
      stage_sizes: Residual blocks in each stage; every stage but the first halves height and width.
      stage_widths: Channels that each stage gives.
      block: Two 3x3 convolutions (`basic`), or 1x1, 3x3, 1x1 with a quarter of the channels inside
        (`bottleneck`). A block halves height and width in its first 3x3 convolution; for
        bottlenecks that is known as v1.5, while the paper strides in the first 1x1.
      stem: `small_images` is a 3x3 convolution; `imagenet` a 7x7 convolution and a 3x3 maximum,
        both of stride 2; `imagenet_space_to_depth` computes the same from the same parameters, on
        images whose 2x2 blocks of pixels are moved into the channels, which suits matrix units
        better; on a GPU `imagenet` does so too, where both sides are even. All have as many
        channels as the 3x3 convolutions of the first stage.
      shortcut: Where a block changes the shape: a 1x1 convolution and BatchNorm (the paper's option
        B), or every second pixel and zeros for the new channels (option A, no parameters).
      batch_norm_momentum: The fraction of the running statistics that a step keeps. 0.9 is the
        default of PyTorch (there 0.1), with which the usual CIFAR recipes were found.
      batch_norm_epsilon: Added to the variance; 1e-5 as in He et al.'s released models.
      last_scale: What the last BatchNorm's scale of each block starts at. 0 makes a block start as
        the identity (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 5.1).
      classifier_std: The classifier's weights start as normal with this standard deviation (0.01 in
        Goyal et al. 2017, section 5.1); 0 takes uniform in +-1 / sqrt(channels).
    """

    TAG: ClassVar[str] = "resnet"

    stage_sizes: tuple[int, ...] = (2, 2, 2, 2)
    stage_widths: tuple[int, ...] = (64, 128, 256, 512)
    block: Block = "basic"
    stem: Stem = "small_images"
    shortcut: Shortcut = "projection"
    batch_norm_momentum: float = 0.9
    batch_norm_epsilon: float = 1e-5
    last_scale: float = 1.0
    classifier_std: float = 0.0

    def build(
        self,
        *,
        image_shape: tuple[int, int, int],
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ) -> nnx.Module:
        """Makes the network for images of [height, width, channels]."""
        return ResNetModule(self, image_shape, num_classes, execution, rngs)


_IMAGENET_STAGES: dict[int, tuple[Block, tuple[int, ...]]] = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
}


def imagenet_resnet(depth: int, *, stem: Stem = "imagenet", last_scale: float = 0.0) -> ResNet:
    """Gives the network of table 1 of He et al. 2015, as v1.5, with Goyal et al.'s start.

    Args:
      depth: 18, 34, 50, 101 or 152.
      stem: `imagenet` or `imagenet_space_to_depth`.
      last_scale: What the last BatchNorm's scale of each block starts at.

    Raises:
      ValueError: Another depth.
    """
    if depth not in _IMAGENET_STAGES:
        raise ValueError(f"depth {depth} is none of {', '.join(map(str, _IMAGENET_STAGES))}")
    block, sizes = _IMAGENET_STAGES[depth]
    widths = tuple(EXPANSION[block] * width for width in (64, 128, 256, 512))
    return ResNet(
        stage_sizes=sizes,
        stage_widths=widths,
        block=block,
        stem=stem,
        last_scale=last_scale,
        classifier_std=0.01,
    )


def cifar_resnet(depth: int, *, shortcut: Shortcut = "zero_padding") -> ResNet:
    """Gives the network of section 4.2 of He et al. 2015: depth 6n + 2, as 20, 56 or 110.

    Raises:
      ValueError: The depth is not 6n + 2.
    """
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"depth {depth} is not 6n + 2, such as 20, 56 or 110")
    return ResNet(stage_sizes=((depth - 2) // 6,) * 3, stage_widths=(16, 32, 64), shortcut=shortcut)


class ResNetModule(nnx.Module):
    """Stem, stages of residual blocks, mean over positions, linear classifier."""

    def __init__(
        self,
        config: ResNet,
        image_shape: tuple[int, int, int],
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        *sides, in_channels = image_shape
        width = config.stage_widths[0] // EXPANSION[config.block]
        self.platform: Platform = execution.platform
        self.has_pooled_stem = config.stem != "small_images"
        has_blocks = config.stem == "imagenet" and not any(side % 2 for side in sides)
        if config.stem == "imagenet_space_to_depth" or (has_blocks and self.platform == "gpu"):
            self.stem = SpaceToDepthConv(in_channels, width, execution, rngs)
        else:
            size, stride = (7, 2) if self.has_pooled_stem else (3, 1)
            self.stem = _conv(in_channels, width, size, stride, execution, rngs)
        self.stem_norm = _batch_norm(width, config, execution)
        block_class = {"basic": BasicBlock, "bottleneck": BottleneckBlock}[config.block]
        blocks = {}
        for stage, (size, out_width) in enumerate(
            zip(config.stage_sizes, config.stage_widths, strict=True), start=1
        ):
            for block in range(1, size + 1):
                stride = 2 if stage > 1 and block == 1 else 1
                blocks[f"stage_{stage}_block_{block}"] = block_class(
                    width, out_width, stride, config, execution, rngs
                )
                width = out_width
        self.order = tuple(blocks)
        self.blocks = nnx.Dict(blocks)
        std = config.classifier_std
        self.classifier = Linear(
            width,
            num_classes,
            kernel_initializer=jax.nn.initializers.normal(std) if std else uniform_fan_in,
            float32_output=True,
            execution=execution,
            rngs=rngs,
        )

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Maps normalized images [batch, height, width, channels] to float32 logits."""
        hidden = self.stem_norm(self.stem(images), train=train, activation="relu")
        if self.has_pooled_stem:
            hidden = max_pool(hidden, 3, stride=2, padding=((1, 1), (1, 1)), platform=self.platform)
        for name in self.order:
            hidden = self.blocks[name](hidden, train=train)
        return self.classifier(hidden.mean((1, 2)))


class BasicBlock(nnx.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(
        self,
        in_width: int,
        out_width: int,
        stride: int,
        config: ResNet,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        self.conv_1 = _conv(in_width, out_width, 3, stride, execution, rngs)
        self.norm_1 = _batch_norm(out_width, config, execution)
        self.conv_2 = _conv(out_width, out_width, 3, 1, execution, rngs)
        self.norm_2 = _batch_norm(out_width, config, execution, scale=config.last_scale)
        self.platform: Platform = execution.platform
        _add_projection(self, in_width, out_width, stride, config, execution, rngs)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Maps [batch, height, width, in_width] to [batch, height / stride, ..., out_width]."""
        hidden = self.norm_1(self.conv_1(images), train=train, activation="relu")
        hidden = self.norm_2(self.conv_2(hidden), train=train)
        return relu_of_sum(hidden + _shortcut(self, images, hidden, train), self.platform)


class BottleneckBlock(nnx.Module):
    """1x1, 3x3 and 1x1 convolution, a quarter of the channels inside, and a shortcut."""

    def __init__(
        self,
        in_width: int,
        out_width: int,
        stride: int,
        config: ResNet,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        width = out_width // EXPANSION["bottleneck"]
        self.conv_1 = _conv(in_width, width, 1, 1, execution, rngs)
        self.norm_1 = _batch_norm(width, config, execution)
        self.conv_2 = _conv(width, width, 3, stride, execution, rngs)
        self.norm_2 = _batch_norm(width, config, execution)
        self.conv_3 = _conv(width, out_width, 1, 1, execution, rngs)
        self.norm_3 = _batch_norm(out_width, config, execution, scale=config.last_scale)
        self.platform: Platform = execution.platform
        _add_projection(self, in_width, out_width, stride, config, execution, rngs)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Maps [batch, height, width, in_width] to [batch, height / stride, ..., out_width]."""
        hidden = self.norm_1(self.conv_1(images), train=train, activation="relu")
        hidden = self.norm_2(self.conv_2(hidden), train=train, activation="relu")
        hidden = self.norm_3(self.conv_3(hidden), train=train)
        return relu_of_sum(hidden + _shortcut(self, images, hidden, train), self.platform)


class SpaceToDepthConv(nnx.Module):
    """The 7x7 convolution of stride 2, as a 4x4 convolution of 2x2 blocks of pixels.

    Its parameter is the 7x7 kernel, so either form reads the other's checkpoints. A kernel of 8x8
    with zeros in its first row and column covers whole blocks: result i sees rows 2i - 4 to 2i + 3,
    which are the blocks i - 2 to i + 1.

    Source: MLPerf training v0.6, Google's ResNet-50 submission ("conv0 space to depth").
    """

    def __init__(self, in_channels: int, out_channels: int, execution: Execution, rngs: nnx.Rngs):
        shape = (7, 7, in_channels, out_channels)
        self.kernel = nnx.Param(he_normal_fan_out(rngs.params(), shape, jnp.float32))
        self.execution = execution

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [batch, height, width, c], both sizes even, to [batch, height / 2, ..., out]."""
        batch, height, width, channels = images.shape
        if height % 2 or width % 2:
            raise ValueError(
                f"images of {height}x{width} have no whole 2x2 blocks; take stem=imagenet"
            )
        dtype = self.execution.compute_dtype
        kernel = jnp.pad(self.kernel[...], ((1, 0), (1, 0), (0, 0), (0, 0)))
        kernel = kernel.reshape(4, 2, 4, 2, channels, -1).transpose(0, 2, 1, 3, 4, 5)
        kernel = kernel.reshape(4, 4, 4 * channels, -1)
        blocks = images.reshape(batch, height // 2, 2, width // 2, 2, channels)
        blocks = blocks.transpose(0, 1, 3, 2, 4, 5)
        blocks = blocks.reshape(batch, height // 2, width // 2, 4 * channels)
        if self.execution.platform == "gpu":
            # cuDNN would copy both to a multiple of eight channels at each of its calls.
            missing = -4 * channels % 8
            blocks = jnp.pad(blocks, ((0, 0), (0, 0), (0, 0), (0, missing)))
            kernel = jnp.pad(kernel, ((0, 0), (0, 0), (0, missing), (0, 0)))
        return convolve(
            blocks.astype(dtype),
            kernel.astype(dtype),
            padding=((2, 1), (2, 1)),
            platform=self.execution.platform,
            batch_shards=self.execution.batch_shards,
        )


def _add_projection(
    block: BasicBlock | BottleneckBlock,
    in_width: int,
    out_width: int,
    stride: int,
    config: ResNet,
    execution: Execution,
    rngs: nnx.Rngs,
) -> None:
    """Gives a block its projection, where the shape changes and the shortcut has parameters."""
    is_same = stride == 1 and in_width == out_width
    if is_same or config.shortcut == "zero_padding":
        block.projection = block.projection_norm = None
    else:
        block.projection = _conv(in_width, out_width, 1, stride, execution, rngs)
        block.projection_norm = _batch_norm(out_width, config, execution)


def _shortcut(
    block: BasicBlock | BottleneckBlock, images: jax.Array, hidden: jax.Array, train: bool
) -> jax.Array:
    """Gives the block's input in the shape of its result `hidden`."""
    if block.projection is not None and block.projection_norm is not None:
        return block.projection_norm(block.projection(images), train=train)
    stride = -(-images.shape[1] // hidden.shape[1])
    images = images[:, ::stride, ::stride].astype(hidden.dtype)
    missing = hidden.shape[-1] - images.shape[-1]
    return jnp.pad(images, ((0, 0), (0, 0), (0, 0), (0, missing)))


def _conv(
    in_width: int, out_width: int, size: int, stride: int, execution: Execution, rngs: nnx.Rngs
) -> Conv:
    # As many zeros on each side, as in the paper's implementations; `SAME` would put more at the
    # end of a strided convolution.
    return Conv(
        in_width,
        out_width,
        (size, size),
        strides=(stride, stride),
        padding=((size // 2, size // 2),) * 2,
        execution=execution,
        rngs=rngs,
    )


def _batch_norm(width: int, config: ResNet, execution: Execution, scale: float = 1.0) -> BatchNorm:
    return BatchNorm(
        width,
        momentum=config.batch_norm_momentum,
        epsilon=config.batch_norm_epsilon,
        scale=scale,
        execution=execution,
    )
