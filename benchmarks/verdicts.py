"""How often each interval and each verdict is wrong, and what it finds: simulated trials.

    python -m benchmarks verdicts

A side's times are log-normal or skewed (exponential above a least time), may fall on a grid of
evaluations, may miss the target, may have a slow kind of trial, and a machine may stall in a few.
The functions judged are those that every command uses. A row counts how often a claim is wrong, or
how often a difference that is there is found.
"""

import argparse
import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import harness
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


Cases = Iterator[tuple[str, str, str, list[bool]]]
"""Claim, trials, times, and whether it was wrong in each repetition (or the difference found)."""


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
    sides = [side.samples(random, count, n) for side, n in zip((first, second), sizes, strict=True)]
    wrong = [judge(a, b).word in words for a, b in zip(*sides, strict=True)]
    trials = f"{sizes[0]}" if sizes[0] == sizes[1] else f"{sizes[0]} and {sizes[1]}"
    times = first.words if first == second else f"A: {first.words}; B: {second.words}"
    claim = (
        "equal sides are called different"
        if words == CLAIMS
        else "equal sides are called different, misses included"
    )
    return claim, trials, times, wrong


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
    ways = {
        "at one of four looks, planned": (LOOKS, nominal_levels(LOOKS)),
        "at one of four looks, each at 5 %": (LOOKS, (ALPHA,) * 4),
    }
    for way, (at, levels) in ways.items():
        for ratio in (1.0, 1.15):
            sides = [
                dataclasses.replace(side, mean=m).samples(random, count, 40) for m in (1, ratio)
            ]
            found = [_looked(a, b, at, levels) for a, b in zip(*sides, strict=True)]
            claim = (
                f"equal sides are called different {way}"
                if ratio == 1
                else f"B slower by 15 % is found {way}"
            )
            yield claim, "10, 20, 30, 40", side.words, found
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
        edge = _judged(random, count, size, Side(0.02), Side(0.02, mean=1.05))
        wrong = [it.word == EQUIVALENT for it in edge]
        yield "a side slower by the margin is called equivalent", f"{size}", Side(0.02).words, wrong
        passes = [it.is_slower_excluded for it in edge]
        yield "a side slower by the margin passes the gate", f"{size}", Side(0.02).words, passes
        fails = [it.is_slower for it in _judged(random, count, size, Side(0.02), Side(0.02))]
        yield "an equal side fails the gate", f"{size}", Side(0.02).words, fails


def power(random: np.random.Generator, count: int) -> Cases:
    """Differences that are found."""
    for cv, ratio, size in ((0.004, 1.06, 5), (0.07, 1.15, 5), (0.07, 1.1, 20), (0.2, 1.5, 5),
                            (0.2, 1.25, 20)):  # fmt: skip
        found = _judged(random, count, size, Side(cv), Side(cv, mean=ratio))
        words = [it.word in CLAIMS for it in found]
        yield f"B slower by {100 * (ratio - 1):.0f} % is found", f"{size}", Side(cv).words, words
    grid = Side(0.06, step=0.2)
    for size in (5, 20):
        found = _judged(random, count, size, grid, dataclasses.replace(grid, mean=1.25))
        yield (
            "B slower by 25 % is found",
            f"{size}",
            grid.words,
            [it.word in CLAIMS for it in found],
        )
    for reach, size in itertools.product((0.8, 0.95), (20, 40)):
        missing = Side(reach=reach, mean=1.5)
        found = _judged(random, count, size, Side(), missing)
        words = [it.word in CLAIMS for it in found]
        yield "B slower by 50 % is found", f"{size}", f"B: {missing.words}; A reaches", words
    for size in (5, 20):
        found = _judged(random, count, size, Side(0.02), Side(0.02))
        words = [it.word == EQUIVALENT for it in found]
        yield "equal sides are equivalent", f"{size}", Side(0.02).words, words
        slow = Side(0.004, slow=0.1)
        found = _judged(random, count, size, Side(0.004), dataclasses.replace(slow, mean=1.05))
        words = [it.word == EQUIVALENT for it in found]
        times = f"CV 0.4 %, of B {100 * slow.slow:g} % take 1.5 times as long"
        yield "a side with a slow kind of trial is called equivalent", f"{size}", times, words


def gate(random: np.random.Generator, count: int) -> Cases:
    """A gate of 5 % on a side whose misses make it slower."""
    for size in (5, 20):
        missing = Side(0.02, reach=0.9, mean=1.1)
        found = _judged(random, count, size, Side(0.02), missing)
        passes = [it.is_slower_excluded for it in found]
        times = f"A: {Side(0.02).words}; B: {missing.words}"
        yield "a side slower by 10 % through misses passes the gate", f"{size}", times, passes


def _judged(
    random: np.random.Generator, count: int, size: int, first: Side, second: Side
) -> list[Verdict]:
    sides = [side.samples(random, count, size) for side in (first, second)]
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


def _looked(first: Sample, second: Sample, at: tuple[int, ...], levels: tuple[float, ...]) -> bool:
    return any(
        p_different(*(Sample(it.amounts[:n], it.reached[:n]) for it in (first, second))) <= level
        for n, level in zip(at, levels, strict=True)
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


GROUPS: dict[str, Callable[[np.random.Generator, int], Cases]] = {
    "intervals": intervals,
    "equal sides": equal_sides,
    "joint": joint,
    "power": power,
    "gate": gate,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2000, help="of each case")
    parser.add_argument("--name", default="verdicts", help="of the result file")
    options = parser.parse_args()
    random, rows = np.random.default_rng(0), []
    for group, cases in GROUPS.items():
        for claim, trials, times, found in cases(random, options.repetitions):
            row: dict[str, Any] = {"group": group, "claim": claim, "trials": trials, "times": times}
            rows.append({**row, "found": sum(found), "of": len(found)})
            print(f"{100 * sum(found) / len(found):5.1f} %", trials, claim, times, sep="\t")
    print(harness.write(options.name, {"repetitions": options.repetitions, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
