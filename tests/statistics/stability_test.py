"""Statistics of trials against hand-computed and published values."""

import math

import numpy as np
import pytest
from each_change import rows
from made_entries import entry_of, make_entry, make_trial
from scipy import stats

from dawnjax.page import words
from dawnjax.report.stability import stability_table
from dawnjax.statistics import interval, proportions
from dawnjax.statistics.sample import Sample, expected_interval, mean_interval
from dawnjax.trials.figures import coefficient_of_variation, figures, mlperf_score

# MLPerf v0.5, NVIDIA, SSD on 8 DGX-1; the paper prints a CV of 6.7 % (Table 3b).
SSD_SECONDS = [391.562, 389.450, 388.163, 430.850, 348.114]


def test_cv_is_the_population_deviation_over_the_mean():
    assert coefficient_of_variation(SSD_SECONDS) == pytest.approx(0.067208, abs=1e-6)
    assert coefficient_of_variation([2.0, 4.0]) == pytest.approx(1 / 3)
    assert coefficient_of_variation([5.0]) is None


def test_score_drops_one_at_each_end():
    assert mlperf_score([5.0, 1.0, 3.0]) == 3.0
    assert mlperf_score([5.0, 1.0, None]) == 5.0  # The one that failed is the slowest.
    assert mlperf_score([5.0, None, None]) is None
    assert mlperf_score([5.0, 1.0]) is None


def test_summary_by_hand():
    summary = figures(
        [make_trial(10.0, 1.0), make_trial(30.0, 2.0), make_trial(None, total=20.0)],
        cost_per_hour_usd=36.0,
    )
    assert (summary.trials, summary.reached) == (3, 2)
    assert summary.mean_seconds == 20.0
    assert summary.cv == 0.5
    assert summary.expected_seconds == 30.0  # 60 s of all trials, two of which reached.
    assert summary.epochs_mean == 1.5 and summary.epochs_std == 0.5
    # 10 and 15 s an epoch: mean 12.5, deviation 2.5; CVs 1/3 and 1/5.
    assert summary.seconds_per_epoch_mean == 12.5 and summary.seconds_per_epoch_std == 2.5
    assert summary.ratio_of_cvs == pytest.approx(5 / 3)
    assert summary.cost_usd == pytest.approx(0.2)


def test_ratio_is_zero_where_epochs_do_not_vary():
    assert figures([make_trial(10.0, 4.0), make_trial(12.0, 4.0)]).ratio_of_cvs == 0.0


def test_wilson_against_published_intervals():
    # R. G. Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
    # Medicine 17 (1998), Table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for successes, trials, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        estimate = proportions.wilson(successes, trials)
        assert estimate.low == pytest.approx(low, abs=5e-5)
        assert estimate.high == pytest.approx(high, abs=5e-5)
    with pytest.raises(ValueError, match="3 successes in 2 trials"):
        proportions.wilson(3, 2)


def test_a_score_counts_a_draw_as_half_a_game_and_its_interval_holds_both():
    found = proportions.score(7.5, 10)
    ends = proportions.wilson(7, 10).low, proportions.wilson(8, 10).high
    assert (found.value, found.low, found.high, found.trials) == (0.75, *ends, 10)
    whole, won = proportions.score(7.0, 10), proportions.wilson(7, 10)
    assert (whole.low, whole.high) == (won.low, won.high)


def test_the_difference_of_proportions_against_published_intervals():
    # Newcombe 1998, table II, method 10: 56 of 70 against 48 of 80; 9 of 10 against 3 of 10; and 0
    # of 10 against 0 of 10, where the normal one has no width.
    for counts, ends in (
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((0, 10, 0, 10), (-0.2775, 0.2775)),
    ):
        estimate = proportions.difference(*counts)
        assert (estimate.low, estimate.high) == pytest.approx(ends, abs=5e-5)


def test_fishers_test_against_published_and_scipys_values():
    # Fisher's tea: 4 of 4 cups right by chance once in 70, and once all wrong.
    assert proportions.fisher(4, 4, 0, 4) == pytest.approx(2 / 70)
    for first, trials, second, other in ((20, 20, 0, 20), (3, 5, 0, 9), (1, 7, 6, 8), (0, 5, 0, 6)):
        table = [[first, trials - first], [second, other - second]]
        theirs = stats.fisher_exact(table)[1]
        assert proportions.fisher(first, trials, second, other) == pytest.approx(theirs)


def test_the_interval_of_a_mean_time_by_hand():
    found = mean_of(SSD_SECONDS, SSD_SECONDS)
    # Sample deviation 29.273 over mean 389.628 over sqrt(5) is 0.033600; t of 4 at 97.5 % is 2.776.
    assert found is not None and found.value == pytest.approx(389.628, abs=1e-3)
    assert found.low == pytest.approx(389.628 * math.exp(-2.77645 * 0.033600), rel=1e-4)
    assert found.high == pytest.approx(389.628 * math.exp(2.77645 * 0.033600), rel=1e-4)
    assert (found.level, found.trials, found.ends) == (0.95, 5, "95 %")


def test_intervals_of_plain_figures_are_scipys():
    random = np.random.default_rng(0)
    first, second = random.normal(5, 1, 12), random.normal(4, 2, 12)
    mean = interval.mean(first)
    theirs = stats.ttest_1samp(first, 0).confidence_interval()
    assert (mean.low, mean.high) == (pytest.approx(theirs.low), pytest.approx(theirs.high))
    pairs = interval.paired_ratio(np.exp(first), np.exp(second))
    theirs = stats.ttest_rel(first, second).confidence_interval()
    assert pairs.value == pytest.approx(math.exp((first - second).mean()))
    assert pairs.low == pytest.approx(math.exp(theirs.low))
    assert pairs.high == pytest.approx(math.exp(theirs.high))
    # Welch's, but for the degrees of freedom: 10 and not 11 of each side.
    difference = interval.difference(first, second)
    theirs = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert difference.value == pytest.approx((first - second).mean())
    assert difference.low == pytest.approx(theirs.low, abs=0.02)
    assert difference.low < theirs.low and difference.high > theirs.high
    few = interval.difference([3.0, 4.0], [1.0, 1.5, 2.0])
    assert (few.value, few.low, few.high, few.ends) == (2.0, 1.0, 3.0, "range of 2")


def leaves_out(estimate, value):
    """True if an interval leaves out a value; a range never does."""
    return estimate.level is not None and not estimate.low <= value <= estimate.high


def test_what_the_ends_are_stands_before_them():
    few = interval.paired_ratio([2.0, 3.0, 8.0], [1.0, 1.0, 2.0])
    assert few.text() == "2.884 (range of 3: 2.000 to 4.000)"
    assert not leaves_out(few, 1.0) and few.scaled(2).high == pytest.approx(8.0)
    same = interval.paired_ratio([2.0] * 5, [1.0] * 5)
    assert same.text(2) == "2.00 (2.00 to 2.00)" and leaves_out(same, 1.0)
    assert interval.Interval(1.0, None, None, None, 2).text() == "1.000"
    for amounts in ([], [0.0], [-1.0]):
        with pytest.raises(ValueError, match="no figure|not above 0"):
            interval.paired_ratio(amounts, amounts)


def figures_of(seconds, lengths):
    pairs = zip(seconds, lengths, strict=True)
    return figures([make_trial(seconds, total=length) for seconds, length in pairs])


def mean_of(seconds, lengths):
    return figures_of(seconds, lengths).mean_interval


def expected_of(seconds, lengths):
    return figures_of(seconds, lengths).expected_interval


def lognormal(random, cv, shape):
    deviation = math.sqrt(math.log1p(cv**2))
    return random.lognormal(-(deviation**2) / 2, deviation, shape)


@pytest.mark.parametrize("deviation", rows([0.1, 0.3, 1.0], [0.3]))  # in evaluations
@pytest.mark.parametrize("trials", rows([5, 8, 16, 40], [5, 16]))
def test_the_interval_of_a_mean_holds_it_where_times_fall_on_evaluations(deviation, trials):
    random = np.random.default_rng(9)
    for mean in (3.0, 5.2, 5.8):  # evaluations to the target; a fifth or less need another one
        drawn = np.ceil(random.normal(mean, deviation, (20_000, trials))).clip(min=1)
        times = drawn * random.lognormal(0, 0.003, drawn.shape)
        found = [mean_interval(Sample(row, row > 0, steps=(1.0,) * trials)) for row in times[:500]]
        missed = [leaves_out(estimate, drawn.mean()) for estimate in found]
        assert np.mean(missed) <= 0.05 + 0.029, mean  # three standard errors
    # Without the steps, five trials at one evaluation say nothing of their variation.
    same = Sample(np.full(5, 4.0), np.ones(5, bool), budget=9.0)
    mean, expected = mean_interval(same), expected_interval(same)
    assert mean is not None and mean.ends == "range of 5" and mean.low == mean.high == 4.0
    assert expected is not None and expected.ends == ""


def test_five_trials_that_reach_at_their_first_evaluation_have_a_width():
    def trials(curve):
        return [make_trial(10.0, curve=curve) for _ in range(5)]

    later = [(None, 10.0, 0.9), (None, 13.0, 0.9), (None, 17.0, 0.9), (None, 20.0, 0.9)]
    found = figures(trials(later)).mean_interval
    # Median step 3 s, two of which are not seen: 2.776 x sqrt(2 x 0.3^2 / 20) = 0.2634.
    assert found is not None and found.ends == "95 %"
    assert found.low == pytest.approx(10 * math.exp(-0.2634), rel=1e-3)
    alone = figures(trials(later[:1])).mean_interval
    assert alone is not None and alone.ends == "range of 5"
    # An evaluation before training is no step before the first.
    untrained = figures(trials([(None, 0.0, 0.1), *later[:1]])).mean_interval
    assert untrained is not None and untrained.ends == "range of 5"


@pytest.mark.parametrize("reach", [0.9, 0.95])
@pytest.mark.parametrize("failure", [1.2, 5.0])
def test_an_expected_time_counts_the_misses_that_its_trials_hide(reach, failure):
    random, missed = np.random.default_rng(10), []
    truth = 1 + (1 - reach) / reach * failure
    for trials in (5, 20):
        for _ in range(300):
            times, all_reached = lognormal(random, 0.07, trials), np.ones(trials, bool)
            estimate = expected_interval(Sample(times, all_reached, budget=failure))
            missed.append(leaves_out(estimate, truth))
        assert np.mean(missed) <= 0.05  # of those that show no miss, which are 12 % or more
    unknown = expected_interval(Sample(np.full(20, 1.0), np.ones(20, bool)))
    assert unknown is not None and unknown.ends == ""  # for what a miss costs is not known


@pytest.mark.parametrize("failure", rows([1.2, 2.0, 5.0], [2.0]))
@pytest.mark.parametrize("reach", rows([0.3, 0.8, 0.95], [0.8, 0.95]))
def test_95_percent_of_the_intervals_of_an_expected_time_hold_it(reach, failure):
    """Where it is given: sets in which all reached know nothing of what a failure costs."""
    random = np.random.default_rng(0)
    truth, given, missed = (reach + (1 - reach) * failure) / reach, 0, 0
    for trials in (3, 5, 10, 20, 50):
        for _ in range(300):
            reached = random.random(trials) < reach
            times = lognormal(random, 0.07, trials)
            seconds = [time if was else None for time, was in zip(times, reached, strict=True)]
            estimate = expected_of(seconds, [failure] * trials)
            if estimate is not None and estimate.level is not None:
                assert trials >= 20 and not reached.all()
                given += 1
                missed += leaves_out(estimate, truth)
            elif estimate is not None:
                assert estimate.low is None and estimate.ends == ""
    assert given >= 300
    assert missed / given <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / given)


def test_expected_time_of_few_that_reach():
    stability = figures_of([10.0, None, None, None, None], [10.0, 20.0, 20.0, 20.0, 20.0])
    estimate = stability.expected_interval
    assert estimate is not None and (estimate.value, estimate.low) == (90.0, None)
    assert stability.mean_interval is None  # Of one trial.
    assert stability.reached_interval is not None and stability.reached_interval.value == 0.2


def test_without_a_trial_that_reached_nothing_is_a_number():
    stability = figures_of([None, None], [5.0, 5.0])
    assert stability.expected_interval is None and stability.mean_interval is None
    assert stability.reached_interval is not None and stability.reached_interval.low == 0.0


def test_unknown_time_of_a_failed_trial_leaves_expected_time_unknown():
    assert figures_of([10.0, None], [10.0, None]).expected_seconds is None
    assert expected_of([10.0, None], [10.0, None]) is None


def test_stability_table_of_few_and_no_trials():
    table = stability_table(
        [
            entry_of(SSD_SECONDS, source="five"),
            entry_of([10.0], source="one"),
            entry_of([None, None], total=5.0, source="none"),
        ]
    )
    assert table.column("source") == ["five", "one", "none"]
    assert table.column("mean_seconds")[1:] == [10.0, words.NOT_REACHED]
    assert table.column("mean_seconds_low")[1:] == [None, None]
    assert table.column("reached_fraction") == [1.0, 1.0, 0.0]
    (row,) = stability_table([entry_of([0.0])]).records()
    assert row["mean_seconds"] == 0.0  # as DAWNBench has it, whose first row may be at 0 hours


def test_few_trials_have_their_range_and_no_interval():
    times = [10.0, 11.0, 12.0]
    stability = figures_of(times, times)
    mean, expected = stability.mean_interval, stability.expected_interval
    assert mean is not None and (mean.low, mean.high) == (times[0], times[-1])
    assert mean.level is None and mean.ends == "range of 3"
    assert expected is not None and expected.value > 0 and expected.low is expected.level is None
    (row,) = stability_table([entry_of(times)]).records()
    assert row["mean_seconds_ends"] == "range of 3"
    assert (row["mean_seconds_low"], row["mean_seconds_high"]) == (times[0], times[-1])
    assert isinstance(row["cv"], float) and isinstance(row["expected_seconds"], float)
    assert row["expected_seconds_low"] is None and row["expected_seconds_high"] is None
    assert row["reached_fraction_ends"] == "95 %"  # Wilson's holds for few trials too.


def test_one_trial_has_no_deviation():
    for trials in ([make_trial(10.0, 2.0)], [make_trial(10.0, 2.0), make_trial(None, 3.0, 9.0)]):
        (row,) = stability_table([make_entry(trials)]).records()
        assert row["epochs_mean"] is not None and row["seconds_per_epoch_mean"] is not None
        assert row["epochs_std"] is None and row["seconds_per_epoch_std"] is None
