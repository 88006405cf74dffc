"""A run's quality on another labelled set beside that on its own: the drop, and how sure it is."""

import math
from typing import Any

from dawnjax.analysis.resampling import wilson

PROPORTIONS = ("top_1_accuracy", "top_5_accuracy")
"""Metrics that are shares of the examples, whose interval follows from the counts."""

HIGHER_IS_BETTER = (*PROPORTIONS, "bleu")


def drops(
    own: dict[str, Any], own_examples: int, other: dict[str, Any], other_examples: int
) -> dict[str, dict[str, Any]]:
    """Gives how much lower each metric is on the other set: own minus other.

    Args:
      own: Metrics on the run's own evaluation split.
      own_examples: Its examples.
      other: Metrics on the other set.
      other_examples: Its examples.

    Returns:
      For each metric that both have and that is better when higher: `value`, positive where the
      other set is harder, and `interval_95`, [low, high] of that difference if each set is a sample
      of its kind; None for BLEU, with `reason`.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in HIGHER_IS_BETTER:
        if name not in own or name not in other:
            continue
        drop: dict[str, Any] = {"value": own[name] - other[name]}
        if name in PROPORTIONS:
            drop["interval_95"] = difference_interval(
                round(own[name] * own_examples), own_examples,
                round(other[name] * other_examples), other_examples,
            )  # fmt: skip
        else:
            drop["interval_95"] = None
            drop["reason"] = (
                "BLEU of two sets differs with their sentences alone: compare runs on one set"
            )
        found[name] = drop
    return found


def difference_interval(
    first: int, first_trials: int, second: int, second_trials: int
) -> list[float]:
    """Gives the 95 % interval of the difference of two independent proportions, [low, high].

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
