"""Trials of one side: times, successes, seeds, and the expected time."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from dawnjax.statistics.interval import (
    ALPHA,
    CONFIDENCE,
    FEWEST_TRIALS,
    IF_ALL_REACH,
    IF_SOME_MISS,
    Interval,
    t_quantile,
)
from dawnjax.statistics.proportions import unseen_share

FEWEST_WITH_FAILURES = 20
"""Of each side where a trial of either did not reach. Five trials of a system that reaches in 80 %
of cases show no failure one time in three, and so say nothing of what failures cost."""

SAME_LOSSES = 1e-3
"""First losses that differ by less, relatively, are of the same mathematics: float32 sums in other
orders differ by 1e-7 to 1e-4 over ten steps, another batch or rate by more."""

_UNSEEN_STEPS = 2
"""Trials one evaluation away from the others that a variance counts beside those seen. Times fall
on the grid of evaluations: five trials that all reach at the same one would otherwise have an
interval without width, although a third of all trials may need one evaluation more."""

_APART = 10
"""A trial stands apart if it lies this many times farther from the median than any other."""


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
      steps: Seconds between the evaluation at which each trial reached and the one before, or the
        usual distance where it reached at its first; None where unknown. Empty where none is known.
      budget: What a trial takes that never reaches: where its experiment stops. None if unknown.
    """

    amounts: np.ndarray
    reached: np.ndarray
    seeds: tuple[int | None, ...] = ()
    first_losses: tuple[tuple[float, ...], ...] = ()
    in_turn: bool = False
    steps: tuple[float | None, ...] = ()
    budget: float | None = None

    @classmethod
    def of(
        cls,
        seconds: Sequence[float | None],
        total_seconds: Sequence[float | None] | None = None,
        seeds: Sequence[int | None] = (),
        first_losses: Sequence[Sequence[float]] = (),
        *,
        steps: Sequence[float | None] = (),
        budget: float | None = None,
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
            steps=tuple(steps),
            budget=budget,
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
    def longest_failure(self) -> float:
        """Greatest amount of a trial that did not reach; 0 where all did."""
        return float(self.amounts[~self.reached].max(initial=0.0))

    @functools.cached_property
    def step(self) -> float:
        """Mean time between evaluations, in the unit of the amounts; 0 where unknown."""
        known = [step for step in self.steps if step is not None]
        return sum(known) / len(known) if known else 0.0

    @property
    def unseen_steps(self) -> float:
        """Square of the trials one evaluation away that a variance counts beside those seen."""
        return _UNSEEN_STEPS * self.step**2

    def variance(self, longest_failure: float, *, is_on_grid: bool = True) -> float:
        """Variance of the logarithm of the expected time, unseen trials included.

        Args:
          longest_failure: Amount of one more failure that is counted in the variance alone; 0 where
            neither side of a comparison has any. Without it, a side of 20 trials that by luck shows
            no failure differs from an equal side of 100 trials in up to 26 % of pairs; with it in
            at most 4 %.
          is_on_grid: Whether more trials might need one evaluation more, or one fewer.
        """
        unseen = longest_failure**2 + (self.unseen_steps if is_on_grid else 0.0)
        squares = float((self.influence**2).sum()) + unseen / float(self.amounts.mean()) ** 2
        return squares / (len(self) * max(1, len(self) - 1))

    def cost_of_misses(self, alpha: float) -> float | None:
        """Expected time that misses may add to a side of which all trials reached.

        So many trials without a miss exclude a larger share of misses at the level `alpha`; each
        costs the budget. None where that is unknown.
        """
        share = unseen_share(len(self), alpha)
        return None if self.budget is None else share / (1 - share) * self.budget

    @functools.cached_property
    def apart(self) -> int | None:
        """Place of a trial that stands apart: its machine stalled, or its clock is wrong.

        It takes at least twice the median of those that reached, or at most half, and lies farther
        from it than `_APART` times any other trial and than two evaluations.
        """
        places = np.flatnonzero(self.reached)
        if len(places) < FEWEST_TRIALS:
            return None
        times = self.amounts[places]
        median = float(np.median(times))
        distances = np.abs(times - median)
        farthest = int(distances.argmax())
        second = np.delete(distances, farthest).max()
        if median / 2 < times[farthest] < 2 * median:
            return None
        is_apart = distances[farthest] > max(_APART * second, 2 * self.step)
        return int(places[farthest]) if is_apart else None

    def at(self, places: Sequence[int] | np.ndarray) -> "Sample":
        """The trials at some places alone."""

        def some(values: tuple) -> tuple:
            return tuple(values[place] for place in places) if values else ()

        return dataclasses.replace(
            self,
            amounts=self.amounts[places],
            reached=self.reached[places],
            seeds=some(self.seeds),
            first_losses=some(self.first_losses),
            steps=some(self.steps),
        )

    def scaled(self, factor: float) -> "Sample":
        """The sample in another unit, such as USD; `factor` is above 0."""
        return dataclasses.replace(
            self,
            amounts=self.amounts * factor,
            steps=tuple(None if step is None else step * factor for step in self.steps),
            budget=None if self.budget is None else self.budget * factor,
        )

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
    reached = sample.at(np.flatnonzero(sample.reached))
    if len(reached) < 2:
        return None
    if len(reached) < FEWEST_TRIALS:
        times = reached.amounts
        ends = float(times.min()), float(times.max())
        return Interval(float(times.mean()), *ends, None, len(times))
    return _t_interval(reached)


def expected_interval(sample: Sample) -> Interval | None:
    """Expected time with its interval; None where no trial reached or there are fewer than two.

    Where every trial reached, the upper end adds to the mean's as many misses as so many trials may
    hide, at `Sample.budget` each. No ends where that is unknown, where some of fewer
    than `FEWEST_WITH_FAILURES` trials did not reach, or with fewer than `FEWEST_TRIALS`.
    """
    value = sample.expected
    if value is None or len(sample) < 2:
        return None
    fewest = FEWEST_WITH_FAILURES if sample.has_failures else FEWEST_TRIALS
    misses = 0.0 if sample.has_failures else sample.cost_of_misses(ALPHA / 2)
    if misses is None or len(sample) < fewest:
        return Interval(value, None, None, None, len(sample))
    found = _t_interval(sample)
    if sample.has_failures:
        return found
    if found.high is None or found.level is None:
        return Interval(value, None, None, None, len(sample))
    return dataclasses.replace(found, high=found.high + misses, condition=IF_SOME_MISS)


def time_interval(sample: Sample) -> Interval | None:
    """Expected time; where all trials reached, with the interval of their mean, which says so."""
    if sample.has_failures:
        return expected_interval(sample)
    found = mean_interval(sample)
    return found and dataclasses.replace(found, condition=IF_ALL_REACH)


def _t_interval(sample: Sample) -> Interval:
    value = sample.expected
    if not value:  # A trial that took no time has no logarithm.
        return Interval(0.0, None, None, None, len(sample))
    error = math.sqrt(sample.variance(sample.longest_failure))
    if not error:  # Equal times whose grid is not known say nothing of their variation.
        return Interval(value, value, value, None, len(sample))
    half = t_quantile(len(sample) - 1, CONFIDENCE) * error
    low, high = value * math.exp(-half), value * math.exp(half)
    return Interval(value, low, high, CONFIDENCE, len(sample))
