"""A table as HTML shows it: numbers in words, with a reason where a number is missing."""

import dataclasses
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dawnjax.page import words
from dawnjax.page.table import UNITS_IN_CELLS, Cell, Column, Table, in_words

MOST_ROWS = 60
"""Rows of a table on the page, leaderboards excepted; the table's file has all rows."""

MOST_REASONS = 12
"""Reasons below a table; further ones are in the table of warnings."""


@dataclasses.dataclass(frozen=True)
class CellView:
    """A cell as the page shows it: `number`, `text`, `date` or `null`.

    Attributes:
      small: A second line in small letters.
      sort: Sort key: a number as text, or empty for the text itself.
      mark: Letter of the reason below the table; empty for none.
    """

    text: str
    small: str = ""
    sort: str = ""
    kind: str = "text"
    mark: str = ""


def number_cell(value: float, text: str, small: str = "") -> CellView:
    """Cell of a number, sorted by its exact value."""
    return CellView(text, small, sort=repr(value), kind="number")


@dataclasses.dataclass(frozen=True)
class HeadView:
    """Head of a column; `small` is its unit or kind.

    Attributes:
      rank: `time` or `cost` for ranks, which the page renumbers at a cut-off day; else empty.
    """

    text: str
    small: str = ""
    number: bool = False
    rank: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableView:
    """A table as the page shows it; its files hold the source table's other rows and columns.

    Attributes:
      total: Rows of the source table; `rows` may be a part.
      dates: The date of each row, where the table can be cut at a day; else empty.
      header: Place of the column that names the row.
    """

    name: str
    caption: str
    heads: tuple[HeadView, ...]
    rows: tuple[tuple[CellView, ...], ...]
    reasons: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    total: int = 0
    sortable: bool = False
    dates: tuple[str, ...] = ()
    header: int = 0


class Reasons:
    """Letters for reasons; equal reasons share a letter."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def mark(self, reason: str) -> str:
        """Letter of a reason; `*` for all after the last letter."""
        if not reason:
            return ""
        if reason not in self._letters:
            if len(self._letters) >= MOST_REASONS:
                return "*"
            self._letters[reason] = string.ascii_lowercase[len(self._letters)]
        return self._letters[reason]

    def listed(self) -> tuple[tuple[str, str], ...]:
        """(letter, reason) in the order of the letters."""
        return tuple((letter, reason) for reason, letter in self._letters.items())


Record = Mapping[str, Any]
"""A row by column name, untyped."""


class Naming(NamedTuple):
    """First cell of each row, in place of the columns named."""

    head: str
    columns: tuple[str, ...]
    cell: Callable[[Record], CellView]


def shown(cell: Cell, column: Column) -> CellView:
    """A cell in words, without the reason of a null."""
    if cell is None:
        return CellView(words.NOT_KNOWN, kind="null")
    if isinstance(cell, bool):
        return CellView(in_words(cell, column), sort=str(int(cell)))
    if isinstance(cell, str):
        if not cell:
            return CellView("not given", kind="null")
        return CellView(cell, kind="text" if column.kind == "text" else "null")
    return number_cell(cell, in_words(cell, column))


def view(
    table: Table,
    columns: Sequence[str] | None = None,
    *,
    naming: Naming | None = None,
    why: Callable[[str, Record], str] | None = None,
    caption: str = "",
    keep: Callable[[Record], bool] | None = None,
    hide_empty: Sequence[str] = (),
    cells: Mapping[str, Callable[[Record], CellView]] | None = None,
    no_interval: str = "",
) -> TableView:
    """View of a table; `X_low`, `X_high` and `X_ends` become a small line under `X`.

    Args:
      columns: Columns to show, in this order; all if None.
      naming: The cell that names a row, in place of some columns.
      why: From a column and the row to why there is no number.
      hide_empty: Columns to omit where no row has a value.
      cells: Other makers of cells, by column.
      no_interval: Text where a row has no interval.
    """
    by_name = {column.name: column for column in table.columns}
    intervals = {name for name in by_name if f"{name}_low" in by_name and f"{name}_high" in by_name}
    records = [record for record in table.records() if keep is None or keep(record)]
    hidden = {f"{name}{end}" for name in intervals for end in ("_low", "_high", "_ends")}
    hidden |= set(naming.columns) if naming else set()
    hidden |= {name for name in hide_empty if all(record.get(name) is None for record in records)}
    names = [name for name in (columns or by_name) if name not in hidden]
    reasons = Reasons()

    def cell_of(record: Record, name: str) -> CellView:
        if cells and name in cells:
            return cells[name](record)
        cell = shown(record[name], by_name[name])
        if name in intervals and cell.kind == "number":
            small = interval(record, name, by_name[name]) or no_interval
            return dataclasses.replace(cell, small=small)
        if record[name] is None and why:
            return dataclasses.replace(cell, mark=reasons.mark(why(name, record)))
        return cell

    rows = []
    for record in records[:MOST_ROWS]:
        first = [naming.cell(record)] if naming else []
        rows.append((*first, *(cell_of(record, name) for name in names)))
    heads = [HeadView(naming.head)] if naming else []
    heads += [head(by_name[name], "95% interval" if name in intervals else "") for name in names]
    return TableView(
        name=table.name,
        caption=caption or table.title,
        heads=tuple(heads),
        rows=tuple(rows),
        reasons=reasons.listed(),
        notes=table.notes,
        total=len(table.rows),
    )


def head(column: Column, small: str = "") -> HeadView:
    """Head of a column, without a unit that each cell shows."""
    if column.unit not in UNITS_IN_CELLS:
        small = f"{column.unit} {small}".strip()
    return HeadView(column.label or column.name, small, not column.is_text)


def interval(record: Record, name: str, column: Column) -> str:
    """Ends of a column in words; empty where a row has none.

    Examples: `1.02 to 1.10` for a 95 % interval, `range of 3: 1.02 to 1.10` for other ends.
    """
    low, high = record[f"{name}_low"], record[f"{name}_high"]
    if not isinstance(low, int | float):
        return ""
    kind = record.get(f"{name}_ends")
    before = "" if kind in (None, "95 %") else f"{kind}: "
    return f"{before}{in_words(low, column)} to {in_words(high, column)}"
