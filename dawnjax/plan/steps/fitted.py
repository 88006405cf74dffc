"""Efficiency of accelerators, fitted on the observed steps of their platform."""

import functools
from collections.abc import Iterable

from dawnjax.plan.epochs.observations import PublishedResult, observations, observed_programs
from dawnjax.plan.hardware.systems import accelerators
from dawnjax.plan.steps import efficiency
from dawnjax.plan.steps.efficiency import Efficiency, Measured
from dawnjax.plan.steps.predict import step_parts


def measured(row: PublishedResult) -> Measured:
    """Step of a result, and what an efficiency predicts of it."""
    programs = observed_programs()[row.name]
    if row.examples_per_second is not None:
        seconds = row.global_batch / row.examples_per_second
    else:
        assert row.train_seconds_per_epoch is not None, row.name
        seconds = row.train_seconds_per_epoch * row.global_batch / programs.train_examples
    train = programs.stages[-1].train
    return Measured(
        name=row.name,
        chip=row.system.accelerator.compiler,
        num_devices=row.system.num_devices,
        seconds=seconds,
        predicted=lambda eff: sum(step_parts(train, row.system, eff).values()),
    )


@functools.cache
def fitted_efficiency(name: str) -> Efficiency:
    """Efficiency of an accelerator, fitted on all observations of its platform."""
    accelerator = accelerators()[name]
    platform = accelerator.device.platform
    return efficiency.fit(platform, accelerator.compiler, of_platform(platform, observations()))


def of_platform(platform: str, rows: Iterable[PublishedResult]) -> list[Measured]:
    """Steps of results on TPUs or on GPUs."""
    return [measured(row) for row in rows if row.system.accelerator.device.platform == platform]
