"""Learning curves against time, and against cost where every entry has a price."""

import dataclasses

from made_runs import write_run

from dawnjax.analysis.loading import load
from dawnjax.report.curves import own_curves


def test_curves_have_dollars_where_all_entries_have_a_price(tmp_path):
    write_run(tmp_path / "a" / "0", seed=0, seconds=10.0, price=36.0)
    write_run(tmp_path / "a" / "1", seed=1, seconds=20.0, price=36.0)
    by_time, by_cost = own_curves(load(tmp_path / "a"))
    assert by_time.title.endswith("against time") and by_cost.title.endswith("against cost")
    # Two hosts at 36 USD an hour: two cents a second, to the last evaluation at 20 s.
    drawn = by_cost.draw(700).body()
    assert "cost since the start" in drawn and "$0.40" in drawn
    # Official entries have no price, and are not in these figures.
    [entry] = load(tmp_path / "a")
    official = dataclasses.replace(entry, suite="mlperf_training", cost_per_hour_usd=None)
    titles = [figure.title for figure in own_curves([entry, official])]
    assert titles == [by_time.title, by_cost.title]
    write_run(tmp_path / "b" / "0", seed=0, seconds=10.0, identity="other")
    assert [figure.title for figure in own_curves(load(tmp_path / "a", tmp_path / "b"))] == [
        by_time.title,
    ]
