"""Profiled windows of a run directory, and the files of each."""

import math
import zlib
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.records.bounds import Amount, Count, Place, Rate, Seconds, Step, StepSeconds, Text

PROGRAM_FILE = "train_program.txt.gz"
CAPTURE_FILE = "capture.json"

_MOST_PROGRAM_BYTES = 2**28
_MOST_CAPTURE_BYTES = 2**26
"""Limits for the program's text (of ResNet-50: some MB) and for `capture.json`."""


class _Peaks(TypedDict):
    flops_per_second: Rate
    bytes_per_second: Rate
    spread: Seconds


class _Capture(TypedDict):
    """Fields of `capture.json` that a profile reads; steps are `(first, last)`."""

    process_index: Place
    platform: Text
    device_kind: Text
    num_devices: Count
    mesh: NotRequired[dict[str, Count]]
    machine_devices: Count
    machine_processes: NotRequired[Count]
    machine_cores: Count
    module: Text
    steps: tuple[Step, Step]
    stage: NotRequired[dict[str, Any] | None]
    step_seconds: StepSeconds
    model_flops_per_step: Amount | None
    model_flops_reason: Text
    executed_dtype: Text
    measured_peaks: _Peaks | None
    in_run: NotRequired[bool]
    real_step_seconds: NotRequired[list[StepSeconds]]
    slowest_twin_step_seconds: NotRequired[list[StepSeconds]]
    traced_slowest_twin_step_seconds: NotRequired[StepSeconds | None]
    twin_reason: NotRequired[Text]
    shortest_runs: dict[str, list[int]]
    neighbours: NotRequired[list[list[tuple[int, int]]]]
    least_wait_seconds_per_step: NotRequired[Seconds | None]


def read_files(folder: Path) -> tuple[dict[str, Any], str]:
    """Read a window's `capture.json` and the program's text."""
    try:
        capture = records.read_json(folder / CAPTURE_FILE, dict[str, Any], _MOST_CAPTURE_BYTES)
        typed = records.convert(capture, _Capture, others=True)
        if not typed["steps"][0] < typed["steps"][1]:
            raise records.FieldError(f"its steps {typed['steps']} are none")
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
