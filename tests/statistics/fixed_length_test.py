"""The rule of a race: the ratio of expected times of trials that have a fixed length."""

import itertools

import numpy as np
import pytest
from each_change import rows
from scipy.stats import binom

from dawnjax.statistics.fixed_length import FixedLength
from dawnjax.statistics.sample import Sample


def pair(ratio, reached, rivals, count, spread=0.0):
    """Trials of fixed lengths, of which so many reach; the rival's take 1 s."""
    noise = spread * np.where(np.arange(count) % 2, 1, -1)
    own = Sample(ratio * (1 + noise), np.arange(count) < reached)
    return FixedLength(own, Sample(np.ones(count), np.arange(count) < rivals))


def test_the_probability_by_hand():
    # All reach and the side takes 0.8 of the time: if expected times are equal it reaches in 0.8 of
    # cases, and 20 of 20 have a chance of 0.8^20 = 0.01153; more if the rival may miss too.
    assert 0.99 < pair(0.8, 20, 20, 20).p_value() / (2 * 0.8**20) < 1.5
    assert pair(0.8, 20, 20, 20).p_value() == pytest.approx(pair(1.25, 20, 20, 20).p_value())
    assert pair(0.8, 20, 20, 20).is_faster and not pair(1.25, 20, 20, 20).is_faster
    # Equal lengths: 3 of 3 against 0 of 3 are likeliest, 1/64, where both chances are 1/2.
    assert pair(1.0, 3, 0, 3).p_value() == pytest.approx(2 / 64, rel=0.01)
    # Lengths whose ratio is known but for an error: the probability of a longer one is averaged.
    varied = pair(0.5, 20, 20, 20, spread=0.3)
    assert varied.p_value() > 2 * pair(0.5, 20, 20, 20).p_value()


def test_the_interval_has_the_ratios_that_the_test_does_not_exclude():
    for sides in (pair(0.7, 17, 19, 20, 0.1), pair(2.0, 20, 20, 20), pair(0.9, 5, 6, 8)):
        found = sides.interval(0.01)
        assert found is not None and found.low is not None and found.high is not None
        assert found.low < found.value < found.high
        for end in (found.low, found.high):
            assert sides.p_value(end) == pytest.approx(0.01, rel=1e-3)
    assert pair(0.7, 0, 19, 20).interval(0.01) is None
    assert pair(0.7, 0, 19, 20).p_value() < 1e-6 and not pair(0.7, 0, 19, 20).is_faster
    assert pair(0.7, 19, 0, 20).is_faster and pair(0.7, 0, 0, 20).p_value() > 0.5


@pytest.mark.parametrize("level", [0.01, 0.001])
@pytest.mark.parametrize("count", rows([5, 12], [5]))
def test_equal_expected_times_are_found_different_as_rarely_as_the_level_says(count, level):
    """Every outcome by its probability: lengths are exact here, so only the misses count."""
    for reach, other in itertools.product((0.05, 0.3, 0.6, 0.8, 0.97, 1.0), (0.5, 0.8, 1.0)):
        chance = 0.0
        for own, rival in itertools.product(range(count + 1), repeat=2):
            weight = binom.pmf(own, count, reach) * binom.pmf(rival, count, other)
            if weight > 1e-7:
                found = pair(reach / other, own, rival, count)
                chance += weight if found.is_faster and found.p_value() <= level else 0.0
        assert chance <= level / 2 * 1.02, (reach, other, chance)
