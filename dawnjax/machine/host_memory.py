"""Host memory that programs for a CPU free, kept for their next call where a run asks for it.

XLA frees a program's temporary memory after each call. glibc gives such blocks back to Linux, and
the next call's pages are cleared anew: 60 of 390 ms for a step of `multi30k_transformer` in float32
on two cores, 2.3 of 12.1 s for `cifar10_record` (`docs/measurements.md`).

Kept blocks fragment: a process that needs 6.3 GB came to hold 24.9 GB. All threads share one arena:
an epoch of `digits` took 1.11 times as long. So only `--keep_freed_memory` keeps them.

Source: mallopt(3) of the Linux man-pages. A thread's own arena cannot hold a block beyond 64 MiB
(HEAP_MAX_SIZE of glibc), so that the threads which run programs must use the main one.
"""

import ctypes
import platform

from dawnjax.errors import ConfigError

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
"""Parameters of mallopt, from glibc's malloc.h."""


def keep_freed() -> None:
    """Have this process keep what it frees; ConfigError without glibc. Call it before JAX's first
    use.
    """
    library = platform.libc_ver()[0] or "another C library"
    if library != "glibc":
        raise ConfigError(
            f"keep_freed_memory=true needs glibc, and this Python runs on {library}; leave it out"
        )
    # Too late for threads that exist: they keep their arenas.
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, value in ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1)):
        mallopt(parameter, value)
