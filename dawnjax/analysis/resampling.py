"""Intervals for statistics of few trials: the bootstrap, and Wilson's for a proportion."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np

CONFIDENCE = 0.95
SEED = 0
RESAMPLES = 10_000

FEWEST_TRIALS = 5
"""A statistic of fewer trials has no interval, and sets of fewer are not told apart.

The bootstrap uses the observed values only, so its interval is too short for few trials. Simulated
with n normal times of one mean, CV 7 %, 2,000 resamples: how often the 95 % interval (BCa) of the
ratio of two sets' means leaves out 1 (2,000 pairs for each n), and how often that of the mean of
one set holds the true one (8,000 sets for each n):

| n | leaves out 1, of 100 | holds the mean, of 100 |
|---|---|---|
| 2 | 33 | 49 |
| 3 | 19 | 72 |
| 4 | 15 | 81 |
| 5 | 12 | 84 |
| 10 | 9 | 90 |
"""

Statistic = Callable[[np.ndarray], np.ndarray]
"""From `[resamples, trials, ...]` to `[resamples]`."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval.

    Attributes:
      value: The estimate.
      low: The lower end; None where the trials are too few for an interval.
      high: The upper end; None where it has no bound, or where there is no lower end.
      method: `percentile`, `bca` or `wilson`; `none` where the trials are too few.
    """

    value: float
    low: float | None
    high: float | None
    method: str


def wilson(successes: int, trials: int) -> Interval:
    """A proportion and its score interval, which also holds at 0 and at 1.

    Centre (p + z²/2n) / (1 + z²/n), half width z sqrt(p(1-p)/n + z²/4n²) / (1 + z²/n).

    Source: E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference",
    JASA 22 (1927).

    Raises:
      ValueError: There is no trial, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes in {trials} trials")
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    p = successes / trials
    scale = 1 + z * z / trials
    centre = (p + z * z / (2 * trials)) / scale
    half = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials)) / scale
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Interval(p, low, high, "wilson")


def bootstrap(
    samples: Sequence[np.ndarray] | Sequence[Sequence[float]],
    statistic: Callable[..., np.ndarray],
    *,
    method: str = "bca",
    resamples: int = RESAMPLES,
    seed: int = SEED,
    fewest: int = 2,
) -> Interval | None:
    """A statistic of independent samples and its bootstrap interval.

    Each sample is drawn from with replacement, apart from the others. `percentile` takes the
    quantiles of the statistic over the resamples; `bca` corrects them for bias and skewness, with
    the acceleration of the jackknife over all samples.

    Source: B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 13, 14.

    Args:
      samples: Each `[trials]` or `[trials, fields]`.
      statistic: From one array `[resamples, trials, ...]` a sample to `[resamples]`; infinite where
        it has no bound, such as where no trial of a resample reached.
      method: `percentile` or `bca`.
      resamples: How many.
      seed: Of the draws; the same seed gives the same interval.
      fewest: Trials that each sample must have for an interval; with fewer, from two on, the
        statistic is given without ends.

    Returns:
      The interval, with `percentile` as its method where the statistic without some trial is not
      finite, so that there is no jackknife. None where a sample has fewer than two trials, or the
      statistic or its lower end is not finite.
    """
    if method not in ("percentile", "bca"):
        raise ValueError(f"method is {method!r}; choose percentile or bca")
    arrays = [np.asarray(sample, np.float64) for sample in samples]
    if any(len(array) < 2 for array in arrays):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(*(array[None] for array in arrays))[0])
        if not math.isfinite(value):
            return None
        if any(len(array) < fewest for array in arrays):
            return Interval(value, None, None, "none")
        generator = np.random.default_rng(seed)
        drawn = [
            array[generator.integers(len(array), size=(resamples, len(array)))] for array in arrays
        ]
        replicates = statistic(*drawn)
        replicates = np.sort(np.where(np.isnan(replicates), np.inf, replicates))
        tail = (1 - CONFIDENCE) / 2
        levels = [tail, 1 - tail]
        if method == "bca":
            corrected = _bca_levels(levels, value, replicates, arrays, statistic)
            method, levels = ("percentile", levels) if corrected is None else ("bca", corrected)
    low, high = (_quantile(replicates, level) for level in levels)
    if not math.isfinite(low):
        return None
    return Interval(value, low, high if math.isfinite(high) else None, method)


def _bca_levels(
    levels: Sequence[float],
    value: float,
    replicates: np.ndarray,
    arrays: Sequence[np.ndarray],
    statistic: Callable[..., np.ndarray],
) -> list[float] | None:
    """Levels of the percentiles after correction for bias and acceleration."""
    normal = statistics.NormalDist()
    # Half of the ties count as below, so that a statistic with few values is not biased by them.
    ties = np.isclose(replicates, value, rtol=1e-12, atol=0)
    below = np.mean(np.where(ties, 0.5, replicates < value))
    edge = 0.5 / len(replicates)
    bias = normal.inv_cdf(float(min(max(below, edge), 1 - edge)))
    cubes = squares = 0.0
    for index, array in enumerate(arrays):
        without = [statistic(*_leave_out(arrays, index, trial))[0] for trial in range(len(array))]
        left = np.array(without)
        if not np.isfinite(left).all():
            return None
        # Influence of a trial of this sample, in its own scale: samples differ in size.
        influence = (left.mean() - left) * (len(array) - 1) / len(array)
        cubes += float((influence**3).sum())
        squares += float((influence**2).sum())
    acceleration = cubes / (6 * squares**1.5) if squares > 0 else 0.0
    corrected = []
    for level in levels:
        shifted = bias + normal.inv_cdf(level)
        corrected.append(normal.cdf(bias + shifted / (1 - acceleration * shifted)))
    return corrected


def _leave_out(arrays: Sequence[np.ndarray], index: int, trial: int) -> list[np.ndarray]:
    return [
        (np.delete(array, trial, axis=0) if number == index else array)[None]
        for number, array in enumerate(arrays)
    ]


def _quantile(ordered: np.ndarray, level: float) -> float:
    """A quantile by the nearest rank; infinities stay infinite."""
    rank = min(max(round(level * (len(ordered) - 1)), 0), len(ordered) - 1)
    return float(ordered[rank])
