"""Checks of a config's fields by their names, which say what they are, the same in all variants."""

import dataclasses
from typing import Any

from dawnjax.errors import ConfigError
from dawnjax.optim.update_rules import PiecewiseLinear, PiecewiseStep, RmsProp

_WEIGHT_DECAYS = ("weight_decay", "sgd_weight_decay")
"""Fields that are rates; the other `..._decay` are fractions that a step keeps."""


def require(holds: bool, name: str, value: Any, rule: str) -> None:
    """Refuses a value of a field.

    Args:
      holds: Whether the value is allowed.
      name: The field, as its flag is called.
      value: Its value.
      rule: What it must do, such as `be 1 or more`.

    Raises:
      ConfigError: It is not.
    """
    if not holds:
        raise ConfigError(f"{name}={value!r} must {rule}")


def check_model(model: Any) -> None:
    """Refuses sizes and rates that no model can be made with.

    Args:
      model: The config of one of this package's models.

    Raises:
      ConfigError: Names the field, its value and what is allowed.
    """
    for field in dataclasses.fields(model):
        name, value = f"model.{field.name}", getattr(model, field.name)
        if isinstance(value, tuple):
            are_counts = bool(value) and all(item >= 1 for item in value)
            require(are_counts, name, value, "name one value or more, each 1 or more")
        elif isinstance(value, int) and not isinstance(value, bool):
            require(value >= 1, name, value, "be 1 or more")
        elif field.name.endswith(("_momentum", "_rate")):
            require(0 <= value < 1, name, value, "lie in [0, 1)")
        elif field.name.endswith("_keep"):
            require(0 < value <= 1, name, value, "lie in (0, 1]")
        elif field.name.endswith(("_epsilon", "_width_fraction", "logit_scale")):
            require(value > 0, name, value, "be above 0")
        elif field.name.endswith(("_std", "_weight")):
            require(value >= 0, name, value, "be 0 or more")
    sizes, widths = getattr(model, "stage_sizes", ()), getattr(model, "stage_widths", ())
    rule = f"have as many values as model.stage_sizes={sizes!r}: one for each stage"
    require(len(sizes) == len(widths), "model.stage_widths", widths, rule)


def check_optimizer(optimizer: Any) -> None:
    """Refuses rates and fractions out of range.

    Raises:
      ConfigError: Names the field, its value and what is allowed.
    """
    for field in dataclasses.fields(optimizer):
        name, value = f"optimizer.{field.name}", getattr(optimizer, field.name)
        is_fraction = field.name.endswith(("momentum", "_decay")) or field.name.startswith("beta_")
        if is_fraction and field.name not in _WEIGHT_DECAYS:
            require(0 <= value < 1, name, value, "lie in [0, 1)")
        elif not isinstance(value, bool | str | tuple):
            require(value >= 0, name, value, "be 0 or more")
    if isinstance(optimizer, RmsProp):
        require(optimizer.decay < 1, "optimizer.decay", optimizer.decay, "be below 1")


def check_schedule(schedule: Any) -> None:
    """Refuses fractions out of range, and knots that do not ascend or lack a value.

    Raises:
      ConfigError: Names the field, its value and what is allowed.
    """
    for name in ("initial_fraction", "final_fraction", "least_fraction"):
        value = getattr(schedule, name, 0.0)
        require(0 <= value <= 1, f"schedule.{name}", value, "lie in [0, 1]")
    for name in ("power", "rate", "every_epochs", "cycle_epochs", "height_factor"):
        value = getattr(schedule, name, 1.0)
        require(value > 0, f"schedule.{name}", value, "be above 0")
    for places, values in (("boundary_epochs", "factors"), ("knot_epochs", "fractions")):
        epochs, levels = getattr(schedule, places, ()), getattr(schedule, values, ())
        require(
            len(epochs) == len(levels),
            f"schedule.{values}",
            levels,
            f"have as many values as schedule.{places}={epochs!r}",
        )
        is_ascending = list(epochs) == sorted(epochs) and min(epochs, default=0) >= 0
        require(is_ascending, f"schedule.{places}", epochs, "be 0 or more and ascend")
        require(min(levels, default=0) >= 0, f"schedule.{values}", levels, "be 0 or more")
    if isinstance(schedule, PiecewiseLinear):
        require(bool(schedule.knot_epochs), "schedule.knot_epochs", (), "name a knot")
    if isinstance(schedule, PiecewiseStep) and schedule.boundary_epochs:
        require(
            schedule.boundary_epochs[0] >= schedule.warmup_epochs,
            "schedule.boundary_epochs",
            schedule.boundary_epochs,
            f"not lie within the warm-up of {schedule.warmup_epochs:g} epochs",
        )
