"""The directory of checkpoints, local or in a bucket: its path, and whether it can be used."""

import functools
import importlib.util
import logging
import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import jax

from dawnjax import records
from dawnjax.cluster import processes
from dawnjax.errors import CheckpointError, ConfigError, install

if TYPE_CHECKING:  # With Orbax it takes 0.15 to 0.3 s to import.
    from etils import epath

VISIBLE_WITHIN_SECONDS = 10.0
"""How late a network file system may show a new file to other hosts."""

_PACKAGES = {"gs": "gcsfs", "s3": "s3fs", "az": "adlfs", "hf": "huggingface_hub"}
"""What etils needs for each store."""


def folder_at(directory: str) -> "epath.Path":
    from etils import epath

    if "://" not in directory:
        return epath.Path(os.path.abspath(directory))
    _prepare_clients()
    return epath.Path(directory)


def refuse_unwritable(directory: str) -> None:
    """Make a directory, or refuse by a ConfigError one in which no checkpoint could be saved."""
    try:
        write_mark(folder_at(directory)).unlink()
        if "://" not in directory:
            _refuse_without_renames(Path(directory))
    except Exception as error:  # Of whichever package asks the store.
        store, _, rest = directory.partition("://")
        reason = one_line(error)
        if isinstance(error, ImportError):
            extra = f" ({install('gcs')})" if store == "gs" else ""
            reason = f"{store}:// needs the package {_PACKAGES.get(store, 'of that store')}{extra}"
        elif rest and isinstance(error, FileNotFoundError):
            reason = f"there is no bucket {rest.partition('/')[0]}"
        raise ConfigError(
            f"checkpoints cannot be written to {directory}: {reason}; choose another "
            "--checkpoint.directory"
        ) from None


def _refuse_without_renames(directory: Path) -> None:
    """OSError where a folder with a folder in it cannot be renamed: Orbax commits a save so."""
    old, new = (directory / f".mark-{secrets.token_hex(8)}" for _ in range(2))
    try:
        (old / "inside").mkdir(parents=True)
        (old / "inside" / "file").write_bytes(b"")
        old.rename(new)
    except OSError as error:
        if error.errno not in records.CANNOT_RENAME:
            raise
        why = "folders there cannot be renamed, as on a mounted bucket (gs:// needs no mount)"
        raise OSError(error.errno, why) from None
    finally:
        for folder in (old, new):
            shutil.rmtree(folder, ignore_errors=True)


def write_mark(folder: "epath.Path") -> "epath.Path":
    """Make a directory, and an empty file in it with a name that no other process has."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".mark-{secrets.token_hex(8)}"
    mark.write_bytes(b"")
    return mark


def check_shared(folder: "epath.Path") -> None:
    """Refuse, by a CheckpointError, a directory that not all processes see; all must call it."""
    mark = folder / processes.from_first(lambda: write_mark(folder).name)
    deadline = time.monotonic() + VISIBLE_WITHIN_SECONDS
    while not (seen := mark.exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
    blind = [index for index, sees in enumerate(processes.gather(seen)) if not sees]
    if jax.process_index() == 0:
        mark.unlink()
    if blind:
        raise CheckpointError(
            "checkpoints need a directory that all processes share, such as gs://BUCKET/PATH or a "
            f"network file system: process {blind[0]} does not see {folder} of process 0"
        )


def one_line(error: BaseException) -> str:
    """Reason of an error, in the operating system's words where it has any."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if code := re.search(r"os_error_code='(\d+)'", str(error)):  # TensorStore's way to say it.
        return os.strerror(int(code[1]))
    said = str(error).partition(" [http_response_")[0]  # TensorStore appends the whole answer.
    return " ".join(said.split())[:300] or type(error).__name__


@functools.cache
def _prepare_clients() -> None:
    """Turn off caches of listings, and mute errors that are raised anyway."""
    if importlib.util.find_spec("fsspec"):
        from fsspec.config import conf

        for protocol in (*_PACKAGES, "gcs"):  # gcsfs's own name for gs
            # A kept listing misses what TensorStore wrote: a deletion would leave that behind.
            conf.setdefault(protocol, {})["use_listings_cache"] = False
    for package in ("gcsfs", "fsspec", "google.auth"):
        logging.getLogger(package).setLevel(logging.CRITICAL + 1)
