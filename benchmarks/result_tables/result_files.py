"""Result files, and the tables that are made from them."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dawnjax.page.table import of_words

RESULTS = Path(__file__).parent.parent / "results"
Record = dict[str, Any]
Rows = list[list[str]]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table made from result files.

    Attributes:
      patterns: Globs of the files, in the order of their rows.
      rows: From the files' names and contents to all rows, the head first; a short row is filled
        up with empty cells.
    """

    patterns: tuple[str, ...]
    rows: Callable[[list[tuple[str, Record]]], Rows]

    def files(self) -> list[Path]:
        """Result files, in the order of `patterns` and then by name."""
        return [file for pattern in self.patterns for file in sorted(RESULTS.glob(pattern))]

    def text(self) -> str:
        """Markdown of the table, and below it the names of its files."""
        files = self.files()
        if self.patterns and not files:
            return "Not yet run."
        records = [(file.stem, json.loads(file.read_text())) for file in files]
        rows = self.rows(records)
        lines = [of_words(rows[0], rows[1:]).to_markdown()]
        if files:
            remarks = [f"`{name}`: {r['note']}" for name, r in records if "note" in r]
            names = ", ".join(f"`{file.name}`" for file in files)
            lines += ["", " ".join([f"From {names}.", *remarks])]
        return "\n".join(lines)


def each(head: str, rows: Callable[[Record], Iterator[list[str]]]) -> Callable:
    """Rows of all files below a head, given as cells between bars."""
    cells = head.split(" | ")
    return lambda files: [cells, *(row for _, record in files for row in rows(record))]
