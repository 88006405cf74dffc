"""A study's trials as an array job of Slurm.

Each trial is `dawnjax study ... --trial=K`, and Slurm counts K. The machines share the study's
folder; the command without `--trial` then makes the result.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dawnjax.errors import ConfigError, RunError


def submitit() -> Any:
    """Load submitit; `ConfigError` says how to install it."""
    try:
        import submitit as library  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError("--runner=slurm needs submitit: pip install -e '.[slurm]'") from None
    return library


def submit_to_slurm(
    argv: Sequence[str], trials: int, out: Path, settings: Mapping[str, str]
) -> str:
    """Submit an array job with a task for each trial and return its number.

    Slurm's files go to `slurm` in `out`.

    Args:
      argv: The study's command line after `dawnjax study`.
      trials: Number of trials.
      settings: Parameters of submitit's executor: `slurm_partition=gpu`, `timeout_min=60`.

    Raises:
      ConfigError: submitit does not know a setting.
      RunError: Slurm refused the job.
    """
    library = submitit()
    command = [sys.executable, "-m", "dawnjax", "study", *argv]
    try:
        executor = library.AutoExecutor(folder=out / "slurm", cluster="slurm")
        executor.update_parameters(
            name="dawnjax", **{name: _number(value) for name, value in settings.items()}
        )
        with executor.batch():
            jobs = [
                executor.submit(library.helpers.CommandFunction([*command, f"--trial={trial}"]))
                for trial in range(trials)
            ]
    except (RuntimeError, NameError, ValueError, TypeError) as error:
        raise ConfigError(f"--runner=slurm: {' '.join(str(error).split())[:200]}") from None
    except (library.core.utils.FailedJobError, OSError) as error:
        raise RunError(f"Slurm refused the job: {' '.join(str(error).split())[:200]}") from None
    return str(jobs[0].job_id).partition("_")[0]


def _number(value: str) -> int | str:
    return int(value) if re.fullmatch(r"\d+", value) else value
