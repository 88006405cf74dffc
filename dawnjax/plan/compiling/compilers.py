"""Compilers for absent hardware: their libraries, and the devices that they describe.

libtpu compiles for TPUs; JAX's CUDA plugin with nvcc compiles for NVIDIA GPUs. Neither needs a
device. A process can load one, and its environment must be set before JAX starts, so `worker.py`
runs in a process of its own.
"""

import importlib.util
import math
import os
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError, install
from dawnjax.machine.hardware import Device
from dawnjax.plan.hardware.systems import Accelerator, System

INSTALL = f"install the compilers for absent hardware: {install('plan')}"

KIB, MIB = 2**10, 2**20

CUDNN_VERSION = 9, 8
"""Major and minor, of every GPU that is described."""

OLDEST_CAPABILITY = 7.5
"""Compute capability of the oldest GPUs that CUDA 13 makes kernels for.

Source: `ptxas --help` of CUDA 13.5, which refuses `sm_70`.
"""

CHIPS_OF_A_BOARD = 4
"""Chips of a TPU's board; a smaller slice must say so."""


def environment(platform: str) -> dict[str, str]:
    """Environment of a process in which a platform's compiler works without its hardware.

    Args:
      platform: `tpu` or `gpu`.

    Raises:
      RunError: A library is missing; one line says what to install.
    """
    base = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # The user's are for the hardware that is here, or of dumps that are read here.
        "XLA_FLAGS": "",
    }
    if platform == "tpu":
        if importlib.util.find_spec("libtpu") is None:
            raise RunError(f"libtpu is not here; {INSTALL}")
        return {
            **base,
            # libtpu would else ask the cloud's metadata server for its TPU and wait.
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": "v5litepod-4",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            # Without it the compiler for v4 takes minutes, and that for v6e crashes.
            "JAX_OPTIMIZATION_LEVEL": "O1",
        }
    nvcc = _folder_of("nvidia.cu13")
    if nvcc is None or _folder_of("jax_plugins.xla_cuda13") is None:
        raise RunError(f"JAX's CUDA plugin or nvcc is not here; {INSTALL}")
    return {
        **base,
        # No GPU is here to try kernels on.
        "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={nvcc} --xla_gpu_autotune_level=0",
        "PATH": f"{nvcc / 'bin'}:{os.environ.get('PATH', '')}",
    }


def _folder_of(package: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def described_devices(system: System) -> list[Any]:
    """Devices of a system, as JAX describes them to a compiler.

    Raises:
      RuntimeError, ValueError: The compiler knows no such system or size.
    """
    from jax.experimental import topologies

    accelerator = system.accelerator
    if accelerator.device.platform == "gpu":
        _give_cudnn_version()
        described = topologies.get_topology_desc(
            platform="cuda",
            target_config=_target_config(accelerator.compiler, accelerator.device),
            topology=system.topology,
        )
        return list(described.devices)
    options: dict[str, Any] = {"chip_config_name": "megacore"} if accelerator.name == "v4" else {}
    # The compiler assumes full boards of four chips and refuses smaller slices.
    if math.prod(system.shape) < CHIPS_OF_A_BOARD:
        options["chips_per_host_bounds"] = [*system.shape, 1, 1][:3]
    name = f"{accelerator.compiler}:{system.topology}"
    return list(topologies.get_topology_desc(name, "tpu", **options).devices)


def _give_cudnn_version() -> None:
    """Let JAX trace calls of cuDNN without the library: JAX asks for its version first."""
    from jax_cuda13_plugin import _versions  # pyright: ignore

    _versions.cudnn_get_version = lambda: 10_000 * CUDNN_VERSION[0] + 100 * CUDNN_VERSION[1]


def cautions(accelerator: Accelerator) -> list[str]:
    """Lines about a GPU whose programs a run compiles otherwise than a plan."""
    if accelerator.device.platform != "gpu" or not accelerator.compiler:
        return []
    row, lines = _gpu(accelerator.compiler), []
    if accelerator.name != accelerator.compiler:
        lines.append(f"compiled for the chip of {row['description']}")
    if float(row["capability"]) < OLDEST_CAPABILITY:
        lines.append(
            "CUDA 13 compiled these programs, but has no kernels for compute capability "
            f"{row['capability']}: a run needs JAX with CUDA 12"
        )
    return lines


def _gpu(compiler: str) -> dict[str, str]:
    columns = ("compiler", "description", "capability", "source")
    rows = records.csv_rows(Path(__file__).parent / "gpus.csv", columns)
    return {row["compiler"]: row for _, row in rows}[compiler]


def _target_config(compiler: str, device: Device) -> str:
    """GPU description in the text form of XLA's `stream_executor.GpuTargetConfigProto`."""
    row = _gpu(compiler)
    major, minor = row["capability"].split(".")
    return f"""
        gpu_device_info {{
          threads_per_block_limit: 1024
          threads_per_warp: 32
          shared_memory_per_block: {48 * KIB}
          shared_memory_per_core: {int(row["shared_kib_per_core"]) * KIB}
          threads_per_core_limit: {row["threads_per_core"]}
          core_count: {row["cores"]}
          fpus_per_core: {row["fpus_per_core"]}
          block_dim_limit_x: {2**31 - 1}
          block_dim_limit_y: {2**16 - 1}
          block_dim_limit_z: {2**16 - 1}
          memory_bandwidth: {int(device.memory_bytes_per_second)}
          l2_cache_size: {int(row["l2_mib"]) * MIB}
          clock_rate_ghz: {row["clock_ghz"]}
          device_memory_size: {device.memory_bytes}
          shared_memory_per_block_optin: {row["shared_bytes_per_block"]}
          cuda_compute_capability {{ major: {major} minor: {minor} }}
          registers_per_core_limit: {64 * KIB}
          registers_per_block_limit: {64 * KIB}
        }}
        platform_name: "CUDA"
        dnn_version_info {{ major: {CUDNN_VERSION[0]} minor: {CUDNN_VERSION[1]} }}
        runtime_version {{ major: 13 minor: 0 }}
        device_description_str: "{row["description"]}"
    """
