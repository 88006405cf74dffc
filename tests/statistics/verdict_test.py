"""Verdicts: intervals by hand and by SciPy, and how often a simulated verdict is wrong."""

import dataclasses

import numpy as np
import pytest
from each_change import rows
from scipy import stats

from dawnjax.statistics.contrast import p_different, ratio_of_means
from dawnjax.statistics.interval import ALPHA
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.trimmed import p_scores_differ
from dawnjax.statistics.verdict import DIFFERENT, holm, judge, judge_all


def sample(times, reached=None, seeds=(), losses=()):
    reached = np.ones(len(times), bool) if reached is None else np.asarray(reached, bool)
    return Sample(np.asarray(times, float), reached, tuple(seeds), tuple(losses))


def test_the_interval_is_fiellers_where_that_is_wider_than_the_logarithms():
    first = [1.0, 2.0, 3.0, 4.0, 5.0]
    judged = judge(sample(first), sample([2 * t for t in first]))
    # The variance of a mean's logarithm is (4 + 1 + 0 + 1 + 4) / 9 / (5 * 4) = 1 / 18 on each side,
    # 6 degrees of freedom, of which a table of t has 2.447 at 97.5 %: 2.447^2 / 18 = 0.33266. The
    # roots of 0.66734 x^2 - 2 x + 0.66734 are 0.38248 and 2.6145; the logarithm's are closer.
    assert judged.ratio is not None and judged.ratio.value == pytest.approx(2.0)
    assert judged.ratio.low == pytest.approx(2 * 0.38248, rel=1e-4)
    assert judged.ratio.high == pytest.approx(2 * 2.6145, rel=1e-4)
    assert judged.ratio.ends == "95 %"
    assert judged.word == "undecided" and not judged.is_slower_excluded
    assert judged.why == "the 95 % interval holds 1, and is wider than the margin"


def test_a_side_whose_error_is_as_large_as_its_mean_differs_from_nothing():
    # The mean of the first is 10 and its variance 405 / 5, so 0.9 of it is its error: a hundred
    # times as long is no further than 1 / 0.9 of errors, of 3 degrees of freedom.
    first, second = sample([1.0, 1, 1, 1, 46]), sample([999.0, 1000, 1000, 1000, 1001])
    assert p_different(first, second) == pytest.approx(2 * stats.t.sf(1 / 0.9, 3), rel=1e-3)


def test_the_verdict_on_two_published_entries():
    # MLPerf v0.5, SSD, DGX-2 and then DGX-2H.
    first = [964.123, 951.939, 957.515, 949.441, 855.407]
    second = [788.179, 877.591, 877.361, 880.660, 783.603]
    verdict = judge(sample(first), sample(second))
    assert verdict.ratio is not None and verdict.word == "faster_if_all_reach"
    assert verdict.ratio.value == pytest.approx(841.4788 / 935.685, rel=1e-6)
    # 5.73 degrees of freedom, of which t at 97.5 % is 2.475.
    parts = [np.std(s, ddof=1) ** 2 / np.mean(s) ** 2 / 5 for s in (first, second)]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 3)
    assert freedom == pytest.approx(5.727, abs=1e-3)
    half = 2.4752 * np.sqrt(sum(parts))
    assert verdict.ratio.low == pytest.approx(verdict.ratio.value * np.exp(-half), rel=1e-3)
    assert verdict.ratio.high == pytest.approx(verdict.ratio.value * np.exp(half), rel=1e-3)


def test_few_trials_decide_nothing():
    # Twice as fast, without any overlap: with so few even that is no answer.
    slow = sample([20.0, 21.0, 22.0])
    fast = sample([10.0 + number for number in range(5)])
    verdict = judge(slow, fast)
    assert verdict.word == "undecided" and "a verdict needs 5 of each" in verdict.why
    assert verdict.advice is not None and verdict.advice.minimum == 2
    # The least of the fast over the greatest of the slow, and the other way round.
    assert verdict.ratio is not None and verdict.ratio.ends == "range of 3"
    assert verdict.ratio.low == pytest.approx(10 / 22)
    assert verdict.ratio.high == pytest.approx(14 / 20)


def test_the_p_value_is_nearly_that_of_scipys_welch_test_of_logarithms():
    random = np.random.default_rng(0)
    first, second = random.lognormal(0, 0.002, 40), random.lognormal(4e-4, 0.002, 50)
    _, theirs = stats.ttest_ind(np.log(first), np.log(second), equal_var=False)
    assert p_different(sample(first), sample(second)) == pytest.approx(theirs, rel=0.03)


def test_trials_that_did_not_reach_cost_and_need_more_trials():
    times, reached = [1.0, 1.0, 1.0, 2.0] * 5, [1, 1, 1, 0] * 5
    assert sample(times, reached).expected == pytest.approx(5 / 3)
    judged = judge(sample([1.0, 1.1] * 20), sample(times * 2, reached * 2))
    assert judged.word == "slower" and judged.reached == (40, 30)
    # A quarter of 20 that failed is not yet a difference: the variance has one more failure.
    assert judge(sample([1.0, 1.1] * 10), sample(times, reached)).word == "undecided"
    few = judge(sample([1.0, 1.1] * 5), sample(times[:8], reached[:8]))
    assert few.word == "undecided" and few.advice is not None and few.advice.minimum == 12
    assert (
        few.why
        == "10 and 8 trials; a verdict needs 20 of each, since some did not reach the target"
    )
    assert few.ratio is not None and few.ratio.low is None and few.ratio.ends == ""
    none = judge(sample([9.0] * 5, [0] * 5), sample([9.0] * 5, [0] * 5))
    assert none.word == "undecided" and none.ratio is None
    assert none.why == "no trial of B reached the target, of 5"
    assert sample([9.0], [0]).expected is None


def test_a_side_that_never_reaches_is_a_verdict():
    always, never = sample([1.0] * 20), sample([9.0] * 20, [0] * 20)
    lost = judge(always, never)
    # Of 40 trials 20 reached: 2 of the C(40, 20) ways to share them out are so one-sided.
    assert lost.word == "only_first_reached" and "p 1.5e-11" in lost.why
    assert lost.is_slower and not lost.is_slower_excluded and lost.ratio is None
    won = judge(never, always)
    assert won.word == "only_second_reached" and won.is_slower_excluded and not won.is_slower
    assert judge(sample([1.0] * 3), sample([9.0] * 3, [0] * 3)).word == "undecided"  # p 0.1
    assert judge(sample([1.0] * 4), sample([9.0] * 4, [0] * 4)).word == "only_first_reached"


def test_each_word_and_the_gate():
    quick, even = sample([0.9, 0.91, 0.9, 0.89, 0.9]), sample([1.0, 1.01, 1.0, 0.99, 1.0])
    assert judge(even, quick).word == "faster_if_all_reach"
    assert judge(even, quick).is_slower_excluded
    assert judge(quick, even).word == "slower_if_all_reach" and judge(quick, even).is_slower
    assert not judge(quick, even).is_slower_excluded
    # Certainly slower, but certainly within the margin.
    equal = judge(quick, even, 0.2)
    assert equal.word == "equivalent" and equal.why.endswith(
        "; 5 trials cannot exclude that up to 45 % of B's runs are much slower or miss the target"
    )
    assert judge(quick, even, 0.2).is_slower_excluded
    # What the gate excludes it excludes of trials that reach.
    assert judge(even, quick).gate_words == (
        "B slower by 5 % or more is excluded if all trials reach; 5 trials cannot rule out that B "
        "misses the target in up to 45 % of runs"
    )
    assert judge(quick, even).gate_words == ""
    known = judge(sample([1.0] * 30 + [2.0], [1] * 30 + [0]), sample([0.5, 0.51] * 20), 0.5)
    assert known.gate_words == "B slower by 50 % or more is excluded"
    costly = dataclasses.replace(sample([0.1, 0.11, 0.1, 0.09, 0.1]), budget=0.5)
    assert judge(even, costly).gate_words == "B slower by 5 % or more is excluded"
    same = judge(sample([1.0] * 5), sample([2.0] * 5))
    assert same.word == "undecided" and same.ratio is not None and same.ratio.level is None
    assert judge(sample([]), quick).why == "A has no trial"
    assert "took no time" in judge(sample([0.0] * 5), quick).why


def test_pairs_by_seed_are_compared_as_pairs_where_the_mathematics_agree():
    times, seeds = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), range(5)
    losses = [(2.3, 2.0 + 0.1 * seed) for seed in seeds]
    first = sample(times, None, seeds, losses)
    # The same seeds in another order: each takes a hundredth more.
    second = sample(1.01 * times[::-1], None, seeds[::-1], losses[::-1])
    judged = judge(first, second)
    assert judged.is_paired and judged.word == "equivalent" and "paired" in judged.why
    assert judge(first, second, 0.005).word == "slower"
    noisy = second.amounts * np.array([1.0, 1.02, 0.98, 1.0, 1.01])
    judged = judge(first, sample(noisy, None, seeds[::-1], losses[::-1]), 0.005)
    # At an end x of Fieller's interval the differences B - x A are 2.776 of their errors from 0.
    differences = noisy[::-1] - judged.ratio.high * first.amounts
    errors = differences.mean() / (differences.std(ddof=1) / np.sqrt(5))
    assert errors == pytest.approx(-2.776, rel=1e-3)
    other = [(2.3, 2.5)] * 5
    assert not judge(first, sample(times, None, seeds, other)).is_paired
    assert not judge(first, sample(times, None, range(1, 6), losses)).is_paired
    assert not judge(first, sample(times, None, seeds, [()] * 5)).is_paired
    assert not judge(first, sample(times, None, seeds, [(2.3, float("nan"))] * 5)).is_paired


def test_trials_that_ran_in_turn_are_pairs_whatever_their_mathematics():
    speeds = np.array([1.0, 1.3, 0.8, 1.1, 0.9, 1.2])  # of the machine, the same for both sides
    first, second = (
        dataclasses.replace(sample(times, None, seeds), in_turn=True)
        for times, seeds in (
            (10 * speeds, range(6)),
            ((9.7 + 0.1 * (np.arange(6) % 2)) * speeds[::-1], range(5, -1, -1)),
        )
    )
    judged = judge(first, second, alpha=0.01, may_be_equivalent=False)
    assert judged.is_paired and judged.word == "faster_if_all_reach"
    assert p_different(first, second) < 0.01
    apart = dataclasses.replace(second, in_turn=False)
    assert judge(first, apart, alpha=0.01, may_be_equivalent=False).word == "undecided"


def test_holms_levels_by_hand():
    # 0.01 <= 0.05 / 4, 0.015 <= 0.05 / 3, 0.03 > 0.05 / 2: the last two keep that level.
    levels = holm([0.03, 0.01, 0.5, 0.015], lambda left: 0.05 / left)
    assert levels == pytest.approx([0.025, 0.0125, 0.025, 0.05 / 3])
    assert ratio_of_means([2.0, 2.0], [1.0]).value == 0.5
    with pytest.raises(ValueError, match="no figure above 0"):
        ratio_of_means([], [1.0])


def lognormal(random, cv, shape):
    deviation = np.sqrt(np.log1p(cv**2))
    return random.lognormal(-(deviation**2) / 2, deviation, shape)


def normal(random, cv, shape):
    return random.normal(1, cv, shape)


@pytest.mark.parametrize("draw", [lognormal, normal])
@pytest.mark.parametrize("cv", rows([0.004, 0.07, 0.2], [0.07]))  # those of the paper's entries
def test_equal_sides_differ_in_at_most_5_percent(draw, cv):
    random = np.random.default_rng(17)
    for sizes in ((3, 3), (5, 5), (10, 10), (20, 20), (5, 20)):
        pairs = 1200
        sides = [draw(random, cv, (pairs, size)) for size in sizes]
        p_values = [p_different(sample(a), sample(b)) for a, b in zip(*sides, strict=True)]
        # Three standard errors of 1,200 pairs are 1.9 %.
        assert np.mean(np.array(p_values) <= ALPHA) <= 0.05 + 0.019, sizes
        if 3 in sizes:
            assert min(p_values) == 1


@pytest.mark.parametrize("failure", rows([1.2, 2.0, 5.0], [2.0]))  # a failure's time over the mean
@pytest.mark.parametrize("reach", rows([0.3, 0.8, 0.95], [0.8, 0.95]))
def test_equal_sides_with_failures_differ_in_at_most_5_percent(reach, failure):
    random = np.random.default_rng(5)
    for sizes in ((3, 3), (5, 5), (10, 10), (5, 20), (20, 20), (20, 100)):
        sides = []
        for size in sizes:
            reached = random.random((800, size)) < reach
            times = lognormal(random, 0.07, (800, size))
            sides.append((np.where(reached, times, failure), reached))
        p_values = [
            p_different(sample(a, was_a), sample(b, was_b))
            for a, was_a, b, was_b in zip(*sides[0], *sides[1], strict=True)
        ]
        assert np.mean(np.array(p_values) <= ALPHA) <= 0.05 + 0.023, sizes


def test_what_is_there_is_found_and_the_edge_is_not_equivalent():
    random = np.random.default_rng(3)
    for sizes in ((5, 5), (20, 20)):
        sides = [lognormal(random, 0.07, (400, size)) for size in sizes]
        edge = [judge(sample(a), sample(1.05 * b)).word for a, b in zip(*sides, strict=True)]
        far = [judge(sample(a), sample(1.5 * b)).word for a, b in zip(*sides, strict=True)]
        assert edge.count("equivalent") <= 0.05 * 400 + 13  # three standard errors
        assert far.count("slower_if_all_reach") == 400


def test_further_trials_of_several_arms_are_those_of_their_joint_level():
    random = np.random.default_rng(5)
    first, *others = (sample(lognormal(random, 0.2, 10)) for _ in range(5))
    joint = [verdict.advice for verdict in judge_all(first, others)]
    alone = [judge(first, other).advice for other in others]
    both = [(a.if_equal, b.if_equal) for a, b in zip(alone, joint, strict=True) if a and b]
    assert both and all(a and b and b > a for a, b in both)


def test_yuens_test_of_scores_by_hand():
    # Dropped 1 at each end: means 102 and 111; replaced by the next kept, 101 101 102 103 103 and
    # 110 110 111 112 112 have the variance 1, times 4 / (3 x 2) each: 9 / sqrt(4 / 3), 4 degrees.
    first, second = sample([100.0, 101, 102, 103, 900]), sample([1.0, 110, 111, 112, 113])
    expected = 2 * stats.t.sf(9 / np.sqrt(4 / 3), 4)
    assert p_scores_differ(first, second, 1) == pytest.approx(expected)
    found = stats.ttest_ind(first.amounts, second.amounts, equal_var=False, trim=0.2)  # pyright: ignore
    assert p_scores_differ(first, second, 1) == pytest.approx(found[1])
    missed = sample([100.0, 101, 102, 103, 50], [1, 1, 1, 1, 0])  # counts as the slowest
    assert p_scores_differ(missed, second, 1) == pytest.approx(expected)
    # Two unseen steps of 2 s add 8 to each sum of squares of 4: 12 / (3 x 2) each.
    steps = (2.0,) * 5
    on_grid = [dataclasses.replace(side, steps=steps) for side in (first, second)]
    assert p_scores_differ(on_grid[0], on_grid[1], 1) == pytest.approx(
        2 * stats.t.sf(9 / np.sqrt(4), 4)
    )
    assert p_scores_differ(sample([1.0] * 5), sample([2.0] * 5), 1) == 1.0
    twice = sample([100.0, 101, 102, 60, 50], [1, 1, 1, 0, 0])
    assert p_scores_differ(twice, second, 1) == 1.0


def test_a_stalled_trial_is_named_and_decides_nothing():
    random = np.random.default_rng(6)
    for size, factor in ((5, 60), (20, 300)):
        first, second = lognormal(random, 0.05, (2, size))
        second[3] *= factor
        judged = judge(sample(first), sample(second))
        assert judged.word == "undecided" and judged.apart == (1, 3)
        assert (
            judged.why.startswith("trial 4 of B took ") and "the median of its side" in judged.why
        )
        assert not judged.is_slower and not judged.is_slower_excluded
    first, second = lognormal(random, 0.05, (2, 20))
    second *= 1.5
    second[3] *= 60
    judged = judge(sample(first), sample(second))
    assert "verdict is undecided, without it slower if all reach" in judged.why
    # The rest of five decides as all five do: four are enough for this check alone.
    slow, quick = sample([10, 10.1, 9.9, 10, 10.05]), sample([2, 2.01, 1.99, 2, 0.5])
    judged = judge(slow, quick)
    assert judged.word == "faster_if_all_reach" and judged.apart == (1, 4)
    assert judge(slow, quick.at(range(4))).word == "undecided"
    # Neither a miss nor a step of the evaluations is a stall.
    steps = dataclasses.replace(sample([1.0, 1, 1, 1, 3]), steps=(1.0,) * 5)
    assert steps.apart is None and sample([1.0, 1, 1, 1, 3]).apart == 4
    assert sample([1.0] * 20 + [90.0], [1] * 20 + [0]).apart is None


@pytest.mark.parametrize(("reach", "size"), [(0.95, 20), (0.95, 40), (0.9, 5), (0.9, 30)])
@pytest.mark.parametrize("failure", rows([1.2, 2.0, 5.0], [2.0]))
def test_a_side_that_misses_and_one_that_never_does(reach, size, failure):
    """Equal expected times: the side that may miss is faster when it reaches, often in all."""
    random, pairs, false, conditional = np.random.default_rng(8), 400, 0, 0
    mean = 1 - (1 - reach) * failure / reach
    for _ in range(pairs):
        reached = random.random(size) < reach
        first, second = lognormal(random, 0.07, (2, size))
        amounts = np.where(reached, mean * second, failure)
        always, sometimes = (
            dataclasses.replace(side, budget=failure)
            for side in (sample(first), sample(amounts, reached))
        )
        word = judge(always, sometimes).word
        false += word in DIFFERENT
        conditional += word == "faster_if_all_reach"
    assert false / pairs <= 0.05 + 0.033  # three standard errors
    if reach == 0.95 and size == 20 and failure >= 2:
        assert conditional / pairs > 0.2  # what is said of those that reached is true


def test_a_difference_that_no_hidden_miss_explains_is_certain():
    first, second = sample([3.0, 3.1] * 10), sample([1.0, 1.1] * 10)
    assert judge(first, second).word == "faster_if_all_reach"
    # 20 trials hide 14 % of misses at most, each at the budget: 1.05 + 0.16 x 5 is below 3.05.
    assert judge(first, dataclasses.replace(second, budget=5.0)).word == "faster"
    assert judge(first, dataclasses.replace(second, budget=20.0)).word == "faster_if_all_reach"
    judged = judge(dataclasses.replace(second, budget=5.0), first)
    assert judged.word == "slower"
    assert judge(first, second).why.endswith(
        "all 20 trials of B reached, which cannot exclude that it misses the target in up to 14 % "
        "of runs"
    )
