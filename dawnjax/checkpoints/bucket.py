"""Checkpoints in a bucket: Orbax writes arrays through TensorStore; manifests, listings and
deletions go through etils and the store's package (`gs://`: gcsfs).
"""

import contextlib
import functools
import importlib
import logging
import os
import secrets
from typing import TYPE_CHECKING

from dawnjax.checkpoints.manifest import one_line
from dawnjax.errors import ConfigError

if TYPE_CHECKING:  # With Orbax it takes 0.15 to 0.3 s to import.
    from etils import epath

_RETRIES = {"max_retries": 5, "initial_delay": "1s", "max_delay": "8s"}
"""TensorStore's own would hold a save, and the run at the next one, for a quarter of an hour."""

_PACKAGES = {"gs": "gcsfs", "s3": "s3fs", "az": "adlfs", "hf": "huggingface_hub"}
"""What etils needs for each store."""


def is_bucket(directory: str) -> bool:
    return "://" in directory


def folder_at(directory: str) -> "epath.Path":
    from etils import epath

    if not is_bucket(directory):
        return epath.Path(os.path.abspath(directory))
    _prepare_clients()
    return epath.Path(directory)


def refuse_unwritable_bucket(directory: str) -> None:
    """Refuse a missing or unwritable bucket by a ConfigError; a silent one within half a minute."""
    # A drawn name: several processes may try the same bucket at once.
    object_ = folder_at(directory) / f".writable-{secrets.token_hex(8)}"
    try:
        object_.write_bytes(b"")
        object_.unlink()
    except Exception as error:  # Of whichever package asks the store.
        raise ConfigError(
            f"checkpoints cannot be written to {directory}: {reason_of(error, directory)}; choose "
            "another --checkpoint.directory"
        ) from None


def reason_of(error: Exception, directory: str) -> str:
    store, _, rest = directory.partition("://")
    bucket = rest.partition("/")[0]
    if isinstance(error, ImportError):
        extra = " (pip install -e '.[gcs]')" if store == "gs" else ""
        return f"{store}:// needs the package {_PACKAGES.get(store, 'of that store')}{extra}"
    if isinstance(error, FileNotFoundError):
        return f"there is no bucket {bucket}"
    return one_line(error)


@functools.cache
def _prepare_clients() -> None:
    """Turn off caches of listings, bound retries, and mute errors that are raised anyway."""
    with contextlib.suppress(ImportError):
        from fsspec.config import conf

        for protocol in _PACKAGES:
            # A kept listing misses what TensorStore or another host writes: a manifest made from it
            # would lack files.
            conf.setdefault(protocol, {})["use_listings_cache"] = False
        conf.setdefault("gcs", {})["use_listings_cache"] = False  # gcsfs's own name for gs
    # A version of Orbax that keeps them elsewhere waits longer.
    with contextlib.suppress(ImportError, AttributeError):
        stores = importlib.import_module("orbax.checkpoint._src.serialization.tensorstore_utils")
        for context in (stores._BASE_TS_CONTEXT, stores._DEFAULT_OCDBT_TS_CONTEXT):
            context |= {"gcs_request_retries": _RETRIES, "s3_request_retries": _RETRIES}
    for package in ("gcsfs", "fsspec", "google.auth"):
        logging.getLogger(package).setLevel(logging.CRITICAL + 1)
