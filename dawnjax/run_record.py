"""Opening a run directory, new or to be resumed, the same on all hosts."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from dawnjax import records
from dawnjax.cluster import processes
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_flags import Request
from dawnjax.config.own_files import source_of
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.reading.dataset import AnySpec, overlap_line
from dawnjax.machine import jax_settings
from dawnjax.runs.binding import contradictions, is_changed
from dawnjax.runs.clock import RunClock
from dawnjax.runs.directory import (
    RunDirectory,
    changed_texts,
    flatten,
    new_run_id,
    read_record,
    refuse_other_run,
    texts_of,
)
from dawnjax.runs.log import SCHEMA_VERSION, RunLog, log_path
from dawnjax.runs.logged_run import FINAL_STATUSES, last_event
from dawnjax.runs.summary import refuse_forged


@dataclasses.dataclass(frozen=True)
class OpenRun:
    """A run directory that this process has open; whoever takes the run closes its log.

    Attributes:
      finished: Status with which an earlier attempt ended the trial; empty if none did.
      warnings: Faults of the record and the log that a reader of the result should know.
    """

    request: Request
    spec: AnySpec
    clock: RunClock
    directory: RunDirectory
    record: dict[str, Any]
    log: RunLog
    finished: str
    warnings: tuple[str, ...]


def open_run(request: Request, spec: AnySpec, clock: RunClock) -> OpenRun:
    """Open the run directory and this process's log; all processes call it alike.

    Raises:
      ConfigError: The directory belongs to another run, or the hosts were given different flags.
      RunError: Another job has it open, or it cannot be written.
    """
    directory, new = _describe(request, spec)
    # Refused before anything is written into a directory of something else.
    directory.refuse_links()
    old = read_record(directory)
    if old is not None:
        refuse_other_run(directory, old, new)
    log = RunLog(log_path(directory.path, jax.process_index()), clock)
    try:
        refuse_forged(log.events, log.path)
        # Read again: a job that had the lock until now may have made the directory its own.
        record, warnings = _shared_record(directory, new)
        faults = contradictions(record, log.path)
        if faults:
            raise ConfigError(
                f"{log.path} is the log of another run: {'; '.join(faults)}; put back the file "
                "that was exchanged, or choose another --run_dir"
            )
        if is_changed(record, log.path):
            warnings.append(f"{directory.experiment_file} was changed since the run began")
        warnings += jax_settings.warnings()
        warnings += [f"{fault} in {log.path.name}" for fault in log.faults]
        declaration = getattr(spec, "declaration", None)
        if line := overlap_line(declaration and declaration.overlap, "the data: "):
            warnings.append(line)
        end = last_event(log.events, "attempt_end")
        # Process 0 decides: the log of another may lack the end, or be lost with its disk.
        status = processes.same_text("" if end is None else end["status"])
    except BaseException:
        log.close()
        raise
    finished = status if status in FINAL_STATUSES else ""
    return OpenRun(request, spec, clock, directory, record, log, finished, tuple(warnings))


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


def _shared_record(
    directory: RunDirectory, new: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Record of the run, the same on all hosts, and warnings; called with the log locked.

    On a shared disk process 0 alone writes a new record, once all have looked. On disks of their
    own, each process writes it.
    """
    old = read_record(directory)
    run_id = new["run_id"] if old is None else old["run_id"]
    new = {**new, "run_id": processes.same_text(run_id)}
    warnings = []
    if old is not None:
        refuse_other_run(directory, old, new)
        warnings += [
            f"{name} was changed since the run began: its text differs from the one in "
            f"{directory.experiment_file}"
            for name in changed_texts(old.get("source"), new["source"])
        ]
    processes.gather("looked")
    if old is None and jax.process_index() == 0:
        records.write_json(directory.experiment_file, new, durable=True)
    processes.gather("written")
    if not directory.experiment_file.exists():
        records.write_json(directory.experiment_file, new, durable=True)
    return old or new, warnings


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
