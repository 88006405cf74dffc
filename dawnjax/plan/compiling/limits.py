"""What a device's memory holds, and lines about programs that it may not hold."""

from dawnjax.machine.hardware import Device
from dawnjax.page import words

DOES_NOT_FIT = "does not fit: "
"""How the reason of a system with too little memory begins."""


def does_not_fit(needs_bytes: float, has_bytes: float) -> str:
    """Line about a program larger than a device's memory."""
    needs, has = (words.rounded(size / 1e9) for size in (needs_bytes, has_bytes))
    return (
        f"{DOES_NOT_FIT}a device needs {needs} GB and has {has} GB; use more devices or a smaller "
        "--global_batch_size"
    )


JAX_SHARE = 0.75
"""Fraction of a GPU's memory that JAX takes by default.

Source: JAX documentation, "GPU memory allocation".
"""
LARGEST_SHARE = 0.95
"""That leaves room for the driver and libraries."""


def needs_larger_share(needs_bytes: float, device: Device) -> str:
    """Line about a program that fits into a GPU but not into what JAX takes of it; else empty.

    Beyond what JAX can take it names no share: a run with that one would end without memory.
    """
    share = needs_bytes / device.memory_bytes
    if device.platform != "gpu" or not JAX_SHARE < share <= 1:
        return ""
    line = (
        f"JAX takes {100 * JAX_SHARE:.0f} % of a GPU's memory, and this needs {100 * share:.0f} %"
    )
    if share > LARGEST_SHARE:
        return f"{line}, with {100 * LARGEST_SHARE:.0f} % at most to take: it may not fit"
    return f"{line}: train with XLA_PYTHON_CLIENT_MEM_FRACTION={LARGEST_SHARE}"


WITH_CODE = 1.13
"""Factor by which a TPU's memory was more with code, and with what kernels need besides the arrays:
3.61 GB for 3.19 of Mask R-CNN on a v5e, the most of six programs of 1 GB and more."""


def lacks_code(needs_bytes: float, device: Device) -> str:
    """Line about a program that may not fit into a TPU with its code; else empty."""
    if device.platform != "tpu" or not needs_bytes <= device.memory_bytes < WITH_CODE * needs_bytes:
        return ""
    return (
        "the memory leaves out code and the scratch space of a TPU's kernels; with them a "
        f"program needed up to {WITH_CODE:g} times as much: it may not fit"
    )


def usable_bytes(device: Device) -> float:
    """Bytes of arrays that surely fit: the rest is for the driver, or for code and kernels."""
    if device.platform == "gpu":
        return LARGEST_SHARE * device.memory_bytes
    return device.memory_bytes / WITH_CODE
