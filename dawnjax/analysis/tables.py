"""The table that every analysis returns: named columns with units, rows of plain values, notes."""

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.text import escaped, spreadsheet_cell

SCHEMA_VERSION = 1

Cell = str | int | float | bool | None

KINDS = ("text", "integer", "number", "fraction", "flag")


@dataclasses.dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
      name: Its key in JSON and its head in CSV, such as `mean_seconds`.
      label: Its head for people, such as `mean`; the name where it is empty.
      unit: Of its numbers, such as `s`, `h`, `USD`; empty where they have none.
      kind: One of `KINDS`; a `fraction` is 0 to 1 (a page may show percent).
    """

    name: str
    label: str = ""
    unit: str = ""
    kind: str = "text"

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"column {self.name!r} is of kind {self.kind!r}; kinds are {KINDS}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of plain values under named columns.

    A cell of a column of numbers is a number, None (not known), or text that says why there is no
    number, such as `not reached`. A number is never NaN or infinite.

    Attributes:
      name: For its file, such as `stability`.
      title: For people.
      columns: From left to right.
      rows: Each as long as `columns`.
      notes: What a reader of the numbers should know.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError(f"table {self.name!r} has two columns of one name: {names}")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name!r} has {len(self.columns)} columns and a row of {len(row)}"
                )
            for column, cell in zip(self.columns, row, strict=True):
                self._check(column, cell)

    def _check(self, column: Column, cell: Cell) -> None:
        if isinstance(cell, float) and not math.isfinite(cell):
            raise ValueError(f"{self.name}.{column.name} is {cell}")
        if column.kind == "text" and not isinstance(cell, str | None):
            raise ValueError(f"{self.name}.{column.name} is a text column and {cell!r} no text")

    def column(self, name: str) -> list[Cell]:
        """Cells of a column.

        Raises:
          KeyError: There is no such column.
        """
        names = [column.name for column in self.columns]
        if name not in names:
            raise KeyError(f"table {self.name!r} has no column {name!r}; it has {names}")
        index = names.index(name)
        return [row[index] for row in self.rows]

    def records(self) -> list[dict[str, Cell]]:
        """Rows as dicts from column name to cell."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Table as plain JSON values, the rows as objects by column name."""
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "title": self.title,
            "columns": [dataclasses.asdict(column) for column in self.columns],
            "rows": self.records(),
            "notes": list(self.notes),
        }

    def to_csv(self) -> str:
        """Table as CSV (RFC 4180) under a head of column names; None is an empty cell.

        Text that a spreadsheet would take for a formula is prefixed with `'`; numbers are not.
        Control characters of a text are escaped.
        """
        stream = io.StringIO()
        writer = csv.writer(stream)
        writer.writerow([_csv_cell(column.name) for column in self.columns])
        writer.writerows([_csv_cell(cell) for cell in row] for row in self.rows)
        return stream.getvalue()

    def to_text(self, max_width: int = 48) -> str:
        """Table for a terminal: aligned columns, long text cut."""
        heads = [column.label or column.name for column in self.columns]
        heads = [
            f"{head} ({column.unit})" if column.unit else head
            for head, column in zip(heads, self.columns, strict=True)
        ]
        shown = [
            [
                _shown(cell, column, max_width)
                for cell, column in zip(row, self.columns, strict=True)
            ]
            for row in self.rows
        ]
        widths = [max(map(len, cells)) for cells in zip(heads, *shown, strict=True)]
        left = [column.kind == "text" for column in self.columns]
        lines = [
            "  ".join(
                cell.ljust(width) if to_left else cell.rjust(width)
                for cell, width, to_left in zip(cells, widths, left, strict=True)
            ).rstrip()
            for cells in [heads, *shown]
        ]
        return "\n".join([self.title, *lines, *(f"note: {note}" for note in self.notes)])


def row_of(columns: Sequence[Column], *records: object, **cells: Cell) -> tuple[Cell, ...]:
    """Cells of one row, in the order of the columns.

    Args:
      columns: The table's columns.
      *records: A column that is not in `cells` has the attribute of its name, of the first record
        that has one.
      **cells: Cells by the names of their columns.

    Raises:
      AttributeError: No record has a column.
    """
    return tuple(
        cells[column.name]
        if column.name in cells
        else getattr(next((r for r in records if hasattr(r, column.name)), None), column.name)
        for column in columns
    )


def write_tables(tables: Sequence[Table], directory: Path) -> list[Path]:
    """Writes each table as `NAME.csv` and `NAME.json`.

    Returns:
      The files.

    Raises:
      RunError: They cannot be written.
    """
    written = []
    for table in tables:
        file = directory / f"{table.name}.csv"
        records.write(file, table.to_csv())
        records.write_json(file.with_suffix(".json"), table.to_json(), indent=1)
        written += [file, file.with_suffix(".json")]
    return written


def _csv_cell(cell: Cell) -> str | int | float:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return spreadsheet_cell(cell) if isinstance(cell, str) else cell


def _shown(cell: Cell, column: Column, max_width: int) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        text = escaped(" ".join(cell.split()))
        return text if len(text) <= max_width else text[: max_width - 1] + "…"
    if column.kind == "fraction":
        return f"{100 * cell:.2f}%"
    if isinstance(cell, int):
        return str(cell)
    return f"{cell:.4f}" if abs(cell) < 10 else f"{cell:.2f}"
