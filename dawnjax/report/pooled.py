"""Runs of one experiment, one origin and one system, by a unique name."""

from collections.abc import Sequence

from dawnjax.trials.labels import names_apart
from dawnjax.trials.origin import Made
from dawnjax.trials.trial import Trial


def variant(run: Trial) -> str:
    """The fields that flags changed, in words; empty if none did."""
    return ", ".join(f"{name}={value}" for name, value in sorted(run.overrides.items()))


def pooled(runs: Sequence[Trial]) -> list[tuple[str, list[Trial]]]:
    """Runs of one origin on one system, by a name that has what sets them apart."""
    groups: dict[tuple[str, Made], list[Trial]] = {}
    for run in runs:
        changed = " ".join(filter(None, [run.experiment, variant(run)]))
        groups.setdefault((changed, run.made), []).append(run)
    names = names_apart([name for name, _ in groups], [_details(made) for _, made in groups])
    return list(zip(names, groups.values(), strict=True))


def _details(made: Made) -> tuple[str, ...]:
    system, origin = made.system, made.origin
    divided = f"{system.layout['mesh']}, {system.num_processes} processes"
    return str(system), divided, ", ".join(origin.options), f"identity {origin.identity}"
