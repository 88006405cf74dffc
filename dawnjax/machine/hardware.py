"""Peak FLOP/s, memory and links of devices, from `hardware.csv`, where each row names its data
sheet.

Numbers are per JAX device: a TPU v2, v3, v7x or v8i chip is two. The table has those of a whole
chip, in TFLOP/s and GB/s. Figures for sparse matrices are halved. An unlisted device has no
numbers; there is no default. `pattern` matches JAX's `device_kind`, first row first.

The memory's size is what a program can be given: the limit that libtpu prints when a program is too
large for a TPU, and for a GPU the total that XLA or CUDA sees, or else the driver. A data sheet's
80 GB are neither.

Each figure was compared on 2026-11-21 with its source, or with a published transcription of it
(Composer `speed_monitor.py`, Lightning `throughput.py`, torchtitan `tools/utils.py`, XLA's
`target_config/specs`), except those in the column `unchecked`. A PCI Express link has its
generation's figure.
"""

import dataclasses
import functools
import re
from pathlib import Path

from dawnjax import records
from dawnjax.records.bounds import Amount, Rate

TERA, GIGA = 10**12, 10**9

STEADY_SPREAD = 0.25
MOST_OTHER_WORK = 0.1
"""Above either, other work disturbed a measured peak. Steady other work shows in no spread."""

_UNITS = {"B": 1, "MiB": 2**20, "GiB": 2**30}

_DTYPES = ("bfloat16", "float16", "tensorfloat32", "float32", "float8", "float4", "int8")


@dataclasses.dataclass(frozen=True)
class Listed:
    """One JAX device; a row of the table. A figure that nobody publishes is None.

    Attributes:
      peak_flops_per_second: Peak of dense matrix products, by dtype: `bfloat16`, `float16`,
        `tensorfloat32`, `float32`, `float8`, `float4`, `int8`. A dtype that is absent is not
        published.
      link_bytes_per_second: Bandwidth to other devices, both directions together: inter-chip
        interconnect or NVLink; PCI Express where there is no other.
      unchecked: Figures not compared with a copy of their source: `memory`, `link`, or a dtype.
      unknown: Why figures are None.
    """

    name: str
    platform: str
    peak_flops_per_second: dict[str, float]
    memory_bytes_per_second: float | None
    memory_bytes: int | None
    link_bytes_per_second: float | None
    source: str
    devices_per_chip: int = 1
    unchecked: tuple[str, ...] = ()
    unknown: str = ""

    def peak(self, dtype: str) -> float | None:
        return self.peak_flops_per_second.get(dtype)

    def cited(self, dtype: str) -> str:
        """Source of a dtype's peak and the memory's bandwidth, with what was not compared."""
        unsure = [name for name in (dtype, "memory") if name in self.unchecked]
        note = f"; not compared with it: {', '.join(unsure)}" if unsure else ""
        return f"{self.source} ({dtype}){note}"


@dataclasses.dataclass(frozen=True)
class Device(Listed):
    """A device whose memory and links are known, as a plan needs."""

    memory_bytes_per_second: float
    memory_bytes: int
    link_bytes_per_second: float


@dataclasses.dataclass(frozen=True)
class MeasuredPeaks:
    """Measured peaks of a CPU.

    Attributes:
      flops_per_second: The best large matrix product, in the dtype.
      bytes_per_second: The best large copy in place, reads and writes together.
      spread: How much longer the median repetition took than the best, as a fraction.
      other_work: Share of the machine's cores that other work took meanwhile.
    """

    flops_per_second: Rate
    bytes_per_second: Rate
    spread: Amount
    other_work: Amount = 0.0

    @property
    def fault(self) -> str:
        """Why they cannot be believed; empty if no other work seems to have disturbed them."""
        if self.other_work > MOST_OTHER_WORK:
            return (
                f"other work took {self.other_work:.0%} of the cores while the machine's peak was "
                f"measured, and at most {MOST_OTHER_WORK:.0%} is taken"
            )
        if self.spread > STEADY_SPREAD:
            return (
                "the machine's measured peak is not steady: half of its repetitions took "
                f"{self.spread:.0%} longer than the best or more"
            )
        return ""


@functools.cache
def _devices() -> tuple[tuple[re.Pattern[str], Listed], ...]:
    devices = []
    for _, row in records.csv_rows(
        Path(__file__).with_name("hardware.csv"), ("device", "platform", "pattern", "source")
    ):
        count = int(row["devices_per_chip"])
        size, _, unit = row["memory"].partition(" ")
        rates = [
            float(row[name]) * GIGA / count if row[name] else None
            for name in ("memory_gb_per_second", "link_gb_per_second")
        ]
        figures = (rates[0], int(float(size) * _UNITS[unit]) // count if size else None, rates[1])
        device = (Listed if None in figures else Device)(
            row["device"],
            row["platform"],
            {dtype: float(row[dtype]) * TERA / count for dtype in _DTYPES if row[dtype]},
            *figures,  # pyright: ignore[reportArgumentType]
            source=row["source"],
            devices_per_chip=count,
            unchecked=tuple(row["unchecked"].split("; ")) if row["unchecked"] else (),
            unknown=row["unknown"],
        )
        devices.append((re.compile(rf"(?:^|[\s-]){row['pattern']}"), device))
    return tuple(devices)


def find_device(device_kind: str) -> tuple[Listed | None, str]:
    """Device of a `device_kind`, such as `NVIDIA H200`; or None and why it has no numbers."""
    for pattern, device in _devices():
        if pattern.search(device_kind):
            return device, ""
    if device_kind == "cpu":
        return None, "a CPU has no data sheet here; its peak is measured"
    return None, f"no data sheet is known here for the device kind {device_kind!r}"


def num_chips(num_devices: int, device_kind: str) -> int:
    """Chips of some JAX devices: two devices are a chip of TPU v2, v3, v7x or v8i."""
    device, _ = find_device(device_kind)
    return num_devices // (1 if device is None else device.devices_per_chip)


def devices() -> tuple[Listed, ...]:
    return tuple(device for _, device in _devices())


def find_product(name: str) -> Device:
    return {one.name: one for one in devices() if isinstance(one, Device)}[name]


def executed_dtype(platform: str, dtype: str, device_kind: str = "") -> str:
    """Dtype in which a device multiplies, by default, arrays of a dtype (XLA's or NumPy's name).

    A TPU multiplies float32 in passes of bfloat16; an NVIDIA GPU from the A100 on multiplies
    float32 as tensorfloat32, unless a higher precision was asked for.

    Source: JAX, `jax.lax.Precision`; XLA, `xla_gpu_enable_tf32` behaviour of cuBLAS and cuDNN
    calls.
    """
    names = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "s8": "int8", "u8": "int8"}
    dtype = names.get(dtype, "float8" if dtype.startswith("f8") else dtype)
    if dtype != "float32":
        return dtype
    if platform == "tpu":
        return "bfloat16"
    device, _ = find_device(device_kind)
    if platform == "gpu" and device is not None and device.peak("tensorfloat32"):
        return "tensorfloat32"
    return dtype
