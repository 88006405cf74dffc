"""Read a study: its design from `study.json`, its trials from their logs. Loads no JAX."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from dawnjax.analysis import our_runs
from dawnjax.analysis.our_run import OurRun
from dawnjax.errors import RunError
from dawnjax.runs.directory import RunDirectory
from dawnjax.runs.logged_run import FINAL_STATUSES
from dawnjax.study.design import Arm, PlannedTrial, Study, StudyFolder
from dawnjax.study.looks import Row


def read_trial(trial: PlannedTrial, out: Path) -> OurRun | None:
    """A trial's run so far; None where it has not begun, or its log says too little."""
    if not RunDirectory(trial.directory(out)).experiment_file.exists():
        return None
    with contextlib.suppress(RunError):
        return our_runs.read_run(trial.directory(out))
    return None


def trials_over(trials: Sequence[PlannedTrial], out: Path) -> dict[PlannedTrial, OurRun]:
    """Trials that are over, with their runs."""
    runs = {trial: read_trial(trial, out) for trial in trials}
    return {trial: run for trial, run in runs.items() if run is not None and is_over(run)}


def is_over(run: OurRun | None) -> bool:
    """True if a trial counts: it reached, spent its budget, diverged, or failed.

    A trial that was interrupted or killed resumes with the study. A failed trial is a result;
    remove its folder to repeat it.
    """
    return run is not None and run.result.status in (*FINAL_STATUSES, "failed")


def row_of(run: OurRun) -> Row | None:
    """Time and success of a trial; None if its clock never started."""
    result, spent = run.result, run.spent.seconds
    reached = result.time_to_accuracy_seconds is not None
    seconds = result.time_to_accuracy_seconds if reached else spent
    return None if seconds is None else Row(seconds, reached, tuple(result.first_losses))


def read_study(path: Path) -> tuple[Study, tuple[Arm, ...]] | None:
    """Study and arms in a folder; None where there is no `study.json`.

    Raises:
      RunError: The file is damaged.
    """
    folder = StudyFolder(path)
    try:
        record = folder.read()
    except (OSError, ValueError) as error:
        raise RunError(f"{folder.file} is damaged: {error}") from None
    return None if record is None else (record["study"], record["arms"])
