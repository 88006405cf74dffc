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

__version__ = "0.2.0"

program_start = time.perf_counter()
"""Start of the program by `time.perf_counter`; Python's own start, some hundredths of a second, is
earlier. The kernel's start time of the process would be wrong: under `bash -c "A && dawnjax train"`
bash may exec this program, and the age of the process then includes A."""

runs_before = 0
"""Earlier runs of this process. They paid for imports and filled the cache of compiled programs, so
a later run's total would be too short."""


def __getattr__(name: str) -> Any:
    """Import these names on first use: `dawnjax --help` must not wait for JAX."""
    if name not in ("run", "load_run", "load_losses"):
        raise AttributeError(f"module 'dawnjax' has no attribute {name!r}")
    return getattr(importlib.import_module("dawnjax.api"), name)
