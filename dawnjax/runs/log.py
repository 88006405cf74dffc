"""The event log of one process: the only truth about a run.

Each process of a run appends to its own file, `log/process_00000.jsonl`, one JSON object a line.
An attempt is one process lifetime; attempts of one trial follow each other in one file. A line ends
with the CRC-32 of the text before it, so that a reader detects torn and damaged lines.

Every event has:
  event: Its name, one of `EVENTS`.
  attempt: The attempt that wrote it, counted from 1.
  sequence: The number of the line, counted from 1 over all attempts (see `sequence`).
  t: Seconds since that process's program started, from a clock that only goes forward.
  boot_seconds: The machine's clock since boot, which no one sets; null where there is none.
  unix_seconds: The wall clock, for people; no duration is computed from it where the machine's
    own clock is known.
"""

import fcntl
import json
import math
import os
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.runs.clock import RunClock
from dawnjax.runs.past import CONDENSED, LOSSES, LOST, RECOVERED, Event, with_past
from dawnjax.runs.sequence import Line, LineFault, in_sequence
from dawnjax.text import without_secrets

SCHEMA_VERSION = 1

EVENTS = {
    "attempt_start": ("schema_version", "run_id", "process_index", "boot_id", "versions"),
    "experiment": (
        "experiment",
        "identity",
        "overrides",
        "seed",
        "num_train_examples",
        "num_eval_examples",
        "run_options",
    ),
    "devices": ("device_kind", "platform", "num_devices", "num_processes", "mesh"),
    "phase": ("name",),
    "compiled": ("program", "seconds", "cache"),
    "run_start": (),
    "stage": ("index",),
    "restored": ("step",),
    "initialized_from": ("source", "source_step"),
    "train": ("step", "epoch", "loss", "steps", "input_wait_seconds"),
    LOSSES: ("at_steps", "losses"),
    "first_losses": ("start_step", "losses"),  # of logs without the losses of later steps
    "generation": ("step", "number", "figures"),
    "evaluation": ("step", "epoch", "metrics", "reached"),
    "checkpoint": ("step",),
    "host_sample": ("cpu_seconds", "memory_bytes"),
    "host_summary": ("hosts",),
    "diverged": ("step",),
    "warning": ("message",),
    "trained": ("status", "step"),
    "attempt_end": ("status", "step"),
    RECOVERED: ("step", "past"),
    LOST: ("lines",),
}
"""The events, each with the fields that it always has."""


MOST_BYTES = 2**30
MOST_LINE_BYTES = 64 * 2**20
MOST_MARKS = 2_000_000
"""Of a log, and of its longest line. A day's run writes 34 MB, nearly all of it heartbeats and
train events; the other events of a long run have some 100,000 commas, colons and brackets."""

MOST_DAMAGED_LINES = 100_000


def log_path(run_dir: Path, process_index: int) -> Path:
    return run_dir / "log" / f"process_{process_index:05d}.jsonl"


class RunLog:
    """Appender of events to the log of one process; safe to use from several threads.

    Attributes:
      attempt: Number of this attempt.
      events: Events of all attempts so far, condensed: enough for a summary.
      faults: Faults of the lines that the log had when it was opened.
    """

    def __init__(self, path: Path, clock: RunClock):
        """Lock or make the log and start an attempt; `RunError` if another process has it open."""
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._fd = -1
        try:
            self._fd = records.open_append(path)
            # The kernel frees the lock however the process dies: no stale lock blocks a restart.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(self._fd).st_size
            # A killed attempt may have left half a line.
            self._at_line_start = size == 0 or os.pread(self._fd, 1, size - 1) == b"\n"
            lines, self.faults = _read_lines(path)
            earlier = with_past(lines)
        except BlockingIOError:
            raise RunError(
                f"{path} is in use: another job runs in this run directory; wait for it to end "
                "or choose another --run_dir"
            ) from None
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}") from None
        self.attempt = max((event["attempt"] for event in earlier), default=0) + 1
        self.events = condense(earlier)
        self._sequence = max((event["sequence"] for event in lines), default=0)
        self._number = self.attempt  # in `events`, where a past may come before this attempt

    def append(self, event: str, *, durable: bool = False, **fields: Any) -> None:
        """Write one event, one of `EVENTS`.

        Args:
          durable: Wait until the line is on disk, for events that a power failure must not lose.
          **fields: JSON values; NaN and infinities become text, passwords and tokens are dropped.

        Raises:
          RunError: The line could not be written whole, such as on a full disk. Earlier lines stay
            valid and a later call may succeed.
        """
        missing = [name for name in EVENTS[event] if name not in fields]
        if missing:
            raise ValueError(f"event {event!r} lacks {missing}")
        fields = without_secrets(_finite(fields))
        with self._lock:
            if self._fd < 0:
                return
            # Stamped here, so that lines are in the order of their times.
            record = {"event": event, "attempt": self.attempt, "sequence": self._sequence + 1}
            record |= self._clock.moment() | fields
            line = encode_line(record)
            # A torn line before this one is ended first, so that it spoils itself alone.
            data = line if self._at_line_start else b"\n" + line
            written = 0
            try:
                while written < len(data):
                    written += os.write(self._fd, data[written:])
                self._sequence += 1
                if durable:
                    os.fsync(self._fd)
            except OSError as error:
                if 0 < written < len(data):
                    written -= self._take_back(written)
                raise RunError(
                    f"cannot write {self.path}: {error.strerror}; what is written stays valid: "
                    "make room and run the same command again to resume"
                ) from None
            finally:
                if written:
                    self._at_line_start = data[written - 1 : written] == b"\n"
            # A past renumbers the attempts, so the condensed events are made anew.
            if record.get("past"):
                self.events = condense(read_events(self.path)[0])
                self._number = self.events[-1]["attempt"]
            else:
                _append_condensed(self.events, {**record, "attempt": self._number})

    def _take_back(self, num_bytes: int) -> int:
        """Cut off the start of a line that did not fit; return the number of bytes cut."""
        try:
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - num_bytes)
        except OSError:
            return 0  # the next line ends it, and readers see it as damaged
        return num_bytes

    def sync(self) -> None:
        """Wait until all lines so far are on disk; other threads may write meanwhile."""
        with self._lock:
            if self._fd < 0:
                return
            # A duplicate, so that other threads may append or close the log during the wait.
            fd = os.dup(self._fd)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the file and release the lock; later events are dropped."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def condense(events: Iterable[Event]) -> list[Event]:
    """Merge each attempt's heartbeats into the last one, and so its train events and losses.

    The summary stays the same. A run of a day has 170,000 such events.
    """
    kept: list[Event] = []
    for event in events:
        _append_condensed(kept, event)
    return kept


def _append_condensed(kept: list[Event], event: Event) -> None:
    if event["event"] in CONDENSED:
        for index in range(len(kept) - 1, -1, -1):
            before = kept[index]
            # The steps of two stages are not alike: each keeps its own.
            if before["attempt"] != event["attempt"] or before["event"] == "stage":
                break
            if before["event"] == event["event"]:
                del kept[index]
                event = {**event, **_sums(before, event)}
                break
    kept.append(event)


def _sums(before: Event, event: Event) -> Event:
    """Fields of two events of one kind that are added up."""
    if event["event"] == "train":
        return {"steps": before["steps"] + event["steps"]}
    if event["event"] == LOSSES:
        names = ("at_steps", "losses", "gradient_norms")
        return {name: before.get(name, []) + event[name] for name in names if name in event}
    return {}


def encode_line(record: dict[str, Any]) -> bytes:
    """Event as one line that ends with the CRC-32 of the text before it."""
    # Without the closing brace, which follows the checksum.
    body = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()[:-1]
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)


_CRC_LENGTH = len(b',"crc32":"00000000"}')


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Event of a line without its newline; None if it is torn or damaged."""
    body, tail = line[:-_CRC_LENGTH], line[-_CRC_LENGTH:]
    if tail != b',"crc32":"%08x"}' % zlib.crc32(body):
        return None
    try:
        record = records.load_json(body + b"}", with_nan=True)
    except ValueError:
        return None
    # A checksum proves no author: a forged line has a valid one too.
    return record if _is_event(record) else None


def read_events(path: Path) -> tuple[list[Event], list[LineFault]]:
    """Read a log.

    Returns:
      The events in the order written, each once, and the faults of the lines. A past from a
      checkpoint fills what the log had lost; a `lost` event stands where lines are missing. A torn
      line, which a kill or a full disk leaves, harms no other line.

    Raises:
      RunError: The file cannot be read, or is of another version of this format.
    """
    events, faults = _read_lines(path)
    return with_past(events), faults


def _read_lines(path: Path) -> tuple[list[Event], list[LineFault]]:
    events: list[Event] = []
    faults: list[LineFault] = []
    lines: list[Line] = []
    num_damaged = kept_marks = passing_marks = last = 0
    try:
        for number, line in enumerate(records.lines(path, MOST_BYTES, MOST_LINE_BYTES), start=1):
            event = decode_line(line.rstrip(b"\n"))
            if event is None and not line.strip():
                continue
            lines.append(Line(number, event, line.endswith(b"\n")))
            if event is None:
                num_damaged += 1
                if num_damaged > MOST_DAMAGED_LINES:
                    raise records.BoundError(f"{MOST_DAMAGED_LINES:,} lines or more are damaged")
            elif event["event"] in CONDENSED:
                passing_marks += records.count_marks(line)
            else:
                kept_marks += records.count_marks(line)
            if kept_marks > MOST_MARKS:
                raise records.BoundError(f"its first {number:,} lines have more than is read")
            if passing_marks > MOST_MARKS and event is not None:
                # More than a day of heartbeats: the lines so far become few events.
                ordered, wrong = in_sequence(lines, last)
                last = max([last, *(line.event["sequence"] for line in lines if line.event)])
                events, faults = condense(events + ordered), faults + wrong
                lines, passing_marks = [], 0
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except records.BoundError as error:
        raise RunError(f"cannot read {path}: {error}") from None
    ordered, wrong = in_sequence(lines, last)
    events, faults = events + ordered, faults + wrong
    for event in events:
        if event["event"] == "attempt_start" and event["schema_version"] != SCHEMA_VERSION:
            raise RunError(
                f"{path} is a log of schema {event['schema_version']!r} and this version reads "
                f"{SCHEMA_VERSION}: read it with the version of dawnjax that wrote it"
            )
    return events, faults


class _Moment(TypedDict):
    """Fields of every event, and the optional ones that code counts with."""

    event: str
    attempt: int
    t: float
    sequence: int
    step: NotRequired[int]
    steps: NotRequired[int]
    status: NotRequired[str]
    at_steps: NotRequired[list[int]]
    losses: NotRequired[list[float | str]]
    gradient_norms: NotRequired[list[float | str]]


def _is_event(record: Any) -> bool:
    if not is_moment(record) or any(name not in record for name in EVENTS[record["event"]]):
        return False
    past = record.get("past")
    return past is None or (isinstance(past, list) and all(map(is_moment, past)))


def is_moment(record: Any) -> bool:
    """True if a value is an event of an attempt at a time, with numbers for its steps."""
    try:
        return records.convert(record, _Moment, others=True)["event"] in EVENTS
    except records.FieldError:
        return False


def _finite(value: Any) -> Any:
    """Value with NaN, Infinity and -Infinity as text, since JSON has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
