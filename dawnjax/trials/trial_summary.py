"""Statistics of an entry's trials.

Source: "Analysis of DAWNBench, a Time-to-Accuracy ML Performance Benchmark" (arXiv 1806.01427),
section 4.1, Tables 3 and 4. Its coefficients of variation are population standard deviations over
means, of all trials that reached the target.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Statistics of an entry's trials. Means, deviations and CVs are of those that reached.

    Attributes:
      trials: All trials.
      reached: Those that reached the target.
      mean_seconds: Mean time to accuracy.
      score_seconds: MLPerf's score: the mean without the fastest and the slowest, as many at each
        end as the rules say, times the entry's scaling factor.
      unscaled_score_seconds: The same before the factor.
      cv: Population standard deviation over mean of the time to accuracy.
      epochs_mean: Mean epochs to the target.
      epochs_std: Their population standard deviation; None for fewer than two, as all variation.
      seconds_per_epoch_mean: Mean over trials of time to accuracy / epochs.
      seconds_per_epoch_std: Its population standard deviation.
      ratio_of_cvs: CV of the epochs over CV of the time per epoch; 0 where epochs do not vary.
      expected_seconds: Time of all trials / number that reached.
      cost_usd: Mean time to accuracy x price of the system, or the mean of what each trial cost
        where each says that.
      inferred: Trials of which something was read otherwise than their log says it.
    """

    trials: int
    reached: int
    mean_seconds: float | None
    score_seconds: float | None
    unscaled_score_seconds: float | None
    cv: float | None
    epochs_mean: float | None
    epochs_std: float | None
    seconds_per_epoch_mean: float | None
    seconds_per_epoch_std: float | None
    ratio_of_cvs: float | None
    expected_seconds: float | None
    cost_usd: float | None
    inferred: int = 0


def summarize_trials(
    seconds: Sequence[float | None],
    epochs: Sequence[float | None],
    total_seconds: Sequence[float | None],
    cost_per_hour_usd: float | None = None,
    drops: int = 1,
    scaling_factor: float = 1.0,
) -> Summary:
    """Statistics of trials, given as three parallel sequences; None stands for an unknown value.

    `seconds` is the time to accuracy, None if a trial did not reach; `total_seconds` is its whole
    length. The score omits `drops` trials at each end and is multiplied by `scaling_factor`.
    """
    rows = list(zip(seconds, epochs, total_seconds, strict=True))
    times = [time for time in seconds if time is not None]
    pairs = [(time, count) for time, count, _ in rows if time is not None and count]
    counts = [count for _, count in pairs]
    per_epoch = [time / count for time, count in pairs]
    mean = statistics.fmean(times) if times else None
    lifetimes = [time if time is not None else total for time, _, total in rows]
    known = [lifetime for lifetime in lifetimes if lifetime is not None]
    complete = len(known) == len(rows)
    score = mlperf_score(seconds, drops)
    return Summary(
        trials=len(rows),
        reached=len(times),
        mean_seconds=mean,
        score_seconds=None if score is None else score * scaling_factor,
        unscaled_score_seconds=score,
        cv=coefficient_of_variation(times),
        epochs_mean=statistics.fmean(counts) if counts else None,
        epochs_std=deviation(counts),
        seconds_per_epoch_mean=statistics.fmean(per_epoch) if per_epoch else None,
        seconds_per_epoch_std=deviation(per_epoch),
        ratio_of_cvs=_ratio_of_cvs(counts, per_epoch),
        expected_seconds=math.fsum(known) / len(times) if times and complete else None,
        cost_usd=None
        if mean is None or cost_per_hour_usd is None
        else mean * cost_per_hour_usd / 3600,
    )


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Population standard deviation / mean; None for fewer than two values or a mean of 0."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    return statistics.pstdev(values) / mean if mean else None


def mlperf_score(seconds: Sequence[float | None], drops: int = 1) -> float | None:
    """MLPerf's score: the mean without the `drops` fastest and slowest trials.

    A trial that did not reach counts as the slowest. None with more such trials than drops, or
    with fewer than 3 trials.

    Source: MLPerf training rules, "Benchmark results" (the olympic mean).
    """
    times = sorted(time for time in seconds if time is not None)
    failures = len(seconds) - len(times)
    if failures > drops or len(seconds) < max(3, 2 * drops + 1):
        return None
    return statistics.fmean(times[drops : len(seconds) - drops])


def deviation(values: Sequence[float]) -> float | None:
    """Population standard deviation; None for fewer than two values, which have no spread."""
    return statistics.pstdev(values) if len(values) > 1 else None


def _ratio_of_cvs(epochs: Sequence[float], per_epoch: Sequence[float]) -> float | None:
    epochs_cv, time_cv = coefficient_of_variation(epochs), coefficient_of_variation(per_epoch)
    if epochs_cv is None or time_cv is None:
        return None
    if epochs_cv == 0:
        return 0.0
    return epochs_cv / time_cv if time_cv else None
