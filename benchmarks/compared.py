"""Ratios and differences of two sides' trials, computed whenever they are shown.

Result files hold trials and no statistics, so every table has the intervals of
`dawnjax.statistics`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import machine_load
from dawnjax.statistics import interval
from dawnjax.statistics.contrast import ratio_of_means
from dawnjax.statistics.interval import Interval

Trial = dict[str, Any]

RATE = "train seconds an epoch"
"""A trial that missed the target has this too."""

TOTAL = "total with compilation, s"
QUANTITIES: dict[str, Callable[[Trial], float]] = {
    "time to accuracy, s": lambda trial: trial["time_to_accuracy_seconds"],
    TOTAL: lambda trial: trial["total_seconds_to_accuracy"],
    RATE: lambda trial: trial["train_seconds"] / trial["epochs"],
    "epochs": lambda trial: trial["epochs"],
}


def trial_ratios(
    ours: Sequence[Trial], theirs: Sequence[Trial]
) -> dict[str, tuple[float, float, Interval]]:
    """Our mean, their mean, and ours over theirs, of each quantity.

    Seeds of the sides are unrelated. Where a trial missed the target there is the rate alone: its
    duration is no time to accuracy. Where one crashed there is nothing.
    """
    trials = (*ours, *theirs)
    if any("error" in trial for trial in trials):
        return {}
    names = QUANTITIES if all(trial["reached"] for trial in trials) else [RATE]
    ratios = {}
    for name in names:
        of_trial = QUANTITIES[name]
        sides = [[float(of_trial(trial)) for trial in side] for side in (ours, theirs)]
        means = (float(np.mean(side)) for side in sides)
        unit = {RATE: None, "epochs": "epoch"}.get(name, "seconds_since_run_start")
        steps = [[unit and step_of(trial, unit) for trial in side] for side in (theirs, ours)]
        ratios[name] = (*means, ratio_of_means(sides[1], sides[0], (steps[0], steps[1])))
    return ratios


def step_of(trial: Trial, unit: str = "seconds_since_run_start") -> float | None:
    """Seconds or epochs between a trial's last two evaluations; None where it has fewer."""
    # Our rows are lists: epoch, value, seconds.
    place = {"epoch": 0, "seconds_since_run_start": 2}[unit]
    last = trial.get("evaluations", [])[-2:]
    ends = [row[unit] if isinstance(row, dict) else row[place] for row in last]
    return ends[1] - ends[0] if len(ends) == 2 else None


def trial_ratios_with_and_without_disturbed(
    ours: Sequence[Trial], theirs: Sequence[Trial]
) -> dict[str, tuple[float, float, Interval]]:
    """As `trial_ratios`, and the time to accuracy again without trials that others disturbed."""
    ratios = trial_ratios(ours, theirs)
    name = "time to accuracy, s"
    calm = [[t for t in side if not machine_load.is_disturbed(t)] for side in (ours, theirs)]
    if name in ratios and all(calm) and len(calm[0]) + len(calm[1]) < len(ours) + len(theirs):
        ratios[f"{name}, without disturbed trials"] = trial_ratios(*calm)[name]
    return ratios


def recorded(parts: Sequence[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Seconds and accuracies of our seeds in record mode."""
    seeds = [seed for part in parts for seed in part.get("seeds", [])]
    accuracies = [seed["metrics"]["top_1_accuracy"] for seed in seeds]
    return [seed["time_seconds"] for seed in seeds], accuracies


def beside_peer(
    parts: Sequence[dict[str, Any]], peer: dict[str, Any]
) -> tuple[Interval, Interval] | None:
    """Our time over a peer's, and our accuracy less its; None where a side has no run."""
    times, accuracies = recorded(parts)
    if not times or not peer["runs"]:
        return None
    ratio = ratio_of_means([run["time_seconds"] for run in peer["runs"]], times)
    their = [run["top_1_accuracy"] for run in peer["runs"]]
    return ratio, interval.difference(accuracies, their)
