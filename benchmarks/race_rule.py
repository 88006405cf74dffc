"""How often the rule of a race accepts an entry, and the rule before it: simulated races.

    python -m benchmarks race_rule

Trials have a fixed length with a log-normal spread, and reach by chance. A race has the judge's
looks and levels. The rule before it was the verdict of `dawnjax compare` at 1 %, which adds the
longest failure to the variance of both sides, and counts no miss where none was seen.
"""

import argparse
import dataclasses
import math
import sys
from typing import Any

import numpy as np

from benchmarks import harness
from dawnjax.race.verdicts import LEVEL, looks
from dawnjax.statistics.fixed_length import FixedLength
from dawnjax.statistics.looks import nominal_levels
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import BETTER, judge


@dataclasses.dataclass(frozen=True)
class Side:
    """What a side's trials are drawn from.

    Attributes:
      length: Mean length of a trial.
      reach: Chance of a trial to reach.
      cv: Of the lengths.
    """

    length: float = 1.0
    reach: float = 1.0
    cv: float = 0.03

    @property
    def expected(self) -> float:
        return self.length / self.reach

    def sample(self, random: np.random.Generator, rounds: int) -> Sample:
        sigma = math.sqrt(math.log1p(self.cv**2))
        noise = np.exp(random.normal(size=rounds) * sigma - sigma**2 / 2)
        reached = random.random(rounds) < self.reach
        return Sample(self.length * noise, reached, tuple(range(rounds)), in_turn=True)


def is_accepted(own: Sample, rival: Sample, level: float) -> bool:
    """Whether a race of these trials accepts; a look that finds it slower ends the race."""
    at = looks(len(own))
    for look, nominal in zip(at, nominal_levels(at, level), strict=True):
        pair = FixedLength(own.at(range(look)), rival.at(range(look)))
        if pair.p_value() <= nominal:
            return pair.is_faster
    return False


def was_accepted(own: Sample, rival: Sample) -> bool:
    """The same by the rule before."""
    return judge(rival, own, alpha=LEVEL, may_be_equivalent=False).word in BETTER


def cases() -> list[tuple[str, Side, Side, int]]:
    found: list[tuple[str, Side, Side, int]] = []
    for rounds in (5, 8, 20, 40):
        for reach, other in ((1, 1), (0.9, 1), (0.6, 1), (0.8, 0.8), (0.95, 0.95), (0.5, 0.8)):
            for cv in (0.03, 0.2):
                sides = Side(reach / other, reach, cv), Side(1.0, other, cv)
                found.append(("as fast", *sides, rounds))
        slow = Side(1.1 * 0.8, 0.8), Side()
        found.append(("slower by 10 %", *slow, rounds))
    for rounds in (8, 20, 40):
        for ratio in (0.9, 0.7, 0.5, 0.3):
            for reach in (1.0, 0.85):
                sides = Side(ratio, reach), Side(1.0, reach)
                found.append((f"faster by {100 * (1 - ratio):.0f} %", *sides, rounds))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--repetitions", type=int, default=4000, help="of each case")
    options = parser.parse_args()
    random, rows = np.random.default_rng(0), list[dict[str, Any]]()

    def add(what: str, own: Side, rival: Side, rounds: int, **counts: int) -> None:
        sides = {"own_reach": own.reach, "rival_reach": rival.reach, "cv": own.cv}
        rows.append({"what": what, **sides, "rounds": rounds, **counts})
        print(rows[-1], flush=True)

    for what, own, rival, rounds in cases():
        drawn = [
            (own.sample(random, rounds), rival.sample(random, rounds))
            for _ in range(options.repetitions)
        ]
        add(
            what,
            own,
            rival,
            rounds,
            of=len(drawn),
            # The first try has half of the level, and every later one less.
            accepted=sum(is_accepted(*pair, LEVEL / 2) for pair in drawn),
            before=sum(was_accepted(*pair) for pair in drawn),
        )
    own, rival = Side(1.1 * 0.8, 0.8), Side()
    for rounds in (5, 8, 20):
        counts = {"accepted": 0, "before": 0}
        for _ in range(options.repetitions // 4):
            drawn = [(own.sample(random, rounds), rival.sample(random, rounds)) for _ in range(10)]
            levels = [LEVEL / (k * (k + 1)) for k in range(1, 11)]
            tries = zip(drawn, levels, strict=True)
            counts["accepted"] += any(is_accepted(*pair, level) for pair, level in tries)
            counts["before"] += any(was_accepted(*pair) for pair in drawn)
        what = "slower by 10 %, one of ten tries"
        add(what, own, rival, rounds, of=options.repetitions // 4, **counts)
    print(harness.write("race_rule", {"repetitions": options.repetitions, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
