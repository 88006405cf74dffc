"""Accelerators of this machine, found without JAX, for a study to share among its trials."""

import os
from pathlib import Path


def gpus() -> list[str]:
    """GPUs that this process may use, as CUDA names them; empty where JAX is kept from them."""
    if os.environ.get("JAX_PLATFORMS", "") == "cpu":
        return []
    # A scheduler may restrict a process by this variable while /dev shows all GPUs.
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [part for part in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if part]
    files = sorted(Path("/dev").glob("nvidia[0-9]*"))
    return [file.name.removeprefix("nvidia") for file in files]


def tpu_chips() -> int:
    """Number of TPU chips; 0 where JAX is kept from them."""
    if os.environ.get("JAX_PLATFORMS", "") == "cpu":
        return 0
    return len(list(Path("/dev").glob("accel[0-9]*")))
