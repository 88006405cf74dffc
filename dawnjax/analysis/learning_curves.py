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
    """Quartiles and median of a metric over trials, some seconds after `run_start`.

    `trials` counts those with a value there.
    """

    seconds: float
    trials: int
    low: float
    median: float
    high: float


def learning_curve(trials: Sequence[Trial]) -> list[CurvePoint]:
    """Median and spread of the metric over an entry's trials, against time.

    At each moment of an evaluation of any trial, a trial stands at its newest evaluation. It has no
    value before its first. One that reached its target or spent its budget keeps its last value:
    the median of the others alone would describe the slow trials. Any other trial has no value
    after its last evaluation. Points without a value for every trial are left out.
    """
    curves = [
        (curve, math.inf if trial.reached or trial.status == "not_reached" else curve[-1][0])
        for trial in trials
        if (curve := _curve(trial))
    ]
    places = sorted({at for curve, _ in curves for at, _ in curve})
    points = []
    for at in places:
        values = [_newest(curve, at) for curve, end in curves if curve[0][0] <= at <= end]
        if len(values) == len(curves):
            low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
            spread = {"low": float(low), "median": float(median), "high": float(high)}
            points.append(CurvePoint(seconds=at, trials=len(values), **spread))
    return points


def _curve(trial: Trial) -> list[tuple[float, float]]:
    points = [
        (row.seconds_since_run_start, row.value)
        for row in trial.evaluations
        if row.seconds_since_run_start is not None and row.seconds_since_run_start >= 0
        if not math.isnan(row.value)
    ]
    # By place alone: sorting by value too would reorder two evaluations of one moment.
    return sorted(points, key=lambda point: point[0])


def _newest(curve: list[tuple[float, float]], place: float) -> float:
    """Newest value at a place that is not before the curve's first."""
    return curve[bisect.bisect_right(curve, place, key=lambda point: point[0]) - 1][1]
