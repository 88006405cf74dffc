"""`dawnjax check`: a run's result against its log, an MLPerf log against the rules."""

import json
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.official import mlperf_rules
from dawnjax.runs.directory import RunDirectory, is_record_file, read_events_of, read_existing
from dawnjax.runs.logged_run import LoggedRun
from dawnjax.text import escaped
from dawnjax.trials.from_log import trial_of

USAGE = "dawnjax check RUN_DIR|MLPERF_LOG|FOLDER..."

DESCRIPTION = """
Validates run directories: reads every line of the log, computes the result from it again and
compares that with result.json.

In an MLPerf Training log, or a folder or an archive of such logs, it names each rule that is broken
and its line: keys that are missing or there twice, their order, labels, the target, and the
hyperparameters that the closed division asks for.
"""

_LONGEST_LINE = 600


def main(argv: list[str]) -> int:
    """Run the command; returns 1 if anything has a fault."""
    paths = command_line.parse("check", flags.FlagValues(), argv, USAGE, DESCRIPTION)
    if not paths:
        raise ConfigError(f"no path given; {USAGE}")
    for path in paths:
        if not Path(path).exists():
            raise ConfigError(f"there is nothing at {path}")
    faulty = 0
    for name, faults, notes in (checked for path in paths for checked in check_path(Path(path))):
        for note in notes:
            print(f"{escaped(name)}: note: {_short(note)}")
        for fault in faults:
            print(f"{escaped(name)}: FAULT: {_short(fault)}")
        if not faults:
            print(f"{escaped(name)}: ok")
        faulty += bool(faults)
    return ExitStatus.FAILED if faulty else ExitStatus.DONE


def check_path(path: Path) -> list[tuple[str, list[str], list[str]]]:
    """Check what is at a path: names, each with its faults, and notes that are no faults."""
    logs = []
    if not RunDirectory(path).experiment_file.exists() and not is_record_file(path):
        logs = [(it.name, list(map(str, it.broken)), it.notes) for it in mlperf_rules.check(path)]
    return logs or [(str(path), *check_run(path))]


def check_run(path: Path) -> tuple[list[str], list[str]]:
    """Check a run directory; returns its faults, and notes that are no faults."""
    try:
        events = read_events_of(path, read_existing(path))
        expected = trial_of(events)
    except (ConfigError, RunError) as error:
        return [str(error).removeprefix(f"{path}: ")], []
    directory = RunDirectory(path)
    if not directory.result_file.exists():
        return [], [f"there is no result.json yet; the log says {expected.status}"]
    try:
        written = records.read_json(directory.result_file, dict[str, Any])
    except (OSError, ValueError) as error:
        return [f"result.json cannot be read: {error}"], []
    if not LoggedRun.from_events(events).attempts[-1].ended:
        return [], ["an attempt is running or was killed; result.json is of an earlier one"]
    # Through JSON, so that both sides have lists for tuples and the same floats.
    by_log = records.load_json(json.dumps(expected.to_json()))
    return [
        f"result.json says {name}={written.get(name, 'nothing')!r}, the log "
        f"{by_log.get(name, 'nothing')!r}"
        for name in sorted(by_log.keys() | written.keys())
        if by_log.get(name, "nothing") != written.get(name, "nothing")
    ], []


def _short(line: str) -> str:
    line = escaped(line)
    return line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " ..."
