"""Ways to run PyTorch: a benchmark tries them and compares itself with the fastest.

All have fused optimizers and cuDNN's search for the fastest convolution. The rest differs by
machine and network: each benchmark names its ways, and `workers.fastest` measures them. This file
imports no PyTorch, so the comparing process holds none.
"""

import dataclasses

KEPT_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
}
"""glibc keeps what a program frees. Source: mallopt(3)."""

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""glibc from 2.35 on asks for huge pages. Source: the GNU C Library's manual, "Memory Allocation
Tunables"."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """A way to run PyTorch.

    Attributes:
      mode: Of `torch.compile`; empty for eager.
      is_channels_last: Whether images and kernels are NHWC in memory.
      keeps_memory: Whether glibc keeps freed memory.
      threads: CPU threads; 0 for PyTorch's own choice, one a core.
      has_huge_pages: Whether glibc asks for huge pages.
    """

    mode: str = ""
    is_channels_last: bool = True
    keeps_memory: bool = False
    threads: int = 0
    has_huge_pages: bool = False

    def environment(self) -> dict[str, str]:
        threads = {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        pages = HUGE_PAGES if self.has_huge_pages else {}
        return threads | pages | (KEPT_MEMORY if self.keeps_memory else {})


SETTINGS = {
    "eager": Settings(),
    "eager, memory kept": Settings(keeps_memory=True),
    "eager, huge pages": Settings(has_huge_pages=True),
    "eager, NCHW, memory kept": Settings(is_channels_last=False, keeps_memory=True),
    "eager, one thread": Settings(threads=1, keeps_memory=True),
    "compiled": Settings("default"),
    "compiled, memory kept": Settings("default", keeps_memory=True),
    "compiled, NCHW, memory kept": Settings("default", False, keeps_memory=True),
    "compiled, one thread": Settings("default", threads=1, keeps_memory=True),
    "max-autotune": Settings("max-autotune"),
    "max-autotune, memory kept": Settings("max-autotune", keeps_memory=True),
    "max-autotune, no CUDA graphs": Settings("max-autotune-no-cudagraphs"),
    "reduce-overhead": Settings("reduce-overhead"),
}

GPU = ("compiled", "max-autotune", "max-autotune, no CUDA graphs", "reduce-overhead")
"""Tried on a GPU, where PyTorch's own allocator keeps memory."""

EAGER = ("eager", "eager, memory kept", "eager, one thread")
"""Tried on a CPU for every network; one thread, as two may only wait for each other."""

COMPILED = ("compiled, memory kept", "compiled, one thread")

SEARCHED = ("max-autotune, memory kept",)
"""Left out for networks of which the search takes long."""

IMAGES = ("eager, huge pages", "eager, NCHW, memory kept", "compiled, NCHW, memory kept")
"""Tried on a CPU for convolutions too."""
