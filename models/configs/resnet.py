"""Settings of residual networks.

Source: He et al. 2015, "Deep Residual Learning for Image Recognition" (arXiv 1512.03385), sections
3.3, 3.4 and 4.2, table 1.
"""

import dataclasses
from typing import ClassVar, Literal

from dawnjax.limits import (
    Counts,
    FractionBelowOne,
    NonNegative,
    Positive,
    require_as_many,
)
from dawnjax.models.configs.network import ImageNetwork

Block = Literal["basic", "bottleneck"]
Stem = Literal["small_images", "imagenet"]
Shortcut = Literal["projection", "zero_padding"]

EXPANSION: dict[Block, int] = {"basic": 1, "bottleneck": 4}
"""Channels of a block's result for each channel of its 3x3 convolution."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNet(ImageNetwork):
    """A residual network of post-activation blocks.

    The defaults are ResNet-18 for 32x32 images, 11,173,962 parameters with 10 classes.
    `imagenet_resnet` and `cifar_resnet` make the published ones by their depth.

    Attributes:
      stage_sizes: Residual blocks in each stage; every stage but the first halves height and width.
      stage_widths: Channels of each stage's result.
      block: Two 3x3 convolutions (`basic`), or 1x1, 3x3, 1x1 with a quarter of the channels inside
        (`bottleneck`). A block halves height and width in its first 3x3 convolution; for
        bottlenecks that is known as v1.5, while the paper strides in the first 1x1.
      stem: `small_images` is a 3x3 convolution; `imagenet` a 7x7 convolution and a 3x3 maximum,
        both of stride 2. Both have as many channels as the 3x3 convolutions of the first stage.
      shortcut: Where a block changes the shape: a 1x1 convolution and BatchNorm (the paper's option
        B), or every second pixel and zeros for the new channels (option A, no parameters).
      batch_norm_momentum: The fraction of the running statistics that a step keeps. 0.9 is
        PyTorch's default (there called 0.1), which the usual CIFAR recipes use.
      batch_norm_epsilon: Added to the variance; 1e-5 as in He et al.'s released models.
      last_scale: Start of the last BatchNorm's scale in each block. 0 makes a block start as the
        identity (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 5.1).
      classifier_std: The classifier's weights start as normal with this standard deviation (0.01 in
        Goyal et al. 2017, section 5.1); 0 takes uniform in +-1 / sqrt(channels).
      normalizes: Whether BatchNorm follows the convolutions. Without it a deep network hardly
        learns; the flag measures its worth (Coleman et al. 2019, figure 11).
      rectifies: Whether ReLU follows the convolutions; likewise an ablation.
    """

    TAG: ClassVar[str] = "resnet"
    NETWORK: ClassVar[str] = "resnet.ResNetModule"
    has_batch_norm_groups: ClassVar[bool] = True

    stage_sizes: Counts = (2, 2, 2, 2)
    stage_widths: Counts = (64, 128, 256, 512)
    block: Block = "basic"
    stem: Stem = "small_images"
    shortcut: Shortcut = "projection"
    batch_norm_momentum: FractionBelowOne = 0.9
    batch_norm_epsilon: Positive[float] = 1e-5
    last_scale: float = 1.0
    classifier_std: NonNegative[float] = 0.0
    normalizes: bool = True
    rectifies: bool = True

    def check_together(self, prefix: str) -> None:
        require_as_many(self, "stage_widths", "stage_sizes", prefix, ": one for each stage")

    def tiny(self) -> "ResNet":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(self, stage_sizes=(1, 1), stage_widths=(16, 32))


_IMAGENET_STAGES: dict[int, tuple[Block, tuple[int, ...]]] = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
}


def imagenet_resnet(depth: int) -> ResNet:
    """Network of table 1 of He et al. 2015, as v1.5, with Goyal et al.'s start.

    The depth is 18, 34, 50, 101 or 152; another one is a ValueError.
    """
    if depth not in _IMAGENET_STAGES:
        raise ValueError(f"depth {depth} is none of {', '.join(map(str, _IMAGENET_STAGES))}")
    block, sizes = _IMAGENET_STAGES[depth]
    widths = tuple(EXPANSION[block] * width for width in (64, 128, 256, 512))
    return ResNet(
        stage_sizes=sizes,
        stage_widths=widths,
        block=block,
        stem="imagenet",
        last_scale=0.0,
        classifier_std=0.01,
    )


def cifar_resnet(depth: int) -> ResNet:
    """Network of section 4.2 of He et al. 2015, whose depth is 6n + 2."""
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"depth {depth} is not 6n + 2, such as 20, 56 or 110")
    sizes = ((depth - 2) // 6,) * 3
    return ResNet(stage_sizes=sizes, stage_widths=(16, 32, 64), shortcut="zero_padding")
