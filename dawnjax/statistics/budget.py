"""Quality at a budget: the difference of two sides' means, its interval, and a verdict.

A trial's quality at a budget lies on the line between two of its evaluations, and is unknown before
its first and beyond its last. A line errs where the curve bends: the mean of the chord's error,
estimated from the second differences on either side of the budget, widens the interval and the
tests (`Reading.bends`). Sides that are evaluated at the same places err alike, so that little of it
remains; at an evaluation there is none.

`python -m benchmarks verdicts_at_budgets` simulates how often each claim is wrong.

Source: B. L. Welch, Biometrika 34 (1947), for the difference of two means; the error of a chord is
(x - a)(b - x) times the divided difference of second order, as in F. B. Hildebrand, "Introduction
to Numerical Analysis" (1956), chapter 2; Holm's procedure and equivalence as in `verdict`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dawnjax.statistics import interval
from dawnjax.statistics.further import Advice, advise
from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS, Interval, percent
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import EQUIVALENT, UNDECIDED, holm

BETTER, WORSE = "better", "worse"
QUALITY_WORDS = (BETTER, WORSE, EQUIVALENT, UNDECIDED)


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """Qualities of one side at a budget.

    Attributes:
      values: Of the trials that have one there.
      trials: Places of those trials on their side.
      bends: Mean error of the line, by the evaluations on the left and on the right of the budget;
        None where a trial has no third evaluation that shows it.
      between: Trials whose value lies between two evaluations.
      short: Trials whose last evaluation came before the budget.
      late: Trials whose first evaluation came after it.
      lost: Trials without a finite quality there.
    """

    values: np.ndarray
    trials: tuple[int, ...]
    bends: tuple[float, float] | None
    between: int
    short: int
    late: int
    lost: int


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """Evaluations of one side's trials against one unit, such as seconds or steps.

    Attributes:
      places: Of each trial's evaluations, ascending.
      values: Qualities there; NaN where one is no finite number.
      pairing: Seeds and first losses of the trials, by which sides may be pairs.
    """

    places: tuple[np.ndarray, ...]
    values: tuple[np.ndarray, ...]
    pairing: Sample | None = None

    def __len__(self) -> int:
        return len(self.places)

    def at(self, budget: float) -> Reading:
        """Qualities at a budget."""
        found, trials, errors = [], [], []
        between = short = late = lost = 0
        for number, (places, values) in enumerate(zip(self.places, self.values, strict=True)):
            if not len(places) or places[-1] < budget:
                short += 1
                continue
            if places[0] > budget:
                late += 1
                continue
            right = int(np.searchsorted(places, budget))
            if places[right] == budget:
                value, error = float(values[right]), (0.0, 0.0)
            else:
                value = float(
                    np.interp(budget, places[right - 1 : right + 1], values[right - 1 : right + 1])
                )
                error = _chord_errors(places, values, right, budget)
            if math.isnan(value):
                lost += 1
                continue
            between += int(places[right] != budget)
            found.append(value)
            trials.append(number)
            errors.append(error)
        bends = None
        if found and not any(error is None for error in errors):
            left, right_ = np.mean(np.array(errors, np.float64), axis=0)
            bends = float(left), float(right_)
        return Reading(np.array(found), tuple(trials), bends, between, short, late, lost)

    def ends(self) -> Reading:
        """Qualities at each trial's last evaluation, wherever that is."""
        last = [float(values[-1]) if len(values) else math.nan for values in self.values]
        known = [number for number, value in enumerate(last) if not math.isnan(value)]
        empty = sum(not len(values) for values in self.values)
        return Reading(
            np.array([last[number] for number in known]),
            tuple(known),
            (0.0, 0.0),
            between=0,
            short=empty,
            late=0,
            lost=len(last) - len(known) - empty,
        )


def _chord_errors(
    places: np.ndarray, values: np.ndarray, right: int, budget: float
) -> tuple[float, float] | None:
    """Error of the line before `right`, by the evaluation to its left and by that to its right."""
    width = (budget - places[right - 1]) * (places[right] - budget)
    errors = [
        width * _bend(places[first : first + 3], values[first : first + 3])
        for first in (right - 2, right - 1)
        if first >= 0 and first + 3 <= len(places)
    ]
    errors = [error for error in errors if math.isfinite(error)]
    return (errors[0], errors[-1]) if errors else None


def _bend(places: np.ndarray, values: np.ndarray) -> float:
    """Divided difference of second order: half of the second derivative."""
    slopes = np.diff(values) / np.diff(places)
    return float((slopes[1] - slopes[0]) / (places[2] - places[0]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class QualityVerdict:
    """Verdict on the quality of B beside A at a budget.

    Attributes:
      word: One of `QUALITY_WORDS`: B beside A.
      difference: Mean of B less that of A, in the metric's unit, with an interval of the level that
        the verdict was held to, or the range of trials that are too few; None where a side has no
        trial there.
      means: Of A and B, over the trials that have a value.
      margin: Difference that counts as equal; None where none was given.
      is_worse_excluded: Whether B being worse by the margin or more is excluded.
      trials: Of A and B, with a value at the budget.
      missing: Of each side the trials that ended before the budget, that were first evaluated after
        it, and that have no finite value there.
      between: Trials of each side whose value lies on a line between two evaluations.
      line_error: Least and greatest error of those lines in the difference, which the interval has.
      advice: Further trials that may decide; None where the verdict is decided.
      why: What the verdict rests on, or why there is none.
    """

    word: str
    difference: Interval | None
    means: tuple[float | None, float | None]
    margin: float | None
    is_worse_excluded: bool
    trials: tuple[int, int]
    missing: tuple[dict[str, int], dict[str, int]]
    between: tuple[int, int]
    line_error: tuple[float, float]
    is_paired: bool
    advice: Advice | None
    why: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the difference's parts beside the others."""
        found = self.difference
        return dataclasses.asdict(self) | {
            "difference": found and found.value,
            "low": found and found.low,
            "high": found and found.high,
            "level": found and found.level,
            "ends": found.ends if found else "",
            "advice": self.advice and self.advice.to_json(),
        }


@dataclasses.dataclass(frozen=True)
class _Difference:
    """Means of two sides at a budget, with the error of their difference.

    `sign` is 1 where greater values are better and -1 where less are.
    """

    sides: tuple[Reading, Reading]
    sign: int
    value: float = 0.0
    error: float = 0.0
    freedom: float = 1.0
    is_paired: bool = False
    line_error: tuple[float, float] = (0.0, 0.0)
    lacks: str = ""
    minimum: int = 0

    @property
    def p_different(self) -> float:
        if self.lacks:
            return 1.0
        low, high = self.value - self.line_error[1], self.value - self.line_error[0]
        distance = max(low, -high, 0.0)
        return min(1.0, 2 * interval.t_tail(self.freedom, distance / self.error))

    def p_equivalent(self, margin: float | None) -> float:
        if self.lacks or margin is None:
            return 1.0
        low, high = self.value - self.line_error[1], self.value - self.line_error[0]
        return interval.t_tail(self.freedom, min(margin - high, margin + low) / self.error)

    def interval(self, alpha: float) -> Interval | None:
        first, second = (side.values for side in self.sides)
        few = min(len(first), len(second))
        if not few:
            return None
        if self.lacks:
            ends: tuple[float | None, float | None] = (None, None)
            if few > 1:
                ends = float(second.min() - first.max()), float(second.max() - first.min())
            return Interval(self.value, *ends, None, few)
        half = interval.t_quantile(self.freedom, 1 - alpha) * self.error
        low = self.value - self.line_error[1] - half
        return Interval(self.value, low, self.value - self.line_error[0] + half, 1 - alpha, few)


def judge_at(
    first: Curves,
    second: Curves,
    budgets: Sequence[float | None],
    *,
    direction: str,
    margin: float | None = None,
    alpha: float = ALPHA,
) -> list[QualityVerdict]:
    """Compare the qualities of two sides at some budgets, so that the verdicts hold together.

    B is `equivalent` where the 90 % interval of the difference lies within the margin (two
    one-sided tests at 5 %); else `better` or `worse` where the 95 % interval leaves out 0; else
    `undecided`. Where a trial of either side has no value at a budget, the verdict there is
    undecided: a mean of the others would flatter a side whose bad trials end early.

    Args:
      budgets: In the unit of the curves' places; None for each trial's last evaluation.
      direction: `at_least` where greater values are better, else `at_most`.
      margin: In the metric's unit, above 0.

    Raises:
      ValueError: The margin is not above 0.
    """
    if margin is not None and not margin > 0:
        raise ValueError(f"a margin of {margin:g} is not above 0")
    return judge_pairs([(first, second, at) for at in budgets], direction, margin, alpha)


def judge_pairs(
    pairs: Sequence[tuple[Curves, Curves, float | None]],
    direction: str,
    margin: float | None = None,
    alpha: float = ALPHA,
) -> list[QualityVerdict]:
    """The verdicts of `judge_at` on several pairs of sides, which hold together."""
    sign = 1 if direction == "at_least" else -1
    cases = [_difference(first, second, at, sign) for first, second, at in pairs]
    different = holm([case.p_different for case in cases], lambda left: alpha / left)
    equivalent = holm([case.p_equivalent(margin) for case in cases], lambda left: ALPHA / left)
    return [
        _verdict(case, margin, levels)
        for case, levels in zip(cases, zip(different, equivalent, strict=True), strict=True)
    ]


def _difference(first: Curves, second: Curves, budget: float | None, sign: int) -> _Difference:
    sides = (
        (first.ends(), second.ends()) if budget is None else (first.at(budget), second.at(budget))
    )
    a, b = (side.values for side in sides)
    if not (len(a) and len(b)):
        return _Difference(sides, sign, lacks=_missing_words(sides) or "a side has no trial")
    value = float(b.mean() - a.mean())
    case = _Difference(sides, sign, value)
    if missing := _missing_words(sides):
        return dataclasses.replace(case, lacks=missing)
    sizes = len(a), len(b)
    if min(sizes) < FEWEST_TRIALS:
        why = f"{sizes[0]} and {sizes[1]} trials; a verdict needs {FEWEST_TRIALS} of each"
        return dataclasses.replace(case, lacks=why, minimum=FEWEST_TRIALS - min(sizes))
    bends = sides[0].bends, sides[1].bends
    if bends[0] is None or bends[1] is None:
        why = (
            "a trial has two evaluations alone, which do not show how far a line between them errs"
        )
        return dataclasses.replace(case, lacks=why)
    pairs = _pairs(first, second)
    if pairs:
        gaps = np.array([b[right] - a[left] for left, right in pairs])
        error, freedom = float(gaps.std(ddof=1)) / math.sqrt(len(gaps)), float(len(gaps) - 1)
    else:
        variances = float(a.var(ddof=1)) / sizes[0], float(b.var(ddof=1)) / sizes[1]
        error, freedom = math.sqrt(sum(variances)), interval.freedom_of(variances, sizes)
    if not error:
        why = "the trials of each side have equal values, which say nothing of their variation"
        return dataclasses.replace(case, lacks=why)
    nets = [right - left for left, right in zip(bends[0], bends[1], strict=True)]
    return dataclasses.replace(
        case,
        error=error,
        freedom=freedom,
        is_paired=bool(pairs),
        line_error=(min(0.0, *nets), max(0.0, *nets)),
    )


def _pairs(first: Curves, second: Curves) -> list[tuple[int, int]]:
    """Places of pairs by seed, by the rule of `Sample.pairs`; empty where the sides are none."""
    if first.pairing is None or second.pairing is None:
        return []
    return first.pairing.pairs(second.pairing)


def _missing_words(sides: tuple[Reading, Reading]) -> str:
    """Trials without a value at the budget, in words; empty where every trial has one."""
    said = []
    for name, side in zip("AB", sides, strict=True):
        total = len(side.values) + side.short + side.late + side.lost
        for count, what in (
            (side.short, "ended before the budget"),
            (side.late, "had no evaluation up to the budget"),
            (side.lost, "have no finite value there"),
        ):
            if count:
                said.append(f"{count} of {total} trials of {name} {what}")
    if not said:
        return ""
    return f"{', and '.join(said)}: the others alone might flatter it"


def _verdict(
    case: _Difference, margin: float | None, levels: tuple[float, float]
) -> QualityVerdict:
    word, why, advice = _claim(case, margin, levels)
    found, sides = case.interval(levels[0]), case.sides
    excluded = False
    if found is not None and found.level is not None and margin is not None:
        # The end at which B is worst.
        worst = found.high if case.sign < 0 else found.low
        excluded = worst is not None and -case.sign * worst < margin
    return QualityVerdict(
        word=word,
        difference=found,
        means=tuple(float(side.values.mean()) if len(side.values) else None for side in sides),  # type: ignore[arg-type]
        margin=margin,
        is_worse_excluded=excluded,
        trials=(len(sides[0].values), len(sides[1].values)),
        missing=tuple(
            {"short": side.short, "late": side.late, "lost": side.lost} for side in sides
        ),  # type: ignore[arg-type]
        between=(sides[0].between, sides[1].between),
        line_error=case.line_error,
        is_paired=case.is_paired,
        advice=advice,
        why=why,
    )


def _claim(
    case: _Difference, margin: float | None, levels: tuple[float, float]
) -> tuple[str, str, Advice | None]:
    if case.lacks:
        return UNDECIDED, case.lacks, Advice(minimum=case.minimum) if case.minimum else None
    kind = "paired " if case.is_paired else ""
    if case.p_equivalent(margin) <= levels[1]:
        why = (
            f"the {kind}{percent(1 - 2 * levels[1])} interval lies within the margin of {margin:g}"
        )
        return EQUIVALENT, why, None
    kind += f"{percent(1 - levels[0])} interval"
    if case.p_different <= levels[0]:
        is_better = case.sign * case.value > 0
        side = "above" if case.value > 0 else "below"
        return (BETTER if is_better else WORSE), f"the {kind} lies {side} 0", None
    low, high = case.line_error
    if low <= case.value <= high and high - low > case.error:
        why = (
            "the difference is within what a line between two evaluations may err; evaluate at the "
        )
        return UNDECIDED, why + "budget itself", None
    advice = advise(
        distance=case.value,
        error=case.error,
        freedom=case.freedom,
        trials=min(len(side.values) for side in case.sides),
        edge=margin,
        alpha=levels[0],
        equivalence_alpha=levels[1],
    )
    return UNDECIDED, f"the {kind} holds 0", advice


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
        fewer than `FEWEST_TRIALS` trials give no band, or where it begins before B's evaluations.
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
    spans = [_common(side) for side in (first, second)]
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


def _common(side: Curves) -> tuple[float, float] | None:
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
            [_errors_along(*pair, at) for pair in zip(side.places, side.values, strict=True)],
            axis=0,
        )
        count = len(side)
        variance = rows.var(axis=0, ddof=1) / count if count > 1 else np.full(len(at), np.nan)
        return cls(rows.mean(axis=0), variance, errors, count)


def _errors_along(places: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Errors of the lines at many places, as `_chord_errors`; infinite where none is known."""
    if len(places) < 3:
        return np.where(np.isin(at, places)[:, None], 0.0, np.inf) * np.ones(2)
    slopes = np.diff(values) / np.diff(places)
    bends = np.diff(slopes) / (places[2:] - places[:-2])
    right = np.clip(np.searchsorted(places, at), 1, len(places) - 1)
    width = np.maximum(0.0, (at - places[right - 1]) * (places[right] - at))
    last = len(bends) - 1
    sides = [np.clip(right - 2, 0, last), np.clip(right - 1, 0, last)]
    return np.stack([width * bends[side] for side in sides], axis=1)


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
