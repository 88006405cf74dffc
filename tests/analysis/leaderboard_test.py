"""Leaderboards, counts and prices, by hand and of the official entries."""

import dataclasses

import numpy as np
import pytest
from made_entries import entry_of, make_entry, make_trial
from official_figures import dawnbench_rows

from dawnjax.analysis.cost import system_price
from dawnjax.analysis.counts import count
from dawnjax.analysis.leaderboard import benchmarks, leaderboard, ranking_seconds, targets
from dawnjax.errors import ConfigError
from dawnjax.machine.prices import Price, read_prices
from dawnjax.trials.group import Entry, Inference
from dawnjax.trials.target import Target

P3 = Price(name="p3.16xlarge", usd_per_hour=20.0, unit="host", date="2018-01-01", source="here")


def made():
    return [
        entry_of([200.0], source="b", date="2018-03-01", cost_per_hour_usd=36.0),
        entry_of([100.0], source="a", date="2018-05-01", cost_per_hour_usd=360.0),
        entry_of([50.0], source="c", date=""),
        entry_of([None], source="d", date="2018-01-01", total=9.0, cost_per_hour_usd=1.0),
        entry_of([1.0], source="e", benchmark="CIFAR10", date="2018-01-01"),
    ]


def test_by_time():
    rows = leaderboard(made(), "ImageNet").rows
    assert [(row.entry.source, row.rank, row.seconds, row.why) for row in rows] == [
        ("c", 1, 50.0, ""),
        ("a", 2, 100.0, ""),
        ("b", 3, 200.0, ""),
        ("d", None, None, "not reached"),
    ]


def test_ranks_that_are_not_certain_are_spans():
    def ours(source, mean, count, price=36.0, budget: float | None = 1.0):
        times = [mean * (1 + 0.01 * (-1) ** n) for n in range(count)]
        trials = [make_trial(time, budget_seconds=budget) for time in times]
        return make_entry(trials, source=source, suite="dawnjax", cost_per_hour_usd=price)

    # Three trials decide nothing beside ten, though their mean is less; ten and ten do.
    entries = [ours("few", 0.482, 3), ours("ten", 0.589, 10), ours("slow", 1.0, 10, 1.0)]
    rows = leaderboard(entries, "ImageNet").rows
    assert [(row.entry.source, row.rank, row.span) for row in rows] == [
        ("few", 1, (1, 3)),
        ("ten", 2, (1, 2)),
        ("slow", 3, (2, 3)),
    ]
    few, ten, slow = rows
    assert few.interval and ten.interval and slow.interval
    assert few.interval.ends == "range of 3" and ten.interval.ends == "95 % if all reach"
    assert (few.interval.low, few.interval.high) == (0.482 * 0.99, 0.482 * 1.01)
    assert ten.interval.low and ten.interval.high
    assert 0.583 < ten.interval.low < 0.589 < ten.interval.high < 0.595
    assert [(row.cost_rank, row.cost_span) for row in (slow, few, ten)] == [
        (1, (1, 2)),
        (2, (1, 3)),
        (3, (2, 3)),
    ]
    # Ten trials hide up to 26 % of misses: 0.589 + 0.35 x 1.2 is more than 1, and so is an unknown.
    for budget in (1.2, None):
        hiding = [ours("ten", 0.589, 10, budget=budget), ours("slow", 1.0, 10)]
        rows = leaderboard(hiding, "ImageNet").rows
        assert [row.span for row in rows] == [(1, 2), (1, 2)]
    # Ten trials with a failure say too little of what failures cost, and twenty enough.
    for trials in (10, 20):
        failing = entry_of([1.0] * (trials - 1) + [None], total=5.0, source="f", suite="dawnjax")
        (row,) = leaderboard([failing], "ImageNet").rows
        assert row.seconds == pytest.approx((trials + 4) / (trials - 1))
        assert row.interval is not None
        if trials == 10:
            assert row.interval.low is None and row.interval.ends == ""
        else:
            low, high = row.interval.low, row.interval.high
            assert low and high and row.seconds and low < row.seconds < high


def test_the_ranks_of_a_board_hold_together():
    random = np.random.default_rng(0)
    certain = 0
    for _ in range(60):
        entries = [
            entry_of(random.lognormal(0, 0.07, 5).tolist(), source=str(n), suite="dawnjax")
            for n in range(8)
        ]
        certain += any(row.span != (1, 8) for row in leaderboard(entries, "ImageNet").rows)
    assert certain / 60 <= 0.05 + 0.085  # three standard errors


def test_by_cost_with_a_cut_off():
    board = leaderboard(made(), "ImageNet", until="2018-05-01")
    # 200 s at 36 USD an hour are 2 USD, 100 s at 360 are 10; c has no date and is left out.
    costs = {row.entry.source: (row.cost_rank, row.cost_usd) for row in board.rows}
    assert costs == {"b": (1, 2.0), "a": (2, 10.0), "d": (None, None)}
    assert any("1 entries without a date" in note for note in board.notes)
    unpriced = {row.entry.source: row for row in leaderboard(made(), "ImageNet").rows}["c"]
    assert unpriced.cost_rank is None and "no price" in unpriced.why_no_cost
    early = leaderboard(made(), "ImageNet", until="2018-04-30")
    assert [row.entry.source for row in early.rows] == ["b", "d"]


def test_entries_with_different_targets_are_never_ranked_together():
    def to(value, seconds):
        target = Target(metric="top_1_accuracy", value=value, unit="fraction")
        return entry_of([seconds], source=f"to {value}", benchmark="digits", target=target)

    easy, hard, slower = to(0.9, 1.0), to(0.9915, 2.0), to(0.9915, 3.0)
    with pytest.raises(
        ConfigError, match=r"several targets \(top_1_accuracy at least 0.9, .*0.9915"
    ):
        leaderboard([easy, hard, slower], "digits")
    assert targets([hard, easy, slower]) == [easy.target, hard.target]
    board = leaderboard([easy, hard, slower], "digits", target=hard.target)
    assert [row.entry.source for row in board.rows] == ["to 0.9915", "to 0.9915"]


def test_ranking_time():
    mlperf = entry_of([1.0, 2.0, 9.0], suite="mlperf_training")
    assert ranking_seconds(mlperf) == (2.0, "")
    mlperf = entry_of([1.0, 2.0, None, None], total=9.0, suite="mlperf_training")
    seconds, why = ranking_seconds(mlperf)
    assert seconds is None and why == "no score: 2 of 4 trials reached"
    # Ours: 12 s for two that reached.
    assert ranking_seconds(entry_of([1.0, 2.0, None], total=9.0)) == (6.0, "")
    seconds, why = ranking_seconds(make_entry([make_trial(1.0), make_trial(None)]))
    assert seconds is None and "time of the others unknown" in why


def test_inference_ranks_latency_of_those_of_enough_quality():
    def entry(source, latency, quality, cost=None):
        return Entry(
            source=source,
            suite="dawnbench",
            kind="inference",
            benchmark="ImageNet",
            target=Target(metric="top5Accuracy", value=93.0, unit="percent"),
            inference=Inference(latency_milliseconds=latency, cost_usd=cost, quality=quality),
        )

    entries = [entry("slow", 20.0, 93.1, 0.1), entry("fast", 10.0, 93.0), entry("bad", 1.0, 92.9)]
    rows = leaderboard(entries, "ImageNet", kind="inference").rows
    assert [(row.entry.source, row.seconds, row.cost_rank) for row in rows] == [
        ("fast", 0.01, None),
        ("slow", 0.02, 1),
        ("bad", 0.001, None),
    ]
    assert rows[2].why == "quality 92.9 is short of 93"


def priced(**fields):
    given = {"hardware": "8 * V100 (AWS p3.16xlarge)", "date": "2018-04-20", "num_hosts": 1}
    return entry_of([3600.0], **{**given, **fields})


def test_prices():
    assert system_price(priced(num_hosts=16), [P3]).usd_per_hour == 320.0
    given = system_price(priced(cost_per_hour_usd=5.0), [P3])
    assert (given.usd_per_hour, given.basis) == (5.0, "given by the entry")
    assert given.cost_usd(1800.0) == 2.5 and given.cost_usd(None) is None
    newer = dataclasses.replace(P3, usd_per_hour=10.0, date="2018-04-20")
    later = dataclasses.replace(P3, usd_per_hour=1.0, date="2018-04-21")
    assert system_price(priced(), [later, P3, newer]).usd_per_hour == 10.0


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"num_hosts": None}, "how many"),
        ({"date": ""}, "no date"),
        ({"date": "2017-12-31"}, "later"),
        ({"hardware": "p3.16xlarge and p2.xlarge"}, "several"),
    ],
)
def test_an_unknown_price_is_none_with_the_reason(fields, why):
    second_machine = dataclasses.replace(P3, name="p2.xlarge")
    price = system_price(priced(**fields), [P3, second_machine])
    assert price.usd_per_hour is None and why in price.basis
    assert price.cost_usd(10.0) is None


def test_read_prices(tmp_path):
    file = tmp_path / "prices.csv"
    file.write_text("name,usd_per_hour,unit,date,source\np3.16xlarge,20,host,2018-01-01,here\n")
    assert read_prices(file) == (P3,)
    file.write_text("name,usd_per_hour,unit,date,source\np3,nan,host,2018-01-01,here\n")
    with pytest.raises(ConfigError, match=":2: usd_per_hour is 'nan'"):
        read_prices(file)


def test_counts_by_hand():
    entries = [
        entry_of([1.0], processor_class="GPU", framework_family="PyTorch"),
        entry_of([1.0], processor_class="GPU"),
    ]
    counts = count(entries)
    assert counts.processors == {"GPU": 2} and counts.total == 2
    assert counts.frameworks == {"PyTorch": 1, "not known": 1}
    assert benchmarks(entries) == [("dawnbench", "", "training", "ImageNet")]


@pytest.mark.parametrize("task", ["ImageNet", "CIFAR10", "SQuAD"])
def test_official_leaderboard(task, official_entries):
    figures = [row for row in dawnbench_rows() if row.task == task]
    board = leaderboard(official_entries.where(suite="dawnbench"), task, prices=())
    ranked = [row for row in board.rows if row.rank is not None]
    assert [row.entry.source for row in ranked] == [f"{task}/train/{row.name}" for row in figures]
    assert [row.rank for row in ranked] == [figure.rank for figure in figures]


def test_listed_prices_agree_with_those_that_entries_give(official_entries):
    compared = 0
    for entry in official_entries.where(suite="dawnbench", kind="training"):
        if entry.cost_per_hour_usd is not None:
            listed = system_price(dataclasses.replace(entry, cost_per_hour_usd=None))
            if listed.usd_per_hour is not None:
                compared += 1
                assert listed.usd_per_hour == pytest.approx(entry.cost_per_hour_usd), entry.source
    assert compared >= 10


def test_trials_with_their_own_costs_are_compared_by_them():
    def ours(source, costs):
        trials = [
            make_trial(1.0 + 0.01 * n, cost_usd=cost, budget_seconds=2.0)
            for n, cost in enumerate(costs)
        ]
        return make_entry(trials, source=source, suite="dawnjax")

    cheap, dear = ours("a", [1.0, 1.1, 1.0, 1.1, 1.0]), ours("b", [9.0, 9.1, 9.0, 9.1, 9.0])
    rows = leaderboard([cheap, dear], "ImageNet").rows
    assert [(row.cost_rank, row.cost_span, row.span) for row in rows] == [
        (1, (1, 1), (1, 2)),
        (2, (2, 2), (1, 2)),
    ]


def test_an_mlperf_board_tests_the_scores_that_rank_it():
    # Without the fastest and the slowest the first is faster; its mean of all five is slower.
    first = entry_of([100.0, 101, 102, 103, 900], source="a", suite="mlperf_training")
    second = entry_of([100.0, 110, 111, 112, 113], source="b", suite="mlperf_training")
    apart = entry_of([200.0, 201, 202, 203, 204], source="c", suite="mlperf_training")
    rows = leaderboard([first, second, apart], "ImageNet").rows
    assert [(row.entry.source, row.span) for row in rows] == [
        ("a", (1, 1)),
        ("b", (2, 2)),
        ("c", (3, 3)),
    ]
    # Its fastest trial is left out, and so is the place that its mean of all would have.
    lucky = entry_of([1.0, 110, 111, 112, 113], source="b", suite="mlperf_training")
    rows = leaderboard([first, lucky], "ImageNet").rows
    assert [row.entry.source for row in rows] == ["a", "b"] and rows[0].span == (1, 1)
