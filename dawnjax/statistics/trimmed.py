"""Scores that leave out the fastest and the slowest trials, as MLPerf's: are two apart?"""

import math
from typing import NamedTuple

import numpy as np

from dawnjax.statistics.interval import t_tail
from dawnjax.statistics.sample import Sample


class _Trimmed(NamedTuple):
    mean: float
    variance: float
    freedom: int


def p_scores_differ(first: Sample, second: Sample, drops: int) -> float:
    """Probability of two scores so far apart if the true ones are equal; 1 where one has none.

    Yuen's test compares the scores themselves: means without `drops` trials at each end, with the
    variance of the sample in which each dropped trial takes the value of the next one kept.

    It counts the same unseen steps as `Sample.variance`.

    Source: K. K. Yuen, "The Two-Sample Trimmed t for Unequal Population Variances", Biometrika 61
    (1974).
    """
    sides = _trimmed(first, drops), _trimmed(second, drops)
    if sides[0] is None or sides[1] is None:
        return 1.0
    distance = abs(sides[0].mean - sides[1].mean)
    variances = [side.variance for side in sides if side]
    total = sum(variances)
    if not total:  # Equal times whose grid is not known: nothing is known of their variation.
        return 1.0
    parts = sum(side.variance**2 / side.freedom for side in sides if side)
    return 2 * t_tail(total**2 / parts, distance / math.sqrt(total))


def _trimmed(sample: Sample, drops: int) -> _Trimmed | None:
    # A trial that did not reach counts as the slowest.
    times = np.sort(np.where(sample.reached, sample.amounts, np.inf))
    kept = times[drops : len(times) - drops]
    if len(kept) < 2 or not np.isfinite(kept).all():
        return None
    replaced = np.clip(times, kept[0], kept[-1])
    scale = len(kept) * (len(kept) - 1)
    squares = float(replaced.var(ddof=1)) * (len(times) - 1) + sample.unseen_steps
    variance = squares / scale
    return _Trimmed(float(kept.mean()), variance, len(kept) - 1)
