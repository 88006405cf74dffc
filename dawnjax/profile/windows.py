"""Profiled windows of a run directory, and the files of each."""

import math
import zlib
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from dawnjax import records
from dawnjax.errors import ConfigError

PROGRAM_FILE = "train_program.txt.gz"
CAPTURE_FILE = "capture.json"

_MOST_PROGRAM_BYTES = 2**28
_MOST_CAPTURE_BYTES = 2**26
"""Limits for the program's text (of ResNet-50: some MB) and for `capture.json`."""


class _Peaks(TypedDict):
    flops_per_second: float
    bytes_per_second: float
    spread: float


class _Capture(TypedDict):
    """Fields of `capture.json` that a profile reads; steps are `(first, last)`."""

    process_index: int
    platform: str
    device_kind: str
    num_devices: int
    mesh: NotRequired[dict[str, int]]
    machine_devices: int
    machine_processes: NotRequired[int]
    machine_cores: int
    module: str
    steps: tuple[int, int]
    stage: NotRequired[dict[str, Any] | None]
    step_seconds: float
    model_flops_per_step: float | None
    model_flops_reason: str
    executed_dtype: str
    measured_peaks: _Peaks | None
    in_run: NotRequired[bool]
    real_step_seconds: NotRequired[list[float]]
    slowest_twin_step_seconds: NotRequired[list[float]]
    traced_slowest_twin_step_seconds: NotRequired[float | None]
    twin_reason: NotRequired[str]
    shortest_runs: dict[str, list[int]]
    neighbours: NotRequired[list[list[tuple[int, int]]]]
    least_wait_seconds_per_step: NotRequired[float | None]


def read_files(folder: Path) -> tuple[dict[str, Any], str]:
    """Read a window's `capture.json` and the program's text."""
    try:
        capture = records.read_json(folder / CAPTURE_FILE, dict[str, Any], _MOST_CAPTURE_BYTES)
        typed = records.convert(capture, _Capture, others=True)
        first, last = typed["steps"]
        if min(typed.get("mesh", {}).values(), default=1) < 1:
            raise records.FieldError("its mesh has an axis below 1")
        if not (first < last and typed["machine_devices"] > 0 < typed["step_seconds"]):
            raise records.FieldError("its steps, devices or seconds are none of a profile")
        with records.open_plain(folder / PROGRAM_FILE) as file:
            text = records.gunzip(file, _MOST_PROGRAM_BYTES).decode()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ConfigError(f"{folder} holds no whole profile: {error}") from None
    return capture, text


def windows_of(run_dir: Path) -> dict[str, list[Path]]:
    """Captures of each profiled window, in the order of run and processes.

    `after_run` is the window at the run's end; `steps_20_24` has those steps. `ConfigError` if the
    directory has no window.
    """
    folders = [file.parent for file in sorted(run_dir.glob(f"profile/process_*/*/{CAPTURE_FILE}"))]
    if not folders:
        raise ConfigError(
            f"{run_dir} holds no profile: the run was made with --profile.after_run=false, or did "
            "not come to its end"
        )
    names = sorted({folder.name for folder in folders}, key=_place_in_run)
    return {name: [folder for folder in folders if folder.name == name] for name in names}


def _place_in_run(window: str) -> list[float]:
    # Times of files would not do: a copy may give all of them one. `after_run` has no number.
    return [int(word) if word.isdecimal() else math.inf for word in window.split("_")]


def newest_captures(run_dir: Path) -> list[Path]:
    """Captures of the run's last window, in the order of processes; `ConfigError` without any."""
    return list(windows_of(run_dir).values())[-1]
