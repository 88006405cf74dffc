"""Intervals of plans: they hold for results that were left out, and widen outside the fit."""

import dataclasses
import math

import pytest

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.plan.epochs import epochs
from dawnjax.plan.epochs.caveats import caveats
from dawnjax.plan.epochs.epochs import Epochs, Point
from dawnjax.plan.epochs.observations import convergence_points, observations, official_points
from dawnjax.plan.epochs.sources import of_official_results
from dawnjax.plan.steps import efficiency
from dawnjax.plan.steps.efficiency import Efficiency
from dawnjax.plan.steps.fitted import fitted_efficiency

RESNET = "imagenet_resnet50_mlperf"


def _official(batch, target):
    experiment = load_experiment(RESNET)
    targets = (dataclasses.replace(experiment.targets[0], value=target),)
    return of_official_results(dataclasses.replace(experiment, targets=targets), batch, 1)


def test_epochs_double_at_the_critical_batch():
    points = [Point(b, 40 * (1 + b / 10_000), 0.75) for b in (100, 1000, 10_000)]
    curve = epochs.fit(points, 0.75)
    assert curve.small_batch_epochs == pytest.approx(40)
    assert curve.at(10_000) == pytest.approx(80)
    one = epochs.fit([Point(640, 4.6, 25), Point(640, 4.8, 25)], 25)
    assert one is not None and 4.6 < one.at(640) < 4.8
    # One batch shows no slope: epochs double at three times the batch, as in other benchmarks.
    assert one.at(3 * 640) == pytest.approx(2 * one.small_batch_epochs)
    assert one.at(160) == pytest.approx(one.at(640) * (3 * 640 + 160) / (4 * 640))
    assert epochs.fit([], 1) is None


def test_points_to_another_target_widen_no_interval_of_the_own():
    """At batch 4,096, ten results to 0.749 that took half as long again say nothing of 0.759."""
    found = _official(4096, 0.759).interval()
    assert (found.low, found.high) == pytest.approx((26.6, 54.2), rel=0.02)
    own = [p for p in convergence_points(RESNET, 1) if p.target == 0.759]
    curve = epochs.fit(own, 0.759)
    assert _official(4096, 0.759).spread == pytest.approx(curve.spread, rel=0.05)
    assert all(point.epochs > found.high for point in official_points(RESNET) if point.batch > 4096)


def test_epochs_widen_beyond_their_batches_and_end_at_a_factor_of_four():
    largest = max(point.batch for point in convergence_points(RESNET, 1))
    inside, near, far = (_official(batch, 0.759) for batch in (largest, 2 * largest, 5 * largest))
    assert near.spread == pytest.approx(math.hypot(inside.spread, epochs.error_outside(1)))
    assert "widened" in near.basis and "widened" not in inside.basis
    assert far.mean is None and "at three doublings, 1 in 10 predictions" in far.basis


def test_a_step_widens_with_each_doubling_beyond_the_observed_sizes():
    known = Efficiency(
        products=1, memory=1, kernel_seconds=0, host_seconds=0, spread=0.2, fitted_on=("a",),
        sizes=(8, 640),
    )  # fmt: skip
    assert known.spread_at(640) == known.spread_at(8) == 0.2
    assert known.spread_at(2560) == pytest.approx(math.hypot(0.2, 0.2))
    assert known.spread_at(4) == pytest.approx(math.hypot(0.2, 0.1))
    assert efficiency.octaves_outside([8, 640], 1280) == 1


def test_few_trials_say_little():
    assert epochs.spread_of_trials([4.0]) == epochs.ONE_TRIAL
    assert epochs.spread_of_trials([4.0, 4.0, 4.0]) == epochs.SMALLEST_TRIALS
    # Two trials a tenth apart: t of one degree is 12.7, the deviation 0.067, with sqrt(1 + 1/2).
    two = epochs.spread_of_trials([1.0, 1.1])
    assert two == pytest.approx(
        12.706 / 2 * math.log(1.1) / math.sqrt(2) * math.sqrt(1.5), rel=1e-3
    )
    assert two > epochs.spread_of_trials([1.0, 1.1, 1.0, 1.1, 1.0, 1.1])


def test_a_budget_is_called_short_only_below_the_interval():
    experiment = load_experiment(RESNET)
    assert experiment.num_epochs == 72
    far, open_, enough = (
        caveats(experiment, Epochs(mean=mean, spread=spread, basis=""))
        for mean, spread in ((120, 0.1), (77, 0.3), (50, 0.1))
    )
    assert any("a run that needs more (the interval is 98.2 to 147)" in line for line in far)
    assert any("a run that needs more (the interval is 42.3 to 140)" in line for line in open_)
    assert not any("budget" in line for line in enough)


def test_what_an_evaluation_computes_on_the_host_is_named():
    known = Epochs(mean=13.0, spread=0.1, basis="")
    for name, what in (
        ("coco_mask_rcnn_resnet50", "computes masks in whole images and the figures of COCO"),
        ("coco_ssd_resnet34", "computes the figures of COCO on the host"),
    ):
        assert any(what in line for line in caveats(load_experiment(name), known))
    assert not any("on the host" in line for line in caveats(load_experiment(RESNET), known))


def test_a_plan_learns_from_all_systems_of_its_platform():
    gpus = [r for r in observations() if r.system.accelerator.device.platform == "gpu"]
    assert len(fitted_efficiency("v100").fitted_on) == len(gpus)
