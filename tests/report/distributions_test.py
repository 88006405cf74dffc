"""Distributions over the time of computation."""

import pytest

from dawnjax.report.distributions import distributions
from dawnjax.trials.hosts import Roofline

ROOFLINE = Roofline(
    peak_use_cdf=((0.0, 0.2), (0.5, 1.0)), throughput_cdf=((1e10, 0.2), (5e11, 1.0))
)


def test_two_runs_have_both_figures_and_one_alone_has_tables():
    figures, tables = distributions({"a": ROOFLINE, "b": ROOFLINE})
    assert [figure.name for figure in figures] == ["peak_use", "throughput"]
    assert "a: half of the time at 50% or less" in figures[0].summary
    assert "b: half of the time at 500 GFLOP/s or less" in figures[1].summary
    assert tables[1].rows[:2] == (("a", 1e10, 0.2), ("a", 5e11, 1.0))
    figures, tables = distributions({"a": ROOFLINE})
    assert figures == [] and [len(table.rows) for table in tables] == [2, 2]


@pytest.mark.parametrize("points", [((0.5, 0.9), (0.1, 1.0)), ((1e10, 0.2),), ((1.0, 2.0),), ()])
def test_damaged_points_are_no_distribution(points):
    assert distributions({"a": Roofline(peak_use_cdf=points)}) == ([], [])
