"""Two sets of trials compared: speedups, intervals, and the trials needed for an answer.

Source of the speedups: arXiv 1806.01427, Table 7.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from dawnjax.analysis import resampling
from dawnjax.analysis.resampling import CONFIDENCE, FEWEST_TRIALS, Interval
from dawnjax.analysis.stability import expected_of_rows, expected_time_rows, mean_of_rows
from dawnjax.page.table import Column, Table
from dawnjax.results.entries import Entry

POWER = 0.8
MOST_TRIALS = 1_000_000
"""Two sets that need more trials than this count as equal."""

_NODES = np.polynomial.legendre.leggauss(64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speedup:
    """A large system against a small one.

    Attributes:
      small: The source of the small system's entry.
      large: That of the large one.
      throughput: Mean time per epoch of the small over that of the large; None if not known.
      tta: Score of the small over score of the large; None where one has no score.
      epochs: Mean epochs of the large over those of the small: what the larger batch costs.
      accelerators: Accelerators of the large over those of the small; None if not known.
    """

    small: str
    large: str
    throughput: float | None
    tta: float | None
    epochs: float | None
    accelerators: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Times of a first set of trials over those of a second; above 1 the second is faster.

    Attributes:
      first: The source of the first entry.
      second: That of the second.
      trials: Trials of each.
      reached: Trials of each that reached.
      mean_ratio: Ratio of the mean times to accuracy, of the trials that reached; None for fewer
        than two of either, without an interval for fewer than `resampling.FEWEST_TRIALS`.
      expected_ratio: Ratio of the expected times, of all trials, in the same way; None if a time is
        not known.
      distinct: Whether the interval of `expected_ratio` (of `mean_ratio` where there is none)
        leaves out 1; None without an interval, and `caution` says so.
      trials_needed: Trials of each set that would tell a true ratio such as this from 1 with a
        probability of 80 %, at 95 % confidence; None where a million would not do or the
        variation is not known. It does not hold for sets with trials that did not reach.
      caution: What limits the comparison; empty if nothing does.
    """

    first: str
    second: str
    trials: tuple[int, int]
    reached: tuple[int, int]
    mean_ratio: Interval | None
    expected_ratio: Interval | None
    distinct: bool | None
    trials_needed: int | None
    caution: str


def speedup(small: Entry, large: Entry) -> Speedup:
    """Throughput speedup and time-to-accuracy speedup of a large system over a small one."""
    of_small, of_large = small.summary, large.summary
    return Speedup(
        small=small.source,
        large=large.source,
        throughput=_over(
            of_small and of_small.seconds_per_epoch_mean,
            of_large and of_large.seconds_per_epoch_mean,
        ),
        tta=_over(of_small and of_small.score_seconds, of_large and of_large.score_seconds),
        epochs=_over(of_large and of_large.epochs_mean, of_small and of_small.epochs_mean),
        accelerators=_over(large.num_accelerators, small.num_accelerators),
    )


def speedup_table(pairs: Iterable[tuple[Entry, Entry]]) -> Table:
    """Table of the speedups of (small, large) pairs of entries (arXiv 1806.01427, Table 7)."""
    rows = []
    for small, large in pairs:
        value = speedup(small, large)
        rows.append(
            (
                small.benchmark,
                value.small,
                value.large,
                small.num_accelerators,
                large.num_accelerators,
                small.global_batch_size,
                large.global_batch_size,
                small.summary and small.summary.epochs_mean,
                large.summary and large.summary.epochs_mean,
                value.throughput,
                value.tta,
            )
        )
    return Table(
        name="speedups",
        title="Throughput speedup against time-to-accuracy speedup",
        columns=(
            Column("benchmark", "benchmark"),
            Column("small", "small system"),
            Column("large", "large system"),
            Column("small_accelerators", "accelerators, small", kind="integer"),
            Column("large_accelerators", "accelerators, large", kind="integer"),
            Column("small_batch_size", "batch size, small", kind="integer"),
            Column("large_batch_size", "batch size, large", kind="integer"),
            Column("small_epochs", "epochs, small", kind="number"),
            Column("large_epochs", "epochs, large", kind="number"),
            Column("throughput_speedup", "throughput speedup", "x", "number"),
            Column("tta_speedup", "time-to-accuracy speedup", "x", "number"),
        ),
        rows=tuple(rows),
        notes=(
            "Throughput speedup: ratio of the mean times per epoch. Time-to-accuracy speedup: "
            "ratio of the MLPerf scores. Their gap is what more epochs cost.",
        ),
    )


def compare(first: Entry, second: Entry) -> Comparison:
    """Compares the trials of two entries: ratios with 95 % intervals of the bootstrap (BCa).

    Two sets of fewer than `resampling.FEWEST_TRIALS` trials are not told apart, whatever their
    ratio: intervals of so few tell equal systems apart too often. Those of 5 of each still do so
    with 12 of 100 pairs of equal systems, of 10 with 9, of 20 with 6 (simulated as there).
    """
    times = [_reached_times(entry) for entry in (first, second)]
    rows = [
        expected_time_rows(
            [trial.time_to_accuracy_seconds for trial in entry.trials],
            [trial.total_seconds for trial in entry.trials],
        )
        for entry in (first, second)
    ]
    mean_ratio = resampling.bootstrap(times, _ratio_of_means, fewest=FEWEST_TRIALS)
    expected_ratio = None
    if rows[0] is not None and rows[1] is not None:
        expected_ratio = resampling.bootstrap(
            [rows[0], rows[1]], _ratio_of_expected, fewest=FEWEST_TRIALS
        )
    distinct = _leaves_out_1(expected_ratio or mean_ratio)
    counted = times if expected_ratio is None else rows
    cautions = _cautions(first, second, times)
    if distinct is None:
        sizes = " and ".join("0" if kept is None else str(len(kept)) for kept in counted)
        cautions.append(
            f"too few trials to tell: {sizes}, an interval needs {FEWEST_TRIALS} of each"
        )
    needed = None
    if mean_ratio is not None and mean_ratio.value > 0:
        needed = trials_needed(mean_ratio.value, _sample_cv(times[0]), _sample_cv(times[1]))
    return Comparison(
        first=first.source,
        second=second.source,
        trials=(len(first.trials), len(second.trials)),
        reached=(len(times[0]), len(times[1])),
        mean_ratio=mean_ratio,
        expected_ratio=expected_ratio,
        distinct=distinct,
        trials_needed=needed,
        caution="; ".join(cautions),
    )


def told_apart(first: np.ndarray | None, second: np.ndarray | None) -> bool:
    """Whether the 95 % interval of the ratio of two sets' expected times leaves out 1.

    Args:
      first: What each trial of a set took, in any unit, and 1 if it reached, `[trials, 2]`; None if
        it is not known.
      second: The same of the second set.
    """
    if first is None or second is None or min(len(first), len(second)) < FEWEST_TRIALS:
        return False
    if first[:, 1].all() and second[:, 1].all():
        low, high = sorted((first[:, 0], second[:, 0]), key=np.min)
        if low.max() < high.min():
            return True  # so are the means of all resamples
    ratio = resampling.bootstrap([first, second], _ratio_of_expected, fewest=FEWEST_TRIALS)
    return bool(_leaves_out_1(ratio))


def _leaves_out_1(interval: Interval | None) -> bool | None:
    if interval is None or interval.low is None:
        return None
    return interval.low > 1 or (interval.high is not None and interval.high < 1)


def compare_table(pairs: Iterable[tuple[Entry, Entry]]) -> Table:
    """Table of the comparisons of pairs of entries."""
    rows = []
    for first, second in pairs:
        value = compare(first, second)
        rows.append(
            (
                first.benchmark,
                value.first,
                value.second,
                f"{value.reached[0]}/{value.trials[0]}",
                f"{value.reached[1]}/{value.trials[1]}",
                *_ends(value.mean_ratio),
                *_ends(value.expected_ratio),
                value.distinct,
                value.trials_needed,
                value.caution,
            )
        )
    return Table(
        name="comparisons",
        title="Comparisons",
        columns=(
            Column("benchmark", "benchmark"),
            Column("first", "first"),
            Column("second", "second"),
            Column("first_reached", "reached, first"),
            Column("second_reached", "reached, second"),
            Column("mean_ratio", "ratio of means", "x", "number"),
            Column("mean_ratio_low", "95 % from", "x", "number"),
            Column("mean_ratio_high", "95 % to", "x", "number"),
            Column("expected_ratio", "ratio of expected times", "x", "number"),
            Column("expected_ratio_low", "95 % from", "x", "number"),
            Column("expected_ratio_high", "95 % to", "x", "number"),
            Column("distinct", "told apart", kind="flag"),
            Column("trials_needed", "trials of each to tell apart", kind="integer"),
            Column("caution", "caution"),
        ),
        rows=tuple(rows),
        notes=(
            "Time of the first over time of the second: above 1 the second is faster.",
            f"With fewer than {FEWEST_TRIALS} trials of either there is no interval and no answer: "
            "with 2 of each, 33 of 100 pairs of equal systems would be told apart, with 3 of each "
            "19; with 5 it is 12, with 10 it is 9, with 20 it is 6.",
            "Trials needed: to tell a true ratio such as this from 1 with a probability of 80 % at "
            f"95 % confidence; never below {FEWEST_TRIALS}. From few trials the ratio and the "
            "variation are uncertain, and so is this.",
        ),
    )


def _ends(interval: Interval | None) -> tuple[float | None, float | None, float | None]:
    if interval is None:
        return None, None, None
    return interval.value, interval.low, interval.high


def trials_needed(
    ratio: float,
    first_cv: float,
    second_cv: float,
    power: float = POWER,
) -> int | None:
    """Trials that each set needs for a two-sided t test to tell a ratio of means from 1.

    The smallest n, from `FEWEST_TRIALS` on, at which the test of the logarithms of log-normal times
    has the power: its statistic follows the noncentral t distribution with noncentrality
    d = |ln(ratio)| / sqrt((s1² + s2²) / n), where s² = ln(1 + cv²) is the variance of the
    logarithms, and (n - 1) (s1² + s2²)² / (s1⁴ + s2⁴) degrees of freedom, which are 2n - 2 for
    equal variances.

    Source: J. Cohen, "Statistical Power Analysis for the Behavioral Sciences" (1988), chapter 2 (an
    effect of d = 0.5 needs 64 of each); B. L. Welch, "The Significance of the Difference Between
    Two Means when the Population Variances are Unequal", Biometrika 29 (1938), for the degrees of
    freedom.

    Args:
      ratio: Of the true means, above 0.
      first_cv: Sample standard deviation over mean of the first set's times.
      second_cv: Of the second set's.
      power: Probability of telling them apart.

    Returns:
      None where a million trials would not do: the ratio is 1, or as good as that.

    Raises:
      ValueError: An argument is out of its range.
    """
    if ratio <= 0 or first_cv < 0 or second_cv < 0:
        raise ValueError(f"ratio {ratio}, CVs {first_cv}, {second_cv}: none may be negative")
    if not 0 < power < 1:
        raise ValueError(f"power {power} must be between 0 and 1")
    normal = statistics.NormalDist()
    z_test, z_power = normal.inv_cdf((1 + CONFIDENCE) / 2), normal.inv_cdf(power)
    variance = math.log1p(first_cv**2) + math.log1p(second_cv**2)
    effect = (z_test + z_power) ** 2 * variance
    distance = math.log(ratio) ** 2
    if effect >= distance * MOST_TRIALS:
        return None
    if variance == 0:
        return FEWEST_TRIALS
    # With variances that are known, and thus too few: where the search begins.
    number = max(FEWEST_TRIALS, math.ceil(effect / distance))
    share = math.log1p(first_cv**2) / variance
    while True:
        freedom = (number - 1) / (share**2 + (1 - share) ** 2)
        noncentrality = math.sqrt(distance * number / variance)
        if _power(noncentrality, freedom) >= power:
            return number
        number += 1


def _power(noncentrality: float, freedom: float) -> float:
    """Probability that a two-sided t test finds a difference.

    The statistic is (z + noncentrality) / s, z standard normal and s² chi-squared over its degrees
    of freedom: P(|t| > c) is the mean over s of Φ(noncentrality - c s) + Φ(-noncentrality - c s).
    """
    reach = 10 / math.sqrt(2 * freedom)  # Ten deviations of s, which is about 1.
    start, end = max(0.0, 1 - reach), 1 + reach
    nodes, weights = _NODES
    s = start + (end - start) * (nodes + 1) / 2
    half = freedom / 2
    log_density = (
        math.log(2) + half * math.log(half) - math.lgamma(half)
        + (freedom - 1) * np.log(s) - half * s**2
    )  # fmt: skip
    mass = np.exp(log_density) * weights
    mass /= mass.sum()
    scaled, mass = s.tolist(), mass.tolist()
    normal = statistics.NormalDist()

    def above(critical: float, shift: float) -> float:
        return math.fsum(
            m * normal.cdf(shift - critical * v) for v, m in zip(scaled, mass, strict=True)
        )

    low, high = 0.0, 1.0
    while above(high, 0.0) > (1 - CONFIDENCE) / 2:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle, 0.0) > (1 - CONFIDENCE) / 2 else (low, middle)
    return above(high, noncentrality) + above(high, -noncentrality)


def _cautions(first: Entry, second: Entry, times: Sequence[Sequence[float]]) -> list[str]:
    cautions = []
    if (first.suite, first.benchmark) != (second.suite, second.benchmark):
        cautions.append("different benchmarks")
    elif first.target != second.target:
        cautions.append("different targets")
    if first.identity != second.identity:
        cautions.append("different experiments")
    if any(len(known) < 2 for known in times):
        cautions.append("fewer than two trials of a set reached")
    if any(len(known) < len(e.trials) for known, e in zip(times, (first, second), strict=True)):
        cautions.append("not all trials reached: the ratio of means is of those that did")
    return cautions


def _reached_times(entry: Entry) -> list[float]:
    times = (trial.time_to_accuracy_seconds for trial in entry.trials)
    return [time for time in times if time is not None]


def _ratio_of_means(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return mean_of_rows(first) / mean_of_rows(second)


def _ratio_of_expected(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return expected_of_rows(first) / expected_of_rows(second)


def _sample_cv(values: Sequence[float]) -> float:
    return statistics.stdev(values) / statistics.fmean(values)


def _over(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None
