"""The shape of a run's device mesh. Needs no JAX."""

import dataclasses

AXES = ("data", "fsdp", "expert", "context", "model")
"""Axes of the mesh, in order: devices along `model` are neighbours, since they talk the most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshShape:
    """Arrangement of the devices; `models/sharding.py` says what each axis splits.

    Attributes:
      data: Devices over which the batch is split; 0 takes all that the other axes leave.
      fsdp: Devices over which the batch is split and parameters and optimizer state too.
      expert: Devices over which the batch is split and the experts of a layer too.
      context: Devices over which each text is split.
      model: Devices over which layers are split.
    """

    data: int = 0
    fsdp: int = 1
    expert: int = 1
    context: int = 1
    model: int = 1

    def batch_shards(self, num_devices: int) -> int:
        """Parts into which so many devices split a batch."""
        return num_devices // (self.context * self.model)
