"""The shape of a run's device mesh. Needs no JAX."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshShape:
    """Arrangement of the devices; axes `data`, `fsdp`, `model`, in that order.

    Attributes:
      data: Devices over which the batch is split; 0 takes all that the other axes leave.
      fsdp: Devices over which the batch is split and parameters and optimizer state too.
      model: Devices over which layers are split.
    """

    data: int = 0
    fsdp: int = 1
    model: int = 1
