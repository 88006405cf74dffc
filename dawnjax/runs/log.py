"""The event log of a run: the only truth about it.

Process 0 appends to `log.jsonl` in the run directory, one JSON object a line. An attempt is one
process lifetime; attempts of one trial follow each other in the file. A killed process may leave
half a line at the end, which every reader drops.

Every event has:
  event: Its name, one of `EVENTS`.
  attempt: The attempt that wrote it, counted from 1.
  t: Seconds since that process's program started, from a clock that only goes forward.
  boot_seconds: The machine's clock since boot, which no one sets; null where there is none.
  unix_seconds: The wall clock, for people; no duration is computed from it where the machine's
    own clock is known.
"""

import contextlib
import json
import math
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.runs.clock import RunClock
from dawnjax.text import without_secrets

SCHEMA_VERSION = 2

Event = dict[str, Any]
"""A line of a log, decoded."""

LOSSES = "losses"
"""The event with the training losses of some steps."""

EVENTS = {
    "attempt_start": ("schema_version", "run_id", "boot_id", "versions"),
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
    "generation": ("step", "number", "figures"),
    "evaluation": ("step", "epoch", "metrics", "reached"),
    "checkpoint": ("step",),
    "host_sample": ("cpu_seconds", "memory_bytes"),
    "host_summary": ("hosts",),
    "slow_host": ("host", "step", "seconds_per_step"),
    "diverged": ("step",),
    "work": ("num_params", "flops_per_example"),
    "warning": ("message",),
    "trained": ("status", "step"),
    "attempt_end": ("status", "step"),
}
"""The events, each with the fields that it always has."""

MOST_BYTES = 2**30
MOST_LINE_BYTES = 64 * 2**20
"""Limit of a log and of its longest line. A day's run writes 34 MB, nearly all heartbeats."""

MOST_MARKS, BYTES_A_MARK = 3_000_000, 6
"""Of all events that are kept, and how many bytes our own events have for each. Longer logs may
have more, but not denser."""


def log_path(run_dir: Path) -> Path:
    return run_dir / "log.jsonl"


class RunLog:
    """Appender of events; safe to use from several threads. Without a path it writes nothing.

    Attributes:
      attempt: Number of this attempt.
      is_locked: Whether no other process can write; False on a file system without locks.
    """

    def __init__(self, path: Path | None, clock: RunClock):
        """Lock or make the log and start an attempt; `RunError` if another process has it open."""
        self.path = path or Path(os.devnull)
        self._clock, self._lock, self._fd = clock, threading.Lock(), -1
        self.attempt, self.is_locked = 1, True
        if path is None:
            return
        try:
            self._fd = records.open_append(path)
            self.is_locked = records.lock(self._fd)
        except BlockingIOError:
            self.close()
            raise RunError(
                f"{path} is in use: another job runs in this run directory; wait for it to end "
                "or choose another --run_dir"
            ) from None
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}") from None

    def earlier(self, saved: str) -> tuple[list[Event], bool]:
        """Events of earlier attempts, and True if their end was lost and written back.

        Args:
          saved: The text that the newest checkpoint keeps; empty without one. It is written back
            where the file was lost or ends before it.

        Raises:
          RunError: A line is damaged, or file and checkpoint are of different logs.
        """
        known = saved.encode()
        try:
            text = self.path.read_bytes()
            text = text[: text.rfind(b"\n") + 1]  # a kill may have torn the last line
            if not (text.startswith(known) or known.startswith(text)):
                raise RunError(
                    f"{self.path} is not the log that the checkpoints hold; put that back, or "
                    "delete it, and it is written back from the newest checkpoint"
                )
            os.ftruncate(self._fd, len(text))
            os.write(self._fd, known[len(text) :])  # what a lost disk took
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}") from None
        events = read_events(self.path)
        self.attempt = max((event["attempt"] for event in events), default=0) + 1
        return events, len(known) > len(text)

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
            record = {"event": event, "attempt": self.attempt, **self._clock.moment(), **fields}
            size, data = os.fstat(self._fd).st_size, encode_line(record)
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
                if durable:
                    os.fsync(self._fd)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, size)  # of half a line, nothing stays
                raise RunError(
                    f"cannot write {self.path}: {error.strerror}; what is written stays valid: "
                    "make room and run the same command again to resume"
                ) from None

    def text(self) -> str:
        """The log so far; empty without a file."""
        with self._lock:  # or half of a line that another thread writes
            return self.path.read_text() if self._fd >= 0 else ""

    def close(self) -> None:
        """Close the file and release the lock; later events are dropped."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def encode_line(record: Event) -> bytes:
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read_events(path: Path) -> list[Event]:
    """Read a log: its events in the order written, of heartbeats in a row the last.

    Raises:
      RunError: The file cannot be read, is of another version of this format, or a line other than
        the last is damaged: no time can be computed from what is left.
    """
    try:
        return _events_in(records.lines(path, MOST_BYTES, MOST_LINE_BYTES), path)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except records.BoundError as error:
        raise RunError(f"cannot read {path}: {error}") from None


def _events_in(lines: Iterable[bytes], path: Path) -> list[Event]:
    events: list[Event] = []
    marks = num_bytes = 0
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break  # a kill may have torn the last line
        event = _decoded(line)
        if event is None:
            raise RunError(
                f"{path}: line {number} is damaged, and no time can be computed from the rest; "
                "restore a copy of the log"
            )
        version = event.get("schema_version", SCHEMA_VERSION)
        if event["event"] == "attempt_start" and version != SCHEMA_VERSION:
            raise RunError(
                f"{path} is a log of schema {version!r} and this version reads "
                f"{SCHEMA_VERSION}: read it with the version of dawnjax that wrote it"
            )
        if events and event["event"] == "host_sample" == events[-1]["event"]:
            events.pop()  # a run of a day has 80,000 heartbeats
        marks, num_bytes = marks + records.count_marks(line), num_bytes + len(line)
        if marks > max(MOST_MARKS, num_bytes // BYTES_A_MARK):
            raise records.BoundError(f"{marks:,} values up to line {number} are too many to read")
        events.append(event)
    return events


def _decoded(line: bytes) -> Event | None:
    try:
        record = records.load_json(line)
        records.convert(record, _Moment, others=True)
    except ValueError:
        return None
    return record if all(name in record for name in EVENTS.get(record["event"], ("",))) else None


class _Moment(TypedDict):
    """Fields of every event, and the optional ones that code counts with."""

    event: str
    attempt: int
    t: float
    step: NotRequired[int]
    steps: NotRequired[int]
    status: NotRequired[str]
    at_steps: NotRequired[list[int]]
    losses: NotRequired[list[float | str]]
    gradient_norms: NotRequired[list[float | str]]


def _finite(value: Any) -> Any:
    """Value with NaN, Infinity and -Infinity as text, since JSON has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
