"""Ratio of two sides' expected times: its tests and its interval.

The interval holds for the ratio and for its logarithm: it spans Fieller's interval and the t
interval of the logarithm, with the variance of each expected time by linearization
(`sample.Sample.influence`). The logarithm alone calls a side slower because one machine stalled;
the ratio alone errs more often for skewed times. Samples whose trials are pairs by seed
(`sample.Sample.pairs`) have the variance of their pairs' differences.

Source: E. C. Fieller, "Some Problems in Interval Estimation", J. R. Statist. Soc. B 16 (1954); the
degrees of freedom are `interval.freedom_of`.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dawnjax.statistics import interval
from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS, Interval
from dawnjax.statistics.proportions import fisher
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES, Sample


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast:
    """Two samples with the ratio of their expected times and its variance.

    Attributes:
      value: The ratio; None where a side has no expected time.
      variances: Of each expected time, relative to its square.
      covariance: Of the two, likewise; 0 unless the sides are pairs.
      is_conditional: Whether the ratio counts no misses, because no trial missed and the sides are
        no pairs of the same mathematics.
      lacks: Why there are too few trials for an interval.
      p_reach: Fisher's p value where one side never reached.
    """

    sides: tuple[Sample, Sample]
    value: float | None = None
    variances: tuple[float, float] = (0.0, 0.0)
    covariance: float = 0.0
    freedom: float = 1.0
    is_paired: bool = False
    is_conditional: bool = False
    lacks: str = ""
    minimum: int = 0
    p_reach: float | None = None

    @property
    def error(self) -> float:
        """Standard error of the logarithm of the ratio."""
        return math.sqrt(max(0.0, sum(self.variances) - 2 * self.covariance))

    @property
    def p_different(self) -> float:
        if self.p_reach is not None:
            return self.p_reach
        if self.value is None or self.lacks:
            return 1.0
        return min(1.0, 2 * self._tail(abs(self._distance(1.0))))

    def p_equivalent(self, margin: float) -> float:
        """Probability of a ratio so near to 1 between sides that differ by the margin."""
        if self.value is None or self.lacks:
            return 1.0
        above, below = self._distance(1 + margin), self._distance(1 / (1 + margin))
        return self._tail(min(above, -below))

    def _distance(self, ratio: float) -> float:
        """Standard errors from the measured ratio up to another: the lesser of two statistics.

        A side whose own error is so large that Fieller's interval has no end differs from nothing.
        """
        assert self.value is not None
        beyond = ratio / self.value
        first, second = self.variances
        square = second + beyond**2 * first - 2 * beyond * self.covariance
        of_ratio = _over(beyond - 1, math.sqrt(max(0.0, square)))
        of_logarithm = _over(math.log(beyond), self.error)
        most = _over(1.0, math.sqrt(max(self.variances)))
        return math.copysign(min(abs(of_ratio), abs(of_logarithm), most), of_logarithm)

    def _tail(self, distance: float) -> float:
        if math.isinf(distance):
            return 0.0 if distance > 0 else 1.0
        return interval.t_tail(self.freedom, distance)

    def is_too_wild(self, alpha: float) -> bool:
        """True if Fieller's interval has no end: an expected time's error is as large as itself."""
        return max(self.variances) * interval.t_quantile(self.freedom, 1 - alpha) ** 2 >= 1

    def ratio(self, alpha: float) -> Interval | None:
        """The ratio with its interval of the level 1 - alpha, or with the range of few trials."""
        if self.value is None:
            return None
        few = min(map(len, self.sides))
        if self.lacks:
            ends: tuple[float | None, float | None] = (None, None)
            if few > 1 and not any(side.has_failures for side in self.sides):
                a, b = (side.amounts for side in self.sides)
                ends = float(b.min() / a.max()), float(b.max() / a.min())
            return Interval(self.value, *ends, None, few)
        if self.is_too_wild(alpha):
            return Interval(self.value, None, None, None, few)
        quantile = interval.t_quantile(self.freedom, 1 - alpha)
        rest = [1 - quantile**2 * part for part in (*self.variances, self.covariance)]
        # Fieller's ends are the roots x of rest[0] x^2 - 2 rest[2] x + rest[1], times the ratio.
        root = rest[2] + math.sqrt(max(0.0, rest[2] ** 2 - rest[0] * rest[1]))
        half = quantile * self.error
        low = self.value * min(math.exp(-half), rest[1] / root)
        high = self.value * max(math.exp(half), root / rest[0])
        return Interval(self.value, low, high, 1 - alpha, few)

    def without(self, number: int, place: int) -> "Contrast":
        """The contrast without a trial of a side, and without the other half of its pair."""
        out = {number: place}
        if self.is_paired:
            seed = self.sides[number].seeds[place]
            out[1 - number] = self.sides[1 - number].seeds.index(seed)
        first, second = (
            side.at([place for place in range(len(side)) if place != out.get(number)])
            for number, side in enumerate(self.sides)
        )
        return contrast(first, second, fewer=1)


def _over(distance: float, error: float) -> float:
    """Distance in errors; without any error 0, or infinite."""
    if error:
        return distance / error
    return math.copysign(math.inf, distance) if distance else 0.0


def contrast(first: Sample, second: Sample, *, fewer: int = 0) -> Contrast:
    """Compare the expected times of two samples, or say what is lacking.

    Args:
      fewer: Trials by which a side may fall short of the fewest for a verdict.
    """
    sides = first, second
    if not all(map(len, sides)):
        name = "B" if len(first) else "A"
        return Contrast(sides=sides, lacks=f"{name} has no trial", minimum=FEWEST_TRIALS)
    never = [not side.num_reached for side in sides]
    if any(never):
        name, side = ("B", second) if never[1] else ("A", first)
        p = None
        if not all(never):
            p = fisher(first.num_reached, len(first), second.num_reached, len(second))
        lacks = f"no trial of {name} reached the target, of {len(side)}"
        return Contrast(sides=sides, lacks=lacks, p_reach=p)
    if not (first.expected and second.expected):
        return Contrast(sides=sides, lacks="a side took no time, so there is no ratio")
    value = second.expected / first.expected
    sizes = len(first), len(second)
    has_failures = first.has_failures or second.has_failures
    # A failure's cost dominates the variance, which few trials cannot show.
    needed = (FEWEST_WITH_FAILURES if has_failures else FEWEST_TRIALS) - fewer
    if min(sizes) < needed:
        why = f"{sizes[0]} and {sizes[1]} trials; a verdict needs {needed} of each"
        why += ", since some did not reach the target" if has_failures else ""
        return Contrast(sides=sides, value=value, lacks=why, minimum=needed - min(sizes))
    pairs = first.pairs(second)
    # Pairs of one recipe reach, and miss, at the same evaluation: only their machines differ.
    is_one_recipe = bool(pairs) and not (first.in_turn and second.in_turn)
    longest = max(side.longest_failure for side in sides)
    variances = (
        first.variance(longest, is_on_grid=not is_one_recipe),
        second.variance(longest, is_on_grid=not is_one_recipe),
    )
    if not any(variances):
        why = "the trials of each side took equal times; the time between evaluations is not known"
        return Contrast(sides=sides, value=value, lacks=why)
    products = sum(float(first.influence[a] * second.influence[b]) for a, b in pairs)
    return Contrast(
        sides=sides,
        value=value,
        variances=variances,
        covariance=products / (len(pairs) * (len(pairs) - 1)) if pairs else 0.0,
        freedom=len(pairs) - 1 if pairs else interval.freedom_of(variances, sizes),
        is_paired=bool(pairs),
        is_conditional=not has_failures and not is_one_recipe,
    )


def p_different(first: Sample, second: Sample) -> float:
    """Probability of such a difference between equal sides; 1 with too few trials for a verdict.

    Where no trial missed, the sides are equal if their trials that reach are.
    """
    return contrast(first, second).p_different


def ratio_of_means(
    first: Sequence[float],
    second: Sequence[float],
    steps: tuple[Sequence[float | None], Sequence[float | None]] = ((), ()),
) -> Interval:
    """Ratio of two means of positive figures, second over first, with its interval or range.

    Args:
      steps: Of figures that fall on a grid the distance to the one before (`Sample.steps`).

    Raises:
      ValueError: A side has no figure.
    """
    a, b = (
        Sample(np.asarray(side, np.float64), np.ones(len(side), bool), steps=tuple(of_side))
        for side, of_side in zip((first, second), steps, strict=True)
    )
    ratio = contrast(a, b).ratio(ALPHA)
    if ratio is None:
        raise ValueError("a side has no figure above 0, so there is no ratio")
    return ratio
