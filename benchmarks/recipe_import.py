"""Import the code that PyTorch's side reads its recipe with, and time the import.

A PyTorch user needs neither JAX nor Flax, so PyTorch's totals leave these seconds out.
"""

import time

# PyTorch's own, with NumPy, so it comes before the clock.
import torch  # noqa: F401  # pyright: ignore[reportMissingImports]

_start = time.perf_counter()
import dawnjax.config.experiment  # noqa: E402
import dawnjax.optim.optimizers  # noqa: E402, F401

SECONDS = time.perf_counter() - _start
