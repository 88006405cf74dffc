"""Trials of one side: times, successes, seeds, and the expected time."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from dawnjax.statistics.interval import CONFIDENCE, FEWEST_TRIALS, Interval, t_quantile

FEWEST_WITH_FAILURES = 20
"""Of each side where a trial of either did not reach. Five trials of a system that reaches in 80 %
of cases show no failure one time in three, and so say nothing of what failures cost."""

SAME_LOSSES = 1e-3
"""First losses that differ by less, relatively, are of the same mathematics: float32 sums in other
orders differ by 1e-7 to 1e-4 over ten steps, another batch or rate by more."""


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """Trials of one recipe on one system.

    Attributes:
      amounts: Time to accuracy of each trial that reached, else how long it ran; seconds, or USD.
      reached: Whether each trial reached its target.
      seeds: Seed of each trial; empty where seeds are not known.
      first_losses: Losses of each trial's first steps; empty where they are not known.
      in_turn: Whether both sides ran in turn, seed by seed: equal seeds are then pairs, whatever
        their mathematics, for they saw the same speed of the machine.
    """

    amounts: np.ndarray
    reached: np.ndarray
    seeds: tuple[int | None, ...] = ()
    first_losses: tuple[tuple[float, ...], ...] = ()
    in_turn: bool = False

    @classmethod
    def of(
        cls,
        seconds: Sequence[float | None],
        total_seconds: Sequence[float | None] | None = None,
        seeds: Sequence[int | None] = (),
        first_losses: Sequence[Sequence[float]] = (),
    ) -> "Sample | None":
        """Sample of times to accuracy (None if not reached) and of the trials' durations.

        None if the duration of a trial that did not reach is unknown.
        """
        totals = [None] * len(seconds) if total_seconds is None else total_seconds
        amounts = [t if t is not None else total for t, total in zip(seconds, totals, strict=True)]
        if any(amount is None for amount in amounts):
            return None
        return cls(
            np.array(amounts, np.float64),
            np.array([time is not None for time in seconds], bool),
            tuple(seeds),
            tuple(map(tuple, first_losses)),
        )

    def __len__(self) -> int:
        return len(self.amounts)

    @functools.cached_property
    def num_reached(self) -> int:
        return int(self.reached.sum())

    @property
    def has_failures(self) -> bool:
        return self.num_reached < len(self)

    @property
    def expected(self) -> float | None:
        """Amount of all trials / number that reached; None where none did."""
        return float(self.amounts.sum()) / self.num_reached if self.num_reached else None

    @functools.cached_property
    def influence(self) -> np.ndarray:
        """Influence of each trial on the logarithm of the expected time (the delta method).

        For trial i of amount t_i, with r_i = 1 if it reached: t_i / mean(t) - r_i / mean(r).

        Source: W. G. Cochran, "Sampling Techniques" (1977), chapter 6, the variance of a ratio.
        """
        return self.amounts / self.amounts.mean() - self.reached / self.reached.mean()

    @functools.cached_property
    def squared_influence(self) -> float:
        """Sum of the squared influences."""
        return float((self.influence**2).sum())

    @functools.cached_property
    def mean_amount(self) -> float:
        """Mean amount of all trials, failures included."""
        return float(self.amounts.mean())

    @functools.cached_property
    def longest_failure(self) -> float:
        """Greatest amount of a trial that did not reach; 0 where all did."""
        return float(self.amounts[~self.reached].max(initial=0.0))

    def variance(self, longest_failure: float = 0.0) -> float:
        """Variance of the logarithm of the expected time.

        Args:
          longest_failure: Amount of one more failure that is counted in the variance alone; 0 where
            neither side of a comparison has any. Without it, a side of 20 trials that by luck shows
            no failure differs from an equal side of 100 trials in up to 26 % of pairs; with it in
            at most 4 %.
        """
        squares = self.squared_influence + (longest_failure / self.mean_amount) ** 2
        return squares / (len(self) * max(1, len(self) - 1))

    def pairs(self, other: "Sample") -> list[tuple[int, int]]:
        """Places of equal seeds in both samples; empty where the sides are no pairs.

        Pairs need the same seeds, each once. Either both sides ran in turn, or their first losses
        are equal: both then run the same mathematics, and only their machines differ.
        """
        in_turn = self.in_turn and other.in_turn
        has_losses = self.first_losses and other.first_losses
        if len(self) != len(other) or not (in_turn or has_losses):
            return []
        places = {seed: place for place, seed in enumerate(other.seeds)}
        if None in places or len(places) < len(other) or set(self.seeds) != set(places):
            return []
        pairs = [(place, places[seed]) for place, seed in enumerate(self.seeds)]
        if in_turn:
            return pairs
        losses = [(_finite(self.first_losses[a]), _finite(other.first_losses[b])) for a, b in pairs]
        agrees = all(
            len(a) == len(b) and largest_difference(a, b) <= SAME_LOSSES for a, b in losses
        )
        return pairs if agrees else []


def largest_difference(first: Sequence[float], second: Sequence[float]) -> float:
    """Largest relative difference of two trials' losses, step by step; infinite without any."""
    pairs = zip(first, second, strict=False)
    return max((abs(a - b) / max(abs(a), 1e-30) for a, b in pairs), default=math.inf)


def _finite(losses: Sequence[float]) -> list[float]:
    """Losses before the first that is not finite; a file of entries holds no others."""
    return list(itertools.takewhile(math.isfinite, losses))


def mean_interval(sample: Sample) -> Interval | None:
    """Mean of the trials that reached, with the t interval of its logarithm, or their range.

    None for fewer than two trials that reached.
    """
    times = sample.amounts[sample.reached]
    if len(times) < 2:
        return None
    if len(times) < FEWEST_TRIALS:
        ends = float(times.min()), float(times.max())
        return Interval(float(times.mean()), *ends, None, len(times))
    return _t_interval(Sample(times, np.ones(len(times), bool)))


def expected_interval(sample: Sample) -> Interval | None:
    """Expected time with its interval; None where no trial reached or there are fewer than two.

    No ends with fewer than `FEWEST_WITH_FAILURES` trials, nor where every trial reached: the cost
    of a failure is then unknown, and the interval would be the mean's.
    """
    value = sample.expected
    if value is None or len(sample) < 2:
        return None
    if not sample.has_failures or len(sample) < FEWEST_WITH_FAILURES:
        return Interval(value, None, None, None, len(sample))
    return _t_interval(sample)


def time_interval(sample: Sample) -> Interval | None:
    """Time that ranks a side: its mean where all trials reached, else its expected time."""
    return expected_interval(sample) if sample.has_failures else mean_interval(sample)


def _t_interval(sample: Sample) -> Interval:
    value = sample.expected
    if not value:  # A trial that took no time has no logarithm.
        return Interval(0.0, None, None, None, len(sample))
    error = math.sqrt(sample.variance(sample.longest_failure))
    half = t_quantile(len(sample) - 1, CONFIDENCE) * error
    low, high = value * math.exp(-half), value * math.exp(half)
    return Interval(value, low, high, CONFIDENCE, len(sample))
