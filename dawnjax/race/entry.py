"""An entry: a folder with a recipe's source, the logs of its trials, and what it claims.

    entry.json                              an `Entry`, with the hash of each other file
    source/NAME.py                          the recipe's file and the modules that it imports
    runs/seed_N/experiment.json, log.jsonl  its trials, as run directories that every command reads
    rival/seed_N/experiment.json, log.jsonl those of the record or baseline, on the same machine

The folder is a stranger's: it is listed and read within bounds, and nothing in it is followed.
"""

import dataclasses
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.runs.directory import names_a_file

SCHEMA_VERSION = 1

ENTRY_FILE = "entry.json"
SOURCE, RUNS, RIVAL = "source", "runs", "rival"
VERDICTS = "verdicts"
"""Folder of the judge's verdicts, beside the entries."""

MOST_FILES = 500
MOST_BYTES = 64 * 2**20
"""Of all files of an entry."""

MOST_ENTRIES = 1000
"""Of a folder of entries."""

_ALLOWED = re.compile(
    r"entry\.json|README\.md"
    r"|source/(?:[A-Za-z0-9_-]+/){0,8}[A-Za-z0-9_-]+\.py"
    rf"|(?:{RUNS}|{RIVAL})/seed_[0-9]{{1,10}}/(?:experiment\.json|log\.jsonl)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial by its own log; `quality` is the target's metric at the only evaluation."""

    seed: int
    reached: bool
    seconds: float
    quality: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beside:
    """Trials beside those of a rival, by the project's judge of samples.

    Attributes:
      word: Verdict at the race's level.
      ratio: Expected time over that of the rival, with the ends of the interval.
      p_value: Probability of such a difference between equal sides.
    """

    word: str
    why: str
    ratio: float | None
    low: float | None
    high: float | None
    ends: str
    p_value: float
    is_paired: bool

    def text(self) -> str:
        if self.ratio is None:
            return self.why
        has_ends = self.low is not None and self.high is not None
        ends = f" ({self.ends}: {self.low:.3f} to {self.high:.3f})" if has_ends else ""
        return f"{self.ratio:.3f} of the time{ends}, p {self.p_value:.2g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """Content of `entry.json`.

    Attributes:
      experiment: The recipe, as `experiment.json` has it, without the place of the data.
      options: Run options that can change a time and are not the default.
      source: Main file within `source`; empty where the recipe is flags alone.
      environment: Versions, device, cores.
      rival: What the trials were compared with (`rules.rival_of`).
      files: SHA-256 of each other file, by its path.
    """

    schema_version: int
    name: str
    track: str
    date: str
    experiment: dict[str, Any]
    options: dict[str, Any]
    source: str
    environment: dict[str, str | int | float | None]
    trials: tuple[Trial, ...]
    rivals: tuple[Trial, ...]
    rival: str
    claim: Beside
    files: dict[str, str]


def read_entry(folder: Path) -> Entry:
    """Read an entry's description, within bounds.

    Raises:
      ConfigError: There is none, or it is none; names the folder and the fault.
    """
    file = folder / ENTRY_FILE
    try:
        entry = records.read_json(file, Entry)
    except FileNotFoundError:
        raise ConfigError(f"{folder} is no entry: it has no {ENTRY_FILE}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is no description of an entry: {error}") from None
    if entry.schema_version != SCHEMA_VERSION:
        raise ConfigError(f"{file}: schema_version {entry.schema_version} is not {SCHEMA_VERSION}")
    if not names_a_file(entry.name):
        raise ConfigError(f"{file}: name={entry.name[:80]!r} names no file")
    return entry


def files_of(folder: Path) -> dict[str, Path]:
    """Plain files of an entry by their paths in it, `entry.json` too.

    Raises:
      ConfigError: A link, a file that is not plain or that no entry has, or too many of them.
    """
    found: dict[str, Path] = {}
    size = 0
    for path, status in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if not _ALLOWED.fullmatch(name):
            raise ConfigError(f"{folder}: {name!r} is no file of an entry; take it out")
        size += status.st_size
        found[name] = path
        if len(found) > MOST_FILES:
            raise ConfigError(f"{folder} holds more than {MOST_FILES} files, and no entry does")
        if size > MOST_BYTES:
            raise ConfigError(f"{folder} holds more than {MOST_BYTES:,} bytes, and no entry does")
    return found


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield plain files, depth first; no name is read past the first that is refused."""
    waiting, seen = [folder], 0
    while waiting:
        with os.scandir(waiting.pop()) as items:
            for item in items:
                seen += 1
                if seen > 4 * MOST_FILES:
                    raise ConfigError(
                        f"{folder} holds more than {MOST_FILES} files, and no entry does"
                    )
                status = item.stat(follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    raise ConfigError(f"{item.path} is a link, and an entry has none")
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(Path(item.path))
                elif stat.S_ISREG(status.st_mode):
                    yield Path(item.path), status
                else:
                    raise ConfigError(f"{item.path} is no plain file")


def hashes_of(files: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of each file, by its path in the entry; `ConfigError` if one cannot be read."""
    found = {}
    for name, path in sorted(files.items()):
        try:
            found[name] = hashlib.sha256(records.read_plain(path, MOST_BYTES)).hexdigest()
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from None
    return found


def content_hash(hashes: Mapping[str, str]) -> str:
    """Hash of a whole entry, or of any other files, by their names and hashes."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(hashes.items()))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def entries_in(folder: Path) -> dict[str, tuple[Path, Entry]]:
    """Entries of a folder, by name, in the order of their folders.

    Raises:
      ConfigError: It is no folder, an entry is damaged, or two have one name.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    found: dict[str, tuple[Path, Entry]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_dir() or path.name == VERDICTS:
            continue
        if not (path / ENTRY_FILE).is_file():
            continue
        entry = read_entry(path)
        if entry.name in found:
            raise ConfigError(
                f"two entries are called {entry.name!r}: {found[entry.name][0]} and {path}; "
                "rename one"
            )
        found[entry.name] = path, entry
        if len(found) > MOST_ENTRIES:
            raise ConfigError(f"{folder} holds more than {MOST_ENTRIES:,} entries")
    return found
