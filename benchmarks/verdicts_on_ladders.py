"""How often the trend of a ladder is wrong, and what pilot trials tell: simulated curves.

    python -m benchmarks verdicts_on_ladders

The curves are those of `verdicts_at_budgets`. On a ladder the part that falls is smaller at each
larger size, and all trials end at the time 1.
"""

import dataclasses
import itertools
import sys

import numpy as np

from benchmarks.simulated import Cases, Groups, run
from benchmarks.verdicts_at_budgets import CurveSide, both
from dawnjax.statistics.budget import WORSE, judge_at
from dawnjax.statistics.further import narrowest
from dawnjax.statistics.ladder import FADES, GROWS, HOLDS, speedup, trend

_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0)


def ladders(random: np.random.Generator, count: int) -> Cases:
    """Trends of the gain over sizes, where it holds and where it changes by the margin."""
    cases = [
        (CurveSide(cv, *places, ends_at_1=True), size, 4)
        for cv, places, size in itertools.product(
            (0.004, 0.07, 0.2), ((0.1, False), (0.1, True), (0.3, False)), (3, 5, 10, 20)
        )
    ]
    cases += [(CurveSide(0.004, ends_at_1=True), 5, sizes) for sizes in (3, 5)]
    for side, size, sizes in cases:
        words = _trends(random, count, size, side, (1.25,) * sizes)
        claim = f"a speedup of 1.25 at {sizes} sizes is said to grow or fade"
        yield claim, f"{size}", side.words, [word in (GROWS, FADES) for word in words]
    for cv, size in itertools.product((0.0004, 0.004), (5, 20)):
        side = CurveSide(cv, ends_at_1=True)
        words = _trends(random, count, size, side, _fading(1.25, 1.25 / 1.05))
        claim = "a speedup that changes by the margin is said to hold"
        yield claim, f"{size}", side.words, [word == HOLDS for word in words]


def power(random: np.random.Generator, count: int) -> Cases:
    """Trends that are found."""
    for cv, size in itertools.product((0.0004, 0.004), (5, 20)):
        side = CurveSide(cv, ends_at_1=True)
        for claim, speeds, word in (
            ("a speedup that holds is found to hold", (1.25,) * 4, HOLDS),
            ("a speedup that falls from 1.3 to 1.1 is found to fade", _fading(1.3, 1.1), FADES),
        ):
            words = _trends(random, count, size, side, speeds)
            yield claim, f"{size}", side.words, [it == word for it in words]


def _fading(first: float, last: float) -> tuple[float, ...]:
    """Speedups of four sizes on a line of their logarithms."""
    return tuple(np.geomspace(first, last, 4))


def _trends(
    random: np.random.Generator, count: int, size: int, side: CurveSide, speeds: tuple[float, ...]
) -> list[str]:
    words = []
    for _ in range(count):
        gains = []
        for number, speed in enumerate(speeds):
            first = dataclasses.replace(side, falls=0.8**number)
            second = dataclasses.replace(first, speed=speed)
            gains.append(speedup(*both(random, (size, size), first, second), None, "at_most"))
        words.append(trend(_SIZES[: len(speeds)], gains, np.log(1.05)).word)
    return words


def pilots(random: np.random.Generator, count: int) -> Cases:
    """Differences as large as the margin that pilot trials told, which are found."""
    for cv, pilot, size in itertools.product((0.004, 0.07, 0.2), (3, 5, 10), (5, 20)):
        side = CurveSide(cv, ends_at_1=True)
        found: dict[str, list[bool]] = {"as measured": [], "at most": []}
        for _ in range(count):
            noise = float(side.curves(random, pilot).ends().values.std(ddof=1))
            margins = narrowest(noise, pilot - 1, size)
            for name, worse in zip(found, margins, strict=True):
                second = dataclasses.replace(side, worse=worse)
                a, b = both(random, (size, size), side, second)
                [verdict] = judge_at(a, b, [None], direction="at_most")
                found[name].append(verdict.word == WORSE)
        for name, told in found.items():
            claim = f"B worse by the narrowest margin of {pilot} pilot trials, {name}, is found"
            yield claim, f"{size}", side.words, told


GROUPS: Groups = {"ladders": ladders, "power": power, "pilots": pilots}


def main() -> int:
    return run(__doc__, GROUPS, "verdicts_on_ladders", 400)


if __name__ == "__main__":
    sys.exit(main())
