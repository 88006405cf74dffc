"""Epochs to the target, by the size of the batch.

    epochs(batch) = epochs(small batch) x (1 + batch / critical batch)

Both numbers are fitted on official results and MLPerf's reference points of the same benchmark; the
epochs double at the critical batch. Points to the planned target weigh more than points to another,
in the fit and in its spread alike. Without any point only the budget is known, which is a bound and
no estimate.

An interval is of a prediction, not of the fit. It holds the difference between recipes, and widens
with the distance of the batch from the points, as the errors of MLPerf's other benchmarks do
(`ERRORS`). More than `MOST_OCTAVES` beyond them nothing is predicted.

Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch Training" (arXiv 1812.06162),
equation 2.11, which gives the examples that a batch needs in this form.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from dawnjax.plan.epochs.interval import Interval, around, octaves_outside
from dawnjax.statistics.interval import t_quantile

SAME_TARGET, OTHER_TARGET = 0.06, 0.3
"""Standard deviations of the logarithm of a point: to the planned target, and to another one. At
one batch, ResNet-50 took 1.7 times as many epochs in MLPerf v0.5 (top-1 0.749, momentum and steps)
as in v1.0 to v4.0 (0.759, LARS), 0.53 in the logarithm."""

RECIPES = 0.3
"""Spread where settings of the recipe were changed: they move the epochs as much as that."""

ROUNDS = 0.16
"""Smallest spread. Of 24 reference points that MLPerf tuned anew at the same batch and target, 9 of
10 moved by less than 0.26 in the logarithm, the most by 0.30."""

ERRORS = ((0.0, 0.13), (0.5, 0.15), (1.0, 0.27), (2.0, 0.47))
"""Doublings of the batch beyond the points, at most, and the error of the logarithm that 9 of 10
predictions stay within: of each reference point of 21 MLPerf benchmarks, from the smallest batches,
from the largest, down to one alone, and from all others. Without a benchmark's own errors, 504 of
all 559 are within those of the others."""

ERROR_OF_3_OCTAVES = 0.86
"""The same from two to three doublings beyond the points."""

MOST_OCTAVES = ERRORS[-1][0]
"""Doublings beyond the points up to which a prediction says anything."""

NORMAL_90 = 1.645
"""Standard deviations from the centre of a normal distribution to the ends of its middle 90 %."""

CRITICAL_OF_ONE_BATCH = 3.0
"""Critical batch over the batch where one batch was counted, which shows no slope: the middle of
MLPerf's benchmarks. The error of a prediction is then 0.6 times that of constant epochs."""


class Point(NamedTuple):
    """Mean epochs to a target at a batch (examples a step), of some trials."""

    batch: int
    epochs: float
    target: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Epochs:
    """An estimate of the epochs to the target.

    Attributes:
      mean: The estimate; None where nothing is known.
      spread: Standard deviation of its logarithm.
      basis: Source of the estimate, or why there is none.
      source: One of the sources that `sources` names; empty where none knows.
      has_own_target: Whether some observations are to the experiment's own target.
    """

    mean: float | None
    spread: float
    basis: str
    source: str = ""
    has_own_target: bool = True

    def interval(self, first: float = 0.0) -> Interval:
        """Interval of the epochs; no run reaches its target before its first evaluation."""
        assert self.mean is not None, self.basis
        count = around(self.mean, self.spread)
        return dataclasses.replace(count, low=first) if count.low < first <= self.mean else count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Fitted epochs by batch: `small_batch_epochs + slope x batch`.

    Attributes:
      spread: Standard deviation of the logarithm of another point, within the batches.
      batches: Different batches of the points, ascending.
    """

    small_batch_epochs: float
    slope: float
    spread: float
    batches: tuple[int, ...]

    def at(self, batch: float) -> float:
        return self.small_batch_epochs + self.slope * batch

    def spread_at(self, batch: float) -> float:
        """Standard deviation of the logarithm of a prediction at a batch."""
        return spread_outside(self.spread, self.batches, batch)


def error_outside(octaves: float) -> float:
    """Spread of a prediction so many doublings of the batch beyond the points; 0 within them."""
    if not octaves:
        return 0.0
    largest = ERRORS[-1][1]
    error = next((error for most, error in ERRORS if octaves <= most), largest)
    return error / NORMAL_90


def spread_outside(spread: float, batches: Sequence[int], wanted: float) -> float:
    """A spread, widened by a batch's distance from the observed batches."""
    return math.hypot(spread, error_outside(octaves_outside(batches, wanted)))


def at_other_batch(count: float, counted: int, batch: float) -> float:
    """Epochs at a batch, given those at one counted batch."""
    critical = CRITICAL_OF_ONE_BATCH * counted
    return count * (critical + batch) / (critical + counted)


ONE_TRIAL = 0.25
"""Spread of the epochs of one trial: the largest from run to run of MLPerf's benchmarks, rounded
(unet3d 0.23, gpt3 0.26)."""

SMALLEST_TRIALS = 0.02
"""Spread where all trials took as many epochs, which evaluations once an epoch make look alike."""


def spread_of_trials(counts: Sequence[float]) -> float:
    """Standard deviation of the logarithm of a further trial's epochs, given some trials' epochs.

    Twice this deviation is half of Student's t interval for a further value.
    """
    if len(counts) < 2:
        return ONE_TRIAL
    logarithms = np.log(counts)
    deviation = float(np.std(logarithms, ddof=1)) * math.sqrt(1 + 1 / len(counts))
    return max(SMALLEST_TRIALS, t_quantile(len(counts) - 1, 0.95) / 2 * deviation)


def fit(points: Sequence[Point], target: float) -> Curve | None:
    """Fit the curve on points, those to the target first of all; None without any."""
    if not points:
        return None
    sizes = np.array([point.batch for point in points], float)
    wanted = np.array([point.epochs for point in points], float)
    deviations = [SAME_TARGET if p.target == target else OTHER_TARGET for p in points]
    scale = sizes.max()
    # Relative errors: each row is divided by what was observed. Neither number is below zero.
    rows = np.stack([np.ones_like(sizes), sizes / scale], axis=1) / wanted[:, None]
    if len(set(sizes)) == 1:  # which determine no slope
        rows = rows[:, :1] * (1 + 1 / CRITICAL_OF_ONE_BATCH)
    found, _ = nnls(rows / np.array(deviations)[:, None], 1 / np.array(deviations))
    small, large = (*found, found[0] / CRITICAL_OF_ONE_BATCH)[:2]
    curve = Curve(
        small_batch_epochs=float(small),
        slope=float(large / scale),
        spread=0.0,
        batches=tuple(sorted({point.batch for point in points})),
    )
    errors = np.log([curve.at(size) for size in sizes]) - np.log(wanted)
    weights = (min(deviations) / np.array(deviations)) ** 2
    freedom = max(1.0, float(weights.sum()) - 2)
    own = any(point.target == target for point in points)
    floor = math.hypot(ROUNDS, ERRORS[0][1] / NORMAL_90) if own else OTHER_TARGET
    spread = max(floor, math.sqrt(float(weights @ errors**2) / freedom))
    return dataclasses.replace(curve, spread=spread)
