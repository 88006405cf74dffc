"""Scalars for TensorBoard, beside the log; nothing reads them back."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLUSH_SECONDS = 10.0
"""Scalars wait for at most about this long: one takes 50 us to write, on the thread that feeds the
devices, and most runs of a few seconds end before."""


class ScalarWriter:
    """Writer of `phase/quantity` scalars by step, until it fails."""

    def __init__(self, directory: Path | None, warn: Callable[[str], None]):
        """Open an event file in `directory`, if any; `warn` is called once when writing fails."""
        self._writer = None
        self._warn = warn
        self._waiting: list[tuple[float, int, dict[str, float]]] = []
        self._restarts_after: int | None = None
        self._flush_at = time.perf_counter() + FLUSH_SECONDS
        if directory is None:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._writer = _load_writer()(str(directory / "events"))
        except OSError as error:
            self._give_up(error)

    def write(self, step: int, scalars: dict[str, float]) -> None:
        if self._writer is None:
            return
        self._waiting.append((time.time(), step, dict(scalars)))
        if time.perf_counter() > self._flush_at:
            self.flush()

    def restart(self, step: int) -> None:
        """Continue after `step`: TensorBoard drops what an earlier file has of later steps."""
        self._restarts_after = step

    def flush(self) -> None:
        if self._writer is None:
            return
        from tensorboardX.proto import event_pb2

        # The class is made from a descriptor at run time, so a type checker does not see it.
        make_event, log = getattr(event_pb2, "Event"), getattr(event_pb2, "SessionLog")  # noqa: B009
        waiting, self._waiting = self._waiting, []
        self._flush_at = time.perf_counter() + FLUSH_SECONDS
        try:
            if self._restarts_after is not None:
                begun = log(status=log.START)
                first, self._restarts_after = self._restarts_after + 1, None
                self._writer.write_event(
                    make_event(wall_time=time.time(), step=first, session_log=begun)
                )
            for wall_time, step, scalars in waiting:
                event = make_event(wall_time=wall_time, step=step)
                for name, value in scalars.items():
                    event.summary.value.add(tag=name, simple_value=value)
                self._writer.write_event(event)
            self._writer.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Write what waits; a second call does nothing."""
        self.flush()
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.close()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._writer = None
        self._warn(f"no more scalars for TensorBoard: {error.strerror}")


def _load_writer() -> Any:
    """Load tensorboardX's class that writes records, without PyTorch.

    Its SummaryWriter writes from a thread. Once a full disk has killed that thread, the next calls
    block forever.
    """
    modules: dict[str, Any] = sys.modules
    hides = "torch" not in modules
    if hides:
        # tensorboardX loads PyTorch where that is installed: two seconds, for what we do not use.
        modules["torch"] = None
    try:
        from tensorboardX.event_file_writer import EventsWriter
    finally:
        if hides:
            del modules["torch"]
    return EventsWriter
