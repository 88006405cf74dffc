"""Fits of plans to observations, and predictions of observations that the fit leaves out."""

import dataclasses
import functools
import math
import statistics
from collections.abc import Sequence

import numpy as np

from dawnjax.plan import efficiency, epochs
from dawnjax.plan.compiled import Programs
from dawnjax.plan.efficiency import Efficiency, Measured
from dawnjax.plan.epochs import Curve, Epochs
from dawnjax.plan.observations import PublishedResult, observations, observed_programs
from dawnjax.plan.predict import evaluation_seconds, step_parts, train_seconds
from dawnjax.plan.systems import accelerators

TARGETS = {"imagenet_resnet50_mlperf": "top-1 0.749", "wmt_transformer_big": "BLEU 25"}
"""The target of the official results of each experiment."""


@functools.cache
def fitted_efficiency(name: str, without: str = "") -> Efficiency:
    """Efficiency of a system's devices, fitted on all observations except those of one system.

    Args:
      without: Name of the system to leave out; empty leaves none out.
    """
    accelerator = accelerators()[name]
    rows = [
        row
        for row in observations()
        if row.system.accelerator.device.platform == accelerator.device.platform
        and row.system_name != without
    ]
    measured = [_measured(row, observed_programs()[row.name]) for row in rows]
    return efficiency.fit(accelerator.device.platform, accelerator.compiler, measured)


def fitted_epochs(experiment: str, without: str = "") -> Curve | None:
    """Epochs by batch of an experiment, fitted on official results; None without any."""
    rows = [
        row
        for row in observations()
        if row.experiment == experiment and row.epochs and row.system_name != without
    ]
    counts = [row.epochs for row in rows if row.epochs is not None]
    return epochs.fit([row.global_batch for row in rows], counts)


def estimated_epochs(experiment: str, global_batch: int) -> Epochs:
    """Epochs to the target of an experiment, from official results of its benchmark."""
    curve = fitted_epochs(experiment)
    if curve is None:
        why = "epochs to the target are not known: give --epochs, or --epochs_from=RUNS"
        return Epochs(mean=None, spread=0.0, basis=why)
    basis = f"{curve.observations} results of MLPerf Training v0.5, to {TARGETS[experiment]}"
    if global_batch > curve.largest_batch:
        basis += f"; beyond their largest batch of {curve.largest_batch:,}"
    if global_batch < curve.smallest_batch:
        basis += f"; below their smallest batch of {curve.smallest_batch:,}"
    return Epochs(
        mean=curve.at(global_batch),
        spread=curve.spread,
        basis=basis,
        critical_batch=curve.critical_batch,
        of_official_results=True,
    )


def _measured(row: PublishedResult, programs: Programs) -> Measured:
    if row.examples_per_second is not None:
        seconds = row.global_batch / row.examples_per_second
    else:
        assert row.train_seconds_per_epoch is not None, row.name
        seconds = row.train_seconds_per_epoch * row.global_batch / programs.train_examples
    train = programs.stages[-1].train
    return Measured(
        name=row.name,
        chip=row.system.accelerator.compiler,
        seconds=seconds,
        predicted=lambda eff: sum(step_parts(train, row.system, eff).values()),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """A prediction in seconds beside a published result, from other systems' results alone."""

    name: str
    quantity: str
    predicted: float
    published: float
    source: str

    @property
    def error(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted / self.published - 1

    def is_within(self, bound: float) -> bool:
        """True if the prediction is within a factor of 1 + bound of the published value."""
        return abs(math.log1p(self.error)) <= math.log1p(bound)


@functools.cache
def checks() -> tuple[Check, ...]:
    """Official results, each predicted from observations of other systems alone."""
    found = []
    for row in observations():
        if row.time_to_accuracy_seconds is None:
            continue
        step = _measured(row, observed_programs()[row.name])
        eff = fitted_efficiency(row.system.accelerator.name, row.system_name)
        pairs = {"train step": (step.predicted(eff), step.seconds)}
        time = _time_to_accuracy(row, eff)
        if time is not None:
            pairs["time to accuracy"] = (time, row.time_to_accuracy_seconds)
        found += [
            Check(
                name=row.name,
                quantity=quantity,
                predicted=predicted,
                published=published,
                source=row.source,
            )
            for quantity, (predicted, published) in pairs.items()
        ]
    return tuple(found)


def _time_to_accuracy(row: PublishedResult, eff: Efficiency) -> float | None:
    """Predicted time on v0.5's clock, which includes start, compilation and evaluation.

    Other systems of the platform give the start-up (their median) and the evaluation's cost beyond
    computing: a constant, and the reading of images, which hosts share.
    """
    curve = fitted_epochs(row.experiment, row.system_name)
    others = [
        other
        for other in observations()
        if other.start_up_seconds is not None
        and other.system_name != row.system_name
        and other.system.accelerator.device.platform == row.system.accelerator.device.platform
    ]
    if curve is None or not others or not row.every_epochs:
        return None
    programs = observed_programs()
    count = curve.at(row.global_batch)
    evaluations = math.ceil(count / row.every_epochs)
    besides = [
        (other.evaluation_seconds or 0.0)
        - evaluation_seconds(programs[other.name], other.system, eff)
        for other in others
        if other.experiment == row.experiment
    ]
    hosts = [other.system.num_hosts for other in others if other.experiment == row.experiment]
    start = statistics.median(other.start_up_seconds or 0.0 for other in others)
    evaluation = evaluation_seconds(programs[row.name], row.system, eff)
    evaluation += _shared_by_hosts(hosts, besides, row.system.num_hosts)
    train = train_seconds(programs[row.name], row.system, eff, count)
    return start + train + evaluations * evaluation


def _shared_by_hosts(hosts: Sequence[int], seconds: Sequence[float], wanted: int) -> float:
    """Seconds at a number of hosts: a fitted constant plus a part that hosts share."""
    from scipy.optimize import nnls

    # Nonnegative least squares: few systems could else fit a negative time.
    terms = np.array([[1.0, 1.0 / count] for count in hosts])
    constant, shared = nnls(terms, np.maximum(seconds, 0.0))[0]
    return float(constant + shared / wanted)
