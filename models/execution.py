"""Facts of machine and recipe by which layers choose their arithmetic."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from etils import epy

from dawnjax.models.configs.types import ComputeDtype

with epy.lazy_imports():
    import jax

Attention = Literal["products", "fused"]
ContextKeys = Literal["gather", "ring"]
Platform = Literal["cpu", "gpu", "tpu"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """Facts by which layers choose their arithmetic: platform, dtypes, groups and their place.

    Attributes:
      platform: The platform that the program is compiled for; it may be absent here.
      compute_dtype: Of activations and of weights inside products. Statistics, logits and loss are
        float32 whatever it is, and so are parameters that the model does not keep in bfloat16.
      batch_norm_group_size: Consecutive examples of the global batch that share normalization
        statistics in training; a divisor of the batch, or 0 for models without any.
      batch_shards: Devices, or groups of them, that hold the batch in equal runs. It changes the
        order of sums only.
      placement: Sharding of an array whose first axis counts examples; None on one device.
      is_plain: Whether layers make the products of their mathematics and no others, so that these
        can be counted: no zeros are added to kernels or channels.
      attention: `fused` lets a GPU give attention to cuDNN in one call, where it has no dropout and
        `fused_attention` takes the shapes.
      context_keys: How queries meet the keys of other devices along `mesh.context`.
    """

    platform: Platform
    compute_dtype: ComputeDtype
    batch_norm_group_size: int
    batch_shards: int = 1
    placement: jax.sharding.NamedSharding | None = None
    is_plain: bool = False
    attention: Attention = "products"
    context_keys: ContextKeys = "gather"


class TrainingMoment(NamedTuple):
    """The state of training that a model with `takes_moment` is called with.

    Attributes:
      keys: PRNG keys [batch], new ones each time that an example is seen. What is drawn for an
        example depends on its key alone, so it is the same on any number of devices.
      progress: float32, the steps done as a fraction of the run's, from 0 to 1.
    """

    keys: jax.Array
    progress: jax.Array
