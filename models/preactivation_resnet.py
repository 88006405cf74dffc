"""Pre-activation residual networks for small images, such as ResNet-164, DAWNBench's seed.

BatchNorm and ReLU come before each convolution.

Source: He et al. 2016, "Identity Mappings in Deep Residual Networks" (arXiv 1603.05027), section
4.1 and appendix; DAWNBench's seeds, `pytorch/CIFAR10/benchmark/models/resnet.py` in
https://github.com/stanford-futuredata/dawn-bench-models.
"""

import dataclasses
from typing import ClassVar

import jax
from flax import nnx

from dawnjax.limits import (
    Counts,
    FractionBelowOne,
    OneOrMore,
    Positive,
    check_fields,
    require_as_many,
)
from dawnjax.models.execution import Execution
from dawnjax.models.layers import ImageShape, Layers
from dawnjax.models.resnet import EXPANSION, Block, stage_blocks


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreactivationResNet:
    """A pre-activation residual network; the defaults are ResNet-164 for 32x32 images.

    With 10 classes the defaults have 1,703,258 parameters (1.7 M in table 2 of He et al. 2016);
    `block=basic`, `stage_sizes=27,27,27`, `stage_widths=16,32,64` is the seeds' ResNet-164 without
    bottlenecks.

    Attributes:
      stem_width: Channels of the first 3x3 convolution.
      stage_sizes: Residual blocks in each stage; every stage but the first halves height and width.
      stage_widths: Channels of each stage's result.
      block: Two 3x3 convolutions (`basic`), or 1x1, 3x3, 1x1 with a quarter of the channels inside.
      batch_norm_momentum: The fraction of the running statistics that a step keeps.
      batch_norm_epsilon: Added to the variance.
    """

    TAG: ClassVar[str] = "preactivation_resnet"
    has_batch_norm_groups: ClassVar[bool] = True

    stem_width: OneOrMore[int] = 16
    stage_sizes: Counts = (18, 18, 18)
    stage_widths: Counts = (64, 128, 256)
    block: Block = "bottleneck"
    batch_norm_momentum: FractionBelowOne = 0.9
    batch_norm_epsilon: Positive[float] = 1e-5

    def check_together(self, prefix: str) -> None:
        require_as_many(self, "stage_widths", "stage_sizes", prefix, ": one for each stage")

    def tiny(self) -> "PreactivationResNet":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(
            self, stem_width=8, stage_sizes=(1, 1, 1), stage_widths=(16, 32, 32)
        )

    def build(
        self, *, image_shape: ImageShape, num_classes: int, execution: Execution, rngs: nnx.Rngs
    ) -> nnx.Module:
        check_fields(self, "model.")
        layers = Layers(self, execution, rngs)
        return PreactivationResNetModule(self, image_shape[-1], num_classes, layers)


class PreactivationResNetModule(nnx.Module):
    """Stem, stages of blocks, BatchNorm and ReLU, mean over positions, linear classifier."""

    def __init__(
        self, config: PreactivationResNet, in_channels: int, num_classes: int, layers: Layers
    ):
        width = config.stem_width
        self.stem = layers.conv(in_channels, width, 3)
        blocks = {}
        for name, out_width, stride in stage_blocks(config.stage_sizes, config.stage_widths):
            blocks[name] = PreactivationBlock(width, out_width, stride, config.block, layers)
            width = out_width
        self.order = tuple(blocks)
        self.blocks = nnx.Dict(blocks)
        self.final_norm = layers.norm(width)
        self.classifier = layers.classifier(width, num_classes)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        hidden = self.stem(images)
        for name in self.order:
            hidden = self.blocks[name](hidden, train=train)
        hidden = self.final_norm(hidden, train=train, activation="relu")
        return self.classifier(hidden.mean((1, 2)))


class PreactivationBlock(nnx.Module):
    """BatchNorm, ReLU and convolution, two or three times, and a shortcut."""

    def __init__(self, in_width: int, out_width: int, stride: int, block: Block, layers: Layers):
        if block == "basic":
            shapes = [(in_width, out_width, 3, stride), (out_width, out_width, 3, 1)]
        else:
            width = out_width // EXPANSION["bottleneck"]
            shapes = [(in_width, width, 1, 1), (width, width, 3, stride), (width, out_width, 1, 1)]
        made = {}
        for index, (before, after, size, step) in enumerate(shapes, start=1):
            made[f"norm_{index}"] = layers.norm(before)
            made[f"conv_{index}"] = layers.conv(before, after, size, step)
        self.layers = nnx.Dict(made)
        self.num_layers = len(shapes)
        is_same = stride == 1 and in_width == out_width
        self.projection = None if is_same else layers.conv(in_width, out_width, 1, stride)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Map [batch, height, width, in_width] to [batch, height / stride, ..., out_width]."""
        hidden = shortcut = images
        for index in range(1, self.num_layers + 1):
            norm, conv = self.layers[f"norm_{index}"], self.layers[f"conv_{index}"]
            activated = norm(hidden, train=train, activation="relu")
            if index == 1 and self.projection is not None:
                # As in DAWNBench's seeds, which project what the first ReLU gives.
                shortcut = self.projection(activated)
            hidden = conv(activated)
        return hidden + shortcut
