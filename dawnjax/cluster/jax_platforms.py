"""Platforms that JAX looks for, told before it is imported.

A plugin without its hardware fills the screen with its failure, and installing dawnjax[plan] brings
those of GPUs and TPUs to a laptop.
"""

import importlib.metadata
import importlib.util
import os
import pkgutil
import sys
from pathlib import Path

VARIABLE = "JAX_PLATFORMS"

NVIDIA_FILES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg")
"""Of which one is there where CUDA has a GPU. Source: JAX, `has_visible_nvidia_gpu`."""

_TPU_FILES = ("dev/accel*", "dev/vfio/[0-9]*")

_GOOGLE = "0x1ae0"
"""Vendor on the PCI bus by which JAX finds a TPU. Source: JAX, `hardware_utils`."""

_PLUGINS = ("libtpu", "xla_cuda12", "xla_cuda13")
"""Plugins whose hardware is looked for here."""

_TELL = (
    VARIABLE,
    "JAX_FORCE_TPU_INIT",
    "MEGASCALE_COORDINATOR_ADDRESS",
    "MEGASCALE_NUM_SLICES",
    "PJRT_NAMES_AND_LIBRARY_PATHS",
    "TPU_NAME",
    "TPU_PROCESS_ADDRESSES",
    "TPU_WORKER_HOSTNAMES",
)
"""Variables that say which hardware there is."""


def choose(command: str) -> None:
    """Tell JAX to take the CPU alone for `plan`, or where all plugins lack their hardware.

    A plan computes nothing on a device, and must take no memory of one that trains.
    """
    is_told = any(map(os.environ.get, _TELL))
    if command == "plan" or not (is_told or sys.platform != "linux" or _may_have_hardware()):
        os.environ[VARIABLE] = "cpu"


def _may_have_hardware() -> bool:
    installed = plugins()
    return not installed or not installed.issubset(_PLUGINS) or has_hardware()


def has_hardware(root: Path = Path("/")) -> bool:
    """Whether a machine, whose files are here, shows a GPU of NVIDIA or may have a TPU.

    A network card of Google's counts as a TPU, of which a container may show nothing else.
    """
    if any((root / file.lstrip("/")).exists() for file in NVIDIA_FILES):
        return True
    if any(next(root.glob(pattern), None) for pattern in _TPU_FILES):
        return True
    vendors = root.glob("sys/bus/pci/devices/*/vendor")
    try:
        return any(file.read_text().strip() == _GOOGLE for file in vendors)
    except OSError:  # a device that is gone, or closed to us
        return True


def plugins() -> set[str]:
    """Names of JAX's plugins. Source: JAX, `discover_pjrt_plugins`."""
    found = {entry.name for entry in importlib.metadata.entry_points(group="jax_plugins")}
    if spec := importlib.util.find_spec("jax_plugins"):
        found |= {module.name for module in pkgutil.iter_modules(spec.submodule_search_locations)}
    return found | ({"libtpu"} if importlib.util.find_spec("libtpu") else set())
