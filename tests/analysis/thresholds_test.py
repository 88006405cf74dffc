"""Time to thresholds, and learning curves."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_entries import make_entry, make_trial, official_entries

from dawnjax.analysis.paper import find_entry
from dawnjax.analysis.thresholds import (
    NO_TIME,
    learning_curve,
    learning_curve_table,
    threshold_table,
    time_to_threshold,
)
from dawnjax.trials.group import EntryTarget, reaches

CURVE = ((1, 10.0, 50.0), (2, 20.0, 80.0), (3, 30.0, 70.0), (4, 40.0, 94.0))


def test_first_evaluation_that_reaches():
    entry = make_entry([make_trial(40.0, 4, curve=CURVE)])
    assert time_to_threshold(entry, 50.0).mean_seconds == 10.0
    assert time_to_threshold(entry, 75.0).mean_seconds == 20.0  # It falls again; that is no matter.
    assert time_to_threshold(entry, 93.0).mean_seconds == 40.0
    missed = time_to_threshold(entry, 94.5)
    assert (missed.reached, missed.mean_seconds, missed.seconds) == (0, None, (None,))


def test_a_mean_needs_all_trials():
    entry = make_entry([make_trial(40.0, 4, curve=CURVE), make_trial(None, curve=CURVE[:2])])
    table = threshold_table([entry], [80.0, 90.0, 99.0])
    assert table.column("mean_seconds") == [20.0, "1 of 2 reached", "not reached"]


def test_thresholds_compare_as_float32():
    # MLPerf v0.5, GNMT on DGX-2: an official success at a target of 21.8.
    assert reaches(21.799999237060547, 21.8)
    assert not reaches(21.79, 21.8)
    assert reaches(0.3, 0.4, "at_most")
    with pytest.raises(ValueError, match="at_most"):
        reaches(1.0, 1.0, "above")


def test_at_most():
    target = EntryTarget(metric="loss", value=0.2, direction="at_most")
    entry = make_entry([make_trial(20.0, curve=[(1, 10.0, 0.5), (2, 20.0, 0.1)])], target=target)
    assert time_to_threshold(entry, 0.5).mean_seconds == 10.0
    assert time_to_threshold(entry, 0.2).mean_seconds == 20.0


def test_a_moment_that_is_not_known_is_no_number():
    before = make_entry([make_trial(20.0, curve=[(1, -181.0, 94.0), (2, 20.0, 95.0)])])
    unknown = make_entry([make_trial(20.0, curve=[(1, None, 94.0)])])
    table = threshold_table([before, unknown], [93.0])
    assert table.column("mean_seconds") == [NO_TIME, NO_TIME]


# Hours to the top-5 accuracy of ImageNet, of the DAWNBench entries.
SWEEP = {
    "fastai_pytorch": (1.726484, 2.308436, 2.308436, 2.308436, 2.308436, 2.787048, 2.957533),
    "fastai_resnet50_p3_4_machine_pytorch": (
        (0.363770, 0.383380, 0.383380, 0.460900, 0.460900, 0.460900, 0.495090)
    ),
    "fastai_resnet50_p3_8_machine_pytorch": (
        (0.235410, 0.257600, 0.268670, 0.314720, 0.314720, 0.314720, 0.314720)
    ),
    "fastai_resnet50_p3_16_machine_pytorch": (
        (0.239022, 0.239022, 0.239022, 0.301439, 0.301439, 0.301439, 0.301439)
    ),
    "Intel_Resnet50_4K_ec2_Xeon_8124M_intelcaffe": (
        (2.474718, 2.474718, 2.474718, 2.474718, 2.555904, 2.871577, 3.431735)
    ),
    "Intel_Resnet50_ec2_Xeon_8124M_intelcaffe": (
        (4.659305, 4.659305, 4.659305, 4.659305, 4.659305, 5.105728, 6.163689)
    ),
    "Intel_Resnet56_ec2_Xeon_8124M_intercaffe": (
        (2.644943, 2.644943, 2.644943, 2.644943, 2.644943, 2.824646, 3.529587)
    ),
}


def test_official_threshold_sweep(test_data):
    entries = official_entries(test_data)
    named = [find_entry(entries, f"ImageNet/train/{name}") for name in SWEEP]
    sweep = [entry for entry in named if entry is not None]
    assert len(sweep) == len(SWEEP)
    table = threshold_table(sweep, [90, 90.5, 91, 91.5, 92, 92.5, 93, 93.5])
    seconds: Any = iter(table.column("mean_seconds"))
    for hours in SWEEP.values():
        assert [next(seconds) / 3600 for _ in hours] == pytest.approx(hours, abs=1e-6)
        assert next(seconds) == "not reached"


def test_learning_curve_of_three_trials_by_hand():
    trials = [
        make_trial(2.0, curve=[(1, 1.0, 10.0), (2, 2.0, 40.0)]),
        make_trial(2.0, curve=[(1, 1.0, 20.0), (2, 2.0, 60.0)]),
        make_trial(4.0, curve=[(1, 2.0, 60.0), (2, 4.0, 80.0)]),
    ]
    points = learning_curve(trials)
    assert [(p.at, p.trials, p.low, p.median, p.high) for p in points] == [
        (1, 3, 15.0, 20.0, 40.0),
        (2, 3, 50.0, 60.0, 70.0),
    ]
    # Against time, the third has no value before 2 s; the others reached, and keep theirs.
    points = learning_curve(trials, "seconds")
    assert [(p.at, p.trials, p.median) for p in points] == [(2.0, 3, 60.0), (4.0, 3, 60.0)]


@pytest.mark.parametrize(
    ("reached", "status", "places"),
    [
        (2.0, "reached", [1, 2, 3]),
        (None, "not_reached", [1, 2, 3]),
        (None, "interrupted", [1, 2]),
        (None, "diverged", [1, 2]),
    ],
)
def test_a_median_is_not_taken_of_the_slow_trials_alone(reached, status, places):
    fast = make_trial(reached, curve=[(1, 1.0, 50.0), (2, 2.0, 95.0)], status=status)
    slow = make_trial(3.0, curve=[(1, 1.0, 40.0), (2, 2.0, 60.0), (3, 3.0, 70.0)])
    points = learning_curve([fast, slow])
    assert [point.at for point in points] == places
    assert points[-1].median == (82.5 if len(places) == 3 else 77.5)


def test_learning_curves_leave_out_stamps_of_another_clock():
    trial = make_trial(2.0, curve=[(1, -181.0, 10.0), (2, None, 20.0), (3, 3.0, 30.0)])
    assert [point.at for point in learning_curve([trial], "seconds")] == [3.0]
    assert [point.at for point in learning_curve([trial], "epoch")] == [1, 2, 3]
    assert len(learning_curve_table([make_entry([trial])]).rows) == 3
    with pytest.raises(ValueError, match="epoch or seconds"):
        learning_curve([trial], "step")


curves = st.lists(
    st.lists(
        st.tuples(st.integers(0, 9), st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=6
    ),
    min_size=1,
    max_size=5,
)


@given(curves, st.sampled_from(["epoch", "seconds"]))
def test_a_curve_lies_within_its_trials(rows, against):
    trials = [make_trial(1.0, curve=curve) for curve in rows]
    values = [value for curve in rows for _, _, value in curve]
    points = learning_curve(trials, against)
    assert points
    for point in points:
        assert min(values) - 1e-9 <= point.low <= point.median <= point.high <= max(values) + 1e-9
        assert 1 <= point.trials <= len(trials)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8), st.floats(0, 100), st.floats(0, 10))
def test_a_higher_threshold_is_never_reached_sooner(values, threshold, more):
    curve = [(i, float(i), value) for i, value in enumerate(values, start=1)]
    entry = make_entry([make_trial(None, curve=curve)])
    low, high = (time_to_threshold(entry, t).mean_seconds for t in (threshold, threshold + more))
    assert high is None or (low is not None and low <= high)
