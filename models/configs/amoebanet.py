"""Settings of AmoebaNet-D."""

import dataclasses
from typing import Annotated, ClassVar

from dawnjax.limits import (
    FractionAboveZero,
    FractionBelowOne,
    Limit,
    NonNegative,
    OneOrMore,
    Positive,
)
from dawnjax.models.configs.network import ImageNetwork

NUM_STACKS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class AmoebaNetD(ImageNetwork):
    """AmoebaNet-D(N, F) for ImageNet; the defaults are DAWNBench's N6 F256.

    Attributes:
      num_cells: N, normal cells in all; a reduction cell stands before the second and the third
        third of them.
      num_filters: F, channels of the first third; each reduction cell doubles them.
      stem_width: Channels of the first convolution.
      has_auxiliary_head: Whether a second classifier sees the cell before the last reduction. It
        exists in training only.
      auxiliary_width_fraction: Channels of the auxiliary head relative to 128 and 768.
      auxiliary_loss_weight: Factor of its loss before that is added.
      drop_path_keep: Probability that an operation's result is kept for an example at the end of
        training; results that are kept are divided by it. 1 drops nothing.
      dropout_keep: Probability that a feature is kept before the classifier.
      batch_norm_momentum: The fraction of the running statistics that a step keeps.
      batch_norm_epsilon: Added to the variance.
    """

    TAG: ClassVar[str] = "amoebanet_d"
    NETWORK: ClassVar[str] = "amoebanet.AmoebaNetModule"
    takes_moment: ClassVar[bool] = True
    has_batch_norm_groups: ClassVar[bool] = True

    num_cells: Annotated[
        OneOrMore[int],
        Limit(lambda count: count % NUM_STACKS == 0, f"be a multiple of {NUM_STACKS}"),
    ] = 6
    num_filters: Annotated[int, Limit(lambda count: count >= 16, "be 16 or more")] = 256
    stem_width: OneOrMore[int] = 32
    has_auxiliary_head: bool = True
    auxiliary_width_fraction: Positive[float] = 0.4
    auxiliary_loss_weight: NonNegative[float] = 0.4
    drop_path_keep: FractionAboveZero = 1.0
    dropout_keep: FractionAboveZero = 0.5
    batch_norm_momentum: FractionBelowOne = 0.9
    batch_norm_epsilon: Positive[float] = 1e-5

    def tiny(self) -> "AmoebaNetD":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(
            self, num_cells=3, num_filters=16, stem_width=8, drop_path_keep=0.8
        )
