"""Verdict on B beside A: the ratio of their expected times, its interval, and a word.

`faster` and `slower` are claims about expected times, misses included. If no trial missed, misses
are unknown, and the claim becomes `faster_if_all_reach`, unless it holds even with as many misses
as the trials cannot exclude. Pairs of the same mathematics miss together and need no such
condition.

`python -m benchmarks verdicts` simulates how often each claim is wrong.

Source: D. J. Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15 (1987), for equivalence by two
one-sided tests; S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J.
Statist. 6 (1979), for verdicts that hold together; the degrees of freedom are
`interval.freedom_of`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dawnjax.statistics.contrast import Contrast, contrast
from dawnjax.statistics.further import Advice, advise
from dawnjax.statistics.interval import ALPHA, Interval, percent
from dawnjax.statistics.proportions import unseen_share
from dawnjax.statistics.sample import Sample

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
      word: One of `WORDS`, about B. `only_first_reached` if B never reached the target, and A
        reached it more often than chance explains; `only_second_reached` the other way round.
        `faster_if_all_reach` if trials that reach are faster, but misses may make up for it.
      ratio: Expected time of B over A's; None if a side has none. Its ends are an interval at the
        verdict's level, or the range of too few trials.
      margin: What counts as equivalent: a ratio between 1 / (1 + margin) and 1 + margin.
      is_slower_excluded: Whether B being slower by the margin or more is excluded; if
        `is_conditional`, only for trials that reach.
      trials: Number of trials of A and B.
      reached: Number of trials of each that reached.
      is_paired: Whether the trials were compared as pairs by seed.
      is_conditional: Whether the verdict supposes that all trials reach, because none missed.
      apart: Side (0 for A) and place of a trial that stands apart (`Sample.apart`); a verdict that
        it alone decides is undecided.
      advice: Further trials that may decide; None if the verdict is decided.
      why: The verdict's basis, or why there is none.
    """

    word: str
    ratio: Interval | None
    margin: float
    is_slower_excluded: bool
    trials: tuple[int, int]
    reached: tuple[int, int]
    is_paired: bool
    is_conditional: bool
    apart: tuple[int, int] | None
    advice: Advice | None
    why: str

    @property
    def is_slower(self) -> bool:
        """True if B takes longer by more than chance explains, within the margin or beyond it."""
        low = self.ratio and self.ratio.low
        return self.word in WORSE or bool(self.word == EQUIVALENT and low and low > 1)

    @property
    def gate_words(self) -> str:
        """What a passed gate has excluded, with its condition; empty if the gate fails."""
        if not self.is_slower_excluded:
            return ""
        said = f"B slower by {100 * self.margin:g} % or more is excluded"
        if self.is_conditional:
            count = self.trials[1]
            said += f" if all trials reach; {count} trials cannot rule out that B misses the target"
            said += f" in {_share(count)} of runs"
        return said

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

    B is `equivalent` if the 90 % interval of the ratio lies between 1 / (1 + margin) and 1 + margin
    (two one-sided tests at 5 %); otherwise `faster` if the 95 % interval lies below 1, and `slower`
    if it lies above 1, or either of them `_if_all_reach`; otherwise `undecided`.

    Args:
      margin: Above 0 and below 1.
      alpha: Chance that equal sides are found to differ; less if a study looks several times.
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
      left: Number of open comparisons; all of `others` unless given.
    """
    if not 0 < margin < 1:
        raise ValueError(f"a margin of {margin:g} is not between 0 and 1")
    left = len(others) if left is None else left
    cases = [contrast(first, other) for other in others]
    different = holm([case.p_different for case in cases], alpha_of, left)
    equivalent = holm(
        [case.p_equivalent(margin) for case in cases], lambda count: ALPHA / count, left
    )
    return [
        _verdict(case, _Levels(margin, alpha, equal, may_be_equivalent))
        for case, alpha, equal in zip(cases, different, equivalent, strict=True)
    ]


def holm(
    p_values: Sequence[float], alpha_of: Callable[[int], float], left: int | None = None
) -> list[float]:
    """Level for each p value; a claim holds where the p value is at most its level.

    Args:
      alpha_of: From a number of open hypotheses to the level of a test.
      left: Number of open hypotheses; all of `p_values` unless given.
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


class _Levels(NamedTuple):
    """What a claim is held to: the margin, and the level of the test of each kind of claim."""

    margin: float
    different: float
    equivalent: float
    may_be_equivalent: bool


class _Claim(NamedTuple):
    word: str
    why: str
    advice: Advice | None = None


def _verdict(case: Contrast, levels: _Levels) -> Verdict:
    claim, ratio, sides = _claim(case, levels), case.ratio(levels.different), case.sides
    excluded = bool(ratio and ratio.level is not None and (ratio.high or 0.0) < 1 + levels.margin)
    excluded |= claim.word == ONLY_SECOND
    places = ((number, side.apart) for number, side in enumerate(sides))
    apart = next(((number, place) for number, place in places if place is not None), None)
    if apart is not None:
        others = _claim(case.without(*apart), levels)
        why = claim.why
        if others.word != claim.word:
            why = f"with it the verdict is {claim.word}, without it {others.word}".replace("_", " ")
            claim = _Claim(UNDECIDED, why)
        claim = claim._replace(why=f"{_stall(sides[apart[0]], *apart)}; {why}")
        excluded &= claim.word != UNDECIDED
    return Verdict(
        word=claim.word,
        ratio=ratio,
        margin=levels.margin,
        is_slower_excluded=excluded,
        trials=(len(sides[0]), len(sides[1])),
        reached=(sides[0].num_reached, sides[1].num_reached),
        is_paired=case.is_paired,
        is_conditional=case.is_conditional and claim.word not in DIFFERENT,
        apart=apart,
        advice=claim.advice,
        why=claim.why,
    )


def _claim(case: Contrast, levels: _Levels) -> _Claim:
    """The first rule that applies: reaching at all, too few trials, equivalent, different."""
    is_different = case.p_different <= levels.different
    if case.p_reach is not None and is_different:
        never = int(case.sides[1].num_reached == 0)
        counts = [f"{side.num_reached} of {len(side)}" for side in case.sides]
        why = f"{counts[never]} trials of {'AB'[never]} reached the target and "
        why += f"{counts[1 - never]} of {'AB'[1 - never]} (Fisher's test, p {case.p_reach:.2g})"
        return _Claim(ONLY_FIRST if never else ONLY_SECOND, why)
    if case.lacks:
        return _Claim(UNDECIDED, case.lacks, Advice(minimum=case.minimum) if case.minimum else None)
    assert case.value is not None
    kind = "paired " if case.is_paired else ""
    if levels.may_be_equivalent and case.p_equivalent(levels.margin) <= levels.equivalent:
        count = len(case.sides[1])
        why = f"the {kind}{percent(1 - 2 * levels.equivalent)} interval lies within the margin of "
        why += f"{100 * levels.margin:g} %; {count} trials cannot exclude that {_share(count)} of "
        return _Claim(EQUIVALENT, f"{why}B's runs are much slower or miss the target")
    kind += f"{percent(1 - levels.different)} interval"
    if is_different:
        is_faster = case.value < 1
        why = f"the {kind} lies {'below' if is_faster else 'above'} 1"
        if _holds_with_misses(case, levels.different):
            return _Claim(FASTER if is_faster else SLOWER, why)
        count = len(case.sides[int(is_faster)])
        why += f"; all {count} trials of {'AB'[int(is_faster)]} reached, which cannot exclude that "
        why += f"it misses the target in {_share(count)} of runs"
        return _Claim(FASTER_IF_ALL_REACH if is_faster else SLOWER_IF_ALL_REACH, why)
    if case.is_too_wild(levels.different):
        return _Claim(UNDECIDED, "the trials of a side vary too much for an interval")
    advice = advise(
        distance=math.log(case.value),
        error=case.error,
        freedom=case.freedom,
        trials=min(map(len, case.sides)),
        edge=math.log1p(levels.margin),
        alpha=levels.different,
        equivalence_alpha=levels.equivalent,
    )
    return _Claim(UNDECIDED, f"the {kind} holds 1, and is wider than the margin", advice)


def _holds_with_misses(case: Contrast, alpha: float) -> bool:
    """True if misses that the faster side's trials hide cannot make up for the difference."""
    if not case.is_conditional:
        return True
    faster, slower = sorted(case.sides, key=lambda side: side.expected or 0.0)
    misses = faster.cost_of_misses(alpha)
    assert faster.expected is not None and slower.expected is not None
    return misses is not None and faster.expected + misses < slower.expected


def _stall(side: Sample, number: int, place: int) -> str:
    """Name of a trial that stands apart, and its time."""
    seed = side.seeds[place] if side.seeds else None
    name = f"trial {place + 1}" if seed is None else f"the trial of seed {seed}"
    factor = side.amounts[place] / float(np.median(side.amounts[side.reached]))
    return f"{name} of {'AB'[number]} took {factor:.3g} times the median of its side"


def _share(trials: int) -> str:
    return f"up to {100 * unseen_share(trials):.2g} %"
