"""DawnJAX: a time-to-accuracy benchmark and analysis suite for JAX."""

import time

__version__ = "0.1.0"

program_start = time.perf_counter()
"""When this program began, by `time.perf_counter`: at its first line, before all other imports.

Python's own start, some hundredths of a second, is before it. What the kernel knows of a process
does not tell it: `bash -c "A && dawnjax train"` runs this program in the shell's process, whose age
and CPU time are those of A too. A command that is called from Python begins at the call.
"""
