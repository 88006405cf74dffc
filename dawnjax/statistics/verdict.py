"""Verdict on B beside A: the ratio of their expected times, its interval, and a word.

The interval holds for the ratio and for its logarithm: it spans Fieller's interval and the t
interval of the logarithm, with the variance of each expected time by linearization
(`sample.Sample.influence`). The logarithm alone calls a side slower because one machine stalled;
the ratio alone errs more often for skewed times. Samples whose trials are pairs by seed
(`sample.Sample.pairs`) have the variance of their pairs' differences.

`faster` and `slower` are claims about expected times, misses included. Where no trial missed,
misses are unknown: the claim then is about the trials that reach, `faster_if_all_reach`, unless
even as many misses as the trials may hide cannot make up for the difference. Pairs of the same
mathematics miss together, so they need no such condition.

`python -m benchmarks verdicts` simulates how often each claim is wrong.

Source: E. C. Fieller, "Some Problems in Interval Estimation", J. R. Statist. Soc. B 16 (1954);
D. J. Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15 (1987), for equivalence by two
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
from dawnjax.statistics.proportions import fisher, unseen_share
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES, Sample

FASTER, SLOWER, EQUIVALENT, UNDECIDED = "faster", "slower", "equivalent", "undecided"
FASTER_IF_ALL_REACH, SLOWER_IF_ALL_REACH = "faster_if_all_reach", "slower_if_all_reach"
ONLY_FIRST, ONLY_SECOND = "only_first_reached", "only_second_reached"
BETTER = (FASTER, FASTER_IF_ALL_REACH, ONLY_SECOND)
WORSE = (SLOWER, SLOWER_IF_ALL_REACH, ONLY_FIRST)
WORDS = (*BETTER, *WORSE, EQUIVALENT, UNDECIDED)
DIFFERENT = (FASTER, SLOWER, ONLY_FIRST, ONLY_SECOND)
"""Claims about expected times, misses included."""

MARGIN = 0.05
"""Ratios of expected times within this of 1 count as equivalent, unless the user says otherwise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """Verdict on B beside A.

    Attributes:
      word: One of `WORDS`: B beside A. `only_first_reached` where B never reached the target, and A
        reached it more often than chance explains; `only_second_reached` the other way round.
        `faster_if_all_reach` where trials that reach are faster, but misses may make up for it.
      ratio: Expected time of B over that of A; None where a side has none. Its ends are an interval
        of the level that the verdict was held to, or the range of trials that are too few.
      margin: What counts as equivalent: a ratio between 1 / (1 + margin) and 1 + margin.
      is_slower_excluded: Whether B being slower by the margin or more is excluded.
      trials: Of A and B.
      reached: Trials of each that reached.
      is_paired: Whether the interval is that of pairs by seed.
      apart: Side (0 for A) and place of a trial that stands apart (`Sample.apart`); a verdict that
        it alone decides is undecided.
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
    apart: tuple[int, int] | None
    advice: Advice | None
    why: str

    @property
    def is_slower(self) -> bool:
        """True if B takes longer by more than chance explains, within the margin or beyond it."""
        low = self.ratio and self.ratio.low
        return self.word in WORSE or bool(self.word == EQUIVALENT and low and low > 1)

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
            "advice": self.advice and self.advice.to_json(),
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
    `slower` where it lies above 1, or either of them `_if_all_reach`; else `undecided`.

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
    """Probability of such a difference between equal sides; 1 with too few trials for a verdict.

    Where no trial missed, the sides are equal if their trials that reach are.
    """
    return _contrast(first, second).p_different


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
    sides = (
        Sample(np.asarray(side, np.float64), np.ones(len(side), bool), steps=tuple(of_side))
        for side, of_side in zip((first, second), steps, strict=True)
    )
    ratio = _contrast(*sides).ratio(ALPHA)
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

    def ratio(self, alpha: float) -> Interval | None:
        if self.value is None:
            return None
        few = min(map(len, self.sides))
        if self.lacks:
            ends: tuple[float | None, float | None] = (None, None)
            if few > 1 and not any(side.has_failures for side in self.sides):
                a, b = (side.amounts for side in self.sides)
                ends = float(b.min() / a.max()), float(b.max() / a.min())
            return Interval(self.value, *ends, None, few)
        quantile = interval.t_quantile(self.freedom, 1 - alpha)
        rest = [1 - quantile**2 * part for part in (*self.variances, self.covariance)]
        if min(rest[:2]) <= 0:
            return Interval(self.value, None, None, None, few)
        # Fieller's ends are the roots x of rest[0] x^2 - 2 rest[2] x + rest[1], times the ratio.
        root = rest[2] + math.sqrt(max(0.0, rest[2] ** 2 - rest[0] * rest[1]))
        half = quantile * self.error
        low = self.value * min(math.exp(-half), rest[1] / root)
        high = self.value * max(math.exp(half), root / rest[0])
        return Interval(self.value, low, high, 1 - alpha, few)

    def verdict(
        self, margin: float, alpha: float, is_equivalent: bool, equivalence_alpha: float
    ) -> Verdict:
        ratio = self.ratio(alpha)
        word, why, advice = self._word(margin, alpha, is_equivalent, equivalence_alpha)
        apart = next(
            ((number, place) for number, side in enumerate(self.sides)
             if (place := side.apart) is not None),
            None,
        )  # fmt: skip
        if apart is not None:
            rest = self._without(*apart)
            others, *_ = rest._word(
                margin, alpha, rest.p_equivalent(margin) <= equivalence_alpha, equivalence_alpha
            )
            decides = others != word
            why = f"{self._apart_words(*apart)}; " + (
                f"with it the verdict is {_spoken(word)}, without it {_spoken(others)}"
                if decides
                else why
            )
            word, advice = (UNDECIDED, None) if decides else (word, advice)
        excluded = bool(ratio and ratio.level is not None and (ratio.high or 0.0) < 1 + margin)
        excluded |= word == ONLY_SECOND
        return Verdict(
            word=word,
            ratio=ratio,
            margin=margin,
            is_slower_excluded=excluded and not (apart and word == UNDECIDED),
            trials=(len(self.sides[0]), len(self.sides[1])),
            reached=(self.sides[0].num_reached, self.sides[1].num_reached),
            is_paired=self.is_paired,
            apart=apart,
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
        assert self.value is not None
        kind = f"{'paired ' if self.is_paired else ''}{percent(1 - alpha)} interval"
        if is_equivalent:
            inner = percent(1 - 2 * equivalence_alpha)
            kind = kind.replace(percent(1 - alpha), inner)
            count = len(self.sides[1])
            why = f"the {kind} lies within the margin of {100 * margin:g} %; {count} trials cannot "
            why += f"exclude that {_share(count)} of B's runs are much slower or miss the target"
            return EQUIVALENT, why, None
        if is_different:
            is_faster = self.value < 1
            why = f"the {kind} lies {'below' if is_faster else 'above'} 1"
            if self._is_certain(alpha):
                return (FASTER if is_faster else SLOWER), why, None
            count = len(self.sides[int(is_faster)])
            why += f"; all {count} trials of {'AB'[int(is_faster)]} reached, which cannot exclude "
            why += f"that it misses the target in {_share(count)} of runs"
            return (FASTER_IF_ALL_REACH if is_faster else SLOWER_IF_ALL_REACH), why, None
        if max(self.variances) * interval.t_quantile(self.freedom, 1 - alpha) ** 2 >= 1:
            return UNDECIDED, "the trials of a side vary too much for an interval", None
        advice = advise(
            distance=math.log(self.value),
            error=self.error,
            freedom=self.freedom,
            trials=min(map(len, self.sides)),
            margin=margin,
            alpha=alpha,
            equivalence_alpha=equivalence_alpha,
        )
        return UNDECIDED, f"the {kind} holds 1, and is wider than the margin", advice

    def _is_certain(self, alpha: float) -> bool:
        """True if misses that the faster side's trials hide cannot make up for the difference."""
        assert self.value is not None
        faster = self.sides[int(self.value < 1)]
        if not self.is_conditional or faster.has_failures:
            return True
        misses = faster.cost_of_misses(alpha, faster.budget)
        ratio = min(self.value, 1 / self.value)
        return misses is not None and (1 + misses / faster.mean_amount) * ratio < 1

    def _without(self, number: int, place: int) -> "_Contrast":
        """The contrast without a trial, and without the other half of its pair."""
        sides = [side.without(place) if i == number else side for i, side in enumerate(self.sides)]
        if self.is_paired:
            seed, other = self.sides[number].seeds[place], self.sides[1 - number]
            sides[1 - number] = other.without(other.seeds.index(seed))
        return _contrast(*sides)

    def _apart_words(self, number: int, place: int) -> str:
        side = self.sides[number]
        median = float(np.median(side.amounts[side.reached]))
        seed = side.seeds[place] if side.seeds else None
        name = f"trial {place + 1}" if seed is None else f"the trial of seed {seed}"
        times = f"{side.amounts[place] / median:.3g} times the median of its side"
        return f"{name} of {'AB'[number]} took {times}"


def _over(distance: float, error: float) -> float:
    """Distance in errors; without any error 0, or infinite."""
    if error:
        return distance / error
    return math.copysign(math.inf, distance) if distance else 0.0


def _spoken(word: str) -> str:
    return word.replace("_", " ")


def _share(trials: int) -> str:
    return f"up to {100 * unseen_share(trials):.2g} %"


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
    value = second.expected / first.expected
    sizes = len(first), len(second)
    has_failures = first.has_failures or second.has_failures
    # A failure's cost dominates the variance, which few trials cannot show.
    needed = FEWEST_WITH_FAILURES if has_failures else FEWEST_TRIALS
    if min(sizes) < needed:
        why = f"{sizes[0]} and {sizes[1]} trials; a verdict needs {needed} of each"
        why += ", since some did not reach the target" if has_failures else ""
        return _Contrast(sides=sides, value=value, lacks=why, minimum=needed - min(sizes))
    longest = max(side.longest_failure for side in sides)
    pairs = first.pairs(second)
    if not pairs:
        variances = first.variance(longest), second.variance(longest)
        freedom = interval.freedom_of(variances, sizes)
        return _Contrast(
            sides=sides,
            value=value,
            variances=variances,
            freedom=freedom,
            is_conditional=not has_failures,
        )
    count = len(pairs)
    is_one_recipe = not (first.in_turn and second.in_turn)
    # Pairs of one recipe reach at the same evaluation, so none goes unseen.
    unseen = [
        (longest / side.mean_amount) ** 2 if is_one_recipe else side.unseen_squares(longest)
        for side in sides
    ]
    products = sum(first.influence[a] * second.influence[b] for a, b in pairs)
    scale = count * (count - 1)
    return _Contrast(
        sides=sides,
        value=value,
        variances=(
            (first.squared_influence + unseen[0]) / scale,
            (second.squared_influence + unseen[1]) / scale,
        ),
        covariance=float(products) / scale,
        freedom=count - 1,
        is_paired=True,
        is_conditional=not has_failures and not is_one_recipe,
    )
