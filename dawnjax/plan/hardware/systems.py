"""Systems to plan for, `v3:8`, `v5e:16x16`, `h100:8`: each an accelerator and a number.

`accelerators.csv` holds each accelerator's device (a row of `machine/hardware.csv`), the torus
that links its chips, and the network between hosts, with sources. A number counts JAX devices:
cores on a TPU v2, v3 and v7x, where a chip has two, and chips elsewhere. A size with an `x` is the
shape of the torus, in chips.
"""

import dataclasses
import functools
import math
import re
from pathlib import Path

from dawnjax import records
from dawnjax.config.command_line import closest
from dawnjax.errors import ConfigError
from dawnjax.machine.hardware import GIGA, Device, find_product


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A kind of accelerator and its links; a row of `accelerators.csv`.

    Attributes:
      name: As `--on` names it.
      devices_per_chip: JAX devices of a chip.
      topology_axes: Axes of the torus of chips; 1 where a switch links the devices.
      wraps_from: An axis of at least this many chips is a ring.
      devices_per_host: JAX devices of a host.
      devices_per_slice_host: Of a host of a slice with several; 0 where they are as many.
      domain: JAX devices that one switch links: those of a host, or of a rack.
      network_bytes_per_second: Between hosts, one direction, of each host; 0 where the torus links
        the hosts too.
      compiler: What the compiler calls the device.
      most_devices: Largest slice in Google's documentation; for GPUs the largest that a plan takes.
      price: Name of its host in the list of prices; empty where none is listed.
      source: Of all but the device's own numbers.
    """

    name: str
    device: Device
    devices_per_chip: int
    topology_axes: int
    wraps_from: int
    devices_per_host: int
    devices_per_slice_host: int
    domain: int
    network_bytes_per_second: float
    compiler: str
    most_devices: int
    price: str
    source: str

    @property
    def has_fused_attention(self) -> bool:
        """True for GPUs of capability 8.0 on, which have cuDNN's attention, and bfloat16."""
        return self.device.platform == "gpu" and self.device.peak("bfloat16") is not None

    @property
    def domain_bytes_per_second(self) -> float:
        """Network out of a domain, one direction."""
        return self.network_bytes_per_second * self.domain / self.devices_per_host


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
    """An accelerator and its `shape`: chips along each axis of a torus, or the number of GPUs."""

    accelerator: Accelerator
    shape: tuple[int, ...]

    @property
    def num_devices(self) -> int:
        """Number of JAX devices."""
        return math.prod(self.shape) * self.accelerator.devices_per_chip

    @property
    def num_hosts(self) -> int:
        """Number of hosts; the last may not be full."""
        accelerator = self.accelerator
        if self.num_devices <= accelerator.devices_per_host:
            return 1
        per_host = accelerator.devices_per_slice_host or accelerator.devices_per_host
        return math.ceil(self.num_devices / per_host)

    @property
    def name(self) -> str:
        """Accelerator and number of devices, such as `v3:32`; an unusual torus in chips."""
        return f"{self.accelerator.name}:{self.num_devices if self._is_usual else self.topology}"

    @property
    def _is_usual(self) -> bool:
        """True if the number of devices alone implies this shape."""
        try:
            return _shape(self.accelerator, self.num_devices) == self.shape
        except ConfigError:
            return False

    @property
    def topology(self) -> str:
        """Size as the compiler names it: chips, or for GPUs slices x hosts x devices."""
        if self.accelerator.device.platform == "tpu":
            return "x".join(map(str, self.shape))
        per_host = min(self.num_devices, self.accelerator.devices_per_host)
        return f"1x{self.num_hosts}x{per_host}"

    def of_size(self, num_devices: int) -> "System":
        """The same accelerator with another number of devices; ConfigError for a wrong size."""
        return System(accelerator=self.accelerator, shape=_shape(self.accelerator, num_devices))


@functools.cache
def accelerators() -> dict[str, Accelerator]:
    columns = ("name", "device", "compiler", "source")
    found = {}
    for _, row in records.csv_rows(Path(__file__).parent / "accelerators.csv", columns):
        found[row["name"]] = Accelerator(
            name=row["name"],
            device=find_product(row["device"]),
            devices_per_chip=int(row["devices_per_chip"]),
            topology_axes=int(row["topology_axes"]),
            wraps_from=int(row["wraps_from"]),
            devices_per_host=int(row["devices_per_host"]),
            devices_per_slice_host=int(row["devices_per_slice_host"] or 0),
            domain=int(row["domain"] or row["devices_per_host"]),
            network_bytes_per_second=float(row["network_gb_per_second"] or 0) * GIGA,
            compiler=row["compiler"],
            most_devices=int(row["most_devices"]),
            price=row["price"],
            source=row["source"],
        )
    return found


def parse_system(text: str) -> System:
    """System of a name such as `v3:32` or `v5e:16x16`.

    Raises:
      ConfigError: The system is unknown, or has no such size.

    >>> parse_system("v3:32").topology
    '4x4'
    """
    name, _, size = text.strip().partition(":")
    accelerator = accelerators().get(name.lower())
    if accelerator is None:
        near = closest(name.lower(), list(accelerators()))
        hint = f"did you mean {near}?" if near else f"there are {', '.join(accelerators())}"
        raise ConfigError(f"--on={text}: no system {name!r}; {hint}")
    if re.fullmatch(r"\d{1,5}", size) and int(size):
        return System(accelerator=accelerator, shape=_shape(accelerator, int(size)))
    if not re.fullmatch(r"\d{1,3}(x\d{1,3}){1,2}", size) or accelerator.device.platform != "tpu":
        raise ConfigError(
            f"--on={text}: give the number of devices, such as {accelerator.name}:8"
            + (", or the torus in chips, such as v5e:4x8" if "x" in size else "")
        )
    shape = tuple(int(part) for part in size.split("x"))
    num_devices = math.prod(shape) * accelerator.devices_per_chip
    if len(shape) != accelerator.topology_axes or not 0 < num_devices <= accelerator.most_devices:
        raise ConfigError(
            f"--on={text}: chips of a {accelerator.name} lie along {accelerator.topology_axes} "
            f"axes, and its largest slice has {accelerator.most_devices} devices"
        )
    return System(accelerator=accelerator, shape=shape)


def _shape(accelerator: Accelerator, num_devices: int) -> tuple[int, ...]:
    """Usual torus of a number of devices: axes as equal as possible, the longest last."""
    name, most, per_chip = accelerator.name, accelerator.most_devices, accelerator.devices_per_chip
    given = f"--on={name}:{num_devices}"
    chips, rest = divmod(num_devices, per_chip)
    if rest or not 0 < num_devices <= most:
        raise ConfigError(
            f"{given}: there are 1 to {most} devices of {name}, and a chip of {name} has {per_chip}"
        )
    if accelerator.device.platform != "tpu":
        per_host = accelerator.devices_per_host
        if num_devices > per_host and num_devices % per_host:
            raise ConfigError(f"{given}: hosts of {per_host} devices are whole")
        return (num_devices,)
    if chips & (chips - 1):
        torus = "x".join("4" * accelerator.topology_axes)
        raise ConfigError(f"{given}: give the torus in chips, such as {name}:{torus}")
    shape = [1] * accelerator.topology_axes
    while math.prod(shape) < chips:
        shape[shape.index(min(shape))] *= 2
    # A board of a TPU has 2x2 chips, whatever the number of axes.
    return tuple(sorted(shape, reverse=accelerator.topology_axes == 3 and chips < 8))
