"""Learning curves with their spread.

Source: arXiv 1806.01427, Figure 2.
"""

import bisect
import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dawnjax.trials.trial import Trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Quartiles and median of a metric over trials at one place of a learning curve.

    `at` is an epoch, or seconds since `run_start`; `trials` counts those with a value there.
    """

    at: float
    trials: int
    low: float
    median: float
    high: float


def learning_curve(trials: Sequence[Trial], against: str = "epoch") -> list[CurvePoint]:
    """Median and spread of the metric over an entry's trials, against `epoch` or `seconds`.

    At each moment of an evaluation of any trial, a trial stands at its newest evaluation. It has no
    value before its first. One that reached its target or spent its budget keeps its last value:
    the median of the others alone would be that of the slow trials. Any other trial has no value
    after its last evaluation. Points at which some trial has no value are left out.
    """
    if against not in ("epoch", "seconds"):
        raise ValueError(f"against is {against!r}; choose epoch or seconds")
    curves = [
        (curve, math.inf if trial.reached or trial.status == "not_reached" else curve[-1][0])
        for trial in trials
        if (curve := _curve(trial, against))
    ]
    places = sorted({at for curve, _ in curves for at, _ in curve})
    points = []
    for at in places:
        values = [_newest(curve, at) for curve, end in curves if curve[0][0] <= at <= end]
        if len(values) == len(curves):
            low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
            spread = {"low": float(low), "median": float(median), "high": float(high)}
            points.append(CurvePoint(at=at, trials=len(values), **spread))
    return points


def _curve(trial: Trial, against: str) -> list[tuple[float, float]]:
    points = []
    for row in trial.evaluations:
        place = row.epoch if against == "epoch" else row.seconds_since_run_start
        if not math.isnan(row.value) and place is not None and (against == "epoch" or place >= 0):
            points.append((place, row.value))
    # By place alone: sorting by value too would reorder two evaluations of one moment.
    return sorted(points, key=lambda point: point[0])


def _newest(curve: list[tuple[float, float]], place: float) -> float:
    """Newest value at a place that is not before the curve's first."""
    return curve[bisect.bisect_right(curve, place, key=lambda point: point[0]) - 1][1]
