"""What the verdicts of a study that looks several times hold: simulated studies of two arms.

    python -m benchmarks study_stopping --studies=4000

Each simulated study has two arms with lognormal times of a given CV, and a chance that a trial does
not reach its target. It is judged in three ways: once at its end, at each look by the level of a
single look, and at each look by the bounds of `dawnjax.study.stopping`. Of equal arms the share
that is told apart is the rate of false verdicts; of unequal arms it is the power. The trials that a
study took are those of an arm when the study ended.
"""

import argparse
import sys

import numpy as np

from benchmarks import harness
from dawnjax.statistics.interval import ALPHA
from dawnjax.statistics.looks import looks_of, nominal_levels
from dawnjax.statistics.verdict import FASTER, SLOWER, judge

SEEDS, LOOKS, MARGIN = 40, 4, 0.05
CASES = (
    # CV, chance to reach, ratio of expected times
    (0.004, 1.0, 1.0),
    (0.07, 1.0, 1.0),
    (0.2, 1.0, 1.0),
    (0.2, 0.8, 1.0),
    (0.004, 1.0, 1.005),
    (0.07, 1.0, 1.05),
    (0.2, 1.0, 1.15),
)
"""The CVs are those of the entries in "Analysis of DAWNBench", Table 3."""


def main() -> int:
    """Simulates and writes `results/study_stopping.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--name", default="study_stopping", help="of the result file")
    options = parser.parse_args()
    at = looks_of(SEEDS, LOOKS)
    ways = {
        "one look": [0.0] * (LOOKS - 1) + [ALPHA],
        "each look at 5 %": [ALPHA] * LOOKS,
        "bounds": nominal_levels(at),
    }
    random = np.random.default_rng(0)
    rows = []
    for cv, reach, ratio in CASES:
        studies = [(_arm(random, cv, reach, 1.0), _arm(random, cv, reach, ratio))
                   for _ in range(options.studies)]  # fmt: skip
        for way, levels in ways.items():
            told, trials = 0, 0
            for first, second in studies:
                is_told, count = _study(first, second, at, levels)
                told += is_told
                trials += count
            share = told / options.studies
            error = 1.96 * (share * (1 - share) / options.studies) ** 0.5
            rows.append(
                {
                    "cv": cv,
                    "reach": reach,
                    "ratio": ratio,
                    "way": way,
                    "told_apart": round(share, 4),
                    "half_interval_95": round(error, 4),
                    "trials_mean": round(trials / options.studies, 1),
                }
            )
            print(*rows[-1].values(), sep="\t", flush=True)
    facts = {"studies": options.studies, "seeds": SEEDS, "looks": list(at), "rows": rows}
    print(harness.write(options.name, facts))
    return 0


def _arm(random: np.random.Generator, cv: float, reach: float, mean: float) -> np.ndarray:
    """Times and successes of an arm's trials: [seeds, 2]. A failure takes twice the mean."""
    sigma = np.log1p(cv**2) ** 0.5
    times = mean * random.lognormal(-(sigma**2) / 2, sigma, SEEDS)
    reached = random.random(SEEDS) < reach
    return np.stack([np.where(reached, times, 2 * mean), reached], 1)


def _study(
    first: np.ndarray, second: np.ndarray, at: tuple[int, ...], levels: list[float]
) -> tuple[bool, int]:
    """Whether a study told its arms apart, and after how many trials of each it ended."""
    for count, alpha in zip(at, levels, strict=True):
        if alpha:
            is_last = count == at[-1]
            judged = judge(first[:count], second[:count], MARGIN, level=1 - alpha, is_last=is_last)
            if judged.word in (FASTER, SLOWER):
                return True, count
    return False, at[-1]


if __name__ == "__main__":
    sys.exit(main())
