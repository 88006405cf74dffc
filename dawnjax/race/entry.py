"""An entry: a folder with a recipe or a program, and its source.

    entry.json       an `Entry`, with the hash of each file of the source
    source/NAME.py   the recipe's file, or `run.py` of a program, and the modules that it imports
    README.md        optional, for people

The folder is untrusted: it is read within limits, and no link in it is followed.
"""

import dataclasses
import hashlib
import json
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.runs.directory import names_a_file

SCHEMA_VERSION = 3

ENTRY_FILE = "entry.json"
SOURCE = "source"
PROGRAM = "run.py"
"""Main file of an entry that is not a recipe."""

VERDICTS = "verdicts"
"""Folder of the judge's verdicts, beside the entries."""

MOST_FILES = 1000
"""Limit of the files and folders of an entry, and of the entries of a folder."""

MOST_BYTES = 2**20
"""Limit of an entry's files together."""

_ALLOWED = re.compile(r"entry\.json|README\.md|source/(?:[A-Za-z0-9_-]+/){0,8}[A-Za-z0-9_-]+\.py")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """Content of `entry.json`.

    Attributes:
      experiment: The recipe, as a run's `experiment.json` has it, without the place of the data;
        empty for a program.
      source: File within `source` that a run executes; empty if the fields suffice.
      files: SHA-256 of each file of the source, by its path.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    track: str
    date: str
    experiment: dict[str, Any]
    source: str
    files: dict[str, str]

    @property
    def code(self) -> str:
        """Whose code a run executes: `none`, a recipe's `own`, or a `program`."""
        return "program" if not self.experiment else "own" if self.source else "none"

    @property
    def recipe(self) -> str:
        """Hash of what is trained, the subject of a verdict: without names and files that are "
        "not run."""
        fields = {name: value for name, value in self.experiment.items() if name != "name"}
        told = [self.track, fields, [self.source, self.files] if self.source else []]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def read_entry(folder: Path) -> Entry:
    """Read an entry's description, and compare its files with their hashes.

    Raises:
      ConfigError: The entry is incomplete; names the file and the fault.
    """
    file, files = folder / ENTRY_FILE, files_of(folder)
    if ENTRY_FILE not in files:
        raise ConfigError(f"{folder} is not an entry: it has no {ENTRY_FILE}")
    try:
        entry = records.decode(files[ENTRY_FILE], Entry)
    except ValueError as error:
        raise ConfigError(f"{file} is not a description of an entry: {error}") from None
    if entry.schema_version != SCHEMA_VERSION:
        raise ConfigError(f"{file}: schema_version {entry.schema_version} is not {SCHEMA_VERSION}")
    if not names_a_file(entry.name):
        raise ConfigError(f"{file}: name={entry.name[:80]!r} cannot name a file")
    is_there = f"{SOURCE}/{entry.source}" in entry.files
    if not (is_there if entry.source else entry.experiment):
        raise ConfigError(f"{file} is neither a recipe nor a program: source={entry.source[:80]!r}")
    hashes = hashes_of(files)
    for name in sorted(hashes.keys() | entry.files.keys()):
        if hashes.get(name) != entry.files.get(name):
            where = "is not there" if name not in hashes else f"has another hash in {ENTRY_FILE}"
            raise ConfigError(f"{folder}: {name} {where}")
    return entry


def files_of(folder: Path) -> dict[str, bytes]:
    """Contents of an entry's files by their paths in it, `entry.json` too.

    Raises:
      ConfigError: A link, a file that does not belong or cannot be read, or too many files.
    """
    found: dict[str, bytes] = {}
    left = MOST_BYTES
    for number, path in enumerate(_within(folder), 1):
        if number > MOST_FILES:
            raise ConfigError(f"{folder} has more than {MOST_FILES:,} files, too many for an entry")
        status, name = path.lstat(), path.relative_to(folder).as_posix()
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode) or not _ALLOWED.fullmatch(name):
            raise ConfigError(f"{folder}: {name!r} does not belong to an entry; remove it")
        left -= status.st_size
        if left < 0:
            raise ConfigError(f"{folder} has more than {MOST_BYTES:,} bytes, too many for an entry")
        try:
            found[name] = records.read_plain(path, MOST_BYTES)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{folder}: {name} cannot be read: {error}") from None
    return found


def _within(folder: Path) -> Iterator[Path]:
    try:
        for here, folders, files in records.walk(folder):
            yield from (here / name for name in (*folders, *files))
    except records.BoundError as error:
        raise ConfigError(f"{folder} {error}, too deep for an entry") from None


def hashes_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each file of the source, by its path."""
    names = sorted(name for name in files if name.startswith(f"{SOURCE}/"))
    return {name: hashlib.sha256(files[name]).hexdigest() for name in names}


def entries_in(folder: Path) -> list[tuple[Path, Entry]]:
    """Entries of a folder, in the order of their folders.

    Raises:
      ConfigError: It is not a folder, or an entry is damaged.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    files = sorted(folder.glob(f"*/{ENTRY_FILE}"))[:MOST_FILES]
    return [(file.parent, read_entry(file.parent)) for file in files]
