"""Memory of a device, to refuse what cannot fit before it is tried."""

import jax
import psutil
from jax.sharding import Mesh


def device_memory(mesh: Mesh) -> int | None:
    """Bytes that each device of this process has; None where that is unknown."""
    device = mesh.devices.flat[0]
    if device.platform == "cpu":  # simulated devices share the host's
        return psutil.virtual_memory().total // max(1, mesh.size // jax.process_count())
    try:
        return (device.memory_stats() or {}).get("bytes_limit")
    except (jax.errors.JaxRuntimeError, NotImplementedError):  # a device that is only planned
        return None
