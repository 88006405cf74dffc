"""A run's quality on another labelled set beside that on its own: the drop, and how sure it is."""

import math
from collections.abc import Sequence
from typing import Any

from dawnjax.analysis.resampling import wilson
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
            drop["interval_95"] = difference_interval(*counts[0], *counts[1])
        else:
            drop["reason"] = (
                f"{metric.title} of two sets differs with their examples alone: compare runs on "
                "one set"
            )
    return result


def difference_interval(
    first: int, first_trials: int, second: int, second_trials: int
) -> list[float]:
    """The 95 % interval of the difference of two independent proportions, [low, high].

    With p - q the difference and (l, u) the score interval of each, it reaches
    sqrt((p - l_p)^2 + (u_q - q)^2) down and sqrt((u_p - p)^2 + (q - l_q)^2) up.

    Args:
      first: Successes of the first.
      first_trials: Its trials.
      second: Successes of the second.
      second_trials: Its trials.

    Source: R. G. Newcombe, "Interval estimation for the difference between independent
    proportions", Statistics in Medicine 17 (1998), method 10.
    """
    p, q = wilson(first, first_trials), wilson(second, second_trials)
    # A proportion has both bounds.
    assert p.low is not None and p.high is not None
    assert q.low is not None and q.high is not None
    difference = p.value - q.value
    down = math.hypot(p.value - p.low, q.high - q.value)
    up = math.hypot(p.high - p.value, q.value - q.low)
    return [difference - down, difference + up]
