"""Scalars for TensorBoard, beside the log; nothing reads them back."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ScalarWriter:
    """Writer of `phase/quantity` scalars by step, until it fails."""

    def __init__(self, directory: Path | None, warn: Callable[[str], None]):
        """Open an event file in `directory`, if any; `warn` is called once when writing fails."""
        self._writer = None
        self._warn = warn
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
        from tensorboardX.proto import event_pb2

        # The class is made from a descriptor at run time, so a type checker does not see it.
        make_event = getattr(event_pb2, "Event")  # noqa: B009
        event = make_event(wall_time=time.time(), step=step)
        for name, value in scalars.items():
            event.summary.value.add(tag=name, simple_value=value)
        try:
            self._writer.write_event(event)
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Write the buffered scalars; a second call does nothing."""
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
