"""How often a verdict on a quality at a budget is wrong, and what it finds: simulated curves.

    python -m benchmarks verdicts_at_budgets

A trial's quality is 2.5 + t^-0.5 at the time t, from 0.05 to 1, plus an offset of the trial's own,
whose deviation is the CV times the mean quality at the end. Its times are its own by 2 %, as those
of a machine. Sides are evaluated at even distances, or each trial at places of its own.
"""

import dataclasses
import itertools
import sys

import numpy as np

from benchmarks.simulated import Cases, Groups, run, sides_text, sizes_text
from dawnjax.statistics.budget import BETTER, WORSE, judge_at, judge_pairs
from dawnjax.statistics.curves import Curves
from dawnjax.statistics.iso_quality import iso_quality
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import EQUIVALENT

_BASE, _END, _FIRST = 2.5, 3.5, 0.05
_TIMES_CV = 0.02

DIFFERENT = (BETTER, WORSE)


@dataclasses.dataclass(frozen=True)
class CurveSide:
    """What the trials of a side are drawn from.

    Attributes:
      step: Distance of evaluations; of places of a trial's own their mean distance.
      is_uneven: Whether each trial is evaluated at places of its own.
      worse: By how much its quality is greater at every time.
      speed: How many times as fast it is.
      falls: Factor of the part that falls.
      ends_at_1: Whether the last evaluation is at 1 and the times are no machine's, as steps are.
    """

    cv: float
    step: float = 0.1
    is_uneven: bool = False
    worse: float = 0.0
    speed: float = 1.0
    falls: float = 1.0
    ends_at_1: bool = False

    def curves(
        self, random: np.random.Generator, size: int, offsets: np.ndarray | None = None
    ) -> Curves:
        offsets = random.normal(0, self.cv * _END, size) if offsets is None else offsets
        places, values = [], []
        for offset in offsets:
            at = np.arange(_FIRST, 1.0 + self.step, self.step)
            if self.is_uneven:
                at = at[:-1] + self.step * random.random(len(at) - 1)
                at = np.concatenate([[_FIRST], at, [1.0 + self.step]])
            pace, own = np.exp(random.normal(0, _TIMES_CV)), at
            if self.ends_at_1:
                at = np.append(at[at < 0.99], 1.0)
                pace, own = self.speed, at * self.speed
            places.append(at * pace / self.speed)
            values.append(_BASE + self.falls * own**-0.5 + offset + self.worse)
        return Curves(tuple(places), tuple(values))

    @property
    def words(self) -> str:
        kind = "at places of each trial's own" if self.is_uneven else "evaluations"
        return f"CV {100 * self.cv:g} %, {kind} {100 * self.step:g} % of the time apart"


_EQUAL = "equal sides are called better or worse at a budget"


def budgets(random: np.random.Generator, count: int) -> Cases:
    """Verdicts on qualities of sides with one curve, and what they find."""
    for cv, sizes in itertools.product(
        (0.004, 0.07, 0.2), ((3, 3), (5, 5), (10, 10), (20, 20), (5, 20))
    ):
        for first, second in (
            (CurveSide(cv), CurveSide(cv)),
            (CurveSide(cv, 0.05), CurveSide(cv, 0.16)),
            (CurveSide(cv, is_uneven=True), CurveSide(cv, 0.16, is_uneven=True)),
        ):
            # Between evaluations of both, and early, where the curve bends most.
            wrong = [
                verdict.word in DIFFERENT
                for number in range(count)
                for a, b in [both(random, sizes, first, second)]
                for verdict in judge_at(a, b, [(0.33, 0.83)[number % 2]], direction="at_most")
            ]
            yield _EQUAL, sizes_text(sizes), sides_text(first.words, second.words), wrong
    side = CurveSide(0.07, is_uneven=True)
    for size in (5, 20):
        wrong = [
            any(it.word in DIFFERENT for it in judge_at(a, b, [0.2, 0.4, 0.8], direction="at_most"))
            for _ in range(count)
            for a, b in [both(random, (size, size), side, side)]
        ]
        yield f"{_EQUAL}, one of three (Holm)", f"{size}", side.words, wrong
        wrong = [_paired_word(random, size, 0.0) in DIFFERENT for _ in range(count)]
        yield f"{_EQUAL}, pairs by seed", f"{size}", "CV 20 % over seeds, 0.4 % within", wrong


def found(random: np.random.Generator, count: int) -> Cases:
    """Differences of quality that are found."""
    for cv, worse, size in ((0.004, 0.03, 5), (0.004, 0.01, 20), (0.07, 0.5, 5), (0.07, 0.25, 20)):
        first = CurveSide(cv, is_uneven=True)
        second = dataclasses.replace(first, worse=worse)
        words = [
            verdict.word
            for _ in range(count)
            for a, b in [both(random, (size, size), first, second)]
            for verdict in judge_at(a, b, [0.8], direction="at_most")
        ]
        claim = f"B worse by {worse:g} at a budget is found"
        yield claim, f"{size}", first.words, [word == WORSE for word in words]
    for size in (5, 20):
        words = [_paired_word(random, size, 0.03) == WORSE for _ in range(count)]
        claim = "B worse by 0.03 at a budget is found, pairs by seed"
        yield claim, f"{size}", "CV 20 % over seeds, 0.4 % within", words


def bands(random: np.random.Generator, count: int) -> Cases:
    """Bands of iso-quality that leave out the truth, at the middle of A's curve and late."""
    for cv, size, second in itertools.product(
        (0.004, 0.02), (5, 10, 20), (CurveSide(0.0, 0.05), CurveSide(0.0, 0.16, is_uneven=True))
    ):
        first = CurveSide(cv, 0.1)
        second = dataclasses.replace(second, cv=cv, speed=1.25)
        wrong = []
        for number in range(count):
            a, b = both(random, (size, size), first, second)
            place = (0.45, 0.8)[number % 2]
            points = [it for it in iso_quality(a, b, "at_most", most=12) if it.other is not None]
            near = min(points, key=lambda it: abs(it.place - place), default=None)
            if near is not None:
                true = near.place / second.speed
                low, high = near.low or 0.0, np.inf if near.high is None else near.high
                wrong.append(not low <= true <= high)
        claim = "the band of iso-quality leaves out the truth"
        yield claim, f"{size}", sides_text(first.words, second.words), wrong


def margins(random: np.random.Generator, count: int) -> Cases:
    """Equivalence and the gate on a side that is worse by the margin."""
    for size in (5, 20):
        first, margin = CurveSide(0.004, is_uneven=True), 0.05
        second = dataclasses.replace(first, worse=margin)
        edge = []
        for _ in range(count):
            a, b = both(random, (size, size), first, second)
            edge += judge_at(a, b, [0.8], direction="at_most", margin=margin)
        claim = "a side worse by the margin is called equivalent at a budget"
        yield claim, f"{size}", first.words, [it.word == EQUIVALENT for it in edge]
        passes = [it.is_worse_excluded for it in edge]
        claim = "a side worse by the margin passes the gate at a budget"
        yield claim, f"{size}", first.words, passes


def _paired_word(random: np.random.Generator, size: int, worse: float) -> str:
    """Verdict on sides whose seeds' offsets are the same, up to what a machine's sums do."""
    offsets = random.normal(0, 0.2 * _END, size)
    losses = tuple((float(offset),) for offset in offsets)
    sides = []
    for more in (0.0, worse):
        own = offsets + random.normal(0, 0.004 * _END, size)
        made = CurveSide(0.2, worse=more).curves(random, size, own)
        ones = np.ones(size)
        pairing = Sample(ones, ones.astype(bool), tuple(range(size)), losses)
        sides.append(dataclasses.replace(made, pairing=pairing))
    [verdict] = judge_pairs([(sides[0], sides[1], 0.8)], "at_most")
    return verdict.word


def both(
    random: np.random.Generator, sizes: tuple[int, int], first: CurveSide, second: CurveSide
) -> tuple[Curves, Curves]:
    return first.curves(random, sizes[0]), second.curves(random, sizes[1])


GROUPS: Groups = {"budgets": budgets, "margins": margins, "bands": bands, "power": found}


def main() -> int:
    return run(__doc__, GROUPS, "verdicts_at_budgets", 1000)


if __name__ == "__main__":
    sys.exit(main())
