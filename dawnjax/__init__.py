"""DawnJAX: a time-to-accuracy benchmark and analysis suite for JAX."""

import time

__version__ = "0.1.0"

PROGRAM_START = time.perf_counter() - time.process_time()
"""When this program began, by `time.perf_counter`.

That is the CPU time of this process, of Python's own start, before this line ran. The kernel's
record of a process says another thing: `bash -c "A && dawnjax train"` ends as A's own process.
"""
