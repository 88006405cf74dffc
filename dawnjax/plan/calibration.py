"""Efficiency of a chip from one run of the user's.

The run's program is compiled for the devices that it ran on, and the median of its steps is one
more observation of them, which outweighs all others (`efficiency.calibrated`). Systems of the same
chip are predicted with the result.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dawnjax import records
from dawnjax.config.config_json import to_json
from dawnjax.errors import ConfigError, RunError
from dawnjax.machine.hardware import find_device
from dawnjax.page import words
from dawnjax.plan.compiling.compiled import OPTIONS, Programs
from dawnjax.plan.epochs.interval import DEVIATIONS
from dawnjax.plan.hardware.systems import System
from dawnjax.plan.steps.efficiency import Efficiency, Measured
from dawnjax.plan.steps.fitted import calibrated_efficiency, fitted_efficiency
from dawnjax.plan.steps.predict import step_parts
from dawnjax.runs.directory import flatten
from dawnjax.trials.ours import read_run
from dawnjax.trials.trial import Trial

if TYPE_CHECKING:
    from dawnjax.config.experiment_flags import Request

_PROGRAM = ("task", "model", "data", "compute_dtype", "xla_options", "stages", "accumulation_steps")
"""Fields that make another program; their beginnings."""

_SAME_PROGRAM = ("data.data_dir",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Efficiency of a chip, `chip` as its compiler calls it, and a line about the run."""

    chip: str
    efficiency: Efficiency
    note: str


def calibration_of(
    path: str,
    request: "Request",
    systems: Sequence[System],
    programs_of: Callable[[System, int], Programs],
) -> Calibration:
    """Calibrate on a run directory.

    Args:
      programs_of: Compiled programs of the planned experiment, by system and global batch.

    Raises:
      ConfigError: The run is of another chip than all systems, of another program, or has no step.
    """
    try:
        run = read_run(records.path_of(path))
    except RunError as error:
        raise ConfigError(f"--calibrate={path}: {error}") from None
    _refuse_other_program(path, run, request)
    system = _system_of(path, run, systems)
    if run.global_batch_size is None:
        raise ConfigError(f"--calibrate={path}: its batch changes in the run")
    if request.experiment.stages.boundary_epochs:
        raise ConfigError(
            f"--calibrate={path}: its steps change from stage to stage, and its median is of all"
        )
    medians = [host["step_seconds"]["p50"] for host in run.hosts if host.get("step_seconds")]
    if not medians or not min(medians) > 0:
        raise ConfigError(f"--calibrate={path}: its log does not say how long a step took")
    train = programs_of(system, run.global_batch_size).stages[-1].train
    measured = Measured(
        name=f"your run {Path(path).name}",
        chip=system.accelerator.compiler,
        num_devices=system.num_devices,
        seconds=statistics.median(medians),
        predicted=lambda efficiency: sum(step_parts(train, system, efficiency).values()),
    )
    before = fitted_efficiency(system.accelerator.name)
    after = calibrated_efficiency(system.accelerator.name, measured)
    spreads = (eff.spread_at(system.num_devices) for eff in (before, after))
    factors = (math.exp(DEVIATIONS * spread) for spread in spreads)
    wide, narrow = (words.rounded(factor, 3) for factor in factors)
    note = (
        f"calibrated on {path}: its step took {words.about(measured.seconds)}, and "
        f"{words.about(measured.predicted(before))} was predicted. A step on {system.num_devices} "
        f"devices then lies within a factor of {narrow}, not {wide}"
    )
    return Calibration(chip=system.accelerator.compiler, efficiency=after, note=note)


def _refuse_other_program(path: str, run: Trial, request: "Request") -> None:
    planned = request.experiment
    if run.experiment != planned.name:
        raise ConfigError(
            f"--calibrate={path}: it is a run of {run.experiment}, and {planned.name} is planned"
        )
    then, now = run.fields, flatten(to_json(planned))
    other = [
        name
        for name in sorted(then.keys() | now.keys())
        if name.split(".")[0] in _PROGRAM
        and name not in _SAME_PROGRAM
        and then.get(name) != now.get(name)
    ]
    for name in OPTIONS:
        option = to_json(getattr(request.options, name))
        if run.run_options.get(name, option) != option:
            other.append(name)
    if other:
        raise ConfigError(
            f"--calibrate={path}: it ran another program than is planned: {', '.join(other)}"
        )


def _system_of(path: str, run: Trial, systems: Sequence[System]) -> System:
    device, reason = find_device(run.device_kind)
    if device is None:
        raise ConfigError(f"--calibrate={path}: {reason}")
    alike = [system for system in systems if system.accelerator.device == device]
    if not alike:
        raise ConfigError(
            f"--calibrate={path}: it ran on {run.device_kind}, and no system of --on is that"
        )
    return alike[0].of_size(run.num_devices)
