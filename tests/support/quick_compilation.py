"""Flags of XLA's for programs that need not be fast.

Most of the tests' time would be LLVM's, for programs that run a few times. What compares the
numbers of two processes gives both the same flags.
"""

from importlib.metadata import version

# In one part: several would take several threads, and more work in all.
_EACH = "--xla_cpu_parallel_codegen_split_count=1"

FUSIONS_OF_A_USER: dict[str, bool] = {}
"""XLA's options with which a program's loops are made as for a user, to the last bit."""

if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
    # XLA's older way to make loops, which takes a third off the tests; later ones have no other.
    _EACH += " --xla_cpu_use_fusion_emitters=false"
    FUSIONS_OF_A_USER = {"xla_cpu_use_fusion_emitters": True}

QUICK = f"--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true {_EACH}"
"""LLVM optimizes nothing, while XLA's own passes stay: for what runs a few times."""

REPEATED = QUICK.replace("level=0", "level=2")
"""LLVM does what is cheap: for what many processes read from the cache, and run for many steps.

A whole run of `digits` takes 14 CPU seconds with it, 8 of them without compiling; 19 with QUICK.
"""


def flags_with(more: str, given: str, num_devices: int = 4) -> str:
    """Flags of a process with simulated devices: as many as `given` names, if it names any."""
    devices = "--xla_force_host_platform_device_count"
    counted = given if devices in given else f"{given} {devices}={num_devices}"
    return f"{counted} {more}".strip()
