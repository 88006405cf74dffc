"""Directory of a run: its record, log, checkpoints, scalars and result."""

import dataclasses
import hashlib
import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.runs.log import SCHEMA_VERSION, Event, log_path, read_events


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """Paths of one run's files."""

    path: Path

    @property
    def experiment_file(self) -> Path:
        """The experiment's file: written once, before anything else."""
        return self.path / "experiment.json"

    @property
    def result_file(self) -> Path:
        """The result's file: written at the end of each attempt."""
        return self.path / "result.json"

    @property
    def checkpoints(self) -> Path:
        """Folder of the saved states, one folder per step."""
        return self.path / "checkpoints"

    @property
    def profile(self) -> Path:
        """Folder of the profiles."""
        return self.path / "profile"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"


def names_a_file(text: str) -> bool:
    """True if a user's name is safe as the name of a file or folder."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", text) is not None


def check_name(where: str, name: str) -> None:
    """Refuse a user's name that is not safe as that of a file, by the place that has it."""
    if not names_a_file(name):
        raise ConfigError(
            f"{where}={name[:200]!r} must be up to 80 letters, digits, '_', '.' and '-', and begin "
            "with a letter or digit: it names a file"
        )


RECORD_TYPE = "record_mode"
"""Kind by which a file of `dawnjax record` identifies itself."""

RECORD_FILE = (
    "this is a file of `dawnjax record`, not a run: its training time is not a time to accuracy"
)


def is_record_file(path: Path) -> bool:
    """True if `dawnjax record` wrote the file; no other command reads one."""
    try:
        with records.open_plain(path) as file:  # archives of results may be large
            if file.read(1) != b"{":
                return False
        return records.read_json(path, dict[str, Any]).get("record_type") == RECORD_TYPE
    except (OSError, ValueError):
        return False


def new_run_id(experiment_name: str, seed: int) -> str:
    """Unique name: experiment, seed, time (UTC) and a random end."""
    # UTC, so that names sort by time across machines.
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{experiment_name}-s{seed}-{moment}-{secrets.token_hex(2)}"


def read_existing(path: Path) -> dict[str, Any]:
    """Read `experiment.json` of a run that there is; `ConfigError` if there is none."""
    record = read_record(RunDirectory(path))
    if record is not None:
        return record
    if is_record_file(path):
        raise ConfigError(f"{path}: {RECORD_FILE}")
    if not path.exists():
        raise ConfigError(f"{path} is not a run directory: it does not exist")
    raise ConfigError(f"{path} is not a run directory: it has no experiment.json")


def read_record(directory: RunDirectory) -> dict[str, Any] | None:
    """Read `experiment.json`; None without a run, `ConfigError` for damage or any other content."""
    file = directory.experiment_file
    if not file.exists():
        return None
    try:
        record = records.read_json(file, dict[str, Any])
        if record.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"schema_version is not {SCHEMA_VERSION}")
        records.convert(record, _Record, others=True)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read {file} ({error}); restore it or choose another --run_dir"
        ) from None
    return record


def read_events_of(path: Path, record: dict[str, Any]) -> list[Event]:
    """Events of a run's log; `RunError` for a log of another run, or one that cannot be read."""
    log = log_path(path)
    events = read_events(log)
    refuse_other_log(log, record, events)
    return events


def refuse_other_log(log: Path, record: dict[str, Any], events: Sequence[Event]) -> None:
    """Refuse, by a RunError, a log of another run than `experiment.json`."""
    for event in events:
        if event["event"] not in ("attempt_start", "experiment"):
            continue
        for name in ("run_id", "identity", "seed"):
            if event.get(name, record[name]) != record[name]:
                raise RunError(
                    f"{log} is the log of another run: experiment.json says "
                    f"{name}={record[name]!r}, the log {event[name]!r}"
                )


class _Text(TypedDict):
    name: str
    sha256: str
    text: str


class _Source(_Text):
    modules: NotRequired[list[_Text]]


class _Settings(TypedDict):
    numbers: dict[str, Any]
    others: dict[str, Any]


class _Record(TypedDict):
    """Fields that every `experiment.json` has; `source` only if the experiment came from a file."""

    run_id: str
    experiment: dict[str, Any]
    seed: int
    identity: str
    identity_fields: dict[str, Any]
    source: NotRequired[_Source | None]
    settings: NotRequired[_Settings]


def texts_of(source: dict[str, Any] | None) -> dict[str, dict[str, str]]:
    """Texts of a record's `source`, the file's and its modules', by name."""
    return {item["name"]: item for item in [source, *source.get("modules", ())]} if source else {}


def changed_texts(then: dict[str, Any] | None, now: dict[str, Any] | None) -> list[str]:
    """Names of the texts that two records of one experiment hold otherwise."""
    old, new = texts_of(then), texts_of(now)
    names = old.keys() | new.keys() if old and new else ()
    return sorted(n for n in names if old.get(n, {}).get("sha256") != new.get(n, {}).get("sha256"))


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_other_run(directory: RunDirectory, record: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse a run directory of another experiment, seed or arithmetic; `ConfigError` names the
    difference.
    """
    refuse_other_settings(record, new, str(directory.path))
    shown = different_fields(record, new)
    if shown:
        raise ConfigError(
            f"{directory.path} belongs to another run: {shown}; choose another --run_dir"
        )


def different_fields(record: dict[str, Any], new: dict[str, Any]) -> str:
    """Seed and fields of the identity in which two `experiment.json` differ, in words."""
    then, now = ({"seed": r["seed"], **flatten(r["identity_fields"])} for r in (record, new))
    names = sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))
    code = [name.removeprefix("code.") for name in names if name.startswith("code.")]
    if code and len(code) == len(names):
        who = ", ".join(code[:3])
        return f"the code of {who} has changed; its experiment.json keeps the old text"
    shown = ", ".join(
        f"{name} is {then.get(name, 'absent')!r} there and {now.get(name, 'absent')!r} here"
        for name in names[:3]
    )
    return shown + (f" (and {len(names) - 3} more)" if len(names) > 3 else "")


def refuse_other_settings(record: dict[str, Any], new: dict[str, Any], where: str) -> None:
    """Refuse settings of JAX or XLA that can change the numbers and that a run was not begun with.

    Nothing is refused where one of both does not say them.
    """
    if "settings" not in record or "settings" not in new:
        return
    then, now = record["settings"]["numbers"], new["settings"]["numbers"]
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            values = (repr(side[name]) if name in side else "not set" for side in (then, now))
            raise ConfigError(
                "{}: {} was {} when the run began and is {} now, which can change its numbers; "
                "set it as it was, or choose another --run_dir".format(where, name, *values)
            )


def flatten(fields: Any, prefix: str = "") -> dict[str, Any]:
    """Nested JSON as one dict from dotted names to leaves."""
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
