"""Iso-quality: what one side needs to reach what the other reached, along the other's curve.

Source: the band inverts the test of B. L. Welch, Biometrika 34 (1947).
"""

import dataclasses

import numpy as np

from dawnjax.statistics.curves import Curves, chord_errors
from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS, Interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class IsoPoint:
    """What B needs to reach what A has at a place of its curve.

    Attributes:
      place: Of A: seconds, steps, tokens or another unit.
      quality: Mean of A's trials there.
      other: Place at which the mean of B's trials first has that quality; None where B has it at
        its first evaluation already, or not until a trial of it ends.
      is_at_first: Whether B has it at its first evaluation already.
      low: Least place of B at which its mean does not differ from that quality at 5 %; None where
        fewer than 5 trials give no band, or where it begins before B's evaluations.
      high: The greatest; None likewise, or where it lies beyond B's evaluations.
    """

    place: float
    quality: float
    other: float | None
    low: float | None
    high: float | None
    is_at_first: bool = False

    @property
    def speedup(self) -> Interval | None:
        """A's place over B's, with the band's ends; None where B does not get there."""
        if not self.other:
            return None
        low, high = (self.place / end if end else None for end in (self.high, self.low))
        has_band = low is not None and high is not None
        level = 1 - ALPHA if has_band else None
        return Interval(self.place / self.other, low, high, level, FEWEST_TRIALS)


_FINE = 2000
"""Places of B's curve at which the band looks, at least."""

_MOST = 20_000
"""Places of B's evaluations at which it looks too."""


def iso_quality(first: Curves, second: Curves, direction: str, most: int = 40) -> list[IsoPoint]:
    """What B needs to reach what A reached, along A's curve.

    Both curves are means over all trials, where each has a value. The band inverts Welch's test: it
    holds the places at which B's mean does not differ from A's at 5 %, so that it needs no slope
    and holds pointwise. The error of lines between evaluations widens it, as in `judge_at`.

    Args:
      most: Places of A's curve, at even steps of its evaluations.
    """
    spans = [common_span(side) for side in (first, second)]
    if spans[0] is None or spans[1] is None:
        return []
    sign = 1 if direction == "at_least" else -1
    grid = np.unique(np.concatenate(first.places))
    grid = grid[(grid >= spans[0][0]) & (grid <= spans[0][1]) & (grid > 0)]
    if not len(grid):
        return []
    grid = grid[np.unique(np.linspace(0, len(grid) - 1, min(most, len(grid))).round().astype(int))]
    own = np.unique(np.concatenate(second.places))
    own = own[(own >= spans[1][0]) & (own <= spans[1][1])]
    # Where every trial has many evaluations, the even places lie as near to them as matters.
    own = own if len(own) <= _MOST else own[:0]
    fine = np.unique(np.concatenate([own, np.linspace(*spans[1], _FINE)]))
    a, b = _Means.of(first, grid), _Means.of(second, fine)
    has_band = min(len(first), len(second)) >= FEWEST_TRIALS
    points = []
    for number, place in enumerate(grid):
        gap = sign * (b.mean - a.mean[number])  # 0 or more where B has reached
        reached = np.flatnonzero(gap >= 0)
        other = None
        if len(reached) and reached[0] > 0:
            at = reached[0]
            share = -gap[at - 1] / (gap[at] - gap[at - 1])
            other = float(fine[at - 1] + share * (fine[at] - fine[at - 1]))
        low = high = None
        if has_band and other is not None:
            low, high = _band(a, b, number, fine)
        points.append(
            IsoPoint(
                place=float(place),
                quality=float(a.mean[number]),
                other=other,
                low=low,
                high=high,
                is_at_first=bool(len(reached) and reached[0] == 0),
            )
        )
    return points


def common_span(side: Curves) -> tuple[float, float] | None:
    """Places between which every trial has evaluations; None where there are none."""
    if not len(side) or any(len(places) < 2 for places in side.places):
        return None
    if any(np.isnan(values).any() for values in side.values):
        return None
    first = max(float(places[0]) for places in side.places)
    last = min(float(places[-1]) for places in side.places)
    return (first, last) if first < last else None


@dataclasses.dataclass(frozen=True)
class _Means:
    """Means of a side's trials at some places, their variances and the errors of their lines."""

    mean: np.ndarray
    variance: np.ndarray
    errors: np.ndarray  # [places, 2]
    trials: int

    @classmethod
    def of(cls, side: Curves, at: np.ndarray) -> "_Means":
        pairs = list(zip(side.places, side.values, strict=True))
        rows = np.array([np.interp(at, *pair) for pair in pairs])
        errors = np.mean(
            [chord_errors(*pair, at) for pair in pairs],
            axis=0,
        )
        count = len(side)
        variance = rows.var(axis=0, ddof=1) / count if count > 1 else np.full(len(at), np.nan)
        return cls(rows.mean(axis=0), variance, errors, count)


def _band(a: _Means, b: _Means, number: int, fine: np.ndarray) -> tuple[float | None, float | None]:
    """Ends of the places of B at which its mean does not differ from A's at one of its places."""
    variances = a.variance[number], b.variance
    total = variances[0] + variances[1]
    parts = variances[0] ** 2 / max(1, a.trials - 2) + variances[1] ** 2 / max(1, b.trials - 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(parts > 0, total**2 / parts, 1.0)
    from scipy import special

    half = special.stdtrit(freedom, 1 - ALPHA / 2) * np.sqrt(total)
    nets = b.errors - a.errors[number]
    value = b.mean - a.mean[number]
    low = value - np.maximum(0.0, nets.max(axis=1)) - half
    high = value - np.minimum(0.0, nets.min(axis=1)) + half
    held = np.flatnonzero((low <= 0) & (high >= 0))
    if not len(held):
        return None, None
    first, last = int(held[0]), int(held[-1])
    # The neighbours outside, so that the grid narrows no band.
    return (
        float(fine[first - 1]) if first else None,
        float(fine[last + 1]) if last + 1 < len(fine) else None,
    )
