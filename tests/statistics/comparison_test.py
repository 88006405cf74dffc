"""Speedups and comparisons against hand-computed and published values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_entries import entry_of, make_entry, make_trial, official_entries
from official_figures import RESNET_1, RESNET_80

from dawnjax.analysis import resampling
from dawnjax.analysis.comparison import (
    compare,
    compare_table,
    speedup,
    speedup_table,
    trials_needed,
)
from dawnjax.analysis.paper import find_entry
from dawnjax.analysis.resampling import FEWEST_TRIALS


def test_speedup_by_hand():
    small = make_entry([make_trial(t, 10.0) for t in (90, 100, 110)], num_accelerators=8)
    large = make_entry([make_trial(t, 20.0) for t in (20, 20, 80)], num_accelerators=32)
    value = speedup(small, large)
    assert value.tta == 5.0  # Scores 100 and 20.
    assert value.throughput == pytest.approx(5.0)  # 10 s an epoch, and 2 s.
    assert value.epochs == 2.0 and value.accelerators == 4.0


def test_no_score_no_speedup():
    value = speedup(entry_of([1.0, 2.0, None, None], total=5.0), entry_of([1.0, 1.0, 1.0]))
    assert value.tta is None and value.throughput is None


def test_published_speedups(test_data):
    # Table 7 prints 21.6x and 28.2x; the logs give 21.558 and 28.042.
    entries = official_entries(test_data)
    small = find_entry(entries, RESNET_1)
    large = find_entry(entries, RESNET_80)
    assert small is not None and large is not None
    value = speedup(small, large)
    assert value.tta == pytest.approx(21.558, abs=1e-3)
    assert value.throughput == pytest.approx(28.042, abs=1e-3)
    (row,) = speedup_table([(small, large)]).records()
    assert (row["small_epochs"], row["large_epochs"]) == (63, 82)
    assert (row["small_batch_size"], row["large_batch_size"]) == (1664, 16640)


def test_ratio_interval_against_scipy():
    # MLPerf v0.5, SSD, DGX-2 against DGX-2H. scipy.stats.bootstrap 1.17, ratio of means, BCa,
    # 200,000 resamples: [1.0416, 1.1849].
    first = entry_of([964.123, 951.939, 957.515, 949.441, 855.407])
    second = entry_of([788.179, 877.591, 877.361, 880.660, 783.603])
    value = compare(first, second)
    ratio = value.mean_ratio
    assert ratio is not None and ratio.high is not None
    assert ratio.value == pytest.approx(935.685 / 841.4788, rel=1e-6)
    assert (ratio.low, ratio.high) == (
        pytest.approx(1.0416, abs=3e-3),
        pytest.approx(1.1849, abs=3e-3),
    )
    assert value.distinct is True and value.caution == ""
    assert compare(first, second) == value  # Seeded.


def test_the_same_trials_are_not_told_apart():
    entry = entry_of([10.0, 11.0, 12.0, 13.0, 14.0])
    value = compare(entry, entry)
    assert value.distinct is False and value.trials_needed is None


@pytest.mark.parametrize("trials", [2, 3, 4])
def test_few_trials_tell_nothing_apart(trials):
    # Twice as fast, without any overlap: with so few even that is no answer.
    slow = entry_of([20.0 + number for number in range(trials)])
    fast = entry_of([10.0 + number for number in range(5)])
    for first, second, ratio in ((slow, fast, 1), (fast, slow, -1)):
        value = compare(first, second)
        assert value.distinct is None
        assert f"an interval needs {FEWEST_TRIALS} of each" in value.caution
        for estimate in (value.mean_ratio, value.expected_ratio):
            assert estimate is not None and estimate.low is None and estimate.high is None
            assert (estimate.value - 1) * ratio > 0
        assert value.trials_needed is not None and value.trials_needed >= FEWEST_TRIALS
    (row,) = compare_table([(slow, fast)]).records()
    assert row["distinct"] is None and row["mean_ratio_low"] is row["expected_ratio_high"] is None
    assert "too few trials to tell" in str(row["caution"])
    assert isinstance(row["mean_ratio"], float) and isinstance(row["expected_ratio"], float)


@pytest.mark.parametrize(("trials", "told"), [(2, 0.33), (3, 0.19), (5, 0.12), (10, 0.09)])
def test_intervals_of_few_trials_tell_equal_systems_apart(trials, told):
    # Why few trials give no interval. 0.06 is three standard errors of 500 pairs at most.
    generator = np.random.default_rng(11)
    pairs = generator.normal(100.0, 7.0, size=(500, 2, trials))
    apart = 0
    for first, second in pairs:
        interval = resampling.bootstrap(
            [first, second], lambda a, b: a.mean(axis=1) / b.mean(axis=1), resamples=500
        )
        assert interval is not None and interval.low is not None and interval.high is not None
        apart += interval.low > 1 or interval.high < 1
    assert apart / len(pairs) == pytest.approx(told, abs=0.06)


def test_failures_count_in_the_expected_ratio_alone():
    first = entry_of([10.0, 10.5, None, None], total=40.0)
    second = entry_of([10.0, 10.5, 10.2, 10.3])
    value = compare(first, second)
    assert value.mean_ratio is not None and value.expected_ratio is not None
    assert value.mean_ratio.value == pytest.approx(1.0)
    assert value.expected_ratio.value == pytest.approx(50.25 / 10.25)  # 100.5 s for 2.
    assert "not all trials reached" in value.caution


def test_cautions():
    small = entry_of([10.0, 11.0], identity="a", benchmark="x")
    assert "different experiments" in compare(small, entry_of([1.0, 2.0], benchmark="x")).caution
    assert "different benchmarks" in compare(small, entry_of([1.0, 2.0])).caution
    few = compare(small, entry_of([10.0], identity="a", benchmark="x"))
    assert few.mean_ratio is None and few.distinct is None
    assert "fewer than two" in few.caution
    assert compare_table([(small, small)]).column("trials_needed") == [None]


@pytest.mark.parametrize(("effect", "trials"), [(0.2, 394), (0.5, 64), (0.8, 26), (1.0, 17)])
def test_trials_needed_against_published_sizes(effect, trials):
    # Cohen (1988), two-sided 0.05, power 0.80: 64 of each for d = 0.5, 26 for 0.8 (exact t test).
    # Logarithms of a ratio whose distance is `effect` deviations:
    cv = 0.1
    ratio = math.exp(effect * math.sqrt(math.log1p(cv**2)))
    assert trials_needed(ratio, cv, cv) == trials


def test_trials_needed_tell_apart_as_often_as_they_say():
    # With the trials that it asks for, a test of simulated log-normal times finds the difference
    # in 80 of 100 experiments; 0.02 is three standard errors of 4,000 of them.
    cv, ratio = 0.07, 1.05
    number = trials_needed(ratio, cv, cv)
    assert number is not None and number > 20
    generator = np.random.default_rng(3)
    spread = math.sqrt(math.log1p(cv**2))
    first = generator.normal(math.log(ratio), spread, size=(4000, number))
    second = generator.normal(0.0, spread, size=(4000, number))
    error = np.sqrt((first.var(axis=1, ddof=1) + second.var(axis=1, ddof=1)) / number)
    statistic = np.abs(first.mean(axis=1) - second.mean(axis=1)) / error
    critical = 2.01  # Student's t, 0.975, about 60 degrees of freedom: 2.00.
    assert np.mean(statistic > critical) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    ("ratio", "first_cv", "second_cv", "trials"),
    # scipy 1.17 (nct, 2n - 2 degrees of freedom) has 0.801 for each of the first four, and 0.668,
    # 0.702, 0.745 and 0.765 of one trial fewer; the formula with z² / 4 asks for 5 at 1.105.
    [
        (1.10653, 0.05, 0.05, 5),
        (1.09394, 0.05, 0.05, 6),
        (1.07289, 0.05, 0.05, 9),
        (1.05895, 0.05, 0.05, 13),
        (1.105, 0.05, 0.05, 6),
        (1.14, 0.02, 0.1, 7),
        (1.22, 0.05, 0.05, 5),
    ],
)
def test_few_trials_needed_tell_apart_as_often_as_they_say(ratio, first_cv, second_cv, trials):
    # Welch's t test of 20,000 pairs of sets of log-normal times of these means.
    assert trials_needed(ratio, first_cv, second_cv) == trials
    generator = np.random.default_rng(5)
    first_sigma, second_sigma = (math.sqrt(math.log1p(cv**2)) for cv in (first_cv, second_cv))
    first = generator.normal(math.log(ratio), first_sigma, size=(20_000, trials))
    second = generator.normal(0.0, second_sigma, size=(20_000, trials))
    parts = [values.var(axis=1, ddof=1) / trials for values in (first, second)]
    statistic = np.abs(first.mean(axis=1) - second.mean(axis=1)) / np.sqrt(sum(parts))
    # Student's t, 0.975, of 2n - 2 degrees of freedom, or of Welch's number of them.
    powers = [first_sigma**power + second_sigma**power for power in (2, 4)]
    freedom = (trials - 1) * powers[0] ** 2 / powers[1]
    critical = {8: 2.306, 10: 2.228, 16: 2.120, 24: 2.064, 6: 2.404}[round(freedom)]
    assert np.mean(statistic > critical) >= 0.79


@given(st.floats(0.2, 5), st.floats(0, 1), st.floats(0, 1))
def test_trials_needed_does_not_depend_on_which_is_first(ratio, first_cv, second_cv):
    trials = trials_needed(ratio, first_cv, second_cv)
    swapped_trials = trials_needed(1 / ratio, second_cv, first_cv)
    if trials is not None and swapped_trials is not None:
        assert trials >= 2 and abs(trials - swapped_trials) <= 1
    else:
        assert abs(ratio - 1) < 0.01  # Nothing else needs a million.


def test_trials_needed_refuses_nonsense():
    assert trials_needed(1.0, 0.1, 0.1) is None
    assert trials_needed(1.0 + 1e-9, 0.1, 0.1) is None
    with pytest.raises(ValueError, match="negative"):
        trials_needed(-1.0, 0.1, 0.1)
    with pytest.raises(ValueError, match="power"):
        trials_needed(1.1, 0.1, 0.1, power=1.0)
