"""Learning curves, and what reaches a target."""

import pytest
from made_entries import make_entry, make_trial

from dawnjax.analysis.learning_curves import learning_curve
from dawnjax.report.curves import curve_tables
from dawnjax.trials.target import reaches


def test_thresholds_compare_as_float32():
    # MLPerf v0.5, GNMT on DGX-2: an official success at a target of 21.8.
    assert reaches(21.799999237060547, 21.8)
    assert not reaches(21.79, 21.8)
    assert reaches(0.3, 0.4, "at_most")
    with pytest.raises(ValueError, match="at_most"):
        reaches(1.0, 1.0, "above")


def test_learning_curve_of_three_trials_by_hand():
    trials = [
        make_trial(2.0, curve=[(1, 1.0, 10.0), (2, 2.0, 40.0)]),
        make_trial(2.0, curve=[(1, 1.0, 20.0), (2, 2.0, 60.0)]),
        make_trial(4.0, curve=[(1, 2.0, 60.0), (2, 4.0, 80.0)]),
    ]
    # The third has no value before 2 s; the others reached, and keep theirs.
    points = learning_curve(trials)
    assert [(p.seconds, p.trials, p.low, p.median, p.high) for p in points] == [
        (2.0, 3, 50.0, 60.0, 60.0),
        (4.0, 3, 50.0, 60.0, 70.0),
    ]


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
    assert [point.seconds for point in points] == places
    assert points[-1].median == (82.5 if len(places) == 3 else 77.5)


def test_learning_curves_leave_out_stamps_of_another_clock():
    trial = make_trial(2.0, curve=[(1, -181.0, 10.0), (2, None, 20.0), (3, 3.0, 30.0)])
    assert [point.seconds for point in learning_curve([trial])] == [3.0]
    (table,) = curve_tables([make_entry([trial])])
    assert len(table.rows) == 1
