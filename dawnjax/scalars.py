"""Scalars for TensorBoard, beside the log; nothing reads them back."""

from pathlib import Path


class ScalarWriter:
    """Writes `phase/quantity` scalars by step; with no directory it writes nothing."""

    def __init__(self, directory: Path | None):
        """Opens an event file in the directory, which may hold those of earlier attempts."""
        self._writer = None
        if directory is not None:
            # Imported here: only the first process writes, and only if asked to.
            import tensorboardX

            self._writer = tensorboardX.SummaryWriter(str(directory), flush_secs=10)

    def write(self, step: int, scalars: dict[str, float]) -> None:
        """Adds scalars at a step."""
        if self._writer is not None:
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is buffered."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
