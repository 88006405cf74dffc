"""Systems to plan for, `v3:8`, `v5e:16x16`, `h100:8`: each an accelerator and a number.

`accelerators.csv` holds each accelerator's device (a row of `machine/hardware.csv`), the torus
that links its chips, and the network between hosts, with sources. A number after a colon counts JAX
devices: cores on a TPU v2, v3 and v7x, where a chip has two, and chips elsewhere. A size with an
`x` is the shape of the torus, in chips. A hyphen makes it Google's name of a slice, which counts
cores on v2 to v4, v5p and v7x: `v5p-128` is `v5p:64`, and `v5litepod-16` is `v5e:16`.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from dawnjax import records
from dawnjax.config.command_line import closest
from dawnjax.errors import ConfigError
from dawnjax.machine.hardware import GIGA, Device, find_product
from dawnjax.machine.prices import SystemPrice, listed_price


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A kind of accelerator and its links; a row of `accelerators.csv`.

    Attributes:
      name: As `--on` names it.
      cores_per_chip: TensorCores of a chip; 0 of a GPU.
      google: Beginning of Google's names of its slices; empty of a GPU.
      topology_axes: Axes of the torus of chips; 1 where a switch links the devices.
      wraps_from: An axis of a multiple of so many chips is a ring.
      wraps_cubes: Whether it is one only where all axes are such multiples.
      devices_per_host: JAX devices of a host.
      devices_per_slice_host: Devices of a host in a slice with several hosts; 0 if equal to
        `devices_per_host`.
      domain: JAX devices linked by one switch: a host's or a rack's.
      network_bytes_per_second: Between hosts, one direction, of each host; 0 where the torus links
        the hosts too.
      compiler: The compiler's name of the device; empty if no compiler for it is available.
      most_devices: Largest slice in Google's documentation; for GPUs the largest that a plan takes.
      price: Name of its host in the list of prices; empty where none is listed.
      source: Source of all numbers but the device's own.
    """

    name: str
    device: Device
    cores_per_chip: int
    google: str
    topology_axes: int
    wraps_from: int
    wraps_cubes: bool
    devices_per_host: int
    devices_per_slice_host: int
    domain: int
    network_bytes_per_second: float
    compiler: str
    most_devices: int
    price: str
    source: str

    @property
    def devices_per_chip(self) -> int:
        """JAX devices of a chip."""
        return self.device.devices_per_chip

    @property
    def has_fused_attention(self) -> bool:
        """True for NVIDIA GPUs of capability 8.0 on: cuDNN's attention, and bfloat16."""
        has_bfloat16 = self.device.peak("bfloat16") is not None
        return self.device.platform == "gpu" and bool(self.compiler) and has_bfloat16

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
    def rings(self) -> tuple[bool, ...]:
        """Whether each axis of the torus is a ring."""
        wraps = [axis % self.accelerator.wraps_from == 0 for axis in self.shape]
        return tuple(all(wraps) if self.accelerator.wraps_cubes else ring for ring in wraps)

    @property
    def described(self) -> str:
        """Its name; of a TPU with its chips and cores, which names count differently."""
        if not self.accelerator.cores_per_chip:
            return self.name
        chips = math.prod(self.shape)
        return f"{self.name} ({chips:,} chips, {chips * self.accelerator.cores_per_chip:,} cores)"

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

    def price(self, given: Mapping[str, float]) -> SystemPrice:
        """Price of the whole system for an hour.

        Args:
          given: USD an hour of one device, by the accelerator's name; else the list has it.
        """
        accelerator = self.accelerator
        if accelerator.name in given:
            each = given[accelerator.name]
            return SystemPrice(
                usd_per_hour=each * self.num_devices,
                basis=f"{each:g} USD an hour and device, as given",
            )
        network = accelerator.network_bytes_per_second if self.num_hosts > 1 else 0.0
        price = listed_price(
            accelerator.price,
            num_hosts=self.num_hosts,
            num_chips=self.num_devices // accelerator.devices_per_chip,
            day=date.max,
            network_bytes_per_second=network,
        )
        if price.usd_per_hour is not None:
            return price
        give = f"give --price_per_device_hour_usd={accelerator.name}:USD"
        why = price.basis if accelerator.price else f"no price of {accelerator.name} is listed"
        return SystemPrice(usd_per_hour=None, basis=f"{why}: {give}")


@functools.cache
def accelerators() -> dict[str, Accelerator]:
    columns = ("name", "device", "source")
    found = {}
    for _, row in records.csv_rows(Path(__file__).parent / "accelerators.csv", columns):
        found[row["name"]] = Accelerator(
            name=row["name"],
            device=find_product(row["device"]),
            cores_per_chip=int(row["cores_per_chip"] or 0),
            google=row["google"],
            topology_axes=int(row["topology_axes"]),
            wraps_from=int(row["wraps_from"]),
            wraps_cubes=bool(row["wraps_cubes"]),
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
    """System of a name such as `v3:32`, `v5e:16x16`, or Google's `v5p-128`.

    Raises:
      ConfigError: The system is unknown, or has no such size.

    >>> parse_system("v3:32").topology
    '4x4'
    >>> parse_system("v5p-128").described
    'v5p:64 (64 chips, 128 cores)'
    """
    if google := re.fullmatch(r"([a-z]\w*)-(\d{1,5})", text.strip().lower()):
        return _of_google(text, google[1], int(google[2]))
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
            f"--on={text}: a {accelerator.name} slice has {accelerator.topology_axes} axes and at "
            f"most {accelerator.most_devices} devices"
        )
    return System(accelerator=accelerator, shape=shape)


def _of_google(text: str, name: str, cores: int) -> System:
    """System with a name of Google's; ConfigError if there is none."""
    for accelerator in accelerators().values():
        if accelerator.google and name in (accelerator.google, accelerator.name):
            chips, rest = divmod(cores, accelerator.cores_per_chip)
            if rest:
                raise ConfigError(f"--on={text}: a chip has {accelerator.cores_per_chip} cores")
            shape = _shape(accelerator, chips * accelerator.devices_per_chip)
            return System(accelerator=accelerator, shape=shape)
    raise ConfigError(f"--on={text}: Google has no slice {name}-N; name GPUs like h100:8")


def _shape(accelerator: Accelerator, num_devices: int) -> tuple[int, ...]:
    """Usual torus of a number of devices: axes as equal as possible, the longest last."""
    name, most, per_chip = accelerator.name, accelerator.most_devices, accelerator.devices_per_chip
    given = f"--on={name}:{num_devices}"
    chips, rest = divmod(num_devices, per_chip)
    if rest or not 0 < num_devices <= most:
        raise ConfigError(f"{given}: {name} takes 1 to {most} devices, and a chip has {per_chip}")
    if accelerator.device.platform != "tpu":
        per_host = accelerator.devices_per_host
        if num_devices > per_host and num_devices % per_host:
            raise ConfigError(f"{given}: give a multiple of {per_host}, the devices of a host")
        return (num_devices,)
    if chips & (chips - 1):
        torus = "x".join("4" * accelerator.topology_axes)
        raise ConfigError(f"{given}: give the torus in chips, such as {name}:{torus}")
    shape = [1] * accelerator.topology_axes
    while math.prod(shape) < chips:
        shape[shape.index(min(shape))] *= 2
    # A board of a TPU has 2x2 chips, whatever the number of axes.
    return tuple(sorted(shape, reverse=accelerator.topology_axes == 3 and chips < 8))
