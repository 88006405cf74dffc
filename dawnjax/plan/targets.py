"""The hardware that a plan is made for: `v3:8`, `v5e:16x16`, `h100:8`, each a system and its size.

The systems are in `systems.csv`: their device (a row of `machine/hardware.csv`), the torus that
links their chips, and the network between hosts, each with its source. A size counts JAX devices:
cores on a TPU v2, v3 and v7x, where a chip has two, and chips elsewhere. One with an `x` is the
shape of the torus, in chips.
"""

import dataclasses
import functools
import math
import re
from pathlib import Path

from dawnjax.config.command_line import closest
from dawnjax.errors import ConfigError
from dawnjax.machine import data_tables
from dawnjax.machine.hardware import GIGA, Device, find_product


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
    """A kind of accelerator and how many of them are linked.

    Attributes:
      name: As `--on` names it.
      device: Its numbers.
      devices_per_chip: JAX devices of a chip.
      topology_axes: Axes of the torus of chips; 1 where a switch links the devices.
      wraps_from: An axis of at least this many chips is a ring.
      devices_per_host: JAX devices of a host.
      network_bytes_per_second: Between hosts, one direction, of each host; 0 where the torus links
        the hosts too.
      compiler: What the compiler calls the device.
      most_devices: Of its largest slice, as Google's documentation has it; of GPUs what a plan
        takes.
      price: Name of a host of it in the list of prices; empty where none is listed.
      source: Of all but the device's own numbers.
    """

    name: str
    device: Device
    devices_per_chip: int
    topology_axes: int
    wraps_from: int
    devices_per_host: int
    network_bytes_per_second: float
    compiler: str
    most_devices: int
    price: str
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A system of one size.

    Attributes:
      system: The system.
      shape: Chips along each axis of a TPU's torus; the number of devices of a GPU system.
    """

    system: System
    shape: tuple[int, ...]

    @property
    def num_devices(self) -> int:
        """JAX devices."""
        return math.prod(self.shape) * self.system.devices_per_chip

    @property
    def num_hosts(self) -> int:
        """Hosts, the last of which may not be full."""
        return math.ceil(self.num_devices / self.system.devices_per_host)

    @property
    def name(self) -> str:
        """The system and the number of its devices, such as `v3:32`; an unusual torus in chips."""
        return f"{self.system.name}:{self.num_devices if self._is_usual else self.topology}"

    @property
    def _is_usual(self) -> bool:
        """Whether the number of devices alone gives this shape."""
        try:
            return _shape(self.system, self.num_devices) == self.shape
        except ConfigError:
            return False

    @property
    def topology(self) -> str:
        """The size as the compiler names it: chips, or for GPUs slices x hosts x devices."""
        if self.system.device.platform == "tpu":
            return "x".join(map(str, self.shape))
        per_host = min(self.num_devices, self.system.devices_per_host)
        return f"1x{self.num_hosts}x{per_host}"

    def of_size(self, num_devices: int) -> "Target":
        """The same system with another number of devices.

        Raises:
          ConfigError: There is no such size.
        """
        return Target(system=self.system, shape=_shape(self.system, num_devices))


@functools.cache
def systems() -> dict[str, System]:
    """The systems of `systems.csv`, by name."""
    columns = ("name", "device", "compiler", "source")
    found = {}
    for _, row in data_tables.rows(Path(__file__).parent / "systems.csv", columns):
        found[row["name"]] = System(
            name=row["name"],
            device=find_product(row["device"]),
            devices_per_chip=int(row["devices_per_chip"]),
            topology_axes=int(row["topology_axes"]),
            wraps_from=int(row["wraps_from"]),
            devices_per_host=int(row["devices_per_host"]),
            network_bytes_per_second=float(row["network_gb_per_second"] or 0) * GIGA,
            compiler=row["compiler"],
            most_devices=int(row["most_devices"]),
            price=row["price"],
            source=row["source"],
        )
    return found


def parse_target(text: str) -> Target:
    """A target from its name.

    Raises:
      ConfigError: The system is unknown, or has no such size.

    >>> parse_target("v3:32").topology
    '4x4'
    """
    name, _, size = text.strip().partition(":")
    system = systems().get(name.lower())
    if system is None:
        near = closest(name.lower(), list(systems()))
        hint = f"did you mean {near}?" if near else f"there are {', '.join(systems())}"
        raise ConfigError(f"--on={text}: no system {name!r}; {hint}")
    if re.fullmatch(r"\d{1,4}", size) and int(size):
        return Target(system=system, shape=_shape(system, int(size)))
    if not re.fullmatch(r"\d{1,3}(x\d{1,3}){1,2}", size) or system.device.platform != "tpu":
        raise ConfigError(
            f"--on={text}: give the number of devices, such as {system.name}:8"
            + (", or the torus in chips, such as v5e:4x8" if "x" in size else "")
        )
    shape = tuple(int(part) for part in size.split("x"))
    num_devices = math.prod(shape) * system.devices_per_chip
    if len(shape) != system.topology_axes or not 0 < num_devices <= system.most_devices:
        raise ConfigError(
            f"--on={text}: chips of a {system.name} lie along {system.topology_axes} axes, and its "
            f"largest slice has {system.most_devices} devices"
        )
    return Target(system=system, shape=shape)


def _shape(system: System, num_devices: int) -> tuple[int, ...]:
    """The usual torus of a number of devices: its axes as alike as can be, the longest last."""
    chips, rest = divmod(num_devices, system.devices_per_chip)
    if rest or not 0 < num_devices <= system.most_devices:
        raise ConfigError(
            f"--on={system.name}:{num_devices}: there are 1 to {system.most_devices} devices of "
            f"{system.name}, and a chip of {system.name} has {system.devices_per_chip}"
        )
    if system.device.platform != "tpu":
        per_host = system.devices_per_host
        if num_devices > per_host and num_devices % per_host:
            raise ConfigError(
                f"--on={system.name}:{num_devices}: hosts of {per_host} devices are whole"
            )
        return (num_devices,)
    if chips & (chips - 1):
        raise ConfigError(
            f"--on={system.name}:{num_devices}: give the torus in chips, such as {system.name}:"
            + "x".join("4" * system.topology_axes)
        )
    shape = [1] * system.topology_axes
    while math.prod(shape) < chips:
        shape[shape.index(min(shape))] *= 2
    # A board of a TPU has 2x2 chips, whatever the number of axes.
    return tuple(sorted(shape, reverse=system.topology_axes == 3 and chips < 8))
