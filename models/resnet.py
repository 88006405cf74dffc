"""Residual networks: the small one for 8x8 digits, and ResNet-18 for CIFAR-10.

Source: He et al. 2015, "Deep Residual Learning for Image Recognition", sections 3.3, 3.4 and 4.2.
"""

import dataclasses
from typing import ClassVar

import jax
from flax import nnx

from dawnjax.models.batch_norm import BatchNorm
from dawnjax.models.convolution import Conv, Linear
from dawnjax.models.execution import Execution


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNet:
    """A residual network of basic blocks on a 3x3 stem, for small images.

    The defaults are ResNet-18 for 32x32 images, 11,173,962 parameters with 10 classes.

    Attributes:
      stage_sizes: Residual blocks in each stage; every stage but the first halves height and width.
      stage_widths: Channels of each stage; the stem has as many as the first.
      batch_norm_momentum: The fraction of the running statistics that a step keeps. 0.9 is the
        default of PyTorch (there 0.1), with which the usual CIFAR recipes were found.
      batch_norm_epsilon: Added to the variance; 1e-5 as in He et al.'s released models.
      last_scale: What the last BatchNorm's scale of each block starts at. 0 makes a block start as
        the identity (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 5.1).
    """

    TAG: ClassVar[str] = "resnet"

    stage_sizes: tuple[int, ...] = (2, 2, 2, 2)
    stage_widths: tuple[int, ...] = (64, 128, 256, 512)
    batch_norm_momentum: float = 0.9
    batch_norm_epsilon: float = 1e-5
    last_scale: float = 1.0

    def build(
        self,
        *,
        image_shape: tuple[int, int, int],
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ) -> nnx.Module:
        """Makes the network for images of [height, width, channels]."""
        return ResNetModule(self, image_shape[-1], num_classes, execution, rngs)


class ResNetModule(nnx.Module):
    """Stem, stages of residual blocks, mean over positions, linear classifier."""

    def __init__(
        self,
        config: ResNet,
        in_channels: int,
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        width = config.stage_widths[0]
        self.stem = Conv(
            in_channels, width, (3, 3), padding=((1, 1), (1, 1)), execution=execution, rngs=rngs
        )
        self.stem_norm = _batch_norm(width, config, execution)
        blocks = {}
        for stage, (size, out_width) in enumerate(
            zip(config.stage_sizes, config.stage_widths, strict=True), start=1
        ):
            for block in range(1, size + 1):
                stride = 2 if stage > 1 and block == 1 else 1
                blocks[f"stage_{stage}_block_{block}"] = BasicBlock(
                    width, out_width, stride, config, execution, rngs
                )
                width = out_width
        self.blocks = nnx.Dict(blocks)
        self.classifier = Linear(
            width, num_classes, float32_output=True, execution=execution, rngs=rngs
        )

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Maps normalized images [batch, height, width, channels] to float32 logits."""
        hidden = jax.nn.relu(self.stem_norm(self.stem(images), train=train))
        for block in self.blocks.values():
            hidden = block(hidden, train=train)
        return self.classifier(hidden.mean((1, 2)))


class BasicBlock(nnx.Module):
    """Two 3x3 convolutions and a shortcut, which is projected where the shape changes."""

    def __init__(
        self,
        in_width: int,
        out_width: int,
        stride: int,
        config: ResNet,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        # One zero on each side, as in the paper's implementations; `SAME` would put the only zero
        # of a strided convolution at the end.
        pads = ((1, 1), (1, 1))
        self.conv_1 = Conv(
            in_width,
            out_width,
            (3, 3),
            strides=(stride, stride),
            padding=pads,
            execution=execution,
            rngs=rngs,
        )
        self.norm_1 = _batch_norm(out_width, config, execution)
        self.conv_2 = Conv(
            out_width, out_width, (3, 3), padding=pads, execution=execution, rngs=rngs
        )
        self.norm_2 = _batch_norm(out_width, config, execution, scale=config.last_scale)
        if stride == 1 and in_width == out_width:
            self.projection = self.projection_norm = None
        else:
            self.projection = Conv(
                in_width,
                out_width,
                (1, 1),
                strides=(stride, stride),
                padding="VALID",
                execution=execution,
                rngs=rngs,
            )
            self.projection_norm = _batch_norm(out_width, config, execution)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Maps [batch, height, width, in_width] to [batch, height / stride, ..., out_width]."""
        hidden = jax.nn.relu(self.norm_1(self.conv_1(images), train=train))
        hidden = self.norm_2(self.conv_2(hidden), train=train)
        shortcut = images.astype(hidden.dtype)
        if self.projection is not None and self.projection_norm is not None:
            shortcut = self.projection_norm(self.projection(images), train=train)
        return jax.nn.relu(hidden + shortcut)


def _batch_norm(width: int, config: ResNet, execution: Execution, scale: float = 1.0) -> BatchNorm:
    return BatchNorm(
        width,
        momentum=config.batch_norm_momentum,
        epsilon=config.batch_norm_epsilon,
        scale=scale,
        execution=execution,
    )
