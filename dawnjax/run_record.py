"""Opening a run directory, new or to be resumed, and the result that its log gives.

Process 0 alone reads and writes the directory; it tells the other processes where the run stands.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from dawnjax import records
from dawnjax.checkpoints.saved import newest_saved
from dawnjax.cluster import processes
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_flags import Request
from dawnjax.config.own_files import source_of
from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import AnySpec, overlap_line
from dawnjax.machine import jax_settings
from dawnjax.progress import Display
from dawnjax.runs.clock import RunClock
from dawnjax.runs.directory import (
    RunDirectory,
    changed_texts,
    flatten,
    new_run_id,
    read_record,
    refuse_other_log,
    refuse_other_run,
    refuse_other_settings,
    texts_of,
)
from dawnjax.runs.log import SCHEMA_VERSION, Event, RunLog, log_path, read_events
from dawnjax.runs.logged_run import FINAL_STATUSES, LoggedRun, events_of, last_event
from dawnjax.trials.from_log import trial_of
from dawnjax.trials.trial import Trial


@dataclasses.dataclass(frozen=True)
class Earlier:
    """What earlier attempts of a run logged.

    Attributes:
      status: Final status, if the trial has ended; empty if not.
      clock_seconds: Seconds on the run's clock at their end; None if it has not started.
      reached_step: Step whose evaluation reached the target; 0 if none did.
      evaluations: Step and metrics of each evaluation.
      ended_unix_seconds: Wall clock at their last event; None without one.
      lost_log: Their log was lost and comes from the newest checkpoint.
      cost_usd: Of `clock_seconds`; None where an attempt had no price.
    """

    status: str = ""
    clock_seconds: float | None = None
    reached_step: int = 0
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    ended_unix_seconds: float | None = None
    lost_log: bool = False
    cost_usd: float | None = 0.0


@dataclasses.dataclass(frozen=True)
class OpenRun:
    """A run that this process has open; whoever takes it closes its log.

    Attributes:
      warnings: What a reader of the result should know.
    """

    request: Request
    spec: AnySpec
    clock: RunClock
    directory: RunDirectory
    record: dict[str, Any]
    log: RunLog
    earlier: Earlier
    warnings: list[str]

    @property
    def checkpoints(self) -> str:
        return _checkpoints_of(self.request, self.directory)


def _checkpoints_of(request: Request, directory: RunDirectory) -> str:
    """Directory or bucket of a run's checkpoints."""
    return request.options.checkpoint.directory or str(directory.checkpoints)


def open_run(request: Request, spec: AnySpec, clock: RunClock) -> OpenRun:
    """Open the run directory on process 0; all processes call it alike.

    Raises:
      ConfigError: The directory belongs to another run, or the hosts were given different flags.
      RunError: Another job has it open, its log is damaged, or it cannot be written.
    """
    directory, new = _describe(request, spec)
    opened: list[RunLog] = []

    def open_here() -> dict[str, Any]:
        old = read_record(directory)
        if old is not None:
            refuse_other_run(directory, old, new)
        log = RunLog(log_path(directory.path), clock)
        opened.append(log)
        # Read again: a job that had the lock until now may have made the directory its own.
        old = read_record(directory)
        if old is None:
            records.write_json(directory.experiment_file, new, durable=True)
        else:
            refuse_other_run(directory, old, new)
        record = old or new
        earlier = _earlier(_checkpoints_of(request, directory), record, log)
        warnings = [
            f"{name} was changed since the run began: its text differs from the one in "
            f"{directory.experiment_file}"
            for name in changed_texts(record.get("source"), new["source"])
        ]
        warnings += jax_settings.warnings()
        if not log.is_locked:
            warnings.append(records.no_lock(directory.path))
        declaration = getattr(spec, "declaration", None)
        if line := overlap_line(declaration and declaration.overlap, "the data: "):
            warnings.append(line)
        return {
            "record": record,
            "earlier": dataclasses.asdict(earlier),
            "warnings": warnings,
        }

    try:
        told = processes.from_first(open_here)
    except BaseException:
        for log in opened:
            log.close()
        raise
    log = opened[0] if opened else RunLog(None, clock)
    earlier = Earlier(**told["earlier"])
    return OpenRun(request, spec, clock, directory, told["record"], log, earlier, told["warnings"])


def _earlier(checkpoints: str, record: dict[str, Any], log: RunLog) -> Earlier:
    """Read the log on process 0, or write it back from the newest checkpoint."""
    saved = newest_saved(checkpoints)
    metadata, text = saved if saved is not None else ({}, "")
    for name in ("identity", "seed"):
        if saved is not None and metadata.get(name) != record[name]:
            raise ConfigError(
                f"the checkpoints in {checkpoints} are of another run: {name} is "
                f"{metadata.get(name)!r} there and {record[name]!r} here; choose another "
                "--checkpoint.directory"
            )
    if saved is not None:
        refuse_other_settings(metadata, record, checkpoints)
    events, is_lost = log.earlier(text)
    refuse_other_log(log.path, record, events)
    if not events:
        return Earlier()
    run, end = LoggedRun.from_events(events), last_event(events, "attempt_end")
    reached, last = run.reached, run.attempts[-1].events[-1]
    return Earlier(
        status=end["status"] if end is not None and end["status"] in FINAL_STATUSES else "",
        clock_seconds=run.run_seconds(last),
        reached_step=0 if reached is None else reached["step"],
        evaluations=[
            {name: event[name] for name in ("step", "metrics")}
            for event in events_of(events, "evaluation")
        ],
        ended_unix_seconds=last.get("unix_seconds"),
        lost_log=is_lost,
        cost_usd=0.0 if run.run_start is None else run.run_cost(last)[0],
    )


def _describe(request: Request, spec: AnySpec) -> tuple[RunDirectory, dict[str, Any]]:
    experiment, options = request.experiment, request.options
    new = record_of(request, spec)
    settings = {
        **new["settings"]["numbers"],
        "seed": request.seed,
        **{f"{name} (its hash)": text["sha256"] for name, text in texts_of(new["source"]).items()},
        **flatten(experiment.identity_fields(spec)),
        **flatten(to_json(options)),
    }
    _refuse_different_hosts({name: settings[name] for name in settings.keys() - _PER_HOST})
    new["run_id"] = run_id = processes.same_text(new_run_id(experiment.name, request.seed))
    return RunDirectory(Path(options.run_dir or Path("runs") / run_id)), new


def record_of(request: Request, spec: AnySpec) -> dict[str, Any]:
    """Content of a new run's `experiment.json`, still without a `run_id`."""
    experiment = request.experiment
    own = source_of(experiment, request.experiment_file)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": "",
        "experiment": to_json(experiment),
        "overrides": request.overrides,
        "seed": request.seed,
        "identity": experiment.identity(spec),
        "identity_fields": experiment.identity_fields(spec),
        "source": None if own is None else own.to_json(),
        "settings": jax_settings.recorded(),
    }


_PER_HOST = {"run_dir", "processes.process_id", "compile_cache_dir"}
"""Options that may differ between the hosts of a run."""


def _refuse_different_hosts(settings: dict[str, Any]) -> None:
    """Refuse hosts with different flags or data: they would hang, or mix two runs."""
    everyone = processes.gather(settings)
    for index, given in enumerate(everyone):
        different = sorted(name for name in given if given[name] != everyone[0].get(name))
        if different:
            name = different[0]
            raise ConfigError(
                f"host {index} was started with {name}={given[name]!r}, host 0 with "
                f"{everyone[0].get(name)!r}; all hosts need the same flags and data"
            )


def write_result(directory: RunDirectory, events: list[Event]) -> Trial:
    """Compute the result from a log's events, and write `result.json`."""
    try:
        result = trial_of(events)
    except RunError as error:
        raise RunError(f"{directory.path}: {error}") from None
    records.write_json(directory.result_file, result.to_json(), durable=True)
    return result


def report_finished(run: OpenRun, *, shows: bool = True) -> str:
    """Show the result of a trial that an earlier attempt ended; returns its status."""
    if jax.process_index() == 0:
        display = Display(run.request.experiment, run.spec, enabled=shows)
        # The attempt may have been killed after its last event and before this.
        result = write_result(run.directory, read_events(log_path(run.directory.path)))
        display.closing_table(result, run.directory.path)
        for message in run.warnings:
            display.warning(message)
        price = run.request.options.price_per_hour_usd
        if price is not None and price != result.run_options["price_per_hour_usd"]:
            display.warning(
                f"this run has ended and keeps the price it had: {price:g} USD an hour is not "
                "added; its cost is time_to_accuracy_seconds / 3600 x price x hosts"
            )
    run.log.close()
    return run.earlier.status
