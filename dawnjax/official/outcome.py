"""The outcome of an import: entries, and a line for everything that was left out."""

import dataclasses

from dawnjax.results.entries import Entry


class Refused(Exception):
    """A file that would yield a wrong number, or none.

    Attributes:
      reason: One line.
      line: The line of the file, from 1; None where the fault is of no line.
      file: The file; empty for the one that is being read.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Imported:
    """The outcome of an import.

    Attributes:
      entries: In the order of their sources.
      rejections: What was not imported, and why.
      copies: A line for each entry that a source before has too; it counts once.
      other_files: Files that are no results by their name, in the order found.
      num_log_bytes: Bytes of the logs that were read.
    """

    entries: tuple[Entry, ...]
    rejections: tuple[Refused, ...]
    copies: tuple[str, ...] = ()
    other_files: tuple[str, ...] = ()
    num_log_bytes: int = 0


def printable(text: str, limit: int = 300) -> str:
    """Makes one line of printable characters of a text from elsewhere, cut at a length."""
    line = " ".join(str(text[: 4 * limit]).split())
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def quoted(value: object) -> str:
    """Quotes a value of a file for a message: short and printable."""
    if isinstance(value, dict | list):
        return f"a {'list' if isinstance(value, list) else 'object'}"  # may be nested deeply
    return repr(printable(str(value), 60))
