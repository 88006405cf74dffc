"""How often the rule of a race accepts an entry: simulated races.

    python -m benchmarks race_rule

Trials have a fixed length with a log-normal spread, so that a miss takes as long as a success, and
reach by chance. A race has the judge's looks and levels: of the 1 % that all tries share, the first
has a half.
"""

import dataclasses
import itertools
import sys

import numpy as np

from benchmarks.simulated import Cases, Groups, run
from benchmarks.verdicts import Side
from dawnjax.race.verdicts import LEVEL, looks
from dawnjax.statistics.fixed_length import FixedLength
from dawnjax.statistics.looks import nominal_levels
from dawnjax.statistics.sample import Sample


def no_faster(random: np.random.Generator, count: int) -> Cases:
    """Entries that must not be accepted."""
    reaches = ((1, 1), (0.9, 1), (0.6, 1), (0.8, 0.8), (0.95, 0.95), (0.5, 0.8))
    for cv, (own, rival), rounds in itertools.product((0.03, 0.2), reaches, (5, 8, 20, 40)):
        yield _race(random, count, rounds, _side(cv, own), _side(cv, rival))
    slow, record = dataclasses.replace(_side(0.03, 0.8), mean=1.1), _side(0.03, 1)
    for rounds in (5, 8, 20, 40):
        yield _race(random, count, rounds, slow, record)
    levels = [LEVEL / (k * (k + 1)) for k in range(1, 11)]
    for rounds in (5, 8, 20):
        tries = [_accepted(random, count // 4, rounds, slow, record, it) for it in levels]
        claim = "one of ten tries that are slower by 10 % is accepted"
        yield (
            claim,
            f"{rounds}",
            _words(slow, record),
            [any(race) for race in zip(*tries, strict=True)],
        )


def power(random: np.random.Generator, count: int) -> Cases:
    """Entries that are faster."""
    for mean, reach, rounds in itertools.product((0.9, 0.7, 0.5, 0.3), (1, 0.85), (8, 20, 40)):
        own = dataclasses.replace(_side(0.03, reach), mean=mean)
        yield _race(random, count, rounds, own, _side(0.03, reach))


def _side(cv: float, reach: float) -> Side:
    return Side(cv, reach=reach, miss=1.0)


def _race(
    random: np.random.Generator, count: int, rounds: int, own: Side, rival: Side
) -> tuple[str, str, str, list[bool]]:
    change = 100 * (own.mean - rival.mean)
    speed = (
        f"{'slower' if change > 0 else 'faster'} by {abs(change):.0f} %" if change else "as fast"
    )
    accepted = _accepted(random, count, rounds, own, rival, LEVEL / 2)
    return f"an entry {speed} is accepted", f"{rounds}", _words(own, rival), accepted


def _words(own: Side, rival: Side) -> str:
    reach, others = (f"{100 * side.reach:g} %" for side in (own, rival))
    return f"reaches in {reach}, the record in {others}; CV {100 * own.cv:g} %"


def _accepted(
    random: np.random.Generator, count: int, rounds: int, own: Side, rival: Side, level: float
) -> list[bool]:
    owns, rivals = (side.samples(random, count, rounds) for side in (own, rival))
    return [_is_accepted(first, second, level) for first, second in zip(owns, rivals, strict=True)]


def _is_accepted(own: Sample, rival: Sample, level: float) -> bool:
    """Whether a race of these trials accepts; a look that finds it slower ends the race."""
    at = looks(len(own))
    for look, nominal in zip(at, nominal_levels(at, level), strict=True):
        pair = FixedLength(own.at(range(look)), rival.at(range(look)))
        if pair.p_value() <= nominal:
            return pair.is_faster
    return False


GROUPS: Groups = {"no faster": no_faster, "power": power}


def main() -> int:
    return run(__doc__, GROUPS, "race_rule", 1000)


if __name__ == "__main__":
    sys.exit(main())
