"""False verdicts and power of a study that looks several times: simulated studies of two arms.

    python -m benchmarks study_stopping --studies=2000

The arms have lognormal times of a given CV, and a chance that a trial does not reach its target.
Each study is judged in four ways: once at its end, at four looks each as if it were the end, at
four looks by the bounds of `dawnjax.statistics.looks`, and as a study of 5 trials that is extended
to 10, 20 and 40 while undecided. The share of studies that find a difference is the rate of false
verdicts for equal arms, and the power for unequal arms. Trials are those of an arm at the end.
"""

import argparse
import sys

import numpy as np

from benchmarks import harness
from dawnjax.statistics.interval import ALPHA
from dawnjax.statistics.looks import looks_of, nominal_levels
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import DIFFERENT, judge, p_different

SEEDS, LOOKS = 40, 4
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
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--name", default="study_stopping", help="of the result file")
    options = parser.parse_args()
    at = looks_of(SEEDS, LOOKS)
    ways = {
        "one look": ((SEEDS,), (ALPHA,)),
        "each look at 5 %": (at, (ALPHA,) * LOOKS),
        "bounds": (at, nominal_levels(at)),
        "extended 5, 10, 20, 40": ((5, 10, 20, 40), (ALPHA,) * 4),
    }
    random = np.random.default_rng(0)
    rows = []
    for cv, reach, ratio in CASES:
        studies = [(_arm(random, cv, reach, 1.0), _arm(random, cv, reach, ratio))
                   for _ in range(options.studies)]  # fmt: skip
        for way, (looks, levels) in ways.items():
            ended = [_study(first, second, looks, levels) for first, second in studies]
            rows.append(
                {
                    "cv": cv,
                    "reach": reach,
                    "ratio": ratio,
                    "way": way,
                    "found_different": sum(is_different for is_different, _ in ended),
                    "trials_mean": round(sum(count for _, count in ended) / len(ended), 1),
                }
            )
            print(*rows[-1].values(), sep="\t", flush=True)
    facts = {"studies": options.studies, "seeds": SEEDS, "looks": list(at), "rows": rows}
    print(harness.write(options.name, facts))
    return 0


def _arm(random: np.random.Generator, cv: float, reach: float, mean: float) -> Sample:
    """Trials of an arm; a failure takes twice the mean."""
    sigma = np.log1p(cv**2) ** 0.5
    times = mean * random.lognormal(-(sigma**2) / 2, sigma, SEEDS)
    reached = random.random(SEEDS) < reach
    return Sample(np.where(reached, times, 2 * mean), reached)


def _study(
    first: Sample, second: Sample, at: tuple[int, ...], levels: tuple[float, ...]
) -> tuple[bool, int]:
    """True if a study found its arms different; and the trials of each at its end."""
    for count, alpha in zip(at, levels, strict=True):
        sides = [Sample(side.amounts[:count], side.reached[:count]) for side in (first, second)]
        if p_different(*sides) <= alpha:
            # A difference within the margin is an equivalence, at the looks that may find one.
            may_be_equivalent = count == at[-1] or len(set(levels)) == 1
            word = judge(sides[0], sides[1], alpha=alpha, may_be_equivalent=may_be_equivalent).word
            return word in DIFFERENT, count
    return False, at[-1]


if __name__ == "__main__":
    sys.exit(main())
