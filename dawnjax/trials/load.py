"""Trials that other work on their machine disturbed, by the load that their logs record.

The rule looks at processor time alone. A slow trial is not called disturbed for being slow, so to
leave disturbed trials out prefers no side.
"""

from collections.abc import Iterable, Sequence

from dawnjax.trials.trial import Trial


def taken(trial: Trial) -> float | None:
    """Fraction of the machine's processor time that others took; None where it is not known."""
    load = trial.load
    if not {"others_fraction", "stolen_fraction", "limit_fraction"} <= load.keys():
        return None
    return load["others_fraction"] + load["stolen_fraction"]


def is_disturbed(trial: Trial) -> bool:
    """True if others took more than the limit; False where that is not known."""
    fraction = taken(trial)
    return fraction is not None and fraction > trial.load["limit_fraction"]


def undisturbed(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if not is_disturbed(trial)]


def in_words(trials: Sequence[Trial]) -> str:
    """Disturbed trials, such as `seed 3 (12 %), seed 5 (8 %)`; empty without any."""
    return ", ".join(
        f"{trial.name if trial.seed is None else f'seed {trial.seed}'} "
        f"({100 * (taken(trial) or 0.0):.0f} %)"
        for trial in trials
        if is_disturbed(trial)
    )
