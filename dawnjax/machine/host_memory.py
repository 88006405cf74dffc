"""Host memory that programs for a CPU free, kept for their next call where a run asks for it.

XLA asks for all of a program's temporary memory at each call and frees it at the end. glibc gives
blocks of that size back to Linux at once, and the next call finds every page absent: each is
cleared anew when it is first written. Of a step of `multi30k_transformer` in float32 on two cores
that was 60 of 390 ms, and of `cifar10_record` 2.3 of 12.1 s (`docs/measurements.md`).

Kept blocks break into pieces: a process whose program needs 6.3 GB came to hold 19.6 GB, and once
24.9 GB. Small programs slow down, since all threads share one arena: an epoch of `digits` took 1.11
times as long. So nothing is kept unless `--keep_freed_memory` asks for it.

Source: mallopt(3) of the Linux man-pages. A thread's own arena cannot hold a block beyond 64 MiB
(HEAP_MAX_SIZE of glibc), so that the threads which run programs must use the main one.
"""

import ctypes
import platform

from dawnjax.errors import ConfigError

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
"""Parameters of mallopt, from glibc's malloc.h."""


def keep_freed() -> None:
    """Has this process keep what it frees, from now to its end.

    To be called before JAX's first use of a device: threads that exist keep their arenas.

    Raises:
      ConfigError: The C library is not glibc.
    """
    library = platform.libc_ver()[0] or "another C library"
    if library != "glibc":
        raise ConfigError(
            f"keep_freed_memory=true needs glibc, and this Python runs on {library}; leave it out"
        )
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, value in ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1)):
        mallopt(parameter, value)
