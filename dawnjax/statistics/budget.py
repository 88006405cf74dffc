"""Quality at a budget: the difference of two sides' means, its interval, and a verdict.

A line between two evaluations errs where the curve bends: the mean of the chord's error, estimated
from the second differences on either side of the budget, widens the interval and the tests
(`curves.Reading.bends`). Sides that are evaluated at the same places err alike, so that little of
it remains; at an evaluation there is none.

`python -m benchmarks verdicts_at_budgets` simulates how often each claim is wrong.

Source: B. L. Welch, Biometrika 34 (1947), for the difference of two means; Holm's procedure and
equivalence as in `verdict`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dawnjax.statistics import interval
from dawnjax.statistics.curves import Curves, Reading
from dawnjax.statistics.further import Advice, advise
from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS, Estimate, Interval, percent
from dawnjax.statistics.verdict import EQUIVALENT, UNDECIDED, holm

BETTER, WORSE = "better", "worse"
QUALITY_WORDS = (BETTER, WORSE, EQUIVALENT, UNDECIDED)


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
      between: Trials of each side with a value interpolated between two evaluations.
      line_error: Least and greatest error of those lines in the difference, which the interval has.
      advice: Further trials that may decide; None where the verdict is decided.
      why: The verdict's basis, or why there is none.
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
class Difference:
    """Means of two sides at a budget, with the error of their difference.

    `sign` is 1 where greater values are better and -1 where less are.
    """

    sides: tuple[Reading, Reading]
    sign: int
    value: float = 0.0
    estimate: Estimate | None = None
    is_paired: bool = False
    lacks: str = ""
    minimum: int = 0

    @property
    def means(self) -> tuple[float | None, float | None]:
        a, b = (float(side.values.mean()) if len(side.values) else None for side in self.sides)
        return a, b

    @property
    def p_different(self) -> float:
        return 1.0 if self.estimate is None else self.estimate.p_different

    def p_equivalent(self, margin: float | None) -> float:
        found = self.estimate
        return 1.0 if found is None or margin is None else found.p_equivalent(margin)

    def interval(self, alpha: float) -> Interval | None:
        first, second = (side.values for side in self.sides)
        few = min(len(first), len(second))
        if not few:
            return None
        if self.estimate is None:
            ends: tuple[float | None, float | None] = (None, None)
            if few > 1:
                ends = float(second.min() - first.max()), float(second.max() - first.min())
            return Interval(self.value, *ends, None, few)
        return self.estimate.interval(alpha, few)


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
    cases = [difference(first, second, at, sign) for first, second, at in pairs]
    different = holm([case.p_different for case in cases], lambda left: alpha / left)
    equivalent = holm([case.p_equivalent(margin) for case in cases], lambda left: ALPHA / left)
    return [
        _verdict(case, margin, levels)
        for case, levels in zip(cases, zip(different, equivalent, strict=True), strict=True)
    ]


def difference(first: Curves, second: Curves, budget: float | None, sign: int) -> Difference:
    sides = (
        (first.ends(), second.ends()) if budget is None else (first.at(budget), second.at(budget))
    )
    a, b = (side.values for side in sides)
    if not (len(a) and len(b)):
        return Difference(sides, sign, lacks=_missing_words(sides) or "a side has no trial")
    value = float(b.mean() - a.mean())
    case = Difference(sides, sign, value)
    if missing := _missing_words(sides):
        return dataclasses.replace(case, lacks=missing)
    sizes = len(a), len(b)
    if min(sizes) < FEWEST_TRIALS:
        why = f"{sizes[0]} and {sizes[1]} trials; a verdict needs {FEWEST_TRIALS} of each"
        return dataclasses.replace(case, lacks=why, minimum=FEWEST_TRIALS - min(sizes))
    bends = sides[0].bends, sides[1].bends
    if bends[0] is None or bends[1] is None:
        why = "a trial has only two evaluations, which do not show the error of a line between them"
        return dataclasses.replace(case, lacks=why)
    pairs = _pairs(first, second)
    if pairs:
        gaps = np.array([b[right] - a[left] for left, right in pairs])
        error, freedom = float(gaps.std(ddof=1)) / math.sqrt(len(gaps)), float(len(gaps) - 1)
    else:
        variances = float(a.var(ddof=1)) / sizes[0], float(b.var(ddof=1)) / sizes[1]
        error, freedom = math.sqrt(sum(variances)), interval.freedom_of(variances, sizes)
    if not error:
        why = "the trials of each side have equal values, so their variation is not known"
        return dataclasses.replace(case, lacks=why)
    nets = [right - left for left, right in zip(bends[0], bends[1], strict=True)]
    found = Estimate(value, error, freedom, (min(0.0, *nets), max(0.0, *nets)))
    return dataclasses.replace(case, estimate=found, is_paired=bool(pairs))


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


def _verdict(case: Difference, margin: float | None, levels: tuple[float, float]) -> QualityVerdict:
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
        means=case.means,
        margin=margin,
        is_worse_excluded=excluded,
        trials=(len(sides[0].values), len(sides[1].values)),
        missing=tuple(
            {"short": side.short, "late": side.late, "lost": side.lost} for side in sides
        ),  # type: ignore[arg-type]
        between=(sides[0].between, sides[1].between),
        line_error=case.estimate.bias if case.estimate else (0.0, 0.0),
        is_paired=case.is_paired,
        advice=advice,
        why=why,
    )


def _claim(
    case: Difference, margin: float | None, levels: tuple[float, float]
) -> tuple[str, str, Advice | None]:
    estimate = case.estimate
    if estimate is None:
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
    # What lines between evaluations may err, no number of trials takes away.
    least, span = estimate.least, estimate.bias[1] - estimate.bias[0]
    if not least and span > estimate.error:
        why = (
            "the difference is within the error of a line between two evaluations; evaluate at the "
        )
        return UNDECIDED, why + "budget itself", None
    advice = advise(
        distance=least,
        error=estimate.error,
        freedom=estimate.freedom,
        trials=min(len(side.values) for side in case.sides),
        edge=margin - span / 2 if margin and margin > span / 2 else None,
        alpha=levels[0],
        equivalence_alpha=levels[1],
    )
    why = f"the {kind} holds 0"
    if span > estimate.error:
        why += ", and most of its width is the error of lines between evaluations: evaluate at "
        why += "the budget"
    return UNDECIDED, why, advice
