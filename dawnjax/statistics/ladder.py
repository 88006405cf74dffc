"""A ladder: the gain of one change at several sizes, and whether it grows, holds or fades.

The gain at a size is the logarithm of the speedup: what A needs to reach a quality over what B
needs, where the quality is the end of the side that ends worse. Where the curves do not tell it,
each trial having one evaluation, it is the difference of the qualities. A straight line over the
logarithm of the size is fitted to the gains; its slope is a contrast of independent estimates,
whose error and degrees of freedom follow from theirs.

A trend says nothing of sizes beyond the largest.

`python -m benchmarks verdicts_on_ladders` simulates how often each word is wrong.

Source: B. L. Welch, Biometrika 34 (1947), and F. E. Satterthwaite, Biometrics Bulletin 2 (1946),
for a contrast of means with other variances; W. G. Cochran, Biometrics 10 (1954), for the test
whether estimates with known errors lie on one line.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dawnjax.statistics.budget import difference
from dawnjax.statistics.curves import Curves
from dawnjax.statistics.interval import ALPHA, Estimate, Interval
from dawnjax.statistics.verdict import UNDECIDED

GROWS, HOLDS, FADES = "grows", "holds", "fades"
TREND_WORDS = (GROWS, HOLDS, FADES, UNDECIDED)

FEWEST_SIZES = 3
"""Two sizes lie on a line whatever they are."""

_FLAT = math.log(100)
"""Error of a speedup's logarithm from which on its curve is too flat to tell a speedup."""


@dataclasses.dataclass(frozen=True)
class Gain:
    """Gain of B over A at one size; above 0 B is better.

    Attributes:
      estimate: None where `lacks` says why there is none.
      trials: Of A and B.
      means: Qualities of A and B where they are read; None where a side has none.
      difference: B's mean quality less A's; None where a side has none.
    """

    estimate: Estimate | None
    trials: tuple[int, int]
    means: tuple[float | None, float | None]
    difference: Interval | None
    lacks: str = ""

    @property
    def interval(self) -> Interval | None:
        """The gain with its 95 % interval; None where there is none."""
        return self.estimate and self.estimate.interval(ALPHA, min(self.trials))


@dataclasses.dataclass(frozen=True)
class Trend:
    """Verdict on gains over sizes.

    Attributes:
      word: One of `TREND_WORDS`.
      change: By how much the fitted gain changes from the smallest size to the largest, with its
        95 % interval; None where a size has no gain.
      line: Fitted gain at each size; empty likewise.
      why: The verdict's basis, or why there is none.
    """

    word: str
    change: Interval | None
    line: tuple[float, ...]
    why: str


def speedup(first: Curves, second: Curves, budget: float | None, direction: str) -> Gain:
    """Logarithm of the speedup of B over A at equal quality.

    Args:
      budget: Where both are read, in the unit of the curves; None for their last evaluations.
      direction: `at_least` where greater values are better, else `at_most`.
    """
    found = quality(first, second, budget, direction)
    if found.estimate is None:
        return found
    sign = 1 if direction == "at_least" else -1
    sides = first, second
    if any(np.isnan(values).any() for side in sides for values in side.values):
        why = "a trial has an evaluation without a finite value"
        return dataclasses.replace(found, estimate=None, lacks=why)
    ends = [_end(side, budget) for side in sides]
    if ends[0] is None or ends[1] is None:
        return dataclasses.replace(
            found, estimate=None, lacks="the trials of a side end at different places"
        )
    better = int(found.estimate.value > 0)
    end, wanted = ends[better], ends[1 - better]
    assert end is not None and wanted is not None
    places, means = _means(sides[better], end)
    goal = sign * _mean_at(sides[1 - better], wanted)
    # The end has it, but for rounding where both sides end alike.
    short = np.flatnonzero(sign * means[:-1] < goal)
    if not len(short):
        # Each evaluation has it already: that of A's or B's first, or all of the curve.
        why = f"{'AB'[better]} has at its first evaluation what {'AB'[1 - better]} has at its end"
        return dataclasses.replace(found, estimate=None, lacks=why)
    last = int(short[-1])
    gap, step = goal - sign * means[last], sign * (means[last + 1] - means[last])
    share = gap / step if gap < step else 1.0
    crossing = float(places[last] + share * (places[last + 1] - places[last]))
    value = math.log(wanted / crossing) * (1 if better else -1)
    own, other = sides[better].at(crossing).bends, sides[1 - better].at(wanted).bends
    if own is None or other is None:
        why = "a trial has only two evaluations, which do not show the error of a line between them"
        return dataclasses.replace(found, estimate=None, lacks=why)
    # From a difference of quality to one of the logarithm of the place: the slope of the secant.
    rise = sign * float(means[-1] - means[last]) / math.log(places[-1] / places[last])
    # One side's line errs at the crossing, the other's at the budget.
    nets = [sign * (mine - theirs) for mine in own for theirs in other]
    if max(found.estimate.error, *map(abs, nets)) >= _FLAT * rise:
        why = f"the curve of {'AB'[better]} is flat where it has what {'AB'[1 - better]} has"
        return dataclasses.replace(found, estimate=None, lacks=why)
    bias = min(0.0, *nets) / rise, max(0.0, *nets) / rise
    if not better:
        bias = (-bias[1], -bias[0])
    error = found.estimate.error / rise
    estimate = Estimate(value, error, found.estimate.freedom, bias)
    return dataclasses.replace(found, estimate=estimate)


def quality(first: Curves, second: Curves, budget: float | None, direction: str) -> Gain:
    """Difference of the qualities of B and A, above 0 where B is better."""
    sign = 1 if direction == "at_least" else -1
    case = difference(first, second, budget, sign)
    found = case.estimate
    if found is not None and sign < 0:
        low, high = found.bias
        found = dataclasses.replace(found, value=-found.value, bias=(-high, -low))
    trials = len(case.sides[0].values), len(case.sides[1].values)
    return Gain(found, trials, case.means, case.interval(ALPHA), case.lacks)


def _end(side: Curves, budget: float | None) -> float | None:
    """Where a side is read; None where its trials end at different places."""
    if budget is not None:
        return budget
    ends = {float(places[-1]) for places in side.places}
    return ends.pop() if len(ends) == 1 else None


def _means(side: Curves, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Places of a side's evaluations where every trial has a value, up to the end, and means."""
    first = max(float(places[0]) for places in side.places)
    every = np.unique(np.concatenate([*side.places, [end]]))
    at = every[(every >= first) & (every <= end) & (every > 0)]
    pairs = zip(side.places, side.values, strict=True)
    return at, np.mean([np.interp(at, *pair) for pair in pairs], axis=0)


def _mean_at(side: Curves, place: float) -> float:
    pairs = zip(side.places, side.values, strict=True)
    return float(np.mean([np.interp(place, *pair) for pair in pairs]))


def trend(sizes: Sequence[float], gains: Sequence[Gain], margin: float | None) -> Trend:
    """Whether gains grow, hold or fade over sizes.

    `holds` where the 90 % interval of the change from the smallest size to the largest lies within
    the margin; else `grows` or `fades` where the 95 % interval leaves out 0; else `undecided`.
    Gains that do not lie on a line are undecided too: by a test at 5 %, and one farther from it
    than the margin, or than half of the change.

    Args:
      sizes: Above 0, each once.
      margin: Change of the gain that counts as none; None where none does.
    """
    why = "; ".join(
        f"at size {size:g} {gain.lacks}"
        for size, gain in zip(sizes, gains, strict=True)
        if gain.estimate is None
    )
    if len(sizes) < FEWEST_SIZES:
        why = f"{len(sizes)} sizes; a trend needs {FEWEST_SIZES}"
    found = [gain.estimate for gain in gains if gain.estimate is not None]
    if why:
        return Trend(UNDECIDED, None, (), why)
    x = np.log(np.array(sizes, np.float64))
    y, errors = (np.array([getattr(it, name) for it in found]) for name in ("value", "error"))
    centred = x - x.mean()
    weights = centred / (centred**2).sum() * (x.max() - x.min())
    change = _contrast(weights, found)
    line = tuple(float(v) for v in y.mean() + (weights @ y) / (x.max() - x.min()) * centred)
    trials = min(min(gain.trials) for gain in gains)
    interval = change.interval(ALPHA, trials)
    far = abs(change.value) / 2 if margin is None else margin
    is_far = float(np.abs(y - line).max()) > far
    if is_far and _is_no_line(x, y, errors, min(it.freedom for it in found)):
        return Trend(UNDECIDED, interval, line, "the gains do not lie on a line over the sizes")
    if margin is not None and change.p_equivalent(margin) <= ALPHA:
        return Trend(HOLDS, interval, line, "the 90 % interval of the change is within the margin")
    if change.p_different <= ALPHA:
        word = GROWS if change.value > 0 else FADES
        way = "growth" if change.value > 0 else "decline"
        return Trend(word, interval, line, f"the 95 % interval of the change is all {way}")
    return Trend(UNDECIDED, interval, line, "the 95 % interval allows both growth and decline")


def _contrast(weights: np.ndarray, parts: Sequence[Estimate]) -> Estimate:
    """A weighted sum of independent estimates."""
    squares = [(w * it.error) ** 2 for w, it in zip(weights, parts, strict=True)]
    freedoms = sum(s**2 / it.freedom for s, it in zip(squares, parts, strict=True))
    ends = [sorted((w * it.bias[0], w * it.bias[1])) for w, it in zip(weights, parts, strict=True)]
    return Estimate(
        sum(float(w) * it.value for w, it in zip(weights, parts, strict=True)),
        math.sqrt(sum(squares)),
        sum(squares) ** 2 / freedoms,
        (float(sum(low for low, _ in ends)), float(sum(high for _, high in ends))),
    )


def _is_no_line(x: np.ndarray, y: np.ndarray, errors: np.ndarray, freedom: float) -> bool:
    """True if the best line leaves more than the errors explain, by an F test at 5 %."""
    from scipy import special

    over = len(x) - 2
    rows = np.stack([np.ones(len(x)), x], axis=1) / errors[:, None]
    fitted = rows @ np.linalg.lstsq(rows, y / errors, rcond=None)[0]
    statistic = float(((y / errors - fitted) ** 2).sum()) / over
    return bool(special.fdtrc(over, freedom, statistic) <= ALPHA)
