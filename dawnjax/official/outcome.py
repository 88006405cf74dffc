"""Outcome of an import: entries, and a line for everything left out."""

import contextlib
import dataclasses
from collections.abc import Iterator

from dawnjax.errors import RunError
from dawnjax.trials.checks import check
from dawnjax.trials.group import Entry


class Refused(Exception):
    """A file that would yield a wrong number, or none.

    `line` counts from 1 and is None for a fault of the whole file. `file` is empty for the file
    being read.
    """

    def __init__(self, reason: str, line: int | None = None, file: str = ""):
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.file = file

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        return f"{printable(self.file)}{line}: {self.reason}"


class SourceRefused(Refused):
    """A whole folder or archive: part of it would leave entries with some of their trials."""


@contextlib.contextmanager
def of_file(file: str) -> Iterator[None]:
    """Give a refusal that names no file the name of the file being read."""
    try:
        yield
    except Refused as refused:
        refused.file = refused.file or file
        raise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Imported:
    """Outcome of an import.

    Attributes:
      rejections: Files left out, with reasons.
      other_files: Files whose names are not those of results, in order.
    """

    entries: tuple[Entry, ...]
    rejections: tuple[Refused, ...]
    other_files: tuple[str, ...] = ()


def without_damaged(imported: Imported) -> Imported:
    """Reject the entries of an import that `check` refuses, so that the rest can be read."""
    sound: list[Entry] = []
    rejections = list(imported.rejections)
    for entry in imported.entries:
        try:
            check(entry)
            sound.append(entry)
        except RunError as error:
            rejections.append(Refused(printable(str(error)), file=entry.source))
    return dataclasses.replace(imported, entries=tuple(sound), rejections=tuple(rejections))


def printable(text: str, limit: int = 300) -> str:
    """One line of printable characters from an untrusted text, cut at a length."""
    line = " ".join(str(text[: 4 * limit]).split())
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def quoted(value: object) -> str:
    """A file's value for a message: short and printable."""
    if isinstance(value, dict | list):
        return f"a {'list' if isinstance(value, list) else 'object'}"  # may be nested deeply
    return repr(printable(str(value), 60))
