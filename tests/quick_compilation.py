"""The flags of XLA's with which LLVM optimizes nothing, while XLA's own passes stay.

Most of the tests' time would be LLVM's, for programs that run a few times. What compares the
numbers of two processes gives both the same flags.
"""

import jax

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"

QUICK_OPTIONS: tuple[str, ...] = ()
"""Flags of a command that only has to run: with XLA's older way to make loops it takes less of the
processor to compile (AmoebaNet 132 s in place of 185), and rounds in other places."""

if jax.__version_info__ < (0, 11):  # later ones have no other way
    QUICK_OPTIONS = ("--xla_options=xla_cpu_use_fusion_emitters=false",)
