"""Variation of the time to accuracy between trials that differ in their seed only.

Source: "Analysis of DAWNBench, a Time-to-Accuracy ML Performance Benchmark" (arXiv 1806.01427),
section 4.1.
"""

import dataclasses
from collections.abc import Sequence

from dawnjax.statistics.interval import Interval
from dawnjax.statistics.proportions import wilson
from dawnjax.statistics.sample import Sample, expected_interval, mean_interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stability:
    """Estimates of one sample with their 95 % intervals, or the ranges of few trials.

    The coefficient of variation has none: an interval for normal times fails for longer tails.
    """

    reached: Interval | None
    mean_seconds: Interval | None
    expected_seconds: Interval | None


def stability_of(
    seconds: Sequence[float | None], total_seconds: Sequence[float | None]
) -> Stability:
    """Stability of trials, from times to accuracy (None if not reached) and durations."""
    times = [time for time in seconds if time is not None]
    of_reached, of_all = Sample.of(times), Sample.of(seconds, total_seconds)
    return Stability(
        reached=wilson(len(times), len(seconds)) if seconds else None,
        mean_seconds=None if of_reached is None else mean_interval(of_reached),
        expected_seconds=None if of_all is None else expected_interval(of_all),
    )
