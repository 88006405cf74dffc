"""Statistics of trials against hand-computed and published values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_entries import entry_of, make_entry, make_trial, official_entries
from official_figures import mlperf_rows

from dawnjax.analysis import entry_tables, resampling
from dawnjax.analysis.stability import (
    cv_of_rows,
    expected_of_rows,
    mean_of_rows,
    stability_of,
)
from dawnjax.results.trial_summary import (
    coefficient_of_variation,
    mlperf_score,
    summarize_trials,
)

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
    summary = summarize_trials([10.0, 30.0, None], [1.0, 2.0, None], [10.0, 30.0, 20.0], 36.0)
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
    assert summarize_trials([10.0, 12.0], [4.0, 4.0], [10.0, 12.0]).ratio_of_cvs == 0.0


def test_wilson_against_published_intervals():
    # R. G. Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
    # Medicine 17 (1998), Table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for successes, trials, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        interval = resampling.wilson(successes, trials)
        assert interval.low == pytest.approx(low, abs=5e-5)
        assert interval.high == pytest.approx(high, abs=5e-5)
    with pytest.raises(ValueError, match="3 successes in 2 trials"):
        resampling.wilson(3, 2)


def test_bootstrap_is_seeded_and_says_its_method():
    first = resampling.bootstrap([SSD_SECONDS], mean_of_rows, seed=1)
    again = resampling.bootstrap([SSD_SECONDS], mean_of_rows, seed=1)
    reseeded = resampling.bootstrap([SSD_SECONDS], mean_of_rows, seed=2)
    assert first == again and first != reseeded
    assert first is not None and first.method == "bca"
    with pytest.raises(ValueError, match="percentile or bca"):
        resampling.bootstrap([SSD_SECONDS], mean_of_rows, method="t")


def test_the_interval_of_the_expected_time_holds_it_where_it_is_given():
    """Five trials that reach in 80 % of cases: sets in which all reached know no failure."""
    random = np.random.default_rng(0)
    truth = (0.8 * 100 + 0.2 * 150) / 0.8
    given = held = whole = 0
    for _ in range(120):
        times, reached = random.normal(100, 7, 5), random.random(5) < 0.8
        if not reached.any():
            continue
        seconds = [time if is_in else None for time, is_in in zip(times, reached, strict=True)]
        interval = stability_of(seconds, [150.0] * 5).expected_seconds
        assert interval is not None
        if reached.all():
            whole += 1
            assert (interval.low, interval.high) == (None, None)
        else:
            given += 1
            assert interval.low is not None
            held += interval.low <= truth and (interval.high is None or truth <= interval.high)
    # A third of the sets would give the mean's interval, which never holds the truth of 137.5.
    assert whole > 30 and given > 60
    assert held >= 0.95 * given  # 0.99 in a longer simulation


def test_bootstrap_of_a_mean_against_the_normal_interval():
    # For many normal values all intervals of a mean agree: mean ± 1.96 s / sqrt(n).
    values = np.random.default_rng(0).normal(100.0, 5.0, size=400)
    half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    for method in ("percentile", "bca"):
        interval = resampling.bootstrap([values], mean_of_rows, method=method)
        assert interval is not None and interval.high is not None
        assert interval.low == pytest.approx(values.mean() - half, abs=0.04)
        assert interval.high == pytest.approx(values.mean() + half, abs=0.04)


def test_bca_against_scipy():
    # scipy.stats.bootstrap 1.17 of these values, method BCa, 200,000 resamples: the mean's interval
    # is [365.07, 414.30], the CV's [0.0415, 0.1063]; of five trials the statistic takes few values.
    mean = resampling.bootstrap([SSD_SECONDS], mean_of_rows)
    cv = resampling.bootstrap([SSD_SECONDS], cv_of_rows)
    assert mean is not None and mean.high is not None and cv is not None and cv.high is not None
    assert (mean.low, mean.high) == (pytest.approx(365.07, abs=1.0), pytest.approx(414.30, abs=1.0))
    assert (cv.low, cv.high) == (pytest.approx(0.0415, abs=3e-3), pytest.approx(0.1063, abs=3e-3))


def test_expected_time_has_no_upper_end_where_few_reach():
    stability = stability_of([10.0, None, None, None, None], [10.0, 20.0, 20.0, 20.0, 20.0])
    interval = stability.expected_seconds
    assert interval is not None and interval.value == 90.0
    # One of three resamples holds no trial that reached.
    assert interval.high is None and interval.low is not None and interval.low < 90.0
    assert stability.mean_seconds is None  # Of one trial.
    assert stability.reached is not None and stability.reached.value == 0.2


def test_without_a_trial_that_reached_nothing_is_a_number():
    stability = stability_of([None, None], [5.0, 5.0])
    assert stability.expected_seconds is None and stability.cv is None
    assert stability.reached is not None and stability.reached.low == 0.0


def test_unknown_time_of_a_failed_trial_leaves_expected_time_unknown():
    assert summarize_trials([10.0, None], [None, None], [10.0, None]).expected_seconds is None
    assert stability_of([10.0, None], [10.0, None]).expected_seconds is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.5, 1e6), min_size=2, max_size=8), st.floats(0.1, 100))
def test_intervals_hold_the_estimate_and_scale(times, factor):
    interval = resampling.bootstrap([times], mean_of_rows, method="percentile", resamples=200)
    scaled = resampling.bootstrap(
        [[factor * time for time in times]], mean_of_rows, method="percentile", resamples=200
    )
    assert interval is not None and scaled is not None
    assert interval.high is not None and scaled.high is not None
    assert interval.low is not None and scaled.low is not None
    assert min(times) * (1 - 1e-9) <= interval.low <= interval.high <= max(times) * (1 + 1e-9)
    assert scaled.low == pytest.approx(factor * interval.low, rel=1e-6)
    assert scaled.high == pytest.approx(factor * interval.high, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 1e5), st.booleans()), min_size=1, max_size=12))
def test_expected_time_is_at_least_the_mean_of_those_that_reached(trials):
    seconds = [time if reached else None for time, reached in trials]
    summary = summarize_trials(seconds, [None] * len(trials), [time for time, _ in trials])
    if summary.reached:
        assert summary.expected_seconds is not None and summary.mean_seconds is not None
        assert summary.expected_seconds >= summary.mean_seconds * (1 - 1e-12)
    else:
        assert summary.expected_seconds is None


def test_expected_of_rows():
    rows = np.array([[[10.0, 1.0], [20.0, 0.0]], [[20.0, 0.0], [20.0, 0.0]]])
    with np.errstate(divide="ignore"):
        assert expected_of_rows(rows).tolist() == [30.0, math.inf]


def test_stability_table_of_few_and_no_trials():
    table = entry_tables.stability_table(
        [
            entry_of(SSD_SECONDS, source="five"),
            entry_of([10.0], source="one"),
            entry_of([None, None], total=5.0, source="none"),
        ]
    )
    assert table.column("source") == ["five", "one", "none"]
    assert table.column("mean_seconds")[1:] == [10.0, entry_tables.NOT_REACHED]
    assert table.column("mean_seconds_low")[1:] == [None, None]
    assert table.column("reached_fraction") == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("trials", [2, 3, 4])
def test_few_trials_have_no_interval(trials):
    times = [10.0 + number for number in range(trials)]
    stability = stability_of(times, times)
    for estimate in (stability.mean_seconds, stability.cv, stability.expected_seconds):
        assert estimate is not None and estimate.value > 0
        assert estimate.low is None and estimate.high is None and estimate.method == "none"
    (row,) = entry_tables.stability_table([entry_of(times)]).records()
    for name in ("mean_seconds", "cv", "expected_seconds"):
        assert isinstance(row[name], float)
        assert row[f"{name}_low"] is None and row[f"{name}_high"] is None
    assert row["reached_fraction_low"] is not None  # Wilson's holds for few trials too.


def test_epochs_table_of_made_entries():
    entry = make_entry([make_trial(10.0, 1.0), make_trial(30.0, 2.0)])
    (row,) = entry_tables.epochs_table([entry]).records()
    assert row["ratio_of_cvs"] == pytest.approx(5 / 3)


def test_one_trial_has_no_deviation():
    for trials in ([make_trial(10.0, 2.0)], [make_trial(10.0, 2.0), make_trial(None, 3.0, 9.0)]):
        (row,) = entry_tables.epochs_table([make_entry(trials)]).records()
        assert row["epochs_mean"] is not None and row["seconds_per_epoch_mean"] is not None
        assert row["epochs_std"] is None and row["seconds_per_epoch_std"] is None


def test_official_stability_and_epochs(test_data):
    entries = official_entries(test_data).where(suite="mlperf_training")
    stability = {row["source"]: row for row in entry_tables.stability_table(entries).records()}
    epochs = {row["source"]: row for row in entry_tables.epochs_table(entries).records()}
    assert len(stability) == len(epochs) == len(mlperf_rows())
    for figure in mlperf_rows():
        row = {**stability[f"v0.5.0/{figure.entry}"], **epochs[f"v0.5.0/{figure.entry}"]}
        assert row["cv"] == pytest.approx(figure.cv_percent / 100, abs=1e-4)
        assert row["mean_seconds"] == pytest.approx(figure.mean, abs=0.01)
        assert row["epochs_mean"] == pytest.approx(figure.epochs_mean, abs=1e-4)
        assert row["epochs_std"] == pytest.approx(figure.epochs_std, abs=1e-4)
        assert row["seconds_per_epoch_mean"] == pytest.approx(figure.per_epoch_mean, abs=0.01)
        assert row["seconds_per_epoch_std"] == pytest.approx(figure.per_epoch_std, abs=0.01)
        # Its figure comes from times that are rounded to a millisecond.
        assert row["ratio_of_cvs"] == pytest.approx(figure.ratio, rel=1e-3, abs=5e-4)


def test_official_fractions_reached(test_data):
    reached = {
        entry.source.split("/")[-2]: (entry.summary.reached, entry.summary.trials)
        for entry in official_entries(test_data).where(benchmark="ncf")
        if entry.summary is not None
    }
    assert reached == {
        "skx8180": (55, 100),
        "dgx1_ngc18.11_pytorch": (86, 100),
        "dgx2_ngc18.11_pytorch": (80, 100),
        "dgx2h_ngc18.11_pytorch": (83, 100),
    }
