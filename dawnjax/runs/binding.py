"""Proof that a log and `experiment.json` are of one run.

Each attempt begins its log with the run's id, the hash of `experiment.json`, the seed and the
identity of the training. A log copied in from another run contradicts them.
"""

import json
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.runs.directory import hash_of
from dawnjax.runs.log import decode_line
from dawnjax.runs.past import Event

_LARGEST_LINE_BYTES = 2**20
"""Of the lines that are looked for here; longer ones are passed over in pieces."""


def record_hash(record: dict[str, Any]) -> str:
    """SHA-256 of the content of `experiment.json`, whatever its layout."""
    return hash_of(json.dumps(record, sort_keys=True))


def contradictions(record: dict[str, Any], log: Path) -> list[str]:
    """Fields in which a log is of another run than `experiment.json`.

    A past restored from a checkpoint is exempt: another run directory may have held that run.
    """
    openings = _openings(log)
    faults = []
    if any(event.get("identity", record["identity"]) != record["identity"] for event in openings):
        faults.append("the log is of another experiment than experiment.json")
    for name in ("run_id", "seed"):
        told = next((e[name] for e in openings if name in e and e[name] != record[name]), None)
        if told is not None:
            faults.append(f"experiment.json says {name}={record[name]!r}, the log {told!r}")
    return faults


def is_changed(record: dict[str, Any], log: Path) -> bool:
    """True if `experiment.json` differs from the one that an attempt of the log found or wrote."""
    now = record_hash(record)
    return any(event.get("record_sha256", now) != now for event in _openings(log))


def _openings(log: Path) -> list[Event]:
    """First events of the attempts in a log, those of a restored past left out."""
    marks = (b'{"event":"attempt_start"', b'{"event":"experiment"')
    try:
        with records.open_plain(log) as file:
            pieces = iter(lambda: file.readline(_LARGEST_LINE_BYTES), b"")
            lines = [
                decode_line(piece.rstrip(b"\n")) for piece in pieces if piece.startswith(marks)
            ]
    except records.BoundError as error:
        raise RunError(f"{log} {error}") from None
    except OSError as error:
        raise RunError(f"cannot read {log}: {error.strerror}") from None
    return [event for event in lines if event is not None]
