"""Drop of a run's quality from its own labelled set to a second one, with its interval."""

import math
from collections.abc import Sequence
from typing import Any

from dawnjax.statistics import proportions
from dawnjax.tasks.metric import Metric


def drops(
    metrics: Sequence[Metric], own: tuple[dict[str, Any], int], other: tuple[dict[str, Any], int]
) -> dict[str, dict[str, Any]]:
    """Loss of quality in each metric on a second set, against the run's own.

    `own` and `other` hold the metrics on a set and its number of examples. `value` is positive
    where the second set is harder, whatever the metric's direction. `interval_95` is [low, high] if
    each set is a sample of its kind. Either is None where it cannot be computed, with `reason`.
    """
    result: dict[str, dict[str, Any]] = {}
    for metric in metrics:
        name = metric.name
        if name not in own[0] or name not in other[0]:
            continue
        better, worse = (own, other) if metric.direction == "at_least" else (other, own)
        drop: dict[str, Any] = {"value": None, "interval_95": None}
        result[name] = drop
        values = better[0][name], worse[0][name]
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
            drop["reason"] = f"{metric.title} of one set is not a finite number"
            continue
        drop["value"] = values[0] - values[1]
        if metric.is_proportion:
            counts = [(round(side[0][name] * side[1]), side[1]) for side in (better, worse)]
            interval = proportions.difference(*counts[0], *counts[1])
            drop["interval_95"] = [interval.low, interval.high]
        else:
            drop["reason"] = (
                f"{metric.title} of two sets differs with their examples alone: compare runs on "
                "one set"
            )
    return result
