"""Time to each of several thresholds, and learning curves with their spread.

Source of the learning curves: arXiv 1806.01427, Figure 2.
"""

import bisect
import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from dawnjax.analysis.entry_tables import COMPILATION, WHAT, mean_compile_seconds, what
from dawnjax.page.table import Column, Table
from dawnjax.page.words import NOT_REACHED
from dawnjax.trials.group import Entry, Trial, reaches

NO_TIME = "time not known"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThresholdTime:
    """Times of an entry's trials to one threshold, in the unit of the evaluations.

    Attributes:
      seconds: Of each trial; None if it did not reach, or at an unknown moment.
      mean_seconds: Mean of all trials; None unless all reached at a known moment, because a mean of
        some is that of the fast ones.
    """

    threshold: float
    trials: int
    reached: int
    seconds: tuple[float | None, ...]
    mean_seconds: float | None


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


def time_to_threshold(entry: Entry, threshold: float) -> ThresholdTime:
    """Times of an entry's trials to a threshold of the target's metric.

    A moment before `run_start` is a stamp of another clock and counts as unknown.
    """
    seconds: list[float | None] = []
    reached, direction = 0, entry.target.direction
    for trial in entry.trials:
        row = next((r for r in trial.evaluations if reaches(r.value, threshold, direction)), None)
        reached += row is not None
        moment = None if row is None else row.seconds_since_run_start
        seconds.append(None if moment is None or moment < 0 else moment)
    known = [moment for moment in seconds if moment is not None]
    complete = bool(known) and len(known) == len(entry.trials)
    return ThresholdTime(
        threshold=threshold,
        trials=len(entry.trials),
        reached=reached,
        seconds=tuple(seconds),
        # fsum, so that the order of the trials does not change the last digit.
        mean_seconds=math.fsum(known) / len(known) if complete else None,
    )


def threshold_table(entries: Iterable[Entry], thresholds: Sequence[float]) -> Table:
    """Table with a row for each entry and threshold: mean time, or why there is none.

    Thresholds are in the evaluations' unit, which all entries share.
    """
    rows = []
    for entry in entries:
        if entry.kind != "training" or not any(trial.evaluations for trial in entry.trials):
            continue
        for time in (time_to_threshold(entry, level) for level in thresholds):
            cells = (time.threshold, time.trials, time.reached, seconds_or_why(time))
            rows.append((*what(entry).values(), *cells, mean_compile_seconds(entry)))
    return Table(
        name="thresholds",
        title="Time to each threshold",
        columns=(
            *WHAT,
            Column("threshold", "threshold", kind="number"),
            Column("trials", "trials", kind="integer"),
            Column("reached", "reached", kind="integer"),
            Column("mean_seconds", "mean time", "s", "number"),
            COMPILATION,
        ),
        rows=tuple(rows),
        notes=(
            "The end of the first evaluation that reaches the threshold, mean over the trials; no "
            "mean where not all trials reached it. Of a target with several metrics, the first.",
        ),
    )


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


def learning_curve_table(entries: Iterable[Entry], against: str = "epoch") -> Table:
    """Table of the learning curves of entries, with a row for each point."""
    rows = [
        (*what(entry).values(), point.at, point.trials, point.low, point.median, point.high)
        for entry in entries
        for point in learning_curve(entry.trials, against)
    ]
    unit = "s" if against == "seconds" else ""
    return Table(
        name=f"learning_curves_by_{against}",
        title=f"Learning curves against {'time' if against == 'seconds' else 'epoch'}",
        columns=(
            *WHAT,
            Column(against, against, unit, "number"),
            Column("trials", "trials", kind="integer"),
            Column("low", "first quartile", kind="number"),
            Column("median", "median", kind="number"),
            Column("high", "third quartile", kind="number"),
        ),
        rows=tuple(rows),
        notes=(
            "The metric in the entry's unit, each trial at its newest evaluation; epochs by the "
            "log's own labels.",
            "A trial that reached its target or spent its budget keeps its last value. Points at "
            "which some trial has no value are left out.",
        ),
    )


def seconds_or_why(time: ThresholdTime) -> float | str:
    """Mean time to a threshold, or the words for its absence."""
    if time.mean_seconds is not None:
        return time.mean_seconds
    if time.reached == 0:
        return NOT_REACHED
    if time.reached < time.trials:
        return f"{time.reached} of {time.trials} reached"
    return NO_TIME


def _curve(trial: Trial, against: str) -> list[tuple[float, float]]:
    points = []
    for row in trial.evaluations:
        place = row.epoch if against == "epoch" else row.seconds_since_run_start
        if place is not None and (against == "epoch" or place >= 0):
            points.append((place, row.value))
    # By place alone: sorting by value too would reorder two evaluations of one moment.
    return sorted(points, key=lambda point: point[0])


def _newest(curve: list[tuple[float, float]], place: float) -> float:
    """Newest value at a place that is not before the curve's first."""
    return curve[bisect.bisect_right(curve, place, key=lambda point: point[0]) - 1][1]
