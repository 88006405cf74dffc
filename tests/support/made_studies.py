"""Studies whose trials were written and not trained."""

from pathlib import Path

from made_runs import write_run

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.study.design import Study, arms_of, trials_of

DIGITS = load_experiment("digits")


def made_study(out: Path, seconds: dict[str, list[float | None]]) -> tuple:
    """A grid whose trials were written and not trained, with times of each arm by seed."""
    values = ",".join(seconds)
    study = Study(experiment="digits", kind="grid", axes=(f"num_epochs={values}",), seeds=6)
    of_arms = arms_of(study, (), DIGITS)
    ordered = trials_of(study, of_arms)
    for trial in ordered:
        times = seconds[trial.arm.flags[0].partition("=")[2]]
        if trial.seed < len(times):
            write_run(trial.directory(out), seed=trial.seed, seconds=times[trial.seed])
    return study, of_arms, ordered
