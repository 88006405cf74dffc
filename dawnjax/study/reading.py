"""Read a study: its design from `study.json`, its trials from their logs. Loads no JAX."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from dawnjax.errors import RunError
from dawnjax.runs.directory import RunDirectory
from dawnjax.runs.logged_run import FINAL_STATUSES
from dawnjax.study.design import StudyFolder, StudyRecord, TrialPlan
from dawnjax.trials import ours
from dawnjax.trials.origin import Origin
from dawnjax.trials.trial import Trial


def read_trial(trial: TrialPlan, out: Path) -> Trial | None:
    """A trial's run so far; None if it has not begun or its log has too little."""
    if not RunDirectory(trial.directory(out)).experiment_file.exists():
        return None
    with contextlib.suppress(RunError):
        return ours.read_run(trial.directory(out))
    return None


def trials_over(
    trials: Sequence[TrialPlan], out: Path, origins: Mapping[str, Origin]
) -> dict[TrialPlan, Trial]:
    """Finished trials with their runs.

    Args:
      origins: Origin of an arm's trials, by the arm's name.

    Raises:
      RunError: A folder of a trial holds another run.
    """
    runs = {}
    for trial in trials:
        run = read_trial(trial, out)
        if run is not None:
            runs[trial] = run
    refuse_strangers(runs, out, origins)
    return {trial: run for trial, run in runs.items() if is_over(run)}


def refuse_strangers(
    runs: Mapping[TrialPlan, Trial], out: Path, origins: Mapping[str, Origin]
) -> None:
    """Refuse a run that is not a trial of the study: another recipe, seed or system, or a copy.

    The first trial of an arm decides on devices, processes and mesh, and on the origin where
    `origins` lacks the arm.

    Raises:
      RunError: Names the folder, and how its run differs.
    """
    known, layouts, by_id = dict(origins), {}, {}
    for trial, run in runs.items():
        expected = known.setdefault(trial.arm.name, run.origin)
        why = run.origin.difference(expected)
        devices = run.num_devices
        layout = run.system.layout
        first_layout = layouts.setdefault(trial.arm.name, layout)
        other = [name for name, value in layout.items() if value != first_layout[name]]
        if run.seed != trial.seed:
            why = f"its seed is {run.seed}"
        elif trial.arm.devices and devices != trial.arm.devices:
            why = f"it ran on {devices} devices"
        elif run.chooses != trial.chooses:
            why = "it chose a recipe" if run.chooses else "it is not marked as a choosing trial"
        elif other and not why:
            name = other[0]
            why = f"it ran with {name}={layout[name]}, and another trial of the arm with "
            why += f"{first_layout[name]}"
        first = by_id.setdefault(run.run_id, trial)
        if first is not trial:
            why = why or f"it is a copy of {_place(first)}"
        if why:
            raise RunError(
                f"{_place(trial)} is not a trial of the study {out.resolve().name}: {why}; remove "
                "it, and run the same command to train it again"
            )


def _place(trial: TrialPlan) -> str:
    """Folder within the study's, because a page shows no absolute paths."""
    return str(trial.directory(Path()))


def is_over(run: Trial | None) -> bool:
    """True if a trial counts: it reached, spent its budget, diverged, or failed.

    A trial that was interrupted or killed resumes with the study. A failed trial is a result;
    remove its folder to repeat it.
    """
    return run is not None and run.status in (*FINAL_STATUSES, "failed")


def read_study(path: Path) -> StudyRecord | None:
    """Content of `study.json` in a folder; None where there is none, `RunError` if damaged."""
    folder = StudyFolder(path)
    try:
        return folder.read()
    except (OSError, ValueError) as error:
        raise RunError(f"{folder.file} is damaged: {error}") from None


def arm_at(path: Path) -> tuple[Path, str]:
    """Folder and name of the arm at `STUDY/ARM` or in that folder; else the path and no name."""
    home = path.resolve().parent
    for study in (home, home.parent):
        with contextlib.suppress(RunError):
            record = read_study(study)
            for arm in record["arms"] if record else ():
                folder = study / "trials" / arm.folder
                if path.exists() and folder == path.resolve():
                    return path, arm.name
                if not path.exists() and path.name in (arm.name, arm.folder):
                    return folder, arm.name
    return path, ""
