"""How a model is computed, apart from what it computes."""

import dataclasses
from typing import Literal

Platform = Literal["cpu", "gpu", "tpu"]
ComputeDtype = Literal["float32", "bfloat16"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """What a model's layers must know of the machine and the recipe to choose their arithmetic.

    Attributes:
      platform: The platform that the program is compiled for; it may be absent here.
      compute_dtype: The dtype of activations and of the weights inside products. Parameters,
        statistics, logits and loss are float32 whatever it is.
      batch_norm_group_size: How many consecutive examples of the global batch share one set of
        normalization statistics in training. It divides the global batch.
    """

    platform: Platform
    compute_dtype: ComputeDtype
    batch_norm_group_size: int
