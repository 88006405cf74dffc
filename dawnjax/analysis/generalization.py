"""Drop of a run's quality from its own labelled set to another, with its interval."""

import math
from collections.abc import Sequence
from typing import Any

from dawnjax.statistics import proportions
from dawnjax.tasks.metric import Metric


def drops(
    metrics: Sequence[Metric], own: tuple[dict[str, Any], int], other: tuple[dict[str, Any], int]
) -> dict[str, dict[str, Any]]:
    """How much worse each metric is on another set than on the run's own.

    Args:
      metrics: The declarations of what was measured.
      own: Metrics on the run's own evaluation split, and its number of examples.
      other: Metrics on the other set, and its number of examples.

    Returns:
      For each metric that both have: `value`, positive where the other set is harder, whichever
      side is better, and `interval_95`, [low, high] of that difference if each set is a sample of
      its kind. Either is None where it does not follow, with `reason`.
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
            drop["reason"] = f"{metric.title} of one set is no finite number"
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
