"""How often each interval and each verdict is wrong, and what it finds: simulated trials.

    python -m benchmarks verdicts

A side's times are log-normal or skewed (exponential above a least time), may fall on a grid of
evaluations, may miss the target, may have a slow kind of trial, and a machine may stall in a few.
The functions judged are those that every command uses. A row counts how often a claim is wrong, or
how often a difference that is there is found.
"""

import dataclasses
import itertools
import math
import sys

import numpy as np

from benchmarks.simulated import Cases, Groups, run, sides_text, sizes_text
from dawnjax.statistics.contrast import p_different
from dawnjax.statistics.interval import ALPHA, Interval
from dawnjax.statistics.looks import looks_of, nominal_levels
from dawnjax.statistics.sample import Sample, expected_interval, mean_interval
from dawnjax.statistics.trimmed import p_scores_differ
from dawnjax.statistics.verdict import (
    BETTER,
    DIFFERENT,
    EQUIVALENT,
    UNDECIDED,
    WORSE,
    Verdict,
    judge,
    judge_all,
)

LOOKS = looks_of(40, 4)


@dataclasses.dataclass(frozen=True)
class Side:
    """What the trials of a side are drawn from; `mean` is the true expected time.

    Attributes:
      step: Time between evaluations; 0 for times that fall on no grid.
      reach: Chance of a trial to reach.
      miss: Time of a trial that does not reach, over the mean of those that do.
      stalls: Share of trials that take 300 times as long; they do not belong to the truth.
      slow: Share of trials of a slow kind, which take half as long again.
    """

    cv: float = 0.07
    is_skewed: bool = False
    step: float = 0.0
    reach: float = 1.0
    miss: float = 2.0
    stalls: float = 0.0
    slow: float = 0.0
    mean: float = 1.0

    def samples(self, random: np.random.Generator, count: int, size: int) -> list[Sample]:
        drawn, reached = self._drawn(random, count, size)
        # The truth of a grid has no formula.
        every, ends = (
            self._drawn(np.random.default_rng(0), 1, 200_000) if self.step else (drawn, reached)
        )
        reaching = every[ends].mean() if self.step else 1.0
        scale = self.mean / (reaching * (1 + (1 - self.reach) / self.reach * self.miss))
        scale /= 1 + self.slow / 2
        amounts = np.where(reached, drawn, self.miss * reaching) * scale
        amounts *= np.where(random.random(amounts.shape) < self.stalls, 300, 1)
        steps = (self.step * scale,) * size if self.step else ()
        budget = self.miss * reaching * scale
        return [
            Sample(row, was, steps=steps, budget=budget)
            for row, was in zip(amounts, reached, strict=True)
        ]

    def _drawn(
        self, random: np.random.Generator, count: int, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        shape = count, size
        if self.is_skewed:
            times = 1 - self.cv + self.cv * random.exponential(1, shape)
        else:
            deviation = math.sqrt(math.log1p(self.cv**2))
            times = random.lognormal(-(deviation**2) / 2, deviation, shape)
        if self.step:
            noise = random.lognormal(0, 0.002, shape)
            times = self.step * np.ceil(times / self.step) * noise
        times *= np.where(random.random(shape) < self.slow, 1.5, 1)
        return times, random.random(shape) < self.reach

    @property
    def words(self) -> str:
        said = [f"CV {100 * self.cv:g} %" + (", skewed" if self.is_skewed else "")]
        if self.step:
            said.append(f"evaluations {100 * self.step:g} % of the time apart")
        if self.reach < 1:
            said.append(f"{100 * (1 - self.reach):g} % miss and take {self.miss:g} times as long")
        if self.stalls:
            said.append(f"{100 * self.stalls:g} % stall for 300 times as long")
        if self.slow:
            said.append(f"{100 * self.slow:g} % take 1.5 times as long")
        return ", ".join(said)


def intervals(random: np.random.Generator, count: int) -> Cases:
    """Intervals of one side that leave out the truth."""
    sides = [Side(), Side(0.2), Side(0.2, is_skewed=True)]
    sides += [Side(cv, step=0.2) for cv in (0.02, 0.06, 0.2)]
    for side, size in itertools.product(sides, (5, 8, 16, 40)):
        found = [mean_interval(it) for it in side.samples(random, count, size)]
        yield "interval of a mean", f"{size}", side.words, [_misses(it) for it in found]
    for reach, size in itertools.product((0.8, 0.9, 0.95), (5, 20, 40)):
        side = Side(reach=reach)
        drawn = side.samples(random, count * (4 if size == 5 else 1), size)
        for what, has_failures in (("of which some missed", True), ("that all reached", False)):
            found = [expected_interval(it) for it in drawn if it.has_failures == has_failures]
            given = [it for it in found if it and it.level]
            if len(given) > 50:
                claim = f"interval of an expected time, trials {what}"
                yield claim, f"{size}", side.words, [_misses(it) for it in given]


def _misses(found: Interval | None) -> bool:
    assert found is not None and found.low is not None and found.high is not None
    return not found.low <= 1 <= found.high


def equal_sides(random: np.random.Generator, count: int) -> Cases:
    """Verdicts on sides of one expected time."""
    for cv, sizes in itertools.product((0.004, 0.07, 0.2), ((5, 5), (10, 10), (20, 20), (5, 20))):
        yield _pairs(random, count, sizes, Side(cv), Side(cv))
    for sizes in ((5, 5), (10, 10), (20, 20)):
        yield _pairs(random, count, sizes, Side(0.02), Side(0.2))
        yield _pairs(random, count, sizes, Side(0.02), Side(0.2, is_skewed=True))
    for sizes in ((5, 20), (5, 40)):
        yield _pairs(random, count, sizes, Side(0.4), Side(0.2))
        for first in (0.2, 0.4):
            yield _pairs(random, count, sizes, Side(first, True), Side(0.2, True))
    for size in (5, 10, 20):
        grid = Side(0.06, step=0.2)
        yield _pairs(random, count, (size, size), grid, dataclasses.replace(grid, step=0.19))
    for size in (10, 20, 40):
        yield _pairs(random, count, (size, size), Side(stalls=0.01), Side(stalls=0.01))
    for reach, size in itertools.product((0.8, 0.95), (20, 40)):
        yield _pairs(random, count, (size, size), Side(reach=reach), Side(reach=reach))
    yield _pairs(random, count, (20, 40), Side(reach=0.8), Side(reach=0.95))
    for reach, size, miss in itertools.product((0.9, 0.95), (5, 20, 40), (1.2, 5.0)):
        yield _pairs(random, count, (size, size), Side(), Side(reach=reach, miss=miss), DIFFERENT)


CLAIMS = (*BETTER, *WORSE)


def _pairs(
    random: np.random.Generator,
    count: int,
    sizes: tuple[int, int],
    first: Side,
    second: Side,
    words: tuple[str, ...] = CLAIMS,
) -> tuple[str, str, str, list[bool]]:
    wrong = [it.word in words for it in _judged(random, count, sizes, first, second)]
    claim = "equal sides are called different"
    claim += "" if words == CLAIMS else ", misses included"
    return claim, sizes_text(sizes), sides_text(first.words, second.words), wrong


def joint(random: np.random.Generator, count: int) -> Cases:
    """Verdicts that hold together: pairs, arms, looks, scores, advice, equivalence, the gate."""
    for size in (5, 20):
        for ratio, what in (
            (1.0, "equal sides are called different"),
            (1.08, "B slower by 8 % is found"),
        ):
            sides = zip(*_by_seed(random, count, size, ratio), strict=True)
            found = [judge(a, b).word in CLAIMS for a, b in sides]
            times = "CV 20 % over seeds, 1 % of the machine"
            yield f"{what}, pairs by seed", f"{size}", times, found
    side = Side(0.2)
    arms = [side.samples(random, count // 4, 10) for _ in range(9)]
    wrong = [
        any(it.word in CLAIMS for it in judge_all(first, others))
        for first, *others in zip(*arms, strict=True)
    ]
    yield "one of 8 equal arms is called different from the first (Holm)", "10", side.words, wrong
    for ratio, what in (
        (1.0, "equal sides are called different"),
        (1.15, "B slower by 15 % is found"),
    ):
        sides = [dataclasses.replace(side, mean=m).samples(random, count, 40) for m in (1, ratio)]
        found = [_looked(a, b) for a, b in zip(*sides, strict=True)]
        yield f"{what} at one of four planned looks", "10, 20, 30, 40", side.words, found
    for size in (5, 10):
        for repeats, way in ((1, "once"), (9, "until decided")):
            wrong = [_advised(random, Side(), size, repeats) for _ in range(count)]
            claim = f"equal sides are called different, further trials as advised, {way}"
            yield claim, f"{size} at first", Side().words, wrong
    for size in (5, 10, 40):
        sides = [Side(cv=0.05).samples(random, count, size) for _ in "AB"]
        wrong = [p_scores_differ(a, b, 1) <= ALPHA for a, b in zip(*sides, strict=True)]
        yield "equal MLPerf scores are called different", f"{size}", Side(cv=0.05).words, wrong
    for size in (5, 20):
        edge = _judged(random, count, (size, size), Side(0.02), Side(0.02, mean=1.05))
        wrong = [it.word == EQUIVALENT for it in edge]
        yield "a side slower by the margin is called equivalent", f"{size}", Side(0.02).words, wrong
        passes = [it.is_slower_excluded for it in edge]
        yield "a side slower by the margin passes the gate", f"{size}", Side(0.02).words, passes
        equal = _judged(random, count, (size, size), Side(0.02), Side(0.02))
        fails = [it.is_slower for it in equal]
        yield "an equal side fails the gate", f"{size}", Side(0.02).words, fails


def power(random: np.random.Generator, count: int) -> Cases:
    """Differences, and equivalences, that are found."""
    grid = Side(0.06, step=0.2)
    cases = [
        *((Side(0.004), Side(0.004, mean=1.06), 5), (Side(0.07), Side(0.07, mean=1.15), 5)),
        *((Side(0.07), Side(0.07, mean=1.1), 20), (Side(0.2), Side(0.2, mean=1.5), 5)),
        (Side(0.2), Side(0.2, mean=1.25), 20),
        *((grid, dataclasses.replace(grid, mean=1.25), size) for size in (5, 20)),
        *((Side(), Side(reach=r, mean=1.5), size) for r in (0.8, 0.95) for size in (20, 40)),
    ]
    for first, second, size in cases:
        found = _judged(random, count, (size, size), first, second)
        claim = f"B slower by {100 * (second.mean - 1):.0f} % is found"
        times = sides_text(first.words, second.words)
        yield claim, f"{size}", times, [it.word in CLAIMS for it in found]
    for size in (5, 20):
        found = _judged(random, count, (size, size), Side(0.02), Side(0.02))
        words = [it.word == EQUIVALENT for it in found]
        yield "equal sides are equivalent", f"{size}", Side(0.02).words, words


def misses(random: np.random.Generator, count: int) -> Cases:
    """What passes where B is slower in a few trials, which a gate of 5 % and equivalence suppose
    away."""
    for size in (5, 20):
        slow = Side(0.004, slow=0.1, mean=1.05)
        found = _judged(random, count, (size, size), Side(0.004), slow)
        words = [it.word == EQUIVALENT for it in found]
        times = sides_text(Side(0.004).words, slow.words)
        yield "a side with a slow kind of trial is called equivalent", f"{size}", times, words
        missing = Side(0.02, reach=0.9, mean=1.1)
        found = _judged(random, count, (size, size), Side(0.02), missing)
        passes = [it.is_slower_excluded for it in found]
        times = sides_text(Side(0.02).words, missing.words)
        yield "a side slower by 10 % through misses passes the gate", f"{size}", times, passes


def _judged(
    random: np.random.Generator, count: int, sizes: tuple[int, int], first: Side, second: Side
) -> list[Verdict]:
    sides = [side.samples(random, count, n) for side, n in zip((first, second), sizes, strict=True)]
    return [judge(a, b) for a, b in zip(*sides, strict=True)]


def _by_seed(
    random: np.random.Generator, count: int, size: int, ratio: float
) -> list[list[Sample]]:
    """Two systems that need the same epochs with each seed."""
    epochs = Side(0.2)._drawn(random, count, size)[0]
    losses = ((1.0,),) * size
    return [
        [
            Sample(row, np.ones(size, bool), tuple(range(size)), losses)
            for row in mean * epochs * Side(0.01)._drawn(random, count, size)[0]
        ]
        for mean in (1.0, ratio)
    ]


def _looked(first: Sample, second: Sample) -> bool:
    return any(
        p_different(*(it.at(range(n)) for it in (first, second))) <= level
        for n, level in zip(LOOKS, nominal_levels(LOOKS), strict=True)
    )


def _advised(random: np.random.Generator, side: Side, size: int, repeats: int) -> bool:
    """Whether equal sides are found to differ if advice is followed, at most so many times."""
    amounts = [side.samples(random, 1, size)[0].amounts for _ in "AB"]
    while True:
        first, second = (Sample(it, np.ones(len(it), bool)) for it in amounts)
        found = judge(first, second)
        more = found.advice and found.advice.if_equal
        if found.word != UNDECIDED or not more or not repeats or len(first) > 5000:
            return found.word in CLAIMS
        repeats -= 1
        amounts = [np.append(it, side.samples(random, 1, more)[0].amounts) for it in amounts]


GROUPS: Groups = {
    "intervals": intervals,
    "equal sides": equal_sides,
    "joint": joint,
    "power": power,
    "misses": misses,
}


def main() -> int:
    return run(__doc__, GROUPS, "verdicts", 2000)


if __name__ == "__main__":
    sys.exit(main())
