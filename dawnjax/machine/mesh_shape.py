"""The shape of a run's device mesh. Needs no JAX."""

import dataclasses
import math

from dawnjax.errors import ConfigError

AXES = ("data", "fsdp", "expert", "context", "model")
"""Axes of the mesh, in order: devices along `model` are neighbours, since they talk the most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshShape:
    """Arrangement of the devices; `models/sharding.py` says what each axis splits.

    Attributes:
      data: Devices that split the batch; 0 takes all devices that the other axes leave.
      fsdp: Devices that split the batch, the parameters and the optimizer's state.
      expert: Devices that split the batch and the experts of a layer.
      context: Devices that split each text.
      model: Devices that split layers.
    """

    data: int = 0
    fsdp: int = 1
    expert: int = 1
    context: int = 1
    model: int = 1

    def sizes(self, num_devices: int) -> dict[str, int]:
        """Size of each axis over so many devices; ConfigError where they do not divide them."""
        sizes = dataclasses.asdict(self)
        data = sizes.pop("data")
        if min(sizes.values()) < 1 or data < 0:
            raise ConfigError(
                f"mesh {self} has an axis below 1 (mesh.data=0 takes all that is left)"
            )
        others = math.prod(sizes.values())
        named = [f"mesh.{axis}={size}" for axis, size in sizes.items() if size != 1]
        if not data and num_devices % others:
            raise ConfigError(f"{' x '.join(named)} does not divide {num_devices} devices")
        data = data or num_devices // others
        if data * others != num_devices:
            named = [f"mesh.data={data}", *named]
            raise ConfigError(
                f"{' x '.join(named)} is {data * others}, but there are {num_devices} devices"
            )
        return {"data": data, **sizes}

    def batch_shards(self, num_devices: int) -> int:
        """Parts into which so many devices split a batch."""
        return num_devices // (self.context * self.model)
