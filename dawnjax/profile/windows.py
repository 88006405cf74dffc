"""The profiled windows of a run directory, and the files of each."""

import math
from pathlib import Path

from dawnjax.errors import ConfigError

PROGRAM_FILE = "train_program.txt.gz"

CAPTURE_FILE = "capture.json"


def windows_of(run_dir: Path) -> dict[str, list[Path]]:
    """Finds the profiled windows in a run directory, in the order of the run.

    Returns:
      For each window's name its captures, in the order of the processes. A run ends with
      `after_run`, whose name says so; `steps_20_24` is of those steps.

    Raises:
      ConfigError: There is none.
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
    """Finds the captures of the last window of a run directory, in the order of the processes.

    Raises:
      ConfigError: There is none.
    """
    return list(windows_of(run_dir).values())[-1]
