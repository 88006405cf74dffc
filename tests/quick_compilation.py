"""The flags of XLA's with which LLVM optimizes nothing, while XLA's own passes stay.

Most of the tests' time would be LLVM's, for programs that run a few times. What compares the
numbers of two processes gives both the same flags.
"""

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
