"""Statistics of trials: the only place of means, variation, expected times, scores and costs.

Source: "Analysis of DAWNBench, a Time-to-Accuracy ML Performance Benchmark" (arXiv 1806.01427),
section 4.1, Tables 3 and 4. Its coefficients of variation are population standard deviations over
means, of all trials that reached the target.
"""

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dawnjax.statistics.interval import Interval
from dawnjax.statistics.proportions import wilson
from dawnjax.statistics.sample import Sample, expected_interval, mean_interval, time_interval
from dawnjax.trials.target import reaches
from dawnjax.trials.trial import Evaluation, Trial


class Reached(NamedTuple):
    """The evaluation of a trial that reached a target or a threshold.

    Attributes:
      seconds: On the run's clock; None if the log has no time for it.
      epochs: Trained until then; None if unknown.
    """

    seconds: float | None
    epochs: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """Statistics of trials. Means, deviations and CVs are of the trials that reached.

    Attributes:
      trials: All trials.
      reached: Those that reached, at a moment that is known.
      untimed: Those that reached at a moment that is not known.
      seconds: Time at which each trial reached; None if it did not, or at an unknown moment.
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
      cost_usd: Mean cost of the trials' own, where each has one; else the mean time x price.
      expected_cost_usd: Cost of all trials / number that reached, where each has its own cost.
      sample: Times of all trials for statistics; None if a trial's length is unknown.
    """

    trials: int
    reached: int
    untimed: int
    seconds: tuple[float | None, ...]
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
    expected_cost_usd: float | None
    sample: Sample | None

    @functools.cached_property
    def reached_interval(self) -> Interval | None:
        """Fraction that reached, with its interval; None without trials."""
        return wilson(self.reached + self.untimed, self.trials) if self.trials else None

    @functools.cached_property
    def mean_interval(self) -> Interval | None:
        """Mean time with its interval, or the range of few trials."""
        sample = self.sample
        if sample is None:
            sample = Sample.of([second for second in self.seconds if second is not None])
        return None if sample is None else mean_interval(sample)

    @functools.cached_property
    def expected_interval(self) -> Interval | None:
        """Expected time with its interval; None if a trial's length is unknown."""
        return None if self.sample is None else expected_interval(self.sample)

    @property
    def interval(self) -> Interval | None:
        """Expected time; where all trials reached, its ends are those if all reach."""
        return None if self.sample is None else time_interval(self.sample)


def figures(
    trials: Sequence[Trial],
    threshold: float | None = None,
    direction: str = "at_least",
    *,
    cost_per_hour_usd: float | None = None,
    drops: int = 1,
    scaling_factor: float = 1.0,
) -> Figures:
    """Statistics of trials.

    Args:
      trials: Of one experiment on one system.
      threshold: Times are those to this value of the target's first metric, and not to the target.
      direction: On which side of the threshold better values lie.
      cost_per_hour_usd: The whole system's price, for trials without a cost.
      drops: Trials that the score omits at each end.
      scaling_factor: Factor of the score.
    """
    moments = [reached_at(trial, threshold, direction) for trial in trials]
    seconds = tuple(moment and moment.seconds for moment in moments)
    times = [time for time in seconds if time is not None]
    pairs = [
        (moment.seconds, moment.epochs)
        for moment in moments
        if moment and moment.seconds is not None and moment.epochs
    ]
    counts = [count for _, count in pairs]
    per_epoch = [time / count for time, count in pairs]
    score = mlperf_score(seconds, drops)
    mean = statistics.fmean(times) if times else None
    # A threshold has no cost of its own.
    costs = [trial.seconds_cost_usd for trial in trials if threshold is None]
    known_costs = [cost for cost in costs if cost is not None]
    sample = Sample.of(
        seconds,
        [trial.clock_seconds for trial in trials],
        [trial.seed for trial in trials],
        [trial.finite_losses for trial in trials],
        steps=steps_before(
            trials,
            # A log may end its clock some seconds after the evaluation that reached.
            [None if second is None else second + 1e-3 for second in seconds],
            lambda row: row.seconds_since_run_start,
        ),
        budget=mean_of_all([trial.budget_seconds for trial in trials]),
    )
    return Figures(
        trials=len(trials),
        reached=len(times),
        untimed=sum(moment is not None and moment.seconds is None for moment in moments),
        seconds=seconds,
        mean_seconds=mean,
        score_seconds=None if score is None else score * scaling_factor,
        unscaled_score_seconds=score,
        cv=coefficient_of_variation(times),
        epochs_mean=statistics.fmean(counts) if counts else None,
        epochs_std=deviation(counts),
        seconds_per_epoch_mean=statistics.fmean(per_epoch) if per_epoch else None,
        seconds_per_epoch_std=deviation(per_epoch),
        ratio_of_cvs=_ratio_of_cvs(counts, per_epoch),
        expected_seconds=None
        if sample is None or not times
        else math.fsum(sample.amounts) / len(times),
        cost_usd=_mean_cost(trials, mean, cost_per_hour_usd) if threshold is None else None,
        expected_cost_usd=math.fsum(known_costs) / len(times)
        if times and len(known_costs) == len(trials)
        else None,
        sample=sample,
    )


def reached_at(
    trial: Trial, threshold: float | None = None, direction: str = "at_least"
) -> Reached | None:
    """The evaluation at which a trial reached its target, or a threshold; None if it did not."""
    seconds, epochs = trial.time_to_accuracy_seconds, trial.epochs_to_target
    if threshold is None:
        if not trial.reached:
            return None
    else:
        row = next((r for r in trial.evaluations if reaches(r.value, threshold, direction)), None)
        if row is None:
            return None
        seconds, epochs = row.seconds_since_run_start, row.epoch
    # A moment before `run_start` is a stamp of another clock.
    if seconds is None or seconds < 0:
        return Reached(None, epochs)
    return Reached(seconds, epochs)


def steps_before(
    trials: Sequence[Trial],
    ends: Sequence[float | None],
    place_of: Callable[[Evaluation], float | None],
) -> list[float | None]:
    """Distance of the last two evaluations up to each trial's end.

    A trial that ends at its first evaluation gets the median distance of all trials' evaluations:
    it might have needed one more. None where no trial has two evaluations, or without an end.

    Args:
      place_of: Where an evaluation lies, such as its seconds; in the unit of the ends.
    """
    # An evaluation at 0 precedes training, so the next one is no step after it.
    rows = [
        sorted(at for row in trial.evaluations if (at := place_of(row)) is not None and at > 0)
        for trial in trials
    ]
    distances = [b - a for places in rows for a, b in itertools.pairwise(places) if b > a]
    usual = statistics.median(distances) if distances else None
    steps: list[float | None] = []
    for places, end in zip(rows, ends, strict=True):
        until = [at for at in places if end is not None and at <= end]
        step = until[-1] - until[-2] if len(until) > 1 else usual
        steps.append(None if end is None else step)
    return steps


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


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """Mean of known values; None where one is unknown."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _ratio_of_cvs(epochs: Sequence[float], per_epoch: Sequence[float]) -> float | None:
    epochs_cv, time_cv = coefficient_of_variation(epochs), coefficient_of_variation(per_epoch)
    if epochs_cv is None or time_cv is None:
        return None
    if epochs_cv == 0:
        return 0.0
    return epochs_cv / time_cv if time_cv else None


def _mean_cost(
    trials: Sequence[Trial], mean_seconds: float | None, usd_per_hour: float | None
) -> float | None:
    costs = [trial.cost_usd for trial in trials if trial.time_to_accuracy_seconds is not None]
    known = [cost for cost in costs if cost is not None]
    if known and len(known) == len(costs):
        return statistics.fmean(known)
    if mean_seconds is None or usd_per_hour is None:
        return None
    return mean_seconds * usd_per_hour / 3600
