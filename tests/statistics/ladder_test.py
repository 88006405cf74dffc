"""Gains of one change over sizes: the speedup at each, and whether it grows, holds or fades."""

import math

import numpy as np
import pytest
from made_other_logs import normal
from scipy import stats

from dawnjax.statistics.curves import Curves
from dawnjax.statistics.interval import Estimate
from dawnjax.statistics.ladder import Gain, quality, speedup, trend

AT = np.linspace(10, 100, 10)


def side(speed: float, seed: int, count: int = 8, deviation: float = 0.05) -> Curves:
    """Trials that fall by straight lines, from 5 at 0, by 1 / 50 times the speed."""
    offsets = normal(0, deviation, count, seed)
    return Curves((AT,) * count, tuple(5 - AT * speed / 50 + e for e in offsets))


def gains(*values: float, error: float = 0.01, freedom: float = 8.0) -> list[Gain]:
    return [Gain(Estimate(it, error, freedom), (5, 5), (1.0, 1.0), None) for it in values]


@pytest.mark.parametrize("end", [None, 100.0])
def test_a_speedup_at_equal_quality(end):
    """B has at 50 what A has at 100; its secant falls from 3.4 at 40 to 1 at 100."""
    found = speedup(side(1.0, 0), side(2.0, 1), end, "at_most").estimate
    assert found is not None and found.value == pytest.approx(math.log(2))
    of_quality = math.sqrt(2 * 0.05**2 / 8)
    assert found.error == pytest.approx(of_quality / ((3.4 - 1) / math.log(100 / 40)))
    assert found.freedom == pytest.approx(12)
    # The other way round it is as slow, by the same curve.
    back = speedup(side(2.0, 1), side(1.0, 0), end, "at_most").estimate
    assert back is not None and back.value == pytest.approx(-math.log(2))
    assert back.error == pytest.approx(found.error)


def test_the_direction_of_better_values():
    up = [Curves(it.places, tuple(-v for v in it.values)) for it in (side(1, 0), side(2, 1))]
    found = speedup(up[0], up[1], None, "at_least").estimate
    assert found is not None and found.value == pytest.approx(math.log(2))
    better = quality(up[0], up[1], None, "at_least")
    assert better.estimate is not None and better.estimate.value == pytest.approx(2.0)
    assert better.difference is not None and better.difference.value == pytest.approx(2.0)
    less = quality(side(1, 0), side(2, 1), None, "at_most")
    assert less.estimate is not None and less.estimate.value == pytest.approx(2.0)
    assert less.difference is not None and less.difference.value == pytest.approx(-2.0)


def test_the_place_after_which_a_quality_stays_counts():
    """A lucky evaluation at 20 is not a speedup of 5."""
    b = side(2.0, 1)
    spiked = Curves(b.places, tuple(np.where(AT == 20, 2.0, values) for values in b.values))
    found = speedup(side(1.0, 0), spiked, None, "at_most").estimate
    assert found is not None and found.value == pytest.approx(math.log(2))


def curve(places, deviation, seed, value=lambda at: 3 + at**-0.5, count=5) -> Curves:
    at = np.asarray(places, float)
    offsets = normal(0, deviation, count, seed)
    return Curves((at,) * count, tuple(value(at) + e for e in offsets))


def test_the_line_of_the_worse_side_errs_too():
    """Equal curves: A's line between 1 and 2 lies above its curve, as a gain of B that is none."""
    sparse, dense = curve([0.5, 1, 2, 3], 1e-3, 0), curve(np.arange(1, 61) / 20, 1e-3, 0)
    for pair in ((sparse, dense), (dense, sparse)):
        found = speedup(*pair, 1.45, "at_most").interval
        assert found is not None and found.low is not None and found.high is not None
        assert found.low < 0 < found.high


@pytest.mark.parametrize("seed", range(2))
def test_equal_sides_have_no_speedup(seed):
    """Their means are summed in two ways, which differ in the last digit."""
    same = curve([1, 2, 3, 4], 0.1, seed, count=20)
    found = speedup(same, same, None, "at_most").estimate
    assert found is not None and found.value == pytest.approx(0, abs=1e-9)


def test_a_flat_curve_has_no_speedup():
    plateau = curve([1, 2, 3, 4], 0.1, 0, lambda at: 3 - 1e-5 * at)
    slower = curve([1, 2, 3, 4], 0.1, 0, lambda at: 3 - 0.5e-5 * at)
    found = speedup(slower, plateau, None, "at_most")
    assert found.estimate is None
    assert found.lacks == "the curve of B is flat where it has what A has"


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (side(1, 0, 3), side(2, 1), "3 and 8 trials; a verdict needs 5 of each"),
        (side(0.01, 0), side(2, 1), "B has at its first evaluation what A has at its end"),
        (
            Curves((AT,) * 4 + (AT[:-1],), tuple(5 - AT[: 10 - n // 4] / 50 for n in range(5))),
            side(2, 1, 5),
            "1 of 5 trials of A ended before the budget",
        ),
        (
            Curves((AT,) * 5, tuple(np.where(AT == 50, math.nan, v) for v in side(1, 0, 5).values)),
            side(2, 1, 5),
            "a trial has an evaluation without a finite value",
        ),
    ],
)
def test_what_has_no_speedup_says_why(first, second, said):
    found = speedup(first, second, 100.0, "at_most")
    assert found.estimate is None and said in found.lacks
    assert trend([1, 2, 3], [found] * 3, 0.05).word == "undecided"
    assert said in trend([1, 2, 3], [found] * 3, 0.05).why


def test_trials_that_end_apart_need_a_budget():
    ragged = Curves((AT, *(AT[:-1],) * 4), tuple(5 - AT[: 10 - (n > 0)] / 50 for n in range(5)))
    noisy = Curves(ragged.places, tuple(v + 0.01 * n for n, v in enumerate(ragged.values)))
    assert speedup(noisy, side(2, 1, 5), None, "at_most").lacks == (
        "the trials of a side end at different places"
    )


def test_a_trend_is_a_contrast_of_the_gains():
    """Over 1, 10 and 100 the fitted change is the last gain less the first."""
    found = trend([1, 10, 100], gains(0.10, 0.25, 0.40), None)
    assert found.word == "grows" and found.line == pytest.approx([0.10, 0.25, 0.40])
    change = found.change
    assert change is not None and change.value == pytest.approx(0.3)
    half = stats.t.ppf(0.975, 16) * math.sqrt(2) * 0.01
    assert (change.low, change.high) == pytest.approx((0.3 - half, 0.3 + half))
    assert trend([100, 10, 1], gains(0.10, 0.25, 0.40), None).word == "fades"
    # A gain below 0 that comes nearer to it grows.
    assert trend([1, 10, 100], gains(-0.40, -0.25, -0.10), None).word == "grows"


def test_a_gain_holds_within_the_margin_alone():
    level = gains(0.20, 0.201, 0.20)
    assert trend([1, 10, 100], level, 0.05).word == "holds"
    assert trend([1, 10, 100], level, 0.01).word == "undecided"
    assert trend([1, 10, 100], level, None).word == "undecided"


def test_gains_off_a_line_are_undecided():
    """Five errors off the line that the two others give."""
    found = trend([1, 10, 100], gains(0.10, 0.10, 0.40), 0.05)
    assert found.word == "undecided" and "do not lie on a line" in found.why
    # Nearer to it than the margin, or than half of the change, they grow all the same.
    assert trend([1, 10, 100], gains(0.10, 0.10, 0.40), 0.2).word == "grows"
    assert trend([1, 10, 100], gains(0.10, 0.10, 0.40), None).word == "grows"
    assert trend([1, 10], gains(0.1, 0.4), 0.05).why == "2 sizes; a trend needs 3"
