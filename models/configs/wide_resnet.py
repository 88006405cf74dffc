"""Wide residual networks: few pre-activation layers with many channels.

Source: Zagoruyko and Komodakis 2016, "Wide Residual Networks" (arXiv 1605.07146), table 1 and
section 3, without dropout. WRN-n-k has n layers in three stages of (n - 4) / 6 basic blocks with
16k, 32k and 64k channels. `wrn_22` of DAWNBench's entry "Custom Wide Resnet"
(`cifar10/models/wideresnet.py` in https://github.com/fastai/imagenet-fast) differs from the paper:
every shortcut comes from behind the first ReLU, and the last BatchNorm follows the mean.
"""

import dataclasses
from typing import Annotated, Any, ClassVar

from dawnjax.limits import FractionBelowOne, Limit, OneOrMore, Positive, check_fields
from dawnjax.models.configs.preactivation_resnet import PreactivationResNet


@dataclasses.dataclass(frozen=True, kw_only=True)
class WideResNet:
    """WRN-depth-widening for small images.

    Attributes:
      depth: Layers, 6n + 4.
      widening: Channels relative to a plain residual network.
      batch_norm_momentum: The fraction of the running statistics that a step keeps.
      batch_norm_epsilon: Added to the variance.
    """

    TAG: ClassVar[str] = "wide_resnet"
    has_batch_norm_groups: ClassVar[bool] = True

    depth: Annotated[
        int,
        Limit(
            lambda depth: depth >= 10 and (depth - 4) % 6 == 0,
            "be 6n + 4, such as 16, 22, 28, 34 or 40",
        ),
    ] = 34
    widening: OneOrMore[int] = 6
    batch_norm_momentum: FractionBelowOne = 0.9
    batch_norm_epsilon: Positive[float] = 1e-5

    def tiny(self) -> "WideResNet":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(self, depth=10, widening=1)

    def build(
        self, *, image_shape: tuple[int, ...], num_classes: int, execution: Any, rngs: Any
    ) -> Any:
        check_fields(self, "model.")
        plain = PreactivationResNet(
            stage_sizes=((self.depth - 4) // 6,) * 3,
            stage_widths=tuple(self.widening * width for width in (16, 32, 64)),
            block="basic",
            batch_norm_momentum=self.batch_norm_momentum,
            batch_norm_epsilon=self.batch_norm_epsilon,
        )
        return plain.build(
            image_shape=image_shape, num_classes=num_classes, execution=execution, rngs=rngs
        )
