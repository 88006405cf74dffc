"""Settings of the network of the CIFAR-10 speed records."""

import dataclasses
from typing import Any, ClassVar

from dawnjax.limits import Counts, FractionBelowOne, Positive
from dawnjax.models.configs.network import ImageNetwork, network
from dawnjax.models.configs.types import Activation


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordNet(ImageNetwork):
    """The speed-record network for small images of 14 or more pixels a side.

    Attributes:
      group_widths: Channels of each of the three groups; each halves height and width.
      activation: Of the groups; after the whitening it is a GELU.
      batch_norm_momentum: The fraction of the running statistics that a step keeps; low, since a
        run is only some hundred steps long.
      batch_norm_epsilon: Added to the variance.
      whitens: Whether the first layer's filters whiten the patches of the data; else they stay as
        they were drawn.
      whitening_epsilon: Added to the eigenvalues of the patches' second moments, which keeps the
        filters of the weakest directions from blowing up noise.
    """

    TAG: ClassVar[str] = "record_net"
    NETWORK: ClassVar[str] = "record_net.RecordNetModule"
    has_batch_norm_groups: ClassVar[bool] = True
    num_initialization_examples: ClassVar[int] = 5000

    group_widths: Counts = (64, 256, 256)
    activation: Activation = "gelu"
    batch_norm_momentum: FractionBelowOne = 0.6
    batch_norm_epsilon: Positive[float] = 1e-12
    whitens: bool = True
    whitening_epsilon: Positive[float] = 5e-4

    def tiny(self) -> "RecordNet":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(self, group_widths=(24, 32, 32))

    def initialize_from_data(self, params: dict[str, Any], images: Any) -> dict[str, Any]:
        """Params with the whitening filters of normalized images."""
        if not self.whitens:
            return params
        kernel = network("record_net.whitening_kernel")(images, self.whitening_epsilon)
        return {**params, "whitening": {**params["whitening"], "kernel": kernel}}
