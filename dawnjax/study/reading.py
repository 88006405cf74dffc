"""Reading a study: its design from `study.json`, its trials from their logs. Loads no JAX."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax.analysis import our_runs
from dawnjax.analysis.our_runs import OurRun
from dawnjax.errors import ConfigError, RunError
from dawnjax.limits import check_fields
from dawnjax.runs.directory import RunDirectory
from dawnjax.runs.logged_run import FINAL_STATUSES
from dawnjax.study.design import Arm, Study, StudyFolder, Trial
from dawnjax.study.looks import Row


def read_trial(trial: Trial, out: Path) -> OurRun | None:
    """What a trial has so far; None where it has not begun, or its log says too little."""
    if not RunDirectory(trial.directory(out)).experiment_file.exists():
        return None
    with contextlib.suppress(RunError):
        return our_runs.read_run(trial.directory(out))
    return None


def trials_over(trials: Sequence[Trial], out: Path) -> dict[Trial, OurRun]:
    """The trials that count, each with what it has."""
    runs = {trial: read_trial(trial, out) for trial in trials}
    return {trial: run for trial, run in runs.items() if run is not None and is_over(run)}


def is_over(run: OurRun | None) -> bool:
    """Whether a trial counts: it reached, spent its budget, diverged, or failed.

    A trial that was interrupted or killed goes on with the study. One that failed is a result: its
    folder must be removed to try it again.
    """
    return run is not None and run.result.status in (*FINAL_STATUSES, "failed")


def row_of(run: OurRun) -> Row | None:
    """Time and success of a trial; None if its clock never started."""
    result, spent = run.result, run.spent.seconds
    reached = result.time_to_accuracy_seconds is not None
    seconds = result.time_to_accuracy_seconds if reached else spent
    return None if seconds is None else Row(seconds, reached, tuple(result.first_losses))


def record_of(
    study: dict[str, Any], arms: tuple[Arm, ...], looks_made: list[list[float]] | None = None
) -> dict[str, Any]:
    """Content of `study.json`: enough to read the study without its experiment's code.

    Args:
      study: The study as JSON.
      arms: Its arms.
      looks_made: The looks at it so far (`looks.looks_made`).
    """
    record = {"schema_version": 1, "study": study, "arms": [arm._asdict() for arm in arms]}
    return {**record, "looks_made": looks_made or []}


def read_study(path: Path) -> tuple[Study, tuple[Arm, ...]] | None:
    """Reads a study's folder; None where there is no `study.json`.

    Raises:
      RunError: The file is damaged.
    """
    folder = StudyFolder(path)
    try:
        record = folder.read()
        if record is None:
            return None
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record["study"].items()
        }
        study = dataclasses.replace(Study(), **values)
        check_fields(study)
        arms = tuple(
            Arm(str(arm["name"]), tuple(map(str, arm["flags"])), int(arm["devices"]))
            for arm in record["arms"]
        )
        if not arms or len({arm.folder for arm in arms}) < len(arms):
            raise ValueError("its arms have no names of their own")
    except KeyError as error:
        raise RunError(f"{folder.file} is damaged: it has no {error}") from None
    except (ConfigError, TypeError, ValueError) as error:
        raise RunError(f"{folder.file} is damaged: {error}") from None
    return study, arms
