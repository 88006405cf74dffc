"""What trials of the built-in experiments gave, and where: results, apart from the recipes."""

import functools
from pathlib import Path

from dawnjax import records
from dawnjax.config.experiment import Experiment, Observation
from dawnjax.config.experiment_modules import experiment_names, load_experiment

FILE = Path(__file__).parents[1] / "experiments" / "observations.json"
"""Rows of each experiment by its name."""


@functools.cache
def all_observations() -> dict[str, tuple[Observation, ...]]:
    return records.read_json(FILE, dict[str, tuple[Observation, ...]])


def observations_of(experiment: Experiment) -> tuple[Observation, ...]:
    """Observations that an experiment states, otherwise those of shipped experiments with this "
    "recipe."""
    if experiment.observations:
        return experiment.observations
    recipe = experiment.recipe_fields()
    return tuple(
        seen
        for name, rows in all_observations().items()
        if name in experiment_names() and load_experiment(name).recipe_fields() == recipe
        for seen in rows
    )
