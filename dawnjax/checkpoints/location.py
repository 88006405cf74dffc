"""The directory of checkpoints: checks that it is writable, reachable and shared by all hosts."""

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

import jax

from dawnjax import records
from dawnjax.checkpoints.agreement import Assent, RefusedError, from_process_zero
from dawnjax.checkpoints.bucket import is_bucket, reason_of, refuse_unwritable_bucket
from dawnjax.checkpoints.manifest import one_line
from dawnjax.errors import CheckpointError, ConfigError, RunError

if TYPE_CHECKING:
    from etils import epath

VISIBLE_WITHIN_SECONDS = 10.0
"""How late a network file system may show a new file to other hosts."""


def refuse_unwritable(directory: str) -> None:
    """Make a directory, or refuse by a ConfigError one in which no checkpoint could be saved."""
    if is_bucket(directory):
        refuse_unwritable_bucket(directory)
        return
    try:
        try_to_write(directory)
    except OSError as error:
        raise ConfigError(
            f"checkpoints cannot be written to {directory}: {one_line(error)}; choose another "
            "--checkpoint.directory"
        ) from None


def try_to_write(directory: str) -> None:
    """Make a local directory, and a folder in it for a moment, as a save does."""
    os.makedirs(directory, exist_ok=True)
    # A folder and not a file: Orbax begins a save with one. A drawn name keeps two runs apart.
    folder = os.path.join(directory, f".writable-{secrets.token_hex(8)}")
    os.mkdir(folder)
    os.rmdir(folder)


def check_reachable(directory: "epath.Path") -> None:
    """Refuse a bucket that does not answer, by a CheckpointError that says why."""
    try:
        directory.exists()
    except Exception as error:  # Of whichever package asks the store.
        reason = reason_of(error, str(directory))
        raise CheckpointError(f"cannot reach {directory}: {reason}") from error


def check_shared(directory: "epath.Path") -> None:
    """Refuse, by a CheckpointError, a directory that not all processes see; all must call it."""

    def put_mark() -> str:
        mark = f".shared-{secrets.token_hex(8)}"
        try:
            records.write(Path(directory) / mark, b"")
        except RunError as error:
            raise CheckpointError(str(error)) from None
        return mark

    mark = directory / from_process_zero(put_mark)
    assent = Assent()
    # A network file system may show a new file late: poll before refusing.
    deadline = time.monotonic() + VISIBLE_WITHIN_SECONDS
    while not (seen := mark.exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        assent.give("" if seen else "it does not see the directory of process 0")
    except RefusedError as error:
        raise CheckpointError(
            f"checkpoints need a directory that all processes share, such as gs://BUCKET/PATH "
            f"or a network file system, and {directory} is not one: {error}"
        ) from None
    finally:
        if jax.process_index() == 0:
            mark.unlink(missing_ok=True)
