"""The directory of a run: its record, log, checkpoints, scalars and result."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import secrets
import time
import tokenize
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.runs.log import SCHEMA_VERSION


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """The files of one run.

    Attributes:
      path: The directory.
    """

    path: Path

    @property
    def experiment_file(self) -> Path:
        """What is run: written once, before anything else."""
        return self.path / "experiment.json"

    @property
    def result_file(self) -> Path:
        """What came out: written at the end of each attempt."""
        return self.path / "result.json"

    @property
    def checkpoints(self) -> Path:
        """The saved states, one folder a step."""
        return self.path / "checkpoints"

    @property
    def profile(self) -> Path:
        """The profiles, one folder a process."""
        return self.path / "profile"

    @property
    def tensorboard(self) -> Path:
        """The scalars for TensorBoard."""
        return self.path / "tensorboard"


def names_a_file(text: str) -> bool:
    """Tells whether a name that a user chose is safe as the name of a file or folder."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", text) is not None


RECORD_TYPE = "record_mode"
"""What a file of `dawnjax record` calls itself."""

RECORD_FILE = (
    "this is a file of `dawnjax record`, not a run: its training time is not a time to accuracy"
)


def is_record_file(path: Path) -> bool:
    """Tells whether `dawnjax record` wrote a file; no other command reads one."""
    try:
        with records.open_plain(path) as file:  # archives of results may be large
            if file.read(1) != b"{":
                return False
        return records.load_json(read_plain(path)).get("record_type") == RECORD_TYPE
    except (OSError, ValueError, AttributeError):
        return False


LARGEST_BYTES = 16 * 2**20
"""Of a JSON file in a run directory, beside its log."""


def read_plain(path: Path) -> bytes:
    """Reads a JSON file of a run directory.

    Raises:
      BoundError: It is too large, or no plain file.
      OSError: It cannot be read.
    """
    return records.read_plain(path, LARGEST_BYTES)


def new_run_id(experiment_name: str, seed: int) -> str:
    """Makes a name that no other run has: experiment, seed, time (UTC) and a random end."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{experiment_name}-s{seed}-{moment}-{secrets.token_hex(2)}"


def read_record(directory: RunDirectory) -> dict[str, Any] | None:
    """Reads `experiment.json`; None where the directory holds no run yet.

    Raises:
      ConfigError: The directory holds something else, or the file is damaged.
    """
    file = directory.experiment_file
    if not file.exists():
        if directory.path.is_dir():
            # A killed first attempt may leave the log's folder, or a file not yet renamed.
            strangers = [
                p.name
                for p in directory.path.iterdir()
                if p.name not in ("log", "checkpoints") and not p.name.startswith(".")
            ]
            if strangers:
                raise ConfigError(
                    f"{directory.path} holds {min(strangers)!r} but no experiment.json; choose an "
                    "empty or new --run_dir"
                )
        for path in (directory.path, *directory.path.parents):
            if is_record_file(path):
                raise ConfigError(f"{path}: {RECORD_FILE}")
            if path.exists() and not path.is_dir():
                raise ConfigError(f"{path} is no directory; choose another --run_dir")
        return None
    try:
        record = records.load_json(read_plain(file))
        if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"schema_version is not {SCHEMA_VERSION}")
        for name, kind in _RECORD_FIELDS.items():
            if type(record.get(name)) is not kind:
                raise ValueError(f"{name} is no {_KINDS[kind]}" if name in record else f"no {name}")
        if record.get("source") is not None and not _is_source(record["source"]):
            raise ValueError("source is no name, text and sha256 of a file")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read {file} ({error}); restore it or choose another --run_dir"
        ) from None
    return record


_KINDS = {str: "text", int: "whole number", dict: "object"}
_RECORD_FIELDS = {
    "run_id": str,
    "experiment": dict,
    "seed": int,
    "identity": str,
    "identity_fields": dict,
}
"""What every `experiment.json` has, and of which kind."""

LARGEST_SOURCE_BYTES = 10**6
"""Of the text of an experiment's file, which every run keeps."""


def source_of(file: Path) -> dict[str, str]:
    """Reads the file that an experiment came from, for `experiment.json`; runs nothing.

    Returns:
      `name`, `text`, and `sha256`, the hash of the text as UTF-8.

    Raises:
      ConfigError: It cannot be read or is too large.
    """
    try:
        data = file.read_bytes()
        text = data.decode(tokenize.detect_encoding(io.BytesIO(data).readline)[0])
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"cannot read the experiment file {file}: {error}") from None
    if len(data) > LARGEST_SOURCE_BYTES:
        raise ConfigError(
            f"the experiment file {file} has {len(data):,} bytes; a run keeps the text of one of "
            f"at most {LARGEST_SOURCE_BYTES:,}: move what is large to a file that it reads"
        )
    return {"name": file.name, "sha256": hash_of(text), "text": text}


def hash_of(text: str) -> str:
    """SHA-256 of a text as UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


MOST_FOLDERS = 200
"""Inside each other; Python makes a folder and those above it by calls inside each other."""


def refuse_unusable_path(path: Path) -> None:
    """Refuses a path under which Orbax saves checkpoints that nobody can read.

    It hands a path on as UTF-8, so that every save of one with other bytes would fail. And it takes
    a path for a pattern when it joins a checkpoint's parts, so that it would find none of them.

    Raises:
      ConfigError: Shows the path, and what makes it usable.
    """
    shown = str(path.absolute())
    try:
        shown.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{shown} has bytes that are no characters in this locale; set LC_ALL=C.UTF-8 or "
            "PYTHONUTF8=1, or choose another --run_dir"
        ) from None
    if len(path.absolute().parts) > MOST_FOLDERS:
        raise ConfigError(
            f"{shown[:100]}... is more than {MOST_FOLDERS} folders deep; choose another --run_dir"
        )
    patterns = sorted(set("[]*?") & set(shown))
    if patterns:
        raise ConfigError(
            f"{shown} has {' and '.join(patterns)} in it, which Orbax takes for a pattern: its "
            "checkpoints could not be read; choose another --run_dir or --checkpoint.directory"
        )


def _is_source(value: Any) -> bool:
    names = ("name", "sha256", "text")
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in names)


def refuse_other_run(directory: RunDirectory, record: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuses a run directory that belongs to another experiment or seed.

    Args:
      directory: The directory.
      record: Its `experiment.json`.
      new: The record of the run that is asked for.

    Raises:
      ConfigError: Names what differs.
    """
    old_fields = {"seed": record["seed"], **flatten(record["identity_fields"])}
    new_fields = {"seed": new["seed"], **flatten(new["identity_fields"])}
    if old_fields == new_fields:
        return
    names = sorted(
        name
        for name in old_fields.keys() | new_fields.keys()
        if old_fields.get(name) != new_fields.get(name)
    )
    shown = ", ".join(
        f"{name} is {old_fields.get(name, 'absent')!r} there and "
        f"{new_fields.get(name, 'absent')!r} here"
        for name in names[:3]
    )
    more = f" (and {len(names) - 3} more)" if len(names) > 3 else ""
    raise ConfigError(
        f"{directory.path} belongs to another run: {shown}{more}; choose another --run_dir"
    )


def flatten(fields: Any, prefix: str = "") -> dict[str, Any]:
    """Flattens nested JSON into one dict from dotted names to leaves."""
    if isinstance(fields, dict):
        items = fields.items()
    elif isinstance(fields, list) and any(isinstance(item, dict) for item in fields):
        items = enumerate(fields)
    else:
        return {prefix: fields}
    flat: dict[str, Any] = {}
    for name, value in items:
        flat |= flatten(value, f"{prefix}.{name}" if prefix else str(name))
    return flat


def write_json(file: Path, value: Any) -> None:
    """Writes a file whole or not at all: a reader sees the old content or the new.

    Raises:
      RunError: It cannot be written; what was there stays.
    """
    # Pods that share a disk may all be process 1, so the name is drawn.
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w") as stream:
            json.dump(value, stream, indent=2, allow_nan=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    except (OSError, ValueError) as error:  # a forged log may hold a NaN
        with contextlib.suppress(OSError):  # nor can it be where there is no such folder
            temporary.unlink()
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write {file}: {reason}; what was there stays") from None
