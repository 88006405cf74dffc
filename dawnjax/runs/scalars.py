"""Scalars for TensorBoard, beside the log; nothing reads them back."""

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLUSH_SECONDS = 10.0
"""Scalars wait so long: one takes 50 us to write, on the thread that feeds the devices."""


class ScalarWriter:
    """Writer of `phase/quantity` scalars by step, until it fails."""

    def __init__(self, directory: Path | None, warn: Callable[[str], None]):
        """Open an event file in `directory`, if any; `warn` is called once when writing fails."""
        self._directory, self._warn = directory, warn
        self._writer: Any = None
        self._waiting: list[dict[str, Any]] = []
        self._flush_at = time.perf_counter() + FLUSH_SECONDS

    def write(self, step: int, scalars: dict[str, float]) -> None:
        values = [{"tag": name, "simple_value": value} for name, value in scalars.items()]
        self._add(step=step, summary={"value": values})
        if time.perf_counter() > self._flush_at:
            self.flush()

    def restart(self, step: int) -> None:
        """Continue after `step`: TensorBoard drops what an earlier file has of later steps."""
        self._add(step=step + 1, session_log={"status": 1})  # SessionLog.START

    def _add(self, **event: Any) -> None:
        if self._directory is not None:
            self._waiting.append({"wall_time": time.time(), **event})

    def flush(self) -> None:
        self._flush_at = time.perf_counter() + FLUSH_SECONDS
        waiting, self._waiting = self._waiting, []
        if self._directory is None or not waiting:
            return
        try:
            # tensorboardX loads PyTorch where that is installed: two seconds, for nothing here.
            sys.modules.setdefault("torch", None)  # pyright: ignore[reportArgumentType]
            # Not its SummaryWriter, which blocks forever once a full disk has killed its thread.
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto import event_pb2

            if self._writer is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                self._writer = EventsWriter(str(self._directory / "events"))
            for event in waiting:
                self._writer.write_event(event_pb2.Event(**event))  # pyright: ignore
            self._writer.flush()
        except Exception as error:
            self._directory = self._writer = None
            self._warn(f"no more scalars for TensorBoard: {error}")
        finally:
            if sys.modules.get("torch", "") is None:
                del sys.modules["torch"]

    def close(self) -> None:
        """Write what waits; a second call does nothing."""
        self.flush()
        if self._writer is not None:
            with contextlib.suppress(OSError):  # a full disk
                self._writer.close()
            self._writer = None
