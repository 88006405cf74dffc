"""A table: named columns that know how to show themselves, rows of plain values, five printers.

Text, Markdown and HTML (`html_table`) are for people: numbers in words, and no columns that only
files have. CSV and JSON are for programs: every column, exact numbers.
"""

import csv
import dataclasses
import io
import math
import re
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from dawnjax.page import words
from dawnjax.text import escaped, spreadsheet_cell

SCHEMA_VERSION = 1

Cell = str | int | float | bool | None

KINDS = ("text", "word", "date", "integer", "number", "fraction", "flag", "rank")

_COLUMN = ("name", "label", "unit", "kind")

UNITS_IN_CELLS = ("", "s", "h", "x", "USD", "USD/h", "bytes")
"""Units that `in_words` writes into each cell."""


class Missing(str):
    """Reason for a cell without a value: a footnote on the page, null in JSON, empty in CSV.

    `word` stands in the cell, such as `not ranked`.
    """

    word: str

    def __new__(cls, reason: str, word: str = words.NOT_KNOWN) -> "Missing":
        made = super().__new__(cls, reason)
        made.word = word
        return made


@dataclasses.dataclass(frozen=True)
class Column:
    """One column.

    `NAME_low`, `NAME_high` and `NAME_ends` are the interval of the column `NAME`: the page writes
    them below its cells.

    Attributes:
      name: Its key in JSON and its head in CSV, such as `mean_seconds`.
      label: Its head for people, such as `mean`; the name where it is empty.
      unit: Such as `s`, `h`, `USD`; empty for none.
      kind: One of `KINDS`; a `fraction` is 0 to 1, shown in percent. A `word` is one such as
        `not_reached`, shown with blanks. The page renumbers a `rank` when it is cut at a day.
      digits: Significant digits in words.
      under: Column below whose cells the page writes this one's, in small letters.
      filed: True if only files have it.
    """

    name: str
    label: str = ""
    unit: str = ""
    kind: str = "text"
    digits: int = 3
    under: str = ""
    filed: bool = False

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"column {self.name!r} is of kind {self.kind!r}; kinds are {KINDS}")

    @property
    def is_text(self) -> bool:
        """True if its cells stand to the left."""
        return self.kind in ("text", "word", "date", "flag")

    @property
    def head(self) -> str:
        """Label for people, with the unit unless each cell shows it."""
        label = self.label or self.name
        return label if self.unit in UNITS_IN_CELLS else f"{label} ({self.unit})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of plain values under named columns.

    A cell of a column of numbers is a number, None (not known), or text that says why there is no
    number, such as `not reached`. A number is never NaN or infinite.

    Attributes:
      name: Of its files, such as `stability`.
      notes: For readers of the numbers.
      sortable: The page shows all rows, sorts them by any column and filters them.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    sortable: bool = False

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
        if column.kind in ("text", "word") and not isinstance(cell, str | None):
            raise ValueError(f"{self.name}.{column.name} is a text column and {cell!r} no text")

    def column(self, name: str) -> list[Cell]:
        names = [column.name for column in self.columns]
        if name not in names:
            raise KeyError(f"table {self.name!r} has no column {name!r}; it has {names}")
        index = names.index(name)
        return [_plain(row[index]) for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        names = [column.name for column in self.columns]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in self.rows]

    def narrowed(self, is_kept: Callable[[Column], bool]) -> "Table":
        """This table with the columns that are kept."""
        places = [place for place, column in enumerate(self.columns) if is_kept(column)]
        return dataclasses.replace(
            self,
            columns=tuple(self.columns[place] for place in places),
            rows=tuple(tuple(row[place] for place in places) for row in self.rows),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, the rows as objects by column name."""
        columns = [{name: getattr(column, name) for name in _COLUMN} for column in self.columns]
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "title": self.title,
            "columns": columns,
            "rows": self.records(),
            "notes": list(self.notes),
        }

    def to_csv(self) -> str:
        """CSV (RFC 4180) under a head of column names; None is an empty cell.

        A text that a spreadsheet would take for a formula is prefixed with `'`.
        """
        stream = io.StringIO()
        writer = csv.writer(stream)
        writer.writerow([_csv_cell(column.name) for column in self.columns])
        writer.writerows([_csv_cell(cell) for cell in row] for row in self.rows)
        return stream.getvalue()

    def to_text(self) -> str:
        """Aligned columns for a terminal, notes below.

        Columns for which it has no room stand in further blocks, each with the first column, or
        with the numbers of the rows where that does not tell them apart.
        """
        columns, rows = self._in_words()
        every = [[column.head.strip() for column in columns], *rows]
        widths = [max(map(len, cells)) for cells in zip(*every, strict=True)]
        whole = shutil.get_terminal_size((10**6, 0)).columns
        is_split = sum(widths) + 2 * (len(widths) - 1) > whole
        if is_split and len({row[0] for row in rows}) < len(rows):
            columns = (Column("#"), *columns)
            every = [[str(number or "#"), *row] for number, row in enumerate(every)]
            widths.insert(0, len(str(len(rows))))
        room = whole - sum(widths[:1]) - 2
        blocks: list[list[int]] = [[]]
        for place, width in enumerate(widths[1:], 1):
            if blocks[-1] and sum(widths[n] + 2 for n in blocks[-1]) + width > room:
                blocks.append([])
            blocks[-1].append(place)
        lines = [self.title] if self.title else []
        for block in blocks:
            lines += [""] if block is not blocks[0] else []
            for row in every:
                cells = [
                    row[n].ljust(widths[n]) if columns[n].is_text else row[n].rjust(widths[n])
                    for n in [0, *block]
                ]
                lines += _in_room(cells, room)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_markdown(self) -> str:
        """Markdown without the title; notes follow as a paragraph."""
        columns, rows = self._in_words()
        heads = [column.head.strip() for column in columns]
        lines = [f"| {' | '.join(row)} |" for row in [heads, *rows]]
        lines.insert(1, "|" + "---|" * len(heads))
        return "\n".join([*lines, *(["", " ".join(self.notes)] if self.notes else [])])

    def _in_words(self) -> tuple[tuple[Column, ...], list[list[str]]]:
        shown = self.narrowed(lambda column: not column.filed)
        rows = [
            [
                re.sub(r"\s*[\n\t]\s*", " ", in_words(cell, column))
                for cell, column in zip(row, shown.columns, strict=True)
            ]
            for row in shown.rows
        ]
        return shown.columns, rows


def with_fields(table: Table, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table with a column `config.FIELD`, in its files, for each field of its rows.

    A column has numbers only if the field is a number in all rows.
    """
    columns = []
    for field in sorted({name for row in rows for name in row}):
        kinds = {type(row[field]) for row in rows if row.get(field) is not None}
        kind = "number" if kinds and kinds <= {int, float} else "text"
        columns.append(Column(f"config.{field}", field, kind=kind, filed=True))

    def cell(row: Mapping[str, Any], column: Column) -> Cell:
        value = row.get(column.label)
        return value if value is None or column.kind == "number" else str(value)

    return dataclasses.replace(
        table,
        columns=(*table.columns, *columns),
        rows=tuple(
            (*cells, *(cell(row, column) for column in columns))
            for cells, row in zip(table.rows, rows, strict=True)
        ),
    )


def _in_room(cells: Sequence[str], room: int) -> list[str]:
    """Line of a row; the text of a column for which there is no room goes on below."""
    first, *others = cells
    if len(others) != 1 or len(others[0]) <= max(room, 20):
        return ["  ".join(cells).rstrip()]
    parts = textwrap.wrap(others[0].strip(), max(room, 20), break_on_hyphens=False) or [""]
    starts = [first, *[" " * len(first)] * (len(parts) - 1)]
    return [f"{start}  {part}".rstrip() for start, part in zip(starts, parts, strict=True)]


def of_words(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, texts: Collection[int] = (0,)
) -> Table:
    """Table of cells that are in words already, for a terminal or for Markdown.

    Two heads may be equal, a short row is filled up with empty cells, and `texts` are the places of
    the left-aligned columns.
    """
    columns = tuple(
        # A head without words is a blank, for an empty label would be the column's name.
        Column(str(number), head or " ", kind="text" if number in texts else "number")
        for number, head in enumerate(heads)
    )
    filled = ((*row, *[""] * (len(columns) - len(row))) for row in rows)
    return Table(name="", title="", columns=columns, rows=tuple(filled))


def in_words(cell: Cell, column: Column) -> str:
    """A cell for people, rounded to the column's digits; `-` where it is unknown."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Missing):
        return "-" if cell.word == words.NOT_KNOWN else cell.word
    if isinstance(cell, str):
        return escaped(words.of_name(cell) if column.kind == "word" else cell)
    if column.kind == "fraction":
        return words.percent(cell)
    if column.unit in ("s", "h"):
        return words.duration(cell * (3600 if column.unit == "h" else 1))
    if column.unit in ("USD", "USD/h"):
        return words.usd(cell) + column.unit.removeprefix("USD")
    if column.unit == "bytes":
        return words.memory(cell)
    return words.times(cell) if column.unit == "x" else words.number(cell, column.digits)


def row_of(columns: Sequence[Column], *records: object, **cells: Cell) -> tuple[Cell, ...]:
    """Cells of one row, in the order of the columns.

    A column not in `cells` is read from the first record with an attribute of its name.
    """
    return tuple(
        cells[column.name]
        if column.name in cells
        else getattr(next((r for r in records if hasattr(r, column.name)), None), column.name)
        for column in columns
    )


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, Missing) else cell


def _csv_cell(cell: Cell) -> str | int | float:
    if cell is None or isinstance(cell, Missing):
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    # Texts come from submitters' files: a spreadsheet must not run them as formulas.
    return spreadsheet_cell(cell) if isinstance(cell, str) else cell
