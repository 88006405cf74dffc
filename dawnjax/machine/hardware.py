"""Peak FLOP/s, memory and links of devices, each with the data sheet that says so.

Numbers are per JAX device. A TPU v2, v3 or v7x chip is two devices, so a device has half of the
chip's. Arithmetic is dense: figures that a data sheet gives for sparse matrices are halved. A
device that is not listed has no numbers here, and the reason is said; there is no default.

Each figure was compared on 2026-11-21 with its source, or with a published transcription of it
(Composer `speed_monitor.py`, Lightning `throughput.py`, torchtitan `tools/utils.py`, which cite the
data sheets; XLA's `target_config/specs`, which hold what the driver says of the device), but for
those that `Device.unchecked` names. A link of PCI Express has what its generation has.
"""

import dataclasses
import re
from typing import Any

TERA, GIGA = 10**12, 10**9
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Device:
    """One JAX device.

    Attributes:
      name: The product.
      platform: `tpu` or `gpu`.
      peak_flops_per_second: Peak of dense matrix products, by dtype: `bfloat16`, `float16`,
        `tensorfloat32`, `float32`, `float8`, `int8`. A dtype that is absent is not published.
      memory_bytes_per_second: Peak bandwidth of the device's memory.
      memory_bytes: Size of the device's memory.
      link_bytes_per_second: Bandwidth to other devices, both directions together: inter-chip
        interconnect or NVLink; PCI Express where there is no other. None where not published.
      source: The data sheet.
      cores_per_device: Units that run kernels side by side: streaming multiprocessors of a GPU,
        tensor cores of a TPU; 0 where it does not matter.
      unchecked: Which figures were not compared with a copy of their source: `memory`, `link`, or
        a dtype.
    """

    name: str
    platform: str
    peak_flops_per_second: dict[str, float]
    memory_bytes_per_second: float
    memory_bytes: int
    link_bytes_per_second: float | None
    source: str
    cores_per_device: int = 0
    unchecked: tuple[str, ...] = ()

    def peak(self, dtype: str) -> float | None:
        """Gives the peak FLOP/s of one dtype; None where it is not published."""
        return self.peak_flops_per_second.get(dtype)

    def cited(self, dtype: str) -> str:
        """Gives the source of a dtype's peak and of the memory's bandwidth, and what is unsure."""
        unsure = [name for name in (dtype, "memory") if name in self.unchecked]
        note = f"; not compared with it: {', '.join(unsure)}" if unsure else ""
        return f"{self.source} ({dtype}){note}"


def _tpu(
    name: str,
    *,
    devices: int = 1,
    bf16: float,
    int8: float | None = None,
    fp8: float | None = None,
    memory_gb_per_second: float,
    memory_bytes: int,
    link_gb_per_second: float,
    source: str,
    unchecked: tuple[str, ...] = (),
) -> Device:
    """Gives the device of a TPU chip from the chip's own numbers, in TFLOP/s and GB/s."""
    peaks = {"bfloat16": bf16, "int8": int8, "float8": fp8}
    return Device(
        name=name,
        platform="tpu",
        peak_flops_per_second={k: v * TERA / devices for k, v in peaks.items() if v is not None},
        memory_bytes_per_second=memory_gb_per_second * GIGA / devices,
        memory_bytes=memory_bytes // devices,
        link_bytes_per_second=link_gb_per_second * GIGA / devices,
        source=source,
        cores_per_device=1,
        unchecked=unchecked,
    )


def _gpu(
    name: str,
    *,
    bf16: float | None = None,
    fp16: float | None = None,
    tf32: float | None = None,
    f32: float,
    fp8: float | None = None,
    int8: float | None = None,
    memory_gb_per_second: float,
    memory_gb: int,
    link_gb_per_second: float,
    cores: int,
    source: str,
    unchecked: tuple[str, ...] = (),
) -> Device:
    """Gives a GPU from its data sheet's numbers, in dense TFLOP/s and GB/s."""
    peaks = {
        "bfloat16": bf16,
        "float16": fp16 if fp16 is not None else bf16,
        "tensorfloat32": tf32,
        "float32": f32,
        "float8": fp8,
        "int8": int8,
    }
    return Device(
        name=name,
        platform="gpu",
        peak_flops_per_second={k: v * TERA for k, v in peaks.items() if v is not None},
        memory_bytes_per_second=memory_gb_per_second * GIGA,
        memory_bytes=memory_gb * GIGA,
        link_bytes_per_second=link_gb_per_second * GIGA,
        source=source,
        cores_per_device=cores,
        unchecked=unchecked,
    )


_JOUPPI = (
    "Jouppi et al. 2020, 'A domain-specific supercomputer for training deep neural networks' "
    "(Communications of the ACM 63:7), table 1"
)
_CLOUD = "Cloud TPU documentation, page 'TPU {}', key chip specifications"
_SHEET = "NVIDIA {} data sheet"

# By what JAX calls them (`device_kind`).
_TPUS = {
    # 16 GiB and 700 GB/s; four links of 496 Gbit/s each way.
    "TPU v2": _tpu(
        "Cloud TPU v2",
        devices=2,
        bf16=46,
        memory_gb_per_second=700,
        memory_bytes=16 * GIB,
        link_gb_per_second=496,
        source=_JOUPPI,
        unchecked=("bfloat16", "memory", "link"),
    ),
    # Four links of 656 Gbit/s each way.
    "TPU v3": _tpu(
        "Cloud TPU v3",
        devices=2,
        bf16=123,
        memory_gb_per_second=900,
        memory_bytes=32 * GIB,
        link_gb_per_second=656,
        source=_CLOUD.format("v3") + "; links: " + _JOUPPI,
        unchecked=("link",),
    ),
    # Its two cores are one device (megacore). Six links of 50 GB/s each way.
    "TPU v4": _tpu(
        "Cloud TPU v4",
        bf16=275,
        int8=275,
        memory_gb_per_second=1200,
        memory_bytes=32 * GIB,
        link_gb_per_second=600,
        source=_CLOUD.format("v4")
        + "; links: Jouppi et al. 2023 (arXiv 2304.01433), table 4: six of 50 GB/s",
        unchecked=("link",),
    ),
    # A later edition of the page gives the memory 800 GiB/s, 5 % more.
    "TPU v5 lite": _tpu(
        "Cloud TPU v5e",
        bf16=197,
        int8=393,
        memory_gb_per_second=819,
        memory_bytes=16 * GIGA,
        link_gb_per_second=400,
        source=_CLOUD.format("v5e"),
    ),
    "TPU v5": _tpu(
        "Cloud TPU v5p",
        bf16=459,
        int8=918,
        fp8=459,
        memory_gb_per_second=2765,
        memory_bytes=95 * GIB,
        link_gb_per_second=1200,
        source=_CLOUD.format("v5p")
        + "; int8: Austin et al. 2025, 'How to scale your model', chapter 'TPUs'",
    ),
    "TPU v6 lite": _tpu(
        "Cloud TPU v6e (Trillium)",
        bf16=918,
        int8=1836,
        fp8=918,
        memory_gb_per_second=1638,
        memory_bytes=32 * GIB,
        link_gb_per_second=800,
        source=_CLOUD.format("v6e") + "; float8: page 'TPU 7x (Ironwood)'",
    ),
    "TPU7x": _tpu(
        "Cloud TPU v7x (Ironwood)",
        devices=2,
        bf16=2307,
        fp8=4614,
        memory_gb_per_second=7380,
        memory_bytes=192 * GIB,
        link_gb_per_second=1200,
        source=_CLOUD.format("7x (Ironwood)"),
    ),
}
_TPUS |= {
    "TPU v5e": _TPUS["TPU v5 lite"],
    "TPU v5p": _TPUS["TPU v5"],
    "TPU v6e": _TPUS["TPU v6 lite"],
}
_TPUS |= {"TPU v7x": _TPUS["TPU7x"], "TPU v7": _TPUS["TPU7x"]}


_V100: dict[str, Any] = {
    "fp16": 125,
    "f32": 15.7,
    "memory_gb_per_second": 900,
    "link_gb_per_second": 300,
}
_V100_PCIE: dict[str, Any] = {
    "fp16": 112,
    "f32": 14,
    "memory_gb_per_second": 900,
    "link_gb_per_second": 32,
    "cores": 80,
}
_A100: dict[str, Any] = {"bf16": 312, "tf32": 156, "f32": 19.5, "int8": 624, "cores": 108}
_H100: dict[str, Any] = {
    "bf16": 989.4,
    "tf32": 494.7,
    "f32": 67,
    "fp8": 1979,
    "int8": 1979,
    "cores": 132,
}
_NVL: dict[str, Any] = {
    "bf16": 835.5,
    "tf32": 417.5,
    "f32": 60,
    "fp8": 1670.5,
    "int8": 1670.5,
    "cores": 132,
}

# By a pattern of what the driver calls them. The first that matches is taken.
_GPUS: list[tuple[str, Device]] = [
    (
        r"V100-SXM\d-32GB",
        _gpu("V100 SXM2 32 GB", **_V100, memory_gb=32, cores=80, source=_SHEET.format("V100")),
    ),
    (
        r"V100-SXM\d-16GB",
        _gpu("V100 SXM2 16 GB", **_V100, memory_gb=16, cores=80, source=_SHEET.format("V100")),
    ),
    (
        r"V100-PCIE-16GB",
        _gpu("V100 PCIe 16 GB", **_V100_PCIE, memory_gb=16, source=_SHEET.format("V100")),
    ),
    (
        r"V100-PCIE-32GB",
        _gpu("V100 PCIe 32 GB", **_V100_PCIE, memory_gb=32, source=_SHEET.format("V100")),
    ),
    (
        r"T4$",
        _gpu(
            "T4",
            fp16=65,
            f32=8.1,
            int8=130,
            memory_gb_per_second=320,
            memory_gb=16,
            link_gb_per_second=32,
            cores=40,
            source=_SHEET.format("T4"),
        ),
    ),
    (
        r"A100-SXM4-40GB",
        _gpu(
            "A100 SXM4 40 GB",
            **_A100,
            memory_gb_per_second=1555,
            memory_gb=40,
            link_gb_per_second=600,
            source=_SHEET.format("A100"),
        ),
    ),
    (
        r"A100-SXM4-80GB",
        _gpu(
            "A100 SXM4 80 GB",
            **_A100,
            memory_gb_per_second=2039,
            memory_gb=80,
            link_gb_per_second=600,
            source=_SHEET.format("A100"),
        ),
    ),
    (
        r"A100-PCIE-40GB",
        _gpu(
            "A100 PCIe 40 GB",
            **_A100,
            memory_gb_per_second=1555,
            memory_gb=40,
            link_gb_per_second=600,
            source=_SHEET.format("A100"),
            unchecked=("link",),
        ),
    ),
    (
        r"A100 80GB PCIe",
        _gpu(
            "A100 PCIe 80 GB",
            **_A100,
            memory_gb_per_second=1935,
            memory_gb=80,
            link_gb_per_second=600,
            source=_SHEET.format("A100"),
            unchecked=("link",),
        ),
    ),
    (
        r"A30$",
        _gpu(
            "A30",
            bf16=165,
            tf32=82,
            f32=10.3,
            int8=330,
            memory_gb_per_second=933,
            memory_gb=24,
            link_gb_per_second=200,
            cores=56,
            source=_SHEET.format("A30"),
            unchecked=("tensorfloat32", "int8", "memory", "link"),
        ),
    ),
    (
        r"A10$",
        _gpu(
            "A10",
            bf16=125,
            tf32=62.5,
            f32=31.2,
            int8=250,
            memory_gb_per_second=600,
            memory_gb=24,
            link_gb_per_second=64,
            cores=72,
            source=_SHEET.format("A10"),
            unchecked=("int8",),
        ),
    ),
    (
        r"L4$",
        _gpu(
            "L4",
            bf16=121,
            tf32=60,
            f32=30.3,
            fp8=242.5,
            int8=242.5,
            memory_gb_per_second=300,
            memory_gb=24,
            link_gb_per_second=64,
            cores=58,
            source=_SHEET.format("L4"),
            unchecked=("float32",),
        ),
    ),
    (
        r"L40S$",
        _gpu(
            "L40S",
            bf16=362.05,
            tf32=183,
            f32=91.6,
            fp8=733,
            int8=733,
            memory_gb_per_second=864,
            memory_gb=48,
            link_gb_per_second=64,
            cores=142,
            source=_SHEET.format("L40S"),
        ),
    ),
    (
        r"H100 80GB HBM3",
        _gpu(
            "H100 SXM5",
            **_H100,
            memory_gb_per_second=3350,
            memory_gb=80,
            link_gb_per_second=900,
            source=_SHEET.format("H100"),
        ),
    ),
    (
        r"H100 PCIe",
        _gpu(
            "H100 PCIe",
            bf16=756,
            tf32=378,
            f32=51,
            fp8=1513,
            int8=1513,
            memory_gb_per_second=2000,
            memory_gb=80,
            link_gb_per_second=600,
            cores=114,
            source=_SHEET.format("H100 PCIe"),
            unchecked=("link",),
        ),
    ),
    (
        r"H100 NVL",
        _gpu(
            "H100 NVL",
            **_NVL,
            memory_gb_per_second=3900,
            memory_gb=94,
            link_gb_per_second=600,
            source=_SHEET.format("H100"),
            unchecked=("tensorfloat32", "float32", "float8", "int8", "link"),
        ),
    ),
    (
        r"H200 NVL",
        _gpu(
            "H200 NVL",
            **_NVL,
            memory_gb_per_second=4800,
            memory_gb=141,
            link_gb_per_second=900,
            source=_SHEET.format("H200"),
            unchecked=("bfloat16", "float16", "tensorfloat32", "float32", "float8", "int8", "link"),
        ),
    ),
    (
        r"H200(?: 141GB HBM3e)?$",
        _gpu(
            "H200 SXM",
            **_H100,
            memory_gb_per_second=4800,
            memory_gb=141,
            link_gb_per_second=900,
            source=_SHEET.format("H200"),
        ),
    ),
    (
        r"GB200$",
        _gpu(
            "GB200 (one GPU)",
            bf16=2500,
            tf32=1250,
            f32=80,
            fp8=5000,
            int8=5000,
            memory_gb_per_second=8000,
            memory_gb=186,
            link_gb_per_second=1800,
            cores=152,
            source=_SHEET.format("GB200 NVL72"),
            unchecked=("float32",),
        ),
    ),
    (
        r"(?<!G)B200$",
        _gpu(
            "B200 (HGX)",
            bf16=2250,
            tf32=1125,  # half of bfloat16; the architecture's brief rounds it to 1,100
            f32=75,
            fp8=4500,
            int8=4500,
            memory_gb_per_second=7700,
            memory_gb=180,
            link_gb_per_second=1800,
            cores=148,
            source=_SHEET.format("HGX B200"),
        ),
    ),
]


def find_device(device_kind: str) -> tuple[Device | None, str]:
    """Gives a device by what JAX calls it.

    Args:
      device_kind: `jax.Device.device_kind`, such as `TPU v5 lite` or `NVIDIA H200`.

    Returns:
      The device and an empty reason; or None and why it has no numbers.
    """
    if device_kind in _TPUS:
        return _TPUS[device_kind], ""
    for pattern, device in _GPUS:
        if re.search(rf"(?:^|[\s-]){pattern}", device_kind):
            return device, ""
    if device_kind == "cpu":
        return None, "a CPU has no data sheet here; its peak is measured"
    return None, f"no data sheet is known here for the device kind {device_kind!r}"


def executed_dtype(platform: str, dtype: str, device_kind: str = "") -> str:
    """Gives the dtype in which a device multiplies, by default, arrays of a dtype.

    A TPU multiplies float32 in passes of bfloat16; an NVIDIA GPU from the A100 on multiplies
    float32 as tensorfloat32, unless a higher precision was asked for.

    Args:
      platform: `cpu`, `gpu` or `tpu`.
      dtype: The arrays' dtype, by XLA's or by NumPy's name.
      device_kind: The device; an older GPU has no tensorfloat32.

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
