"""`dawnjax check`: whether a run directory is what it says it is."""

import json
import math
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax.config import command_line
from dawnjax.config.config_json import identity_of
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.runs import summary
from dawnjax.runs.directory import (
    RECORD_FILE,
    RunDirectory,
    flatten,
    hash_of,
    is_record_file,
    read_record,
)
from dawnjax.runs.log import Event, log_path, read_events
from dawnjax.text import escaped


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit status: 1 if any run directory has a fault."""
    flag_values = flags.FlagValues()
    paths = command_line.parse(
        "check",
        flag_values,
        argv,
        "dawnjax check RUN_DIR...",
        "Validates run directories: the log is read line by line, and the result is computed\n"
        "from it again and held against result.json; experiment.json is held against its own\n"
        "hash and the log.",
    )
    if not paths:
        raise ConfigError("no run directory given; dawnjax check RUN_DIR...")
    faulty = 0
    for path in paths:
        faults, notes = check_run(Path(path))
        for note in notes:
            print(escaped(f"{path}: note: {note}"))
        for fault in faults:
            print(escaped(f"{path}: FAULT: {fault}"))
        if not faults:
            print(escaped(f"{path}: ok"))
        faulty += bool(faults)
    return ExitStatus.FAILED if faulty else ExitStatus.DONE


def check_run(path: Path) -> tuple[list[str], list[str]]:
    """Checks a run directory; returns its faults, and notes that are no faults."""
    directory = RunDirectory(path)
    if not path.is_dir():
        return [RECORD_FILE if is_record_file(path) else f"there is no directory {path}"], []
    try:
        record = read_record(directory)
    except ConfigError as error:
        return [str(error)], []
    if record is None:
        return ["experiment.json is missing: this is no run directory"], []
    faults: list[str] = []
    notes: list[str] = []
    logs = sorted((path / "log").glob("process_*.jsonl"))
    first = log_path(path, 0)
    if first not in logs:
        return ["log/process_00000.jsonl, the log of process 0, is missing"], []
    for log in logs:
        try:
            events, damaged = read_events(log)
        except RunError as error:
            faults.append(str(error))
            continue
        lines = log.read_bytes().count(b"\n")
        for number in damaged:
            # A kill or a full disk tears the last line of an attempt; the next one begins after it.
            kind = "torn" if number >= lines or _ends_attempt(log, number) else "damaged"
            (notes if kind == "torn" else faults).append(f"log/{log.name}:{number} is {kind}")
        faults += [f"log/{log.name}: {fault}" for fault in _order_faults(events)]
        if log == first:
            faults += _record_faults(record, events)
            faults += _result_faults(directory, record, events, notes)
    return faults, notes


def _ends_attempt(log: Path, number: int) -> bool:
    """Tells whether a line is the last of an attempt: the one after it starts another."""
    lines = log.read_bytes().split(b"\n")
    return number < len(lines) and b'"event":"attempt_start"' in lines[number][:40]


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
    """Finds where `experiment.json` contradicts itself or the log."""
    faults = []
    if identity_of(record["identity_fields"]) != record["identity"]:
        faults.append(
            "experiment.json: the hash of identity_fields is not its identity; one was changed"
        )
    source = record.get("source")
    if source and hash_of(source["text"]) != source["sha256"]:
        faults.append("experiment.json: source.text has not the hash source.sha256; it was changed")
    described = flatten(record.get("experiment"))
    for name, value in flatten(record["identity_fields"]).items():
        # What the data are is told by the hash alone.
        if name != "data.fingerprint" and described.get(name, "absent") != value:
            faults.append(
                f"experiment.json says experiment.{name}={described.get(name, 'absent')!r} and "
                f"identity_fields.{name}={value!r}"
            )
    # An attempt may have been asked for by another name of the same experiment.
    logged = {
        "run_id": [event["run_id"] for event in events if event["event"] == "attempt_start"],
        "seed": [event["seed"] for event in events if event["event"] == "experiment"],
        "experiment.name": [
            event["experiment"]["name"] for event in events if event["event"] == "experiment"
        ],
    }
    told = {**record, "experiment.name": described.get("name")}
    for name, values in logged.items():
        if values and told[name] not in values:
            faults.append(f"experiment.json says {name}={told[name]!r}, the log {values[0]!r}")
    return faults


def _result_faults(
    directory: RunDirectory, record: dict[str, Any], events: list[Event], notes: list[str]
) -> list[str]:
    try:
        expected = summary.summarize_log(events).to_json()
    except RunError as error:
        return [str(error)]
    if expected["identity"] != record["identity"]:
        return ["the log is of another experiment than experiment.json"]
    if not directory.result_file.exists():
        notes.append(f"there is no result.json yet; the log says {expected['status']}")
        return []
    try:
        written = json.loads(directory.result_file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        return [f"result.json cannot be read: {error}"]
    if not isinstance(written, dict):
        return ["result.json holds no object"]
    faults = []
    if expected["status"] == "running":
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
    expected = json.loads(json.dumps(expected))
    # A result may be as old as a log without declarations.
    may_lack = () if expected["metrics"] else ("metrics", "example_unit")
    for name in sorted(expected.keys() | written.keys()):
        if name not in written:
            if name in may_lack:
                continue
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
    """The result by the log up to the attempt that `written` is of; None if that is the last."""
    for last in sorted({event["attempt"] for event in events})[:-1]:
        try:
            result = summary.summarize([e for e in events if e["attempt"] <= last])
        except RunError:
            continue
        if result.status != "running" and result.interruptions == written.get("interruptions"):
            return result.to_json()
    return None


def _same(first: Any, second: Any) -> bool:
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
