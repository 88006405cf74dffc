"""A log that `dawnjax compare` reads, from any program. Copy this file: it needs Python alone.

    from log_lines import LogLines

    log = LogLines("runs/a/seed_1.jsonl", seed=1)
    log(step=step, val_loss=loss)  # at each evaluation

Each call writes a line such as `{"step": 100, "seconds": 12.3, "seed": 1, "val_loss": 3.4}`. The
clock begins when the log is made: make it where your clock shall begin, such as after compilation.
"""

import json
import os
import time
from typing import Any


class LogLines:
    """Log of one trial.

    Args:
      path: A new file; an existing file is refused, because a file must hold one trial.
      about: Facts that every line repeats, such as `seed=1`.
    """

    def __init__(self, path: str, **about: Any):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        # Written a line at a time, so that a run which is killed leaves what it measured.
        self._file = open(path, "x", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._about = about
        self._start = time.perf_counter()

    def __call__(self, step: int, **measured: Any) -> None:
        """Write a line with the step, the seconds since the log was made, and what was measured."""
        seconds = round(time.perf_counter() - self._start, 6)
        # A tensor of one number becomes that number, which waits for its device.
        numbers = {
            name: value if isinstance(value, str | int | None) else float(value)
            for name, value in measured.items()
        }
        row = {"step": step, "seconds": seconds, **self._about, **numbers}
        self._file.write(json.dumps(row) + "\n")
