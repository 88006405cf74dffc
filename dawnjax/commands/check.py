"""`dawnjax check`: a run directory against its own log and hashes, an MLPerf log against rules."""

import json
import math
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.config import command_line, own_files
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.official import mlperf_rules
from dawnjax.runs import summary
from dawnjax.runs.binding import contradictions, is_changed
from dawnjax.runs.directory import RunDirectory, flatten, is_record_file, read_existing
from dawnjax.runs.log import Event, log_path, read_events
from dawnjax.runs.logged_run import LoggedRun
from dawnjax.text import escaped

USAGE = "dawnjax check RUN_DIR|MLPERF_LOG|FOLDER..."

DESCRIPTION = """
Validates run directories: the log is read line by line, and the result is computed from it again
and held against result.json; experiment.json is held against its own hash and the log.

Of an MLPerf Training log, or of a folder or an archive of them, it names each rule that is broken,
with its line: keys that are missing or there twice, their order, labels, the target, and the
hyperparameters that the closed division asks for.
"""

_LONGEST_LINE = 600


def main(argv: list[str]) -> int:
    """Run the command; returns 1 if any run directory has a fault."""
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


def _short(line: str) -> str:
    line = escaped(line)
    return line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " ..."


def check_run(path: Path) -> tuple[list[str], list[str]]:
    """Check a run directory; returns its faults, and notes that are no faults."""
    directory = RunDirectory(path)
    try:
        record = read_existing(path)
    except ConfigError as error:
        return [str(error).removeprefix(f"{path}: ")], []
    faults: list[str] = []
    notes: list[str] = []
    logs = sorted((path / "log").glob("process_*.jsonl"))
    first = log_path(path, 0)
    if first not in logs:
        return ["log/process_00000.jsonl, the log of process 0, is missing"], []
    for log in logs:
        try:
            events, line_faults = read_events(log)
        except RunError as error:
            faults.append(str(error))
            continue
        for fault in line_faults[:_MOST_SHOWN]:
            # A kill or a full disk tears a line; that is no fault of the log.
            (notes if fault.is_harmless else faults).append(f"log/{log.name}: {fault}")
        if len(line_faults) > _MOST_SHOWN:
            faults.append(f"log/{log.name}: {len(line_faults):,} lines have a fault in all")
        faults += [f"log/{log.name}: {fault}" for fault in contradictions(record, log)]
        if is_changed(record, log):
            faults.append(f"experiment.json was changed: log/{log.name} has another hash of it")
        try:
            faults += [f"log/{log.name}: {fault}" for fault in _order_faults(events)]
            if log == first:
                faults += _record_faults(record, events)
                faults += _result_faults(directory, record, events, notes)
        except records.FORGED as error:
            faults.append(f"log/{log.name}: {summary.of_another_kind(error)}")
    return faults, notes


_MOST_SHOWN = 1000
"""Of the lines of a log that have a fault."""


def _order_faults(events: list[Event]) -> list[str]:
    faults = []
    starts = [event for event in events if event["event"] == "run_start"]
    if len(starts) > 1:
        faults.append(f"run_start is logged {len(starts)} times")
    attempt, last = 0, 0.0
    for event in events:
        if event["attempt"] < attempt:
            faults.append(f"attempt {event['attempt']} goes on after attempt {attempt} began")
        elif event["attempt"] > attempt:
            attempt, last = event["attempt"], 0.0
        # Events of two threads may be written a moment apart from when they were stamped.
        if event["t"] < last - 0.1:
            faults.append(f"time goes back from {last} to {event['t']} in attempt {attempt}")
        last = max(last, event["t"])
    return faults


def _record_faults(record: dict[str, Any], events: list[Event]) -> list[str]:
    faults = own_files.record_faults(record)
    described = flatten(record["experiment"])
    for name, value in flatten(record["identity_fields"]).items():
        # Hashes alone identify the data and the code.
        if name.startswith("code."):
            continue
        if name != "data.fingerprint" and described.get(name, "absent") != value:
            faults.append(
                f"experiment.json says experiment.{name}={described.get(name, 'absent')!r} and "
                f"identity_fields.{name}={value!r}"
            )
    # A later attempt may have been asked for in other words, such as by another name.
    logged = [flatten(e["experiment"]) for e in events if e["event"] == "experiment"]
    if logged and described not in logged:
        for name in sorted(described.keys() | logged[0].keys()):
            recorded, in_log = described.get(name, "absent"), logged[0].get(name, "absent")
            if recorded != in_log:
                faults.append(
                    f"experiment.json says experiment.{name}={recorded!r}, the log {in_log!r}"
                )
    return faults


def _result_faults(
    directory: RunDirectory, record: dict[str, Any], events: list[Event], notes: list[str]
) -> list[str]:
    try:
        expected = summary.summarize_log(events).to_json()
    except RunError as error:
        return [str(error)]
    if expected["identity"] != record["identity"]:
        return []  # said already
    if not directory.result_file.exists():
        notes.append(f"there is no result.json yet; the log says {expected['status']}")
        return []
    try:
        written = records.read_json(directory.result_file, dict[str, Any])
    except (OSError, ValueError) as error:
        return [f"result.json cannot be read: {error}"]
    faults = []
    # A full disk may leave the result that was written before the profile; that is no forgery.
    before_profile = summary.summarize(summary.up_to_profile(events)).to_json()
    if not _same(expected, written) and _same(before_profile, written):
        notes.append(
            "result.json is from before the profile, after which it could not be written; start "
            "the same command again to write it anew"
        )
        expected = before_profile
    elif not LoggedRun.from_events(events).attempts[-1].ended:
        earlier = _up_to_attempt_of(written, events)
        if earlier is None:
            # The line of an attempt's end is on disk before its result is written.
            faults.append("the log lacks the end of the attempt that result.json is of")
        else:
            notes.append(
                "a later attempt is running or was killed; result.json is of an earlier one"
            )
            expected = earlier
    # Through JSON, so that both sides have lists for tuples and the same floats.
    expected = records.load_json(json.dumps(expected))
    for name in sorted(expected.keys() | written.keys()):
        if name not in written:
            faults.append(f"result.json lacks {name!r}")
        elif name not in expected:
            faults.append(f"result.json has {name!r}, which no result has")
        elif not _same(expected[name], written[name]):
            faults.append(f"result.json says {name}={written[name]!r}, the log {expected[name]!r}")
    total = sum(expected["phases"].values())
    if not math.isclose(total, expected["total_seconds"], abs_tol=1e-3):
        faults.append(f"the phases sum to {total}, the total is {expected['total_seconds']}")
    return faults


def _up_to_attempt_of(written: dict[str, Any], events: list[Event]) -> dict[str, Any] | None:
    """Result by the log up to the attempt of `written`; None if that is the last."""
    for last in sorted({event["attempt"] for event in events})[:-1]:
        try:
            part = [e for e in events if e["attempt"] <= last]
            if not LoggedRun.from_events(part).attempts[-1].ended:
                part = summary.up_to_profile(part)
            result = summary.summarize(part)
        except RunError:
            continue
        if result.status != "running" and result.interruptions == written.get("interruptions"):
            return result.to_json()
    return None


def _same(first: Any, second: Any) -> bool:
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
