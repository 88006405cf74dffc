"""Pre-activation residual networks for small images, of which ResNet-164 is DAWNBench's seed.

BatchNorm and ReLU come before each convolution; nothing but additions lies on the path from the
stem to the last BatchNorm.

Source: He et al. 2016, "Identity Mappings in Deep Residual Networks" (arXiv 1603.05027), section
4.1 and appendix; and DAWNBench's own seeds, `pytorch/CIFAR10/benchmark/models/resnet.py` in
https://github.com/stanford-futuredata/dawn-bench-models, whose blocks take the shortcut of a block
that changes the shape from behind the first ReLU, as here.
"""

import dataclasses
from typing import ClassVar

import jax
from flax import nnx

from dawnjax.models.batch_norm import BatchNorm
from dawnjax.models.convolution import Conv, Linear
from dawnjax.models.execution import Execution
from dawnjax.models.resnet import EXPANSION, Block


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreactivationResNet:
    """A pre-activation residual network; the defaults are ResNet-164 for 32x32 images.

    With 10 classes the defaults have 1,703,258 parameters (1.7 M in table 2 of He et al. 2016);
    `block=basic`, `stage_sizes=27,27,27`, `stage_widths=16,32,64` is the seeds' ResNet-164 without
    bottlenecks.

    Attributes:
      stem_width: Channels of the first 3x3 convolution.
      stage_sizes: Residual blocks in each stage; every stage but the first halves height and width.
      stage_widths: Channels that each stage gives.
      block: Two 3x3 convolutions (`basic`), or 1x1, 3x3, 1x1 with a quarter of the channels inside.
      batch_norm_momentum: The fraction of the running statistics that a step keeps.
      batch_norm_epsilon: Added to the variance.
    """

    TAG: ClassVar[str] = "preactivation_resnet"

    stem_width: int = 16
    stage_sizes: tuple[int, ...] = (18, 18, 18)
    stage_widths: tuple[int, ...] = (64, 128, 256)
    block: Block = "bottleneck"
    batch_norm_momentum: float = 0.9
    batch_norm_epsilon: float = 1e-5

    def build(
        self,
        *,
        image_shape: tuple[int, int, int],
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ) -> nnx.Module:
        """Makes the network for images of [height, width, channels]."""
        return PreactivationResNetModule(self, image_shape[-1], num_classes, execution, rngs)


class PreactivationResNetModule(nnx.Module):
    """Stem, stages of blocks, BatchNorm and ReLU, mean over positions, linear classifier."""

    def __init__(
        self,
        config: PreactivationResNet,
        in_channels: int,
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        width = config.stem_width
        self.stem = _conv(in_channels, width, 3, 1, execution, rngs)
        blocks = {}
        for stage, (size, out_width) in enumerate(
            zip(config.stage_sizes, config.stage_widths, strict=True), start=1
        ):
            for block in range(1, size + 1):
                stride = 2 if stage > 1 and block == 1 else 1
                blocks[f"stage_{stage}_block_{block}"] = PreactivationBlock(
                    width, out_width, stride, config, execution, rngs
                )
                width = out_width
        self.order = tuple(blocks)
        self.blocks = nnx.Dict(blocks)
        self.final_norm = _batch_norm(width, config, execution)
        self.classifier = Linear(
            width, num_classes, float32_output=True, execution=execution, rngs=rngs
        )

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Maps normalized images [batch, height, width, channels] to float32 logits."""
        hidden = self.stem(images)
        for name in self.order:
            hidden = self.blocks[name](hidden, train=train)
        hidden = jax.nn.relu(self.final_norm(hidden, train=train))
        return self.classifier(hidden.mean((1, 2)))


class PreactivationBlock(nnx.Module):
    """BatchNorm, ReLU and convolution, two or three times, and a shortcut."""

    def __init__(
        self,
        in_width: int,
        out_width: int,
        stride: int,
        config: PreactivationResNet,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        if config.block == "basic":
            shapes = [(in_width, out_width, 3, stride), (out_width, out_width, 3, 1)]
        else:
            width = out_width // EXPANSION["bottleneck"]
            shapes = [(in_width, width, 1, 1), (width, width, 3, stride), (width, out_width, 1, 1)]
        layers = {}
        for index, (before, after, size, step) in enumerate(shapes, start=1):
            layers[f"norm_{index}"] = _batch_norm(before, config, execution)
            layers[f"conv_{index}"] = _conv(before, after, size, step, execution, rngs)
        self.layers = nnx.Dict(layers)
        self.num_layers = len(shapes)
        if stride == 1 and in_width == out_width:
            self.projection = None
        else:
            self.projection = _conv(in_width, out_width, 1, stride, execution, rngs)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Maps [batch, height, width, in_width] to [batch, height / stride, ..., out_width]."""
        hidden = shortcut = images
        for index in range(1, self.num_layers + 1):
            norm, conv = self.layers[f"norm_{index}"], self.layers[f"conv_{index}"]
            activated = jax.nn.relu(norm(hidden, train=train))
            if index == 1 and self.projection is not None:
                shortcut = self.projection(activated)
            hidden = conv(activated)
        return hidden + shortcut


def _conv(
    in_width: int, out_width: int, size: int, stride: int, execution: Execution, rngs: nnx.Rngs
) -> Conv:
    return Conv(
        in_width,
        out_width,
        (size, size),
        strides=(stride, stride),
        padding=((size // 2, size // 2),) * 2,
        execution=execution,
        rngs=rngs,
    )


def _batch_norm(width: int, config: PreactivationResNet, execution: Execution) -> BatchNorm:
    return BatchNorm(
        width,
        momentum=config.batch_norm_momentum,
        epsilon=config.batch_norm_epsilon,
        execution=execution,
    )
