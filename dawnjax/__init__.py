"""DawnJAX: a time-to-accuracy benchmark and analysis suite for JAX.

    import dawnjax

    result = dawnjax.run("digits", seed=1, run_dir="runs/digits")
    print(result.status, result.time_to_accuracy_seconds)
    same = dawnjax.load_run("runs/digits")

`__init__.pyi` has the types: everything imports this module, so it imports nothing of DawnJAX.
"""

import importlib
import time
from typing import Any

__version__ = "0.1.0"

program_start = time.perf_counter()
"""When this program began, by `time.perf_counter`: at its first line, before all other imports.

Python's own start, some hundredths of a second, is before it. The process start time from the
kernel would be wrong: under `bash -c "A && dawnjax train"` bash may exec this program, and the
process's age and CPU time then include A. A command that is called from Python begins at the call.
"""

runs_before = 0
"""Runs that this process made before the one that it makes now. They paid for the imports and
filled the cache of compiled programs, so the total of this one would be too short."""


def __getattr__(name: str) -> Any:
    """Loads `run` and `load_run` when they are asked for, and what they need with them."""
    if name not in ("run", "load_run"):
        raise AttributeError(f"module 'dawnjax' has no attribute {name!r}")
    return getattr(importlib.import_module("dawnjax.api"), name)
