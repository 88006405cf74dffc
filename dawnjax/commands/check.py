"""`dawnjax check`: a run's result against its log, an MLPerf log against its round's rules."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.official import compliance
from dawnjax.page.words import counted
from dawnjax.runs.directory import RunDirectory, is_record_file, read_events_of, read_existing
from dawnjax.runs.logged_run import LoggedRun
from dawnjax.text import escaped
from dawnjax.trials.from_log import trial_of

USAGE = "dawnjax check RUN_DIR|MLPERF_LOG|FOLDER... [--ruleset=5.1.0]"

DESCRIPTION = """
Validates run directories: reads every line of the log, recomputes the result and compares it with
result.json.

For MLPerf Training logs (a file, a folder or an archive), MLPerf's own compliance checker names
each broken rule and its line (pip install "dawnjax[mlperf]"). The folder's name, such as
training_results_v5.1, or --ruleset chooses the round's rules.
"""

_LONGEST_LINE = 600


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """A run directory or a log, checked.

    Attributes:
      name: Its path, or its place in a folder or archive.
      is_ok: Whether it has no fault.
      faults: What is wrong, a line each.
      notes: What a reader should know, though it is not a fault.
    """

    name: str
    is_ok: bool
    faults: tuple[str, ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Everything that was checked.

    Attributes:
      faulty: Number of paths with a fault.
    """

    checked: tuple[Checked, ...]
    faulty: int


RESULT = Result


def main(argv: list[str]) -> Answer:
    """Run the command; its status is 1 if anything has a fault."""
    flag_values = flags.FlagValues()
    help_ = "The version of MLPerf's rules, such as 5.1.0 (default: the round's)."
    flags.DEFINE_string("ruleset", "", help_, flag_values=flag_values)
    paths = command_line.parse("check", flag_values, argv, USAGE, DESCRIPTION)
    ruleset = str(flag_values["ruleset"].value or "")
    if not paths:
        raise ConfigError(f"no path given; {USAGE}")
    for path in paths:
        if not Path(path).exists():
            raise ConfigError(f"there is nothing at {path}")
    if ruleset and ruleset not in (known := compliance.rulesets()):
        raise ConfigError(f"--ruleset={ruleset}: choose from {', '.join(known)}")
    checked = []
    for name, faults, notes in (it for path in paths for it in check_path(Path(path), ruleset)):
        one = Checked(name=name, is_ok=not faults, faults=tuple(faults), notes=tuple(notes))
        checked.append(one)
        for line in _lines(one):
            print(line)
    faulty = [one for one in checked if one.faults]
    return Answer(
        result=Result(checked=tuple(checked), faulty=len(faulty)),
        status=ExitStatus.FAILED if faulty else ExitStatus.DONE,
        reasons=[f"{one.name}: {one.faults[0]}" for one in faulty],
    )


def _lines(one: Checked) -> list[str]:
    """Findings on one path; equal faults appear once, with their number."""
    name = escaped(one.name)
    said = [f"{name}: note: {_short(note)}" for note in counted(one.notes)]
    said += [f"{name}: FAULT: {_short(fault)}" for fault in counted(one.faults)]
    return said if one.faults else [*said, f"{name}: ok"]


def check_path(path: Path, ruleset: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
    """Check what is at a path: names, each with its faults, and notes that are not faults."""
    found = False
    if not RunDirectory(path).experiment_file.exists() and not is_record_file(path):
        for log in compliance.check(path, ruleset):
            found = True
            yield log
    if not found:
        yield str(path), *check_run(path)


def check_run(path: Path) -> tuple[list[str], list[str]]:
    """Check a run directory; returns its faults, and notes that are not faults."""
    try:
        events = read_events_of(path, read_existing(path))
        expected = trial_of(events)
    except (ConfigError, RunError) as error:
        return [str(error).removeprefix(f"{path}: ")], []
    directory = RunDirectory(path)
    if not directory.result_file.exists():
        return [], [f"there is no result.json yet; by the log the run is {expected.status}"]
    try:
        written = records.read_json(directory.result_file, dict[str, Any])
    except (OSError, ValueError) as error:
        return [f"cannot read result.json: {error}"], []
    if not LoggedRun.from_events(events).attempts[-1].ended:
        return [], ["an attempt is running or was killed; result.json is from an earlier attempt"]
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
