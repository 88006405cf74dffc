"""Scaling and the critical batch size, from points whose law is known."""

import dataclasses

import pytest
from made_entries import entry_of, make_entry, make_trial
from official_figures import RESNET_1, RESNET_80

from dawnjax.analysis.scaling import scaling, seconds_of, series, speedup
from dawnjax.report.systems import scaling_table
from dawnjax.trials.target import Target


def test_scaling_by_hand():
    small = make_entry([make_trial(100.0, 10)] * 3, num_accelerators=8, source="small")
    large = make_entry([make_trial(40.0, 16)] * 3, num_accelerators=32, source="large")
    first, second = scaling([large, small])
    assert (first.speedup, first.efficiency, first.gap_from_linear) == (1.0, 1.0, 0.0)
    assert second.speedup == 2.5
    assert second.efficiency == 0.625  # 2.5 of 4.
    assert second.gap_from_linear == 1.5
    assert second.throughput_efficiency == 1.0  # 10 s an epoch against 2.5 s on 4 times as many.
    assert second.epochs_ratio == 1.6


def test_a_review_s_factor_scales_no_speedup():
    """The table of speedups has the same ratio."""
    small = make_entry([make_trial(100.0, 10)] * 3, num_accelerators=8, source="small")
    large = make_entry([make_trial(40.0, 16)] * 3, num_accelerators=32, source="large")
    scaled = dataclasses.replace(large, suite="mlperf_training", scaling_factor=1.25)
    assert scaled.figures.score_seconds == 50.0
    assert scaling([small, scaled])[1].speedup == speedup(small, scaled).tta == 2.5


def test_entries_without_a_time_or_a_size_are_no_points():
    entries = [
        entry_of([1.0, None], total=5.0, num_accelerators=8),
        entry_of([1.0], num_accelerators=None),
        entry_of([1.0], num_accelerators=0),
    ]
    assert scaling(entries) == []
    assert seconds_of(entries[0]) is None  # A mean of the one that reached would be too short.


def test_series_hold_one_kind_of_hardware():
    def entry(accelerators, hardware, **fields):
        return entry_of(
            [1.0, 1.0, 1.0],
            suite="mlperf_training",
            benchmark="resnet",
            num_accelerators=accelerators,
            hardware=hardware,
            **fields,
        )

    v3 = [entry(8, "tpuv3-8"), entry(512, "tpuv3-512")]
    alone = [entry(8, "tpuv2-8"), entry(512, "tpuv3-512", round="v0.6")]
    assert series([*alone, *v3]) == [v3]


def test_series_hold_one_target_and_name_their_recipes():
    def entry(accelerators, value, variant=""):
        return entry_of(
            [1.0] * 3,
            suite="dawnjax",
            benchmark="digits",
            source=f"{accelerators} to {value}",
            num_accelerators=accelerators,
            target=Target(metric="top_1_accuracy", value=value, unit="fraction"),
            variant=variant,
        )

    hard = [entry(1, 0.99), entry(8, 0.99, "global_batch_size=128")]
    assert series([entry(4, 0.9), *hard]) == [hard]
    said = "Series 1 combines several recipes: as it is; global_batch_size=128."
    assert said in scaling_table([hard]).notes


def test_official_scaling_of_resnet(official_entries):
    groups = series(official_entries.where(suite="mlperf_training", submitter="nvidia"))
    (group,) = [g for g in groups if RESNET_80 in {entry.source for entry in g}]
    assert {entry.source for entry in group} == {RESNET_1, RESNET_80}
    small, large = scaling(group)
    # 80 times the accelerators, 21.558 times as fast: 26.95 %.
    assert (small.num_accelerators, large.num_accelerators) == (8, 640)
    assert large.efficiency == pytest.approx(21.558 / 80, abs=1e-5)
    assert large.throughput_efficiency == pytest.approx(28.042 / 80, abs=1e-5)
    assert large.epochs_ratio == pytest.approx(82 / 63)
    assert len(scaling_table(groups).rows) == sum(map(len, groups))


def test_speedup_by_hand():
    small = make_entry([make_trial(t, 10.0) for t in (90, 100, 110)], num_accelerators=8)
    large = make_entry([make_trial(t, 20.0) for t in (20, 20, 80)], num_accelerators=32)
    value = speedup(small, large)
    assert value.tta == 5.0  # Scores 100 and 20.
    assert value.throughput == pytest.approx(5.0)  # 10 s an epoch, and 2 s.
    assert value.epochs == 2.0 and value.accelerators == 4.0


def test_no_score_no_speedup():
    value = speedup(entry_of([1.0, 2.0, None, None], total=5.0), entry_of([1.0, 1.0, 1.0]))
    assert value.tta is None and value.throughput is None
