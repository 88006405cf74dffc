"""How much the time to accuracy varies between trials that differ in their seed only.

Source: "Analysis of DAWNBench, a Time-to-Accuracy ML Performance Benchmark" (arXiv 1806.01427),
section 4.1.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from dawnjax.analysis import resampling
from dawnjax.analysis.resampling import Interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stability:
    """How sure the statistics of an entry's trials are; 95 % intervals.

    The intervals of the mean, the CV and the expected time are of the bootstrap (BCa, 10,000
    resamples of trials, a fixed seed). From few trials they are too short, and below
    `resampling.FEWEST_TRIALS` there is none: those estimates have no ends. Measured with normal
    times: that of the mean holds the truth 84 times of 100 with 5 trials, 90 with 10, 92 with 20;
    that of the CV 60, 80 and 88 times.

    The expected time has an interval only where a trial did not reach. Then it holds the truth 94
    times of 100 or more (5 to 20 trials that reach in 50 to 95 % of cases, failures of 1.2 to 3
    times the mean). Where all trials reached, it would be the mean's, as if none could fail: with 5
    trials that reach in 80 % of cases, a third of all sets, that leaves 65 of 100.

    Attributes:
      reached: Fraction of trials that reached, with Wilson's interval; None without trials.
      mean_seconds: Mean time to accuracy of the trials that reached; None for fewer than two.
      cv: Their coefficient of variation.
      expected_seconds: Time of all trials over number that reached; no upper end where a resample
        in which no trial reached is likely, no end at all where every trial reached; None if a
        trial's time is not known.
    """

    reached: Interval | None
    mean_seconds: Interval | None
    cv: Interval | None
    expected_seconds: Interval | None


def stability_of(
    seconds: Sequence[float | None],
    total_seconds: Sequence[float | None],
) -> Stability:
    """Computes how sure the statistics of trials are.

    Args:
      seconds: Time to accuracy of each trial; None if it did not reach.
      total_seconds: How long each trial ran; None if not known.
    """
    times = [time for time in seconds if time is not None]
    rows = expected_time_rows(seconds, total_seconds)
    return Stability(
        reached=resampling.wilson(len(times), len(seconds)) if seconds else None,
        mean_seconds=_estimate(times, mean_of_rows),
        cv=_estimate(times, cv_of_rows),
        expected_seconds=None if rows is None else _expected(rows),
    )


def expected_time_rows(
    seconds: Sequence[float | None], total_seconds: Sequence[float | None]
) -> np.ndarray | None:
    """Rows `[trials, 2]`: how long each ran, and 1 if it reached; None if a time is not known."""
    rows = [
        (time if time is not None else total, time is not None)
        for time, total in zip(seconds, total_seconds, strict=True)
    ]
    if any(lifetime is None for lifetime, _ in rows):
        return None
    return np.array(rows, np.float64).reshape(-1, 2)


def mean_of_rows(times: np.ndarray) -> np.ndarray:
    """Mean of each resample, `[resamples, trials]` to `[resamples]`."""
    return times.mean(axis=1)


def cv_of_rows(times: np.ndarray) -> np.ndarray:
    """Population deviation over the mean of each resample."""
    return times.std(axis=1) / times.mean(axis=1)


def expected_of_rows(rows: np.ndarray) -> np.ndarray:
    """Time of all trials / number that reached, `[resamples, trials, 2]` to `[resamples]`.

    Infinite for a resample in which none reached.
    """
    return rows[:, :, 0].sum(axis=1) / rows[:, :, 1].sum(axis=1)


def _expected(rows: np.ndarray) -> Interval | None:
    """The expected time; without ends where no trial tells what a failure costs."""
    estimate = _estimate(rows, expected_of_rows)
    if estimate is None or not rows[:, 1].all():
        return estimate
    return Interval(estimate.value, None, None, "none")


def _estimate(
    sample: np.ndarray | Sequence[float], statistic: resampling.Statistic
) -> Interval | None:
    fewest = resampling.FEWEST_TRIALS
    return resampling.bootstrap([np.asarray(sample)], statistic, fewest=fewest)
