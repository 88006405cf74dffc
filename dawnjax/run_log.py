"""The event log of one process: the only truth about a run.

Each process of a run appends to its own file, `log/process_00000.jsonl`, one JSON object a line.
An attempt is one process lifetime; attempts of one trial follow each other in one file. A line ends
with the CRC-32 of what is before it, so that a torn or damaged line is told from a whole one. The
file is only ever appended to.

Every event has:
  event: Its name, one of `EVENTS`.
  attempt: The attempt that wrote it, counted from 1.
  t: Seconds since that process started, from a clock that only goes forward.
  boot_seconds: The machine's clock since boot, which no one sets; null where there is none.
  unix_seconds: The wall clock, for people; no duration is computed from it where the machine's
    own clock can tell.
"""

import json
import os
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dawnjax.errors import RunError

SCHEMA_VERSION = 1

EVENTS = {
    "attempt_start": ("schema_version", "run_id", "process_index", "boot_id", "versions"),
    "experiment": ("experiment", "identity", "overrides", "run_options"),
    "devices": ("device_kind", "platform", "num_devices", "num_processes", "mesh"),
    "phase": ("name", "seconds"),
    "compiled": ("program", "seconds", "cache"),
    "run_start": (),
    "restored": ("step",),
    "train": ("step", "epoch", "loss", "steps", "seconds", "input_wait_seconds"),
    "first_losses": ("start_step", "losses"),
    "evaluation": ("step", "epoch", "metrics", "reached", "seconds"),
    "checkpoint": ("step",),
    "host_sample": ("cpu_seconds", "memory_bytes"),
    "host_summary": ("hosts",),
    "diverged": ("step", "loss"),
    "warning": ("message",),
    "attempt_end": ("status", "step"),
}
"""The events, each with the fields that it always has."""


def log_path(run_dir: Path, process_index: int) -> Path:
    """Gives the log file of one process."""
    return run_dir / "log" / f"process_{process_index:05d}.jsonl"
