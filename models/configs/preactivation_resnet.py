"""Settings of pre-activation residual networks."""

import dataclasses
from typing import ClassVar

from dawnjax.limits import (
    Counts,
    FractionBelowOne,
    OneOrMore,
    Positive,
    require_as_many,
)
from dawnjax.models.configs.network import ImageNetwork
from dawnjax.models.configs.resnet import Block


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreactivationResNet(ImageNetwork):
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
    NETWORK: ClassVar[str] = "preactivation_resnet.PreactivationResNetModule"
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


def wide_resnet(depth: int, widening: int) -> PreactivationResNet:
    """WRN-depth-widening: basic blocks with `widening` times the usual channels.

    Source: Zagoruyko and Komodakis 2016, "Wide Residual Networks" (arXiv 1605.07146), table 1 and
    section 3, without dropout. `wrn_22` of DAWNBench's entry "Custom Wide Resnet"
    (`cifar10/models/wideresnet.py` in https://github.com/fastai/imagenet-fast) differs from the
    paper: every shortcut comes from behind the first ReLU, and the last BatchNorm follows the mean.
    """
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth {depth} is not 6n + 4, such as 16, 22, 28, 34 or 40")
    return PreactivationResNet(
        stage_sizes=((depth - 4) // 6,) * 3,
        stage_widths=tuple(widening * width for width in (16, 32, 64)),
        block="basic",
    )
