"""Trials that a comparison needs: published sizes, and whether the advice holds when followed."""

import math

import numpy as np
import pytest

from dawnjax.statistics.further import trials_needed
from dawnjax.statistics.looks import false_verdicts
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import BETTER, UNDECIDED, WORSE, judge


def drawn(random, cv, size):
    spread = math.sqrt(math.log1p(cv**2))
    return random.lognormal(-(spread**2) / 2, spread, size)


def judged(first, second):
    sides = [Sample(times, np.ones(len(times), bool)) for times in (first, second)]
    return judge(sides[0], sides[1])


@pytest.mark.parametrize(("trials", "cv"), [(5, 0.07), (10, 0.1)])
def test_following_the_advice_decides_equal_pairs_and_costs_what_it_says(trials, cv):
    random = np.random.default_rng(1)
    pairs, decided, advised, false, said = 300, 0, 0, 0, 0.0
    for _ in range(pairs):
        first, second = drawn(random, cv, trials), drawn(random, cv, trials)
        verdict = judged(first, second)
        if verdict.word == UNDECIDED:
            assert verdict.advice is not None and verdict.advice.if_equal is not None
            assert verdict.advice.false_verdicts is not None
            more = verdict.advice.if_equal
            advised += 1
            said = max(said, verdict.advice.false_verdicts)
            first, second = (np.append(s, drawn(random, cv, more)) for s in (first, second))
            verdict = judged(first, second)
            decided += verdict.word != UNDECIDED
        false += verdict.word in (*BETTER, *WORSE)
    assert decided >= 0.8 * advised
    assert 0.05 < said < 0.0976  # two looks at 5 % cost 1 - 0.95^2 at most
    assert false / pairs <= said + 3 * math.sqrt(said / pairs)


def test_looks_that_were_not_planned_by_published_values():
    # Armitage, McPherson and Rowe (1969), table 2: 2, 3, 4, 5 equally spaced looks at 5 %.
    for looks, chance in ((1, 0.05), (2, 0.083), (3, 0.107), (4, 0.126), (5, 0.142)):
        at = tuple(range(1, looks + 1))
        assert false_verdicts(at, (0.05,) * looks) == pytest.approx(chance, abs=6e-4)
    # A study of 5 trials that is extended to 10, 20 and 40.
    assert false_verdicts((5, 10, 20, 40), (0.05,) * 4) == pytest.approx(0.146, abs=0.006)


@pytest.mark.parametrize(("effect", "trials"), [(0.2, 394), (0.5, 64), (0.8, 26)])
def test_trials_needed_against_published_sizes(effect, trials):
    # Cohen (1988), two-sided 0.05, power 0.80: 64 of each for d = 0.5, 26 for 0.8 (exact t test).
    # Logarithms of a ratio whose distance is `effect` deviations:
    cv = 0.1
    ratio = math.exp(effect * math.sqrt(math.log1p(cv**2)))
    assert trials_needed(ratio, cv, cv) == trials


def test_equal_sides_need_more_trials_than_anyone_runs():
    assert trials_needed(1.0, 0.1, 0.1) is None
    assert trials_needed(1.0 + 1e-9, 0.1, 0.1) is None


@pytest.mark.parametrize(
    ("ratio", "first_cv", "second_cv", "trials"),
    # scipy 1.17 (nct, 2n - 2 degrees of freedom) has 0.801 for each of the first two, and 0.668 and
    # 0.745 of one trial fewer.
    [
        (1.10653, 0.05, 0.05, 5),
        (1.07289, 0.05, 0.05, 9),
        (1.14, 0.02, 0.1, 7),
    ],
)
def test_few_trials_are_needed_by_the_noncentral_t(ratio, first_cv, second_cv, trials):
    assert trials_needed(ratio, first_cv, second_cv) == trials
