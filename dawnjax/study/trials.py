"""Run the trials of a study: each is an ordinary run with its own directory and clock."""

import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dawnjax
from dawnjax import api, records
from dawnjax.cluster.children import Children, last_line
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_flags import Request, parse_request
from dawnjax.errors import CheckpointError, ConfigError, ExitStatus, RunError
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.runs.directory import RunDirectory, different_fields, read_record
from dawnjax.study import devices
from dawnjax.study.design import Arm, Study, TrialPlan
from dawnjax.study.reading import is_over, read_trial, refuse_strangers
from dawnjax.study.verdicts import Looks
from dawnjax.trials.origin import Origin, origin_of, timed_options, timed_settings
from dawnjax.trials.trial import Trial

NO_PROFILE = "--profile.after_run=false"
"""Flags of every trial unless the study's flags differ: a profile outlasts a short run. A "
"scaling study keeps the profile, to measure communication."""

OVER = (ExitStatus.DONE, ExitStatus.BUDGET_SPENT, ExitStatus.DIVERGED)
"""Exit statuses of a trial that is a result."""

STOP_SECONDS = 75.0
"""Time for a launched trial to save and end: `dawnjax launch` gives its processes 60 s of it."""

Ran = tuple[TrialPlan, Trial | None, str]
"""A trial, its run, and the reason for a failure, if any."""


def flags_of(study: Study, arm: Arm) -> list[str]:
    """Flags of `dawnjax train` for any trial of an arm."""
    profile = [] if study.kind == "scaling" else [NO_PROFILE]
    return [f"--experiment={study.experiment}", *profile, *study.flags, *arm.flags]


def _argv_of(study: Study, trial: TrialPlan, out: Path) -> list[str]:
    chooses = ["--chooses=true"] if trial.chooses else []
    own = [*chooses, f"--seed={trial.seed}", f"--run_dir={trial.directory(out)}"]
    return [*flags_of(study, trial.arm), *own]


def request_of(study: Study, trial: TrialPlan, out: Path) -> Request:
    """Request of a trial's run.

    Raises:
      ConfigError: A flag of the arm or the study is wrong; names the arm.
    """
    try:
        return parse_request("study", _argv_of(study, trial, out))[0]
    except ConfigError as error:
        raise ConfigError(f"arm {trial.arm.name!r}: {error}") from None


def origins_of(
    study: Study, arms: Sequence[Arm], trials: Sequence[TrialPlan], out: Path
) -> dict[str, Origin]:
    """Origin of each arm's trials if this command made them, by the arm's name.

    Raises:
      ConfigError: An arm cannot be trained, its trials so far had another experiment, or two arms
        differ in nothing that a study measures.
    """
    by_arm: dict[str, list[TrialPlan]] = {}
    for trial in trials:
        by_arm.setdefault(trial.arm.name, []).append(trial)
    origins: dict[str, Origin] = {}
    alike: dict[tuple[Any, ...], Arm] = {}
    for arm in arms:
        request = request_of(study, by_arm[arm.name][0], out)
        try:
            record = api.new_record(request)
        except ConfigError as error:
            raise ConfigError(f"arm {arm.name!r}: {error}") from None
        _refuse_other_experiment(record, by_arm[arm.name], out)
        options = timed_options(to_json(request.options))
        origin = origin_of(record["identity"], options | timed_settings(record["settings"]))
        first = alike.setdefault((origin, request.options.mesh, arm.devices), arm)
        if first is not arm:
            raise ConfigError(
                f"arms {first.name!r} and {arm.name!r} are equal in everything that a study "
                "measures"
            )
        origins[arm.name] = origin
    return origins


def set_up(study: Study, trial: TrialPlan, out: Path) -> float:
    """Load JAX and find the devices, as a run alone does; seconds since the program's start.

    They count in the total of the process's first trial. The study's own work, reading other
    trials, does not.
    """
    origins_of(study, [trial.arm], [trial], out)
    return time.perf_counter() - dawnjax.program_start


def _refuse_other_experiment(
    record: dict[str, Any], trials: Sequence[TrialPlan], out: Path
) -> None:
    """Refuse an arm if its trials so far had another experiment; names the fields that differ."""
    for trial in trials:
        old = read_record(RunDirectory(trial.directory(out)))
        if old is not None:
            shown = different_fields(old, {**record, "seed": old["seed"]})
            if shown:
                raise ConfigError(
                    f"{trial.directory(out)} belongs to another experiment: {shown}; choose "
                    "another --out"
                )
            return


def run_trial(
    study: Study, trial: TrialPlan, out: Path, set_up_seconds: float | None = None
) -> ExitStatus:
    """Run or resume one trial; return its exit status.

    Args:
      set_up_seconds: Set-up of this process (`set_up`).

    Raises:
      ConfigError: The arm cannot be trained here at all.
      RunError: The trial cannot resume; another worker may have it.
    """
    if trial.arm.devices:
        return _launch(study, trial, out)
    request = request_of(study, trial, out)
    try:
        return api.train_in_process(
            request, _argv_of(study, trial, out), shows=False, set_up_seconds=set_up_seconds
        )
    except ConfigError as error:
        raise ConfigError(f"arm {trial.arm.name!r}: {error}") from None


def _launch(study: Study, trial: TrialPlan, out: Path) -> ExitStatus:
    """Run a trial in a child process, because a process chooses its number of devices only once."""
    each = trial.arm.devices // study.processes
    # Counted without JAX: this process would otherwise hold the GPUs of its trials.
    there = len(devices.gpus())
    if devices.tpu_chips():
        raise ConfigError(
            "a scaling study does not divide a TPU's chips: run one study on a slice of each size "
            "and compare them with `dawnjax compare`"
        )
    if 0 < there < trial.arm.devices:
        raise ConfigError(
            f"arm {trial.arm.name!r} needs {trial.arm.devices} GPUs, and this machine has {there}; "
            "JAX_PLATFORMS=cpu simulates devices"
        )
    command = [sys.executable, "-m", "dawnjax", "launch", f"--processes={study.processes}"]
    command += [f"--platform={'gpu' if there else 'cpu'}", f"--devices_per_process={each}", "--"]
    command += ["train", *_argv_of(study, trial, out)]
    with tempfile.TemporaryFile() as stderr, Children(STOP_SECONDS) as children:
        children.start(command, stderr)
        number = children.wait_for_one()[0].returncode
        line = last_line(stderr) or f"status {number}"
        if children.asked:
            return ExitStatus.INTERRUPTED
    status = ExitStatus(number) if 0 <= number <= 7 else ExitStatus.FAILED
    if status in (ExitStatus.FAILED, ExitStatus.WRONG_USE):
        error = ConfigError if status == ExitStatus.WRONG_USE else RunError
        raise error(f"arm {trial.arm.name!r}: {line}; run by {shlex.join(command[2:])}")
    return status


class TrialRunner:
    """Runner of single trials; `tell` gets the name of each that begins."""

    def __init__(
        self,
        study: Study,
        out: Path,
        origins: Mapping[str, Origin],
        tell: Callable[[str], None],
        set_up_seconds: float | None = None,
    ):
        self._study, self._out, self._origins, self._tell = study, out, origins, tell
        self._set_up_seconds = set_up_seconds
        self._firsts: dict[Arm, tuple[TrialPlan, Trial]] = {}

    def run(self, trial: TrialPlan) -> tuple[Trial | None, str]:
        """Run a trial unless it has ended; return its run, and the reason for a failure, if any.

        Raises:
          ConfigError: The arm cannot be trained here at all.
          RunError: The trial's recipe differs from its origin: its file changed meanwhile.
          KeyboardInterrupt: The study was asked to stop; the trial is saved.
        """
        run, why = read_trial(trial, self._out), ""
        if run is not None and is_over(run):
            file = RunDirectory(trial.directory(self._out)).result_file
            if not file.exists():  # ended, or its disk was full, after its last event
                records.write_json(file, run.to_json())
        else:
            self._tell(f"{trial.arm.name}, seed {trial.seed}")
            try:
                status = run_trial(self._study, trial, self._out, self._set_up_seconds)
            except (RunError, CheckpointError, DataError) as error:
                status, why = ExitStatus.FAILED, str(error)
            if status == ExitStatus.INTERRUPTED:
                raise KeyboardInterrupt
            run = read_trial(trial, self._out)
            if run is None:
                why = why or "its log has too little for a result"
        if run is not None:
            first = self._firsts.setdefault(trial.arm, (trial, run))
            refuse_strangers(dict([first, (trial, run)]), self._out, self._origins)
        return run, why


def run_all(
    study: Study, arms: Sequence[Arm], plans: Sequence[TrialPlan], runner: TrialRunner
) -> Iterator[Ran]:
    """Run every unfinished trial, unless a look decided its arm."""
    looks = Looks(study)
    ran: dict[Arm, dict[int, Trial]] = {arm: {} for arm in arms}
    for plan in plans:
        if looks.needs_no_more(ran, plan):
            continue
        trial, why = runner.run(plan)
        if trial is not None:
            ran[plan.arm][plan.seed] = trial
        yield plan, trial, why
