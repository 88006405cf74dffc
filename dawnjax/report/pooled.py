"""Runs of one experiment, one origin and one system, by a name that tells them apart."""

from collections.abc import Sequence

from dawnjax.trials.origin import Made
from dawnjax.trials.trial import Trial


def variant(run: Trial) -> str:
    """The fields that flags changed, in words; empty if none did."""
    return ", ".join(f"{name}={value}" for name, value in sorted(run.overrides.items()))


def changed(run: Trial) -> str:
    """Name of a run's experiment with its changes."""
    return " ".join(filter(None, [run.experiment, variant(run)]))


def pooled(runs: Sequence[Trial]) -> list[tuple[str, list[Trial]]]:
    """Runs of one origin on one system, by a name that has what sets them apart."""
    names: dict[str, dict[Made, list[Trial]]] = {}
    for run in runs:
        names.setdefault(changed(run), {}).setdefault(run.made, []).append(run)
    groups = []
    for name, of_name in names.items():
        common = set.intersection(*(set(made.words) for made in of_name))
        for made, group in of_name.items():
            differs = ", ".join(word for word in made.words if word not in common)
            groups.append((f"{name} ({differs})" if differs else name, group))
    return groups
