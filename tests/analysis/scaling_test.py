"""Scaling and the critical batch size, from points whose law is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_entries import entry_of, make_entry, make_trial, official_entries
from official_figures import RESNET_1, RESNET_80

from dawnjax.analysis.scaling import (
    batch_points,
    fit_critical_batch_size,
    scaling,
    scaling_table,
    seconds_of,
    series,
)
from dawnjax.errors import ConfigError
from dawnjax.results.entries import Target


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
    said = "Series 1 joins several recipes: as it is; global_batch_size=128."
    assert said in scaling_table([hard]).notes


def test_official_scaling_of_resnet(test_data):
    groups = series(official_entries(test_data).where(suite="mlperf_training", submitter="nvidia"))
    (group,) = [g for g in groups if RESNET_80 in {entry.source for entry in g}]
    assert {entry.source for entry in group} == {RESNET_1, RESNET_80}
    small, large = scaling(group)
    # 80 times the accelerators, 21.558 times as fast: 26.95 %.
    assert (small.num_accelerators, large.num_accelerators) == (8, 640)
    assert large.efficiency == pytest.approx(21.558 / 80, abs=1e-5)
    assert large.throughput_efficiency == pytest.approx(28.042 / 80, abs=1e-5)
    assert large.epochs_ratio == pytest.approx(82 / 63)
    assert len(scaling_table(groups).rows) == sum(map(len, groups))


def steps_at(batch, min_steps=1000.0, critical=4096.0):
    # (S / Smin - 1)(E / Emin - 1) = 1 with E = B S and Emin = critical * Smin.
    return min_steps * (1 + critical / batch)


def test_fit_finds_the_law_that_made_the_points():
    sizes = [256, 1024, 4096, 16384]
    fit = fit_critical_batch_size(sizes, [steps_at(size) for size in sizes])
    assert fit.critical_batch_size == pytest.approx(4096)
    assert fit.min_steps == pytest.approx(1000)
    assert fit.min_examples == pytest.approx(4096 * 1000)
    assert fit.relative_error < 1e-9 and not fit.extrapolated
    assert fit.low == pytest.approx(4096) and fit.high == pytest.approx(4096)
    # At the critical size twice the fewest steps and twice the fewest examples are needed.
    assert steps_at(4096) == pytest.approx(2 * fit.min_steps)
    assert 4096 * steps_at(4096) == pytest.approx(2 * fit.min_examples)


def test_fit_of_noisy_points_says_how_sure_it_is():
    sizes = np.repeat([256, 512, 1024, 2048, 4096, 8192, 16384], 5)
    noise = np.random.default_rng(0).normal(1.0, 0.03, size=len(sizes))
    fit = fit_critical_batch_size(
        sizes.tolist(), [steps_at(s) * e for s, e in zip(sizes, noise, strict=True)]
    )
    assert fit.critical_batch_size == pytest.approx(4096, rel=0.1)
    assert fit.high is not None and fit.low <= fit.critical_batch_size <= fit.high
    assert fit.relative_error == pytest.approx(0.03, rel=0.3)


def test_fit_says_that_it_extrapolates():
    sizes = [16, 32, 64, 128]
    fit = fit_critical_batch_size(sizes, [steps_at(size) for size in sizes])
    assert fit.extrapolated and fit.critical_batch_size == pytest.approx(4096)


def test_fit_refuses_what_has_no_answer():
    sizes = [256, 512, 1024, 2048]
    with pytest.raises(ConfigError, match="needs 4 distinct batch sizes.*there are 3"):
        fit_critical_batch_size([256, 512, 1024, 1024], [4.0, 3.0, 2.0, 2.0])
    with pytest.raises(ConfigError, match="steps do not fall"):
        fit_critical_batch_size(sizes, [10.0, 11.0, 12.0, 13.0])
    with pytest.raises(ConfigError, match="add larger ones"):
        fit_critical_batch_size(sizes, [800.0, 390.0, 180.0, 80.0])
    with pytest.raises(ConfigError, match="above 0"):
        fit_critical_batch_size(sizes, [1.0, 1.0, 1.0, 0.0])
    with pytest.raises(ConfigError, match="2 batch sizes for 1"):
        fit_critical_batch_size([1, 2], [1.0])


@given(
    st.floats(10, 1e5),
    st.floats(64, 1e5),
    st.lists(st.integers(4, 18), min_size=4, max_size=8, unique=True),
)
def test_fit_recovers_any_law(min_steps, critical, exponents):
    sizes = [2**exponent for exponent in exponents]
    if not min(sizes) / 10 <= critical <= 10 * max(sizes):
        return
    fit = fit_critical_batch_size(sizes, [steps_at(s, min_steps, critical) for s in sizes])
    assert fit.critical_batch_size == pytest.approx(critical, rel=1e-3)


def test_batch_points_leave_out_entries_with_failures():
    entries = [
        make_entry([make_trial(1.0, 2.0), make_trial(1.0, 4.0)], global_batch_size=100),
        make_entry([make_trial(1.0, 2.0), make_trial(None)], global_batch_size=200),
    ]
    assert batch_points(entries, num_train_examples=1000) == [(100, 30.0)]
