"""What trials of the built-in experiments gave, and where: results, which the recipes do not hold.

`experiments/observations.json` has the rows of each experiment by its name.
"""

import dataclasses
import functools
from pathlib import Path

from dawnjax import records
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment_modules import experiment_names, load_experiment

FILE = Path(__file__).parents[1] / "experiments" / "observations.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """Results of an experiment's trials somewhere.

    Attributes:
      hardware: The machine, as a person would name it.
      trials: How many trials were run; all of them count.
      reached: How many of them reached the target.
      mean_time_to_accuracy_seconds: Mean over those that reached; None where none did.
      quality: Mean of the target metric at the end, over all trials.
      date: Day of the measurement, ISO 8601.
      epochs_to_target: Epochs of each trial that reached the target; empty where none were kept.
    """

    hardware: str
    trials: int
    reached: int
    mean_time_to_accuracy_seconds: float | None
    quality: float
    date: str
    epochs_to_target: tuple[float, ...] = ()


@functools.cache
def all_observations() -> dict[str, tuple[Observation, ...]]:
    return records.read_json(FILE, dict[str, tuple[Observation, ...]])


def observations_of(experiment: Experiment) -> tuple[Observation, ...]:
    """Observations of the built-in experiments with this recipe, whatever its name."""
    recipe = experiment.recipe_fields()
    return tuple(
        seen
        for name, rows in all_observations().items()
        if name in experiment_names() and load_experiment(name).recipe_fields() == recipe
        for seen in rows
    )
