"""Runs from Python, without a command line: `dawnjax.run`, `load_run` and `load_losses`."""

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dawnjax
from dawnjax import records
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.runs.directory import RunDirectory, read_events_of, read_record
from dawnjax.runs.log import Event
from dawnjax.runs.loss_curve import StepLoss, loss_curve
from dawnjax.trials.from_log import of_another_kind, trial_of
from dawnjax.trials.trial import Trial

if TYPE_CHECKING:
    from dawnjax.config.experiment import Experiment
    from dawnjax.config.experiment_flags import Request
    from dawnjax.config.run_options import RunOptions


def run(
    experiment: "str | Experiment",
    *,
    run_dir: str | Path,
    seed: int = 0,
    options: "RunOptions | None" = None,
    shows: bool = True,
) -> Trial:
    """Train one trial to its target, as `dawnjax train` does, and return its result.

    The same call resumes an interrupted run, and reads the result of a finished one.

    Args:
      experiment: A name that `dawnjax list` shows, a path to a file that defines EXPERIMENT, or an
        `Experiment`, such as `dataclasses.replace` returns.
      run_dir: Directory of the run's log, result and checkpoints.
      seed: The trial's seed, from 0 to 2**31 - 1.
      options: Run options; the defaults if None. Its `run_dir` is ignored.
      shows: False shows only warnings.

    Raises:
      ConfigError: A value, or the experiment on these devices or data, is impossible.
      RunError, DataError, CheckpointError: The run cannot continue; written files stay valid.
    """
    # Do not charge the caller's earlier work to this run.
    dawnjax.program_start = time.perf_counter()
    # Imported here: reading a result needs no JAX.
    from dawnjax.config.experiment_flags import request_of
    from dawnjax.machine import jax_settings

    with jax_settings.pinned():
        request = request_of(experiment, seed=seed, run_dir=str(run_dir), options=options)
        train_in_process(request, _flags_of(request), shows=shows)
    return load_run(run_dir)


def train_in_process(
    request: "Request", argv: list[str], *, shows: bool, set_up_seconds: float | None = None
) -> ExitStatus:
    """Train one trial on its own clock, after which this process may train another.

    Args:
      set_up_seconds: Time that the process took for imports and devices, if it has done other work
        since; None counts all time since its start.
    """
    from dawnjax.cluster import processes
    from dawnjax.runs.clock import RunClock
    from dawnjax.train import train_to_target

    start = None if set_up_seconds is None else time.perf_counter() - set_up_seconds
    if dawnjax.runs_before:
        # The time of earlier runs is not part of this one's: their clocks have counted it.
        start = time.perf_counter()
        # Keep the garbage collector from walking what earlier runs left: pauses in this run stay as
        # short as in a process of its own.
        gc.collect()
        gc.freeze()
    status = ExitStatus.FAILED
    try:
        status, _ = train_to_target(request, RunClock(start), argv, shows=shows)
    finally:
        processes.leave(status)
        dawnjax.runs_before += 1
    return status


def new_record(request: "Request") -> dict[str, Any]:
    """`experiment.json` as a new run would write it; `ConfigError` if it could not be trained."""
    from dawnjax import run_record, session
    from dawnjax.checkpointed import initial_parameters

    request = initial_parameters.resolved(request)
    spec = session.checked(request.experiment, request.options)
    return run_record.record_of(request, spec)


def _flags_of(request: "Request") -> list[str]:
    """Flags that would resume the run, where its experiment has a name or a file."""
    experiment = request.experiment_file or request.experiment.name
    changed = [f"--{name}={value}" for name, value in request.overrides.items()]
    return [
        f"--experiment={experiment}",
        *changed,
        f"--seed={request.seed}",
        f"--run_dir={request.options.run_dir}",
    ]


def load_run(run_dir: str | Path) -> Trial:
    """Result of a run, computed from its log without JAX.

    Raises:
      ConfigError: The directory holds no run.
      RunError: The log says too little, or was changed.
    """
    return trial_of(_events_of(run_dir))


def load_losses(run_dir: str | Path) -> list[StepLoss]:
    """Training losses of a run by step, and norms of gradients if it recorded them.

    `pandas.DataFrame(dawnjax.load_losses(DIR))` has a row for each. If a restart repeated a step,
    the last attempt counts; `loss_curve.next_kept` says which steps are kept.

    Raises:
      ConfigError: The directory holds no run.
      RunError: The log cannot be read, or was changed.
    """
    try:
        return loss_curve(_events_of(run_dir))
    except records.FORGED as error:
        raise RunError(of_another_kind(error)) from None


def _events_of(run_dir: str | Path) -> list[Event]:
    path = Path(run_dir)
    record = read_record(RunDirectory(path))
    if record is None:
        raise ConfigError(f"{path} holds no run: there is no experiment.json")
    return read_events_of(path, record)
