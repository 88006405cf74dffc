"""Trials that a verdict takes, with and without pairs by seed: simulated, and of real runs.

    python -m benchmarks pairs
    python -m benchmarks pairs --sides FOLDER FOLDER

A seed decides how many epochs a trial needs, and the machine adds its own noise. Two systems that
run the same mathematics need the same epochs with the same seed, so their pairs differ by the
machine's noise alone. Both are log-normal here, with a CV each. A verdict decides where it finds a
difference or an equivalence within 5 %. The number is the smallest of `TRIALS` with which 80 % of
studies decide. `--sides` judges two folders of runs in both ways and keeps that beside.
"""

import argparse
import dataclasses
import sys
from typing import Any

import numpy as np

from benchmarks import harness
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import DIFFERENT, UNDECIDED, judge
from dawnjax.study.sides import read_side

TRIALS = (5, 6, 8, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750)
POWER = 0.8
CASES = (
    # CV over seeds, CV of the machine, ratio of the systems' times
    (0.2, 0.01, 1.0),
    (0.2, 0.01, 1.02),
    (0.2, 0.01, 1.1),
    (0.07, 0.01, 1.0),
    (0.07, 0.01, 1.1),
    (0.07, 0.03, 1.0),
    (0.07, 0.03, 1.1),
)
"""0.2 is the CV of `digits` over seeds, 0.07 that of a DAWNBench entry."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog=sys.argv[0], description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=1000, help="simulated, of each case")
    parser.add_argument("--sides", nargs=2, metavar="FOLDER", help="two folders of runs")
    parser.add_argument("--name", default="pairs", help="of the result file")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    rows = []
    for case in CASES:
        for paired in (True, False):
            rows.append(_needed(random, case, paired, options.studies))
            print(*rows[-1].values(), sep="\t", flush=True)
    facts: dict[str, Any] = {"studies": options.studies, "rows": rows}
    if options.sides:
        facts["sides"] = _judged(*options.sides)
    print(harness.write(options.name, facts))
    return 0


def _needed(
    random: np.random.Generator, case: tuple[float, float, float], paired: bool, studies: int
) -> dict[str, Any]:
    """Fewest trials of each side with which enough studies decide; None beyond the last number."""
    seeds_cv, machine_cv, ratio = case
    facts = {"seeds_cv": seeds_cv, "machine_cv": machine_cv, "ratio": ratio, "paired": paired}
    decided = 0.0
    for count in TRIALS:
        words = []
        for _ in range(studies):
            epochs = _lognormal(random, seeds_cv, count)
            others = epochs if paired else _lognormal(random, seeds_cv, count)
            times = [own * _lognormal(random, machine_cv, count) for own in (epochs, others)]
            words.append(judge(_sample(times[0], paired), _sample(ratio * times[1], paired)).word)
        decided = sum(word != UNDECIDED for word in words) / studies
        if decided >= POWER:
            different = sum(word in DIFFERENT for word in words) / studies
            return {**facts, "trials": count, "decided": decided, "found_different": different}
    return {**facts, "trials": None, "decided": decided, "found_different": None}


def _lognormal(random: np.random.Generator, cv: float, count: int) -> np.ndarray:
    sigma = np.log1p(cv**2) ** 0.5
    return random.lognormal(-(sigma**2) / 2, sigma, count)


def _sample(times: np.ndarray, paired: bool) -> Sample:
    losses = ((1.0,),) * len(times) if paired else ()
    return Sample(times, np.ones(len(times), bool), tuple(range(len(times))), losses)


def _judged(first: str, second: str) -> dict[str, Any]:
    """Verdict on two folders of runs, as pairs and as if they were none."""
    sides = [read_side(path) for path in (first, second)]
    first_sample, second_sample = (side.sample for side in sides)
    without = dataclasses.replace(first_sample, first_losses=())
    return {
        "entries": [side.entry.source for side in sides],
        "system": sides[0].entry.system,
        "paired": judge(first_sample, second_sample).to_json(),
        "unpaired": judge(without, second_sample).to_json(),
    }


if __name__ == "__main__":
    sys.exit(main())
