"""Least squares, held against SciPy's."""

import numpy as np
import pytest
from scipy import optimize

from dawnjax.plan.least_squares import nonnegative, within

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_numbers_of_zero_and_more_are_those_of_scipy(count):
    for _ in range(50):
        terms = RANDOM.normal(size=(12, count))
        wanted = RANDOM.normal(size=12)
        expected, _ = optimize.nnls(terms, wanted)
        np.testing.assert_allclose(nonnegative(terms, wanted), expected, atol=1e-9)


def test_of_alike_terms_the_first_takes_all():
    terms = np.array([[1.0, 0.5], [1.0, 0.5], [1.0, 0.5]])
    np.testing.assert_allclose(nonnegative(terms, np.array([2.0, 4.0, 3.0])), [3.0, 0.0])


def test_numbers_between_bounds_are_those_of_scipy():
    """Of a sum of exponentials, as a fit of efficiencies has it, with a bound that is reached."""
    terms = RANDOM.uniform(0.1, 1.0, (13, 3))
    truth = np.array([-1.0, 0.5, 2.0])
    wanted = np.log(terms @ np.exp(truth)) + 0.05 * RANDOM.normal(size=13)

    def residuals(numbers):
        return np.log(terms @ np.exp(numbers)) - wanted

    low, high = np.full(3, -3.0), np.array([0.0, 1.0, 1.5])
    found = within(residuals, np.zeros(3), low, high)
    exact = optimize.least_squares(
        residuals, np.zeros(3), bounds=(low, high), xtol=1e-15, ftol=1e-15, gtol=1e-15
    )
    np.testing.assert_allclose(found, exact.x, atol=1e-4)
    assert found[2] == 1.5
    assert (residuals(found) ** 2).sum() <= (exact.fun**2).sum() * (1 + 1e-9)
