"""Verdict on B beside A: the ratio of their expected times, its interval, and a word.

The interval is the t interval of the logarithm of the ratio, with the variance of each expected
time by linearization (`sample.Sample.influence`). Where all trials reached, that is the interval of
the ratio of the mean times. Samples whose trials are pairs by seed (`sample.Sample.pairs`) have the
variance of their pairs' differences.

`tests/statistics/verdict_test.py` simulates how often equal sides are found to differ: in at most
5 % of pairs, with 5 to 100 trials a side, CVs of 0.4 to 20 %, with and without failures.

Source: D. J. Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15 (1987), for equivalence by two
one-sided tests; S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J.
Statist. 6 (1979), for verdicts that hold together; the degrees of freedom are
`interval.freedom_of`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from dawnjax.statistics import interval
from dawnjax.statistics.further import Advice, advise
from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS, Interval, percent
from dawnjax.statistics.proportions import fisher
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES, Sample

FASTER, SLOWER, EQUIVALENT, UNDECIDED = "faster", "slower", "equivalent", "undecided"
ONLY_FIRST, ONLY_SECOND = "only_first_reached", "only_second_reached"
WORDS = (FASTER, SLOWER, EQUIVALENT, ONLY_FIRST, ONLY_SECOND, UNDECIDED)
DIFFERENT = (FASTER, SLOWER, ONLY_FIRST, ONLY_SECOND)

MARGIN = 0.05
"""Ratios of expected times within this of 1 count as equivalent, unless the user says otherwise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """Verdict on B beside A.

    Attributes:
      word: One of `WORDS`: B beside A. `only_first_reached` where B never reached the target, and A
        reached it more often than chance explains; `only_second_reached` the other way round.
      ratio: Expected time of B over that of A; None where a side has none. Its ends are an interval
        of the level that the verdict was held to, or the range of trials that are too few.
      margin: What counts as equivalent: a ratio between 1 / (1 + margin) and 1 + margin.
      is_slower_excluded: Whether B being slower by the margin or more is excluded.
      trials: Of A and B.
      reached: Trials of each that reached.
      is_paired: Whether the interval is that of pairs by seed.
      advice: Further trials that may decide; None where the verdict is decided.
      why: What the verdict rests on, or why there is none.
    """

    word: str
    ratio: Interval | None
    margin: float
    is_slower_excluded: bool
    trials: tuple[int, int]
    reached: tuple[int, int]
    is_paired: bool
    advice: Advice | None
    why: str

    @property
    def is_slower(self) -> bool:
        """True if B takes longer by more than chance explains, within the margin or beyond it."""
        low = self.ratio and self.ratio.level is not None and self.ratio.low
        return self.word == ONLY_FIRST or bool(low and low > 1)

    def before_a_look(self, trials: int) -> "Verdict":
        """The same without a claim, for a study that has not yet looked."""
        why = f"the study first looks after {trials} trials of each"
        ratio = self.ratio and Interval(self.ratio.value, None, None, None, self.ratio.trials)
        return dataclasses.replace(
            self, word=UNDECIDED, ratio=ratio, is_slower_excluded=False, advice=None, why=why
        )

    def to_json(self) -> dict[str, object]:
        """Plain JSON values, with the ratio's parts beside the others."""
        record = dataclasses.asdict(self)
        ratio = self.ratio
        record |= {
            "ratio": ratio and ratio.value,
            "low": ratio and ratio.low,
            "high": ratio and ratio.high,
            "level": ratio and ratio.level,
            "ends": ratio.ends if ratio else "",
        }
        return record


def judge(
    first: Sample,
    second: Sample,
    margin: float = MARGIN,
    *,
    alpha: float = ALPHA,
    may_be_equivalent: bool = True,
) -> Verdict:
    """Compare the expected times of two samples.

    B is `equivalent` where the 90 % interval of the ratio lies between 1 / (1 + margin) and
    1 + margin (two one-sided tests at 5 %); else `faster` where the 95 % interval lies below 1, and
    `slower` where it lies above 1; else `undecided`.

    Args:
      margin: Above 0 and below 1.
      alpha: Chance that equal sides are found to differ; less where a study looks several times.
      may_be_equivalent: False at looks before a study's last, which may claim no equivalence.
    """
    [verdict] = judge_all(
        first, [second], margin, alpha_of=lambda _: alpha, may_be_equivalent=may_be_equivalent
    )
    return verdict


def judge_all(
    first: Sample,
    others: Sequence[Sample],
    margin: float = MARGIN,
    *,
    alpha_of: Callable[[int], float] = lambda left: ALPHA / left,
    left: int | None = None,
    may_be_equivalent: bool = True,
) -> list[Verdict]:
    """Compare several samples with the first, so that the verdicts hold together.

    If all are equal, one or more is found to differ in 5 % of cases; if all differ by the margin,
    one or more is found equivalent in 5 % of cases (Holm's procedure, for each of the two kinds).

    Args:
      alpha_of: From a number of open comparisons to the level of a test.
      left: Number of open comparisons; that of `others` unless given.
    """
    if not 0 < margin < 1:
        raise ValueError(f"a margin of {margin:g} is not between 0 and 1")
    left = len(others) if left is None else left
    cases = [_contrast(first, other) for other in others]
    different = holm([case.p_different for case in cases], alpha_of, left)
    equal = [case.p_equivalent(margin) if may_be_equivalent else 1.0 for case in cases]
    equivalent = holm(equal, lambda count: ALPHA / count, left)
    return [
        case.verdict(margin, alpha, p <= level, level)
        for case, alpha, p, level in zip(cases, different, equal, equivalent, strict=True)
    ]


def p_different(first: Sample, second: Sample) -> float:
    """Probability of such a difference between equal sides; 1 with too few trials for a verdict."""
    return _contrast(first, second).p_different


def ratio_of_means(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Ratio of two means of positive figures, second over first, with its interval or range.

    Raises:
      ValueError: A side has no figure.
    """
    sides = (np.asarray(side, np.float64) for side in (first, second))
    ratio = _contrast(*(Sample(side, np.ones(len(side), bool)) for side in sides)).ratio(ALPHA)
    if ratio is None:
        raise ValueError("a side has no figure above 0, so there is no ratio")
    return ratio


def holm(
    p_values: Sequence[float], alpha_of: Callable[[int], float], left: int | None = None
) -> list[float]:
    """Level for each p value; a claim holds where the p value is at most its level.

    Args:
      alpha_of: From a number of open hypotheses to the level of a test.
      left: Number of open hypotheses; that of `p_values` unless given.
    """
    left = len(p_values) if left is None else left
    levels = [0.0] * len(p_values)
    is_open = True
    # Holm steps down: after the first claim that fails, no later one may hold.
    for index in sorted(range(len(p_values)), key=lambda i: p_values[i]):
        levels[index] = alpha_of(max(1, left))
        is_open = is_open and p_values[index] <= levels[index]
        left -= is_open
    return levels


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Contrast:
    """Two samples with the logarithm of their ratio, its error and degrees of freedom.

    `lacks` says why there are too few trials for an interval; `p_reach` is Fisher's p value where
    one side never reached.
    """

    sides: tuple[Sample, Sample]
    distance: float | None = None
    error: float = 0.0
    freedom: float = 1.0
    is_paired: bool = False
    lacks: str = ""
    minimum: int = 0
    p_reach: float | None = None

    @property
    def p_different(self) -> float:
        if self.p_reach is not None:
            return self.p_reach
        if self.distance is None or self.lacks:
            return 1.0
        return 2 * self._tail(abs(self.distance))

    def p_equivalent(self, margin: float) -> float:
        """Probability of a ratio so near to 1 between sides that differ by the margin."""
        if self.distance is None or self.lacks:
            return 1.0
        return self._tail(math.log1p(margin) - abs(self.distance))

    def _tail(self, distance: float) -> float:
        if not self.error:
            return 0.0 if distance > 0 else 1.0 if distance < 0 else 0.5
        return interval.t_tail(self.freedom, distance / self.error)

    def ratio(self, alpha: float) -> Interval | None:
        if self.distance is None:
            return None
        value, few = math.exp(self.distance), min(map(len, self.sides))
        if self.lacks:
            ends: tuple[float | None, float | None] = (None, None)
            if few > 1 and not any(side.has_failures for side in self.sides):
                a, b = (side.amounts for side in self.sides)
                ends = float(b.min() / a.max()), float(b.max() / a.min())
            return Interval(value, *ends, None, few)
        half = interval.t_quantile(self.freedom, 1 - alpha) * self.error
        return Interval(value, value * math.exp(-half), value * math.exp(half), 1 - alpha, few)

    def verdict(
        self, margin: float, alpha: float, is_equivalent: bool, equivalence_alpha: float
    ) -> Verdict:
        ratio = self.ratio(alpha)
        word, why, advice = self._word(margin, alpha, is_equivalent, equivalence_alpha)
        excluded = bool(ratio and ratio.level is not None and (ratio.high or 0.0) < 1 + margin)
        return Verdict(
            word=word,
            ratio=ratio,
            margin=margin,
            is_slower_excluded=excluded or word == ONLY_SECOND,
            trials=(len(self.sides[0]), len(self.sides[1])),
            reached=(self.sides[0].num_reached, self.sides[1].num_reached),
            is_paired=self.is_paired,
            advice=advice,
            why=why,
        )

    def _word(
        self, margin: float, alpha: float, is_equivalent: bool, equivalence_alpha: float
    ) -> tuple[str, str, Advice | None]:
        is_different = self.p_different <= alpha
        if self.p_reach is not None and is_different:
            never = int(self.sides[1].num_reached == 0)
            counts = [f"{side.num_reached} of {len(side)}" for side in self.sides]
            why = f"{counts[never]} trials of {'AB'[never]} reached the target and "
            why += f"{counts[1 - never]} of {'AB'[1 - never]} (Fisher's test, p {self.p_reach:.2g})"
            return (ONLY_FIRST if never else ONLY_SECOND), why, None
        if self.lacks:
            advice = Advice(minimum=self.minimum) if self.minimum > 0 else None
            return UNDECIDED, self.lacks, advice
        assert self.distance is not None
        kind = f"{'paired ' if self.is_paired else ''}{percent(1 - alpha)} interval"
        if is_equivalent:
            inner = percent(1 - 2 * equivalence_alpha)
            kind = kind.replace(percent(1 - alpha), inner)
            return EQUIVALENT, f"the {kind} lies within the margin of {100 * margin:g} %", None
        if is_different:
            word, place = (FASTER, "below") if self.distance < 0 else (SLOWER, "above")
            return word, f"the {kind} lies {place} 1", None
        advice = advise(
            distance=self.distance,
            error=self.error,
            freedom=self.freedom,
            trials=min(map(len, self.sides)),
            margin=margin,
            alpha=alpha,
            equivalence_alpha=equivalence_alpha,
        )
        return UNDECIDED, f"the {kind} holds 1, and is wider than the margin", advice


def _contrast(first: Sample, second: Sample) -> _Contrast:
    sides = first, second
    if not all(map(len, sides)):
        name = "B" if len(first) else "A"
        return _Contrast(sides=sides, lacks=f"{name} has no trial", minimum=FEWEST_TRIALS)
    never = [not side.num_reached for side in sides]
    if any(never):
        name, side = ("B", second) if never[1] else ("A", first)
        p = None
        if not all(never):
            p = fisher(first.num_reached, len(first), second.num_reached, len(second))
        lacks = f"no trial of {name} reached the target, of {len(side)}"
        return _Contrast(sides=sides, lacks=lacks, p_reach=p)
    if not (first.expected and second.expected):
        return _Contrast(sides=sides, lacks="a side took no time, so there is no ratio")
    logarithms = [math.log(first.expected), math.log(second.expected)]
    distance = logarithms[1] - logarithms[0]
    sizes = len(first), len(second)
    has_failures = first.has_failures or second.has_failures
    # A failure's cost dominates the variance, which few trials cannot show.
    needed = FEWEST_WITH_FAILURES if has_failures else FEWEST_TRIALS
    if min(sizes) < needed:
        why = f"{sizes[0]} and {sizes[1]} trials; a verdict needs {needed} of each"
        why += ", since some did not reach the target" if has_failures else ""
        return _Contrast(sides=sides, distance=distance, lacks=why, minimum=needed - min(sizes))
    longest = max(side.longest_failure for side in sides)
    variances = first.variance(longest), second.variance(longest)
    pairs = first.pairs(second)
    if not pairs:
        error, freedom = math.sqrt(sum(variances)), interval.freedom_of(variances, sizes)
        return _Contrast(sides=sides, distance=distance, error=error, freedom=freedom)
    count = len(pairs)
    squares = sum((second.influence[b] - first.influence[a]) ** 2 for a, b in pairs)
    squares += sum((longest / side.mean_amount) ** 2 for side in sides)
    error = math.sqrt(float(squares) / (count * (count - 1)))
    return _Contrast(sides=sides, distance=distance, error=error, freedom=count - 1, is_paired=True)
