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

_TPU_FILES = ("accel*", "vfio/[0-9]*")
"""In /dev, of TPUs up to v4 and after."""

_KNOWN = ("libtpu", "xla_cuda12", "xla_cuda13")
"""Plugins whose hardware is looked for here."""


def choose(command: str) -> None:
    """Tell JAX to take the CPU alone for `plan`, or where all plugins lack their hardware.

    A plan computes nothing on a device, and must take no memory of one that trains.
    """
    is_free = sys.platform == "linux" and not os.environ.get(VARIABLE)
    if command == "plan" or (is_free and _lack_hardware()):
        os.environ[VARIABLE] = "cpu"


def _lack_hardware() -> bool:
    """Whether plugins are installed, all of them known, and none has its hardware."""
    return not has_hardware() and bool(found := plugins()) and found.issubset(_KNOWN)


def has_hardware() -> bool:
    """Whether this machine shows a GPU of NVIDIA or a TPU."""
    tpus = (file for pattern in _TPU_FILES for file in Path("/dev").glob(pattern))
    return any(map(os.path.exists, NVIDIA_FILES)) or any(True for _ in tpus)


def plugins() -> set[str]:
    """Names of JAX's plugins. Source: JAX, `discover_pjrt_plugins`."""
    found = {entry.name for entry in importlib.metadata.entry_points(group="jax_plugins")}
    if spec := importlib.util.find_spec("jax_plugins"):
        found |= {module.name for module in pkgutil.iter_modules(spec.submodule_search_locations)}
    return found | ({"libtpu"} if importlib.util.find_spec("libtpu") else set())
