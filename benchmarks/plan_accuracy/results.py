"""Official results and reference points, each predicted by a fit that leaves it out.

A result is predicted from other systems of all sizes, from smaller systems alone, or from another
target's results alone: intervals must hold outside the fitted range too.
"""

import functools
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from benchmarks.plan_accuracy import decoders
from benchmarks.plan_accuracy.checks import (
    AS_LARGE,
    AS_SMALL,
    EPOCHS,
    HELD_OUT_STEP,
    ITS_BATCH,
    ITS_BENCHMARK,
    ITS_SYSTEM,
    LATER,
    OTHER_TARGET,
    REFERENCE_POINT,
    STEP,
    TIME,
    Check,
)
from dawnjax.plan.epochs import epochs
from dawnjax.plan.epochs.epochs import Curve, Point
from dawnjax.plan.epochs.interval import around
from dawnjax.plan.epochs.observations import (
    TARGETS,
    PublishedResult,
    convergence_points,
    newest,
    observations,
    observed_programs,
    official_points,
    references,
    results_of,
)
from dawnjax.plan.steps import efficiency
from dawnjax.plan.steps.efficiency import Efficiency
from dawnjax.plan.steps.fitted import fitted_efficiency, measured, of_platform
from dawnjax.plan.steps.predict import evaluation_seconds, step_parts, step_spread, train_seconds

Results = tuple[PublishedResult, ...]


@functools.cache
def held_out() -> Results:
    """Official results of benchmarks that no fit sees."""
    return results_of(Path(__file__).with_name("held_out.csv"))


@functools.cache
def checks() -> tuple[Check, ...]:
    """Official results and reference points, each predicted without it and its like."""
    found = list(held_out_checks())
    for row in observations():
        if row.time_to_accuracy_seconds is None:
            continue
        others = tuple(r for r in observations() if r.system.name != row.system.name)
        found += _of_result(row, ITS_SYSTEM, others)
        size = row.system.num_devices
        smaller = tuple(r for r in others if r.system.num_devices < size)
        if any(_is_alike(row, r) for r in smaller):
            found += _of_result(row, AS_LARGE, smaller)
    return (*found, *decoders.checks(), *_of_reference_points())


def _is_alike(row: PublishedResult, other: PublishedResult) -> bool:
    """Same platform, with a time to accuracy."""
    left, right = row.system.accelerator.device, other.system.accelerator.device
    return left.platform == right.platform and other.time_to_accuracy_seconds is not None


def held_out_checks() -> Iterator[Check]:
    """Steps of the results that no fit sees."""
    for row in held_out():
        programs = observed_programs()[row.name]
        eff, step = fitted_efficiency(row.system.accelerator.name), measured(row)
        parts = step_parts(programs.stages[-1].train, row.system, eff)
        size = row.system.num_devices
        seconds = around(step.predicted(eff), step_spread(parts, eff, size))
        away = eff.octaves_outside(size)
        yield Check(row.name, HELD_OUT_STEP, ITS_BENCHMARK, away, seconds, step.seconds)


def _of_result(row: PublishedResult, left_out: str, rows: Results) -> Iterator[Check]:
    """Step, epochs and time of a result, predicted from these results."""
    step = measured(row)
    accelerator = row.system.accelerator
    platform = accelerator.device.platform
    eff = efficiency.fit(platform, accelerator.compiler, of_platform(platform, rows))
    size = row.system.num_devices
    train = observed_programs()[row.name].stages[-1].train
    spread = step_spread(step_parts(train, row.system, eff), eff, size)
    seconds = around(step.predicted(eff), spread)
    yield Check(row.name, STEP, left_out, eff.octaves_outside(size), seconds, step.seconds)
    target = TARGETS[row.experiment]
    known = convergence_points(row.experiment, 1)
    if left_out == AS_LARGE:
        known = tuple(point for point in known if point.batch < row.global_batch)
    points = [*official_points(row.experiment, rows), *known]
    curve = epochs.fit(points, target)
    if curve is None or row.epochs is None or row.time_to_accuracy_seconds is None:
        return
    away = efficiency.octaves_outside(curve.batches, row.global_batch)
    if away > epochs.MOST_OCTAVES:
        return
    count = around(curve.at(row.global_batch), curve.spread_at(row.global_batch))
    yield Check(row.name, EPOCHS, left_out, away, count, row.epochs)
    time = _time_to_accuracy(row, eff, curve, rows)
    if time is not None:
        spread = math.hypot(spread, curve.spread_at(row.global_batch))
        away = max(away, eff.octaves_outside(size))
        interval = around(time, spread)
        yield Check(row.name, TIME, left_out, away, interval, row.time_to_accuracy_seconds)


def _of_reference_points() -> Iterator[Check]:
    """Epochs of reference points, each from other points of its benchmark."""
    for experiment in references():
        official = official_points(experiment)
        reference = convergence_points(experiment, 1)
        known = [*official, *reference]
        for point in reference:
            batches = {p.batch for p in known}
            is_between = min(batches) < point.batch < max(batches)
            sources = {
                OTHER_TARGET: [p for p in known if p.target != point.target],
                AS_LARGE: [p for p in known if p.batch < point.batch],
                AS_SMALL: [p for p in known if p.batch > point.batch],
                ITS_BATCH: [p for p in known if p.batch != point.batch and is_between],
            }
            for left_out, points in sources.items():
                yield from _of_point(experiment, point, left_out, points)
        yield from _of_later_rounds(experiment)


def _of_later_rounds(experiment: str) -> Iterator[Check]:
    """Epochs of the points that a round added or changed, from the rounds before it."""
    rows = references()[experiment]
    for row in rows:
        before = newest(r for r in rows if r.round < row.round)
        yield from _of_point(experiment, row.point, LATER, [r.point for r in before])


def _of_point(
    experiment: str, point: Point, left_out: str, points: Sequence[Point]
) -> Iterator[Check]:
    curve = epochs.fit(points, point.target)
    if curve is None:
        return
    away = efficiency.octaves_outside(curve.batches, point.batch)
    if away <= epochs.MOST_OCTAVES:
        name = f"{REFERENCE_POINT} {experiment}, batch {point.batch:,}"
        count = around(curve.at(point.batch), curve.spread_at(point.batch))
        yield Check(name, EPOCHS, left_out, away, count, point.epochs)


def _time_to_accuracy(
    row: PublishedResult, eff: Efficiency, curve: Curve, rows: Results
) -> float | None:
    """Predicted time on v0.5's clock, which includes start, compilation and evaluation.

    Other systems of the platform give the start-up (their median) and the evaluation's cost beyond
    computing: a constant, and the reading of images, which hosts share.
    """
    others = [
        other
        for other in rows
        if start_up_seconds(other) is not None
        and other.system.accelerator.device.platform == row.system.accelerator.device.platform
    ]
    alike = [other for other in others if other.experiment == row.experiment]
    if not alike or not row.every_epochs:
        return None
    programs = observed_programs()
    count = curve.at(row.global_batch)
    evaluations = math.ceil(count / row.every_epochs)
    besides = [
        (other.evaluation_seconds or 0.0)
        - evaluation_seconds(programs[other.name], other.system, eff)
        for other in alike
    ]
    hosts = [other.system.num_hosts for other in alike]
    start = statistics.median(start_up_seconds(other) or 0.0 for other in others)
    evaluation = evaluation_seconds(programs[row.name], row.system, eff)
    evaluation += _shared_by_hosts(hosts, besides, row.system.num_hosts)
    train = train_seconds(programs[row.name], row.system, eff, count)
    return start + train + evaluations * evaluation


def start_up_seconds(row: PublishedResult) -> float | None:
    """Rest of its time to accuracy: start and compilation, which v0.5's clock includes."""
    if not (row.time_to_accuracy_seconds and row.epochs and row.every_epochs):
        return None
    assert row.train_seconds_per_epoch and row.evaluation_seconds, row.name
    evaluations = math.ceil(row.epochs / row.every_epochs) * row.evaluation_seconds
    return row.time_to_accuracy_seconds - row.epochs * row.train_seconds_per_epoch - evaluations


def _shared_by_hosts(hosts: Sequence[int], seconds: Sequence[float], wanted: int) -> float:
    """Seconds at a number of hosts: a fitted constant plus a part that hosts share."""
    # Nonnegative least squares: few systems could else fit a negative time.
    terms = np.array([[1.0, 1.0 / count] for count in hosts])
    (constant, shared), _ = nnls(terms, np.maximum(seconds, 0.0))
    return float(constant + shared / wanted)
