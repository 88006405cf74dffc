"""Verdicts: intervals by hand, and how often a simulated verdict is wrong."""

import numpy as np
import pytest

from dawnjax.study import verdict


def rows(times, reached=None):
    return np.stack([times, np.ones(len(times)) if reached is None else reached], 1).astype(float)


def test_the_interval_is_welchs_of_the_logarithm():
    first = [1.0, 2.0, 3.0, 4.0, 5.0]
    judged = verdict.judge(rows(first), rows([2 * t for t in first]), margin=0.05)
    # The variance of a mean's logarithm is (4 + 1 + 0 + 1 + 4) / 9 / (5 * 4) = 1 / 18 on each side,
    # the error sqrt(1 / 9); 8 degrees of freedom, of which a table of t has 2.306 at 97.5 %.
    assert judged.ratio == pytest.approx(2.0)
    assert judged.low == pytest.approx(2 * np.exp(-2.306 / 3), rel=1e-4)
    assert judged.high == pytest.approx(2 * np.exp(2.306 / 3), rel=1e-4)
    assert judged.word == "undecided" and not judged.is_slower_excluded
    # (1.96 + 0.8416)^2 * (10 / 18) / ln(2)^2 = 9.08 trials, and two for the unknown variances.
    assert judged.more_trials == 12 - 5


def test_trials_that_did_not_reach_cost_and_need_more_trials():
    times, reached = [1.0, 1.0, 1.0, 2.0] * 5, [1, 1, 1, 0] * 5
    assert verdict.expected_seconds(rows(times, reached)) == pytest.approx(5 / 3)
    judged = verdict.judge(rows([1.0, 1.1] * 10), rows(times, reached), margin=0.05)
    assert judged.word == "slower" and judged.reached == (20, 15)
    few = verdict.judge(rows([1.0, 1.1] * 5), rows(times[:8], reached[:8]), margin=0.05)
    assert few.word == "undecided" and few.more_trials == 12
    assert (
        few.why
        == "10 and 8 trials; a verdict needs 20 of each, since some did not reach the target"
    )
    none = verdict.judge(rows([1.0] * 5), rows([9.0] * 5, [0] * 5), margin=0.05)
    assert none.word == "undecided" and none.ratio is None
    assert none.why == "no trial of B reached the target, of 5"
    assert verdict.expected_seconds(rows([9.0], [0])) is None


def test_each_word_and_the_gate():
    quick, even = rows([0.9, 0.91, 0.9, 0.89, 0.9]), rows([1.0, 1.01, 1.0, 0.99, 1.0])
    assert verdict.judge(even, quick, 0.05).word == "faster"
    assert verdict.judge(even, quick, 0.05).is_slower_excluded
    assert verdict.judge(quick, even, 0.05).word == "slower"
    assert not verdict.judge(quick, even, 0.05).is_slower_excluded
    # Certainly slower, but certainly within the margin.
    assert verdict.judge(quick, even, 0.2).word == "equivalent"
    assert verdict.judge(quick, even, 0.2).is_slower_excluded
    assert verdict.judge(even[:4], quick, 0.05).word == "undecided"


@pytest.mark.parametrize("margin", [0.0, 1.0, -0.1, float("nan")])
def test_a_margin_out_of_its_range_is_refused(margin):
    with pytest.raises(ValueError, match="not between 0 and 1"):
        verdict.judge(rows([1.0] * 5), rows([1.0] * 5), margin)


@pytest.mark.parametrize("cv", [0.004, 0.07, 0.2])  # those of the paper's entries
@pytest.mark.parametrize("sizes", [(5, 5), (20, 20), (5, 20)])
def test_wrong_verdicts_are_few(cv, sizes):
    random = np.random.default_rng(17)
    deviation = np.sqrt(np.log1p(cv**2))

    def words(ratio):
        pairs = 600
        a, b = (
            np.exp(random.normal(-(deviation**2) / 2, deviation, (pairs, size))) for size in sizes
        )
        return [
            verdict.judge(rows(x), rows(ratio * y), 0.05).word for x, y in zip(a, b, strict=True)
        ]

    equal, edge, far = words(1.0), words(1.05), words(1.5)
    # Of 600 a share of 5 % is 30, with a standard deviation of 5.3; of 2.5 % it is 15, and 3.8.
    assert equal.count("faster") <= 15 + 3 * 3.8 and equal.count("slower") <= 15 + 3 * 3.8
    assert edge.count("equivalent") <= 30 + 3 * 5.3
    assert far.count("faster") + far.count("equivalent") <= 2
    assert far.count("slower") >= (600 if cv < 0.1 else 400)  # the test can find what is there
