"""Quality at a budget: values on lines, differences, verdicts, and what B needs to reach A's."""

import math

import numpy as np
import pytest
from made_other_logs import normal
from scipy import stats

from dawnjax.statistics.budget import judge_at
from dawnjax.statistics.curves import Curves
from dawnjax.statistics.iso_quality import iso_quality
from dawnjax.statistics.sample import Sample


def side(finals, *, places=(0.0, 50.0, 100.0), pairing=None):
    """Trials that fall from 10 to a final value by straight lines."""
    at = np.array(places)
    values = [10 - (10 - final) * at / at[-1] for final in finals]
    return Curves(tuple(at for _ in finals), tuple(values), pairing)


def test_a_value_lies_on_the_line_between_two_evaluations():
    reading = side([2.0, 4.0]).at(75.0)
    assert reading.values == pytest.approx([4.0, 5.5]) and reading.between == 2
    assert side([2.0, 4.0]).at(50.0).between == 0
    assert list(side([2.0, 4.0]).ends().values) == [2.0, 4.0]


def test_nothing_is_extrapolated_and_what_is_missing_is_counted():
    nothing = Curves(
        places=(
            np.array([10.0, 20.0]),
            np.array([50.0, 60.0]),
            np.array([10.0, 60.0]),
            np.array([]),
        ),
        values=(
            np.array([3.0, 2.0]),
            np.array([3.0, 2.0]),
            np.array([3.0, math.nan]),
            np.array([]),
        ),
    )
    reading = nothing.at(40.0)
    assert (len(reading.values), reading.short, reading.late, reading.lost) == (0, 2, 1, 1)
    [verdict] = judge_at(side(normal(3, 0.1, 5)), nothing, [40.0], direction="at_most")
    assert verdict.word == "undecided" and verdict.difference is None
    assert "2 of 4 trials of B ended before the budget" in verdict.why
    assert verdict.missing[1] == {"short": 2, "late": 1, "lost": 1}


def test_no_warning_at_evaluations_of_one_moment_or_beside_a_nan():
    at, values = np.array([0.0, 10.0, 10.0, 20.0, 30.0]), np.array([5.0, 4.0, 3.0, math.nan, 2.0])
    with np.errstate(all="raise"):
        reading = Curves((at,), (values,)).at(30.0)
    assert reading.values == [2.0] and reading.bends == (0.0, 0.0)


def test_one_trial_that_ended_early_leaves_it_open():
    """Were it left out, a side whose bad trials crash would seem better."""
    good = side(normal(3.0, 0.01, 6))
    early = Curves(
        (*good.places[:-1], np.array([0.0, 50.0])), (*good.values[:-1], np.array([10, 9]))
    )
    [verdict] = judge_at(
        side(normal(4.0, 0.01, 6)), early, [100.0], direction="at_most", margin=0.1
    )
    assert verdict.word == "undecided" and not verdict.is_worse_excluded
    assert verdict.trials == (6, 5)


@pytest.mark.parametrize(
    ("shift", "direction", "word"),
    [(-0.2, "at_most", "better"), (0.2, "at_most", "worse"), (0.2, "at_least", "better")],
)
def test_a_difference_of_means_by_welch(shift, direction, word):
    a, b = normal(3.0, 0.1, 8), normal(3.0 + shift, 0.05, 8, 1)
    [verdict] = judge_at(side(a), side(b), [100.0], direction=direction)
    assert verdict.word == word and verdict.means == pytest.approx((3.0, 3.0 + shift))
    # Degrees of freedom by n - 2, as all verdicts here have them.
    variances = 0.01 / 8, 0.0025 / 8
    freedom = sum(variances) ** 2 / sum(v**2 / 6 for v in variances)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(sum(variances))
    found = verdict.difference
    assert found is not None and found.level == pytest.approx(0.95)
    assert (found.low, found.high) == pytest.approx((shift - half, shift + half))


def test_equivalence_needs_a_margin_and_the_gate_too():
    a, b = side(normal(3.0, 0.01, 8)), side(normal(3.001, 0.01, 8, 1))
    [open_] = judge_at(a, b, [100.0], direction="at_most")
    assert open_.word == "undecided" and not open_.is_worse_excluded
    assert open_.advice is not None and open_.advice.if_as_measured is not None
    assert open_.advice.if_equal is None
    [equal] = judge_at(a, b, [100.0], direction="at_most", margin=0.05)
    assert equal.word == "equivalent" and equal.is_worse_excluded
    [far] = judge_at(a, b, [100.0], direction="at_most", margin=0.003)
    assert far.word == "undecided" and not far.is_worse_excluded


def test_few_trials_give_a_range_and_the_number_that_is_lacking():
    [verdict] = judge_at(side([3.0, 3.1, 3.2]), side([2.0, 2.1, 2.2]), [100.0], direction="at_most")
    found = verdict.difference
    assert found is not None and verdict.word == "undecided" and found.level is None
    assert (found.low, found.high) == pytest.approx((-1.2, -0.8))
    assert verdict.advice is not None and verdict.advice.minimum == 2


def test_several_budgets_hold_together():
    """Holm: the smaller p value of two is held to 2.5 %, and only then the other to 5 %."""
    a = side(normal(3.0, 0.1, 10))
    [alone] = judge_at(a, side(normal(3.1, 0.1, 10, 1)), [100.0], direction="at_most")
    found = alone.difference
    assert found is not None and found.low is not None
    shift = 0.1 + 1e-3 - found.low  # just found at 5 %
    b = side(normal(3.0 + shift, 0.1, 10, 1))
    assert judge_at(a, b, [100.0], direction="at_most")[0].word == "worse"
    both = judge_at(a, b, [100.0, 50.0], direction="at_most")
    assert [verdict.word for verdict in both] == ["undecided", "undecided"]
    assert both[0].difference is not None and both[0].difference.level == pytest.approx(0.975)


def test_seeds_with_the_same_first_losses_are_pairs():
    def paired(losses):
        ones = np.ones(6)
        return Sample(ones, ones.astype(bool), tuple(range(6)), losses)

    same = tuple((float(n), 2.0) for n in range(6))
    other = tuple((float(n), 2.5) for n in range(6))
    finals = normal(3.0, 1.0, 6)
    shifted = [final + 0.1 + noise for final, noise in zip(finals, normal(0, 0.01, 6), strict=True)]
    a = side(finals, pairing=paired(same))
    [verdict] = judge_at(a, side(shifted, pairing=paired(same)), [100.0], direction="at_most")
    assert verdict.is_paired and verdict.word == "worse"
    [verdict] = judge_at(a, side(shifted, pairing=paired(other)), [100.0], direction="at_most")
    assert not verdict.is_paired and verdict.word == "undecided"


def test_a_line_over_a_bend_calls_equal_sides_no_different():
    """One curve, 1 / t, read at 15: from evaluations at 10 and 20, and from one at 15 itself."""

    def curves(places, seed):
        at = np.array(places)
        return Curves((at,) * 8, tuple(1 / at + offset for offset in normal(0, 1e-4, 8, seed)))

    coarse, fine = curves([5.0, 10.0, 20.0, 30.0], 0), curves([5.0, 10.0, 15.0, 20.0, 30.0], 1)
    chord = (1 / 10 + 1 / 20) / 2 - 1 / 15
    [verdict] = judge_at(fine, coarse, [15.0], direction="at_most", margin=0.003)
    found = verdict.difference
    assert found is not None and found.value == pytest.approx(chord)
    assert found.low is not None and found.low < 0
    assert (
        verdict.word == "undecided" and "the error of a line between two evaluations" in verdict.why
    )
    assert verdict.line_error[0] <= 0 and verdict.line_error[1] >= chord
    # On the same evaluations both lines err alike.
    [alike] = judge_at(coarse, curves([5.0, 10.0, 20.0, 30.0], 2), [15.0], direction="at_most")
    assert alike.line_error == pytest.approx((0.0, 0.0), abs=1e-5)


def test_two_evaluations_do_not_show_how_a_curve_bends():
    two = side(normal(3.0, 0.1, 5), places=(0.0, 100.0))
    [verdict] = judge_at(two, two, [50.0], direction="at_most")
    assert verdict.word == "undecided" and "only two evaluations" in verdict.why


def test_equal_values_say_nothing_of_their_variation():
    [verdict] = judge_at(side([3.0] * 5), side([2.0] * 5), [100.0], direction="at_most")
    assert verdict.word == "undecided" and "equal values" in verdict.why


def test_what_b_needs_to_reach_what_a_reached():
    at = np.linspace(10, 100, 10)

    def trials(speed, seed):
        return Curves((at,) * 8, tuple(5 - at * speed / 50 + e for e in normal(0, 0.05, 8, seed)))

    points = iso_quality(trials(1.0, 0), trials(2.0, 1), "at_most")
    assert [point.place for point in points] == pytest.approx(list(at))
    last = points[-1]
    assert last.quality == pytest.approx(3.0) and last.other == pytest.approx(50.0)
    found = last.speedup
    assert found is not None and found.value == pytest.approx(2.0)
    # Where Welch's interval of the difference ends at 0: half of it over B's slope, 1 in 25.
    half = stats.t.ppf(0.975, 12) * math.sqrt(2 * 0.05**2 / 8) * 25
    assert (last.low, last.high) == pytest.approx((50 - half, 50 + half), abs=0.1)
    assert found.low == pytest.approx(100 / (50 + half), rel=1e-2)
    # What A has at 10 B has before its own first evaluation.
    assert points[0].other is None and points[0].speedup is None
    # The other way round, A's end is beyond B's.
    assert iso_quality(trials(2.0, 0), trials(1.0, 1), "at_most")[-1].other is None
    # And greater values are better for the negative.
    up = [
        Curves(it.places, tuple(-v for v in it.values)) for it in (trials(1.0, 0), trials(2.0, 1))
    ]
    assert iso_quality(up[0], up[1], "at_least")[-1].other == pytest.approx(50.0)


def test_few_trials_give_no_band():
    at = np.linspace(10, 100, 10)
    sides = [
        Curves((at,) * 3, tuple(5 - at * speed / 50 for _ in range(3))) for speed in (1.0, 2.0)
    ]
    last = iso_quality(sides[0], sides[1], "at_most")[-1]
    assert last.other == pytest.approx(50.0) and last.low is None and last.high is None
