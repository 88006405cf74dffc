"""The HTML of a table: numbers in words, and a footnote where one is missing."""

import functools
import re
import string
from collections.abc import Mapping

import markupsafe

from dawnjax.page import words
from dawnjax.page.table import UNITS_IN_CELLS, Cell, Column, Missing, Table, in_words
from dawnjax.text import ends_text, escaped

MOST_ROWS = 60
"""Rows of a table on the page, unless it can be sorted; the table's file has all rows."""

MOST_REASONS = 12
"""Footnotes of a table."""

_MOST_SMALL = 160
"""Letters of a small line."""

_ENDS = ("_low", "_high", "_ends")


def to_html(table: Table, ident: str) -> markupsafe.Markup:
    """Print a table with its footnotes and notes; `ident` is its `id` on the page.

    A column without any value is left out, and a note gives the reason. The first column of text
    names the row.
    """
    columns, notes = _columns(table)
    header = next((n for n, column in enumerate(columns) if column.is_text), 0)
    reasons: dict[str, str] = {}
    is_cut = not table.sortable and len(table.rows) > MOST_ROWS
    rows = table.rows[:MOST_ROWS] if is_cut else table.rows
    body = []
    for row in rows:
        cells = dict(zip((column.name for column in table.columns), row, strict=True))
        shown = [
            _cell(cells, table, column, "th" if place == header else "td", reasons)
            for place, column in enumerate(columns)
        ]
        body.append(f"<tr{_date(cells, columns, table)}>{''.join(shown)}</tr>")
    if is_cut:
        notes.insert(0, f"{len(rows)} of {len(table.rows)} rows; the files have all of them.")
    heads = "".join(_head(table, column, place == header) for place, column in enumerate(columns))
    listed = [f"<li><sup>{mark}</sup> {_text(why)}</li>" for why, mark in reasons.items()]
    if any(mark == "*" for mark in reasons.values()):
        listed = [*listed[:MOST_REASONS], "<li><sup>*</sup> other reasons: in the files</li>"]
    below = f'<ul class="reasons">{"".join(listed)}</ul>' if listed else ""
    below += "".join(f"<p>{_text(note)}</p>" for note in (*notes, *table.notes))
    if table.name:
        below += f'<p class="files">Files: {files(table.name)}</p>'
    lines = "\n".join(body)
    board, sortable = (" board", " data-sortable") if table.sortable else ("", "")
    return markupsafe.Markup(
        f'<div class="table{board}" id="{ident}">\n'
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{ident}-caption">\n'
        f'<table{sortable}>\n<caption id="{ident}-caption">{_text(table.title)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n"
        f'</table>\n</div>\n<div class="notes">{below}</div>\n</div>'
    )


def files(*names: str) -> markupsafe.Markup:
    """Links to the files of tables."""
    links = (
        f'<a href="tables/{name}.{kind}">{name}.{kind}</a>'
        for name in map(_text, names)
        for kind in ("csv", "json")
    )
    return markupsafe.Markup(", ".join(links))


def _columns(table: Table) -> tuple[list[Column], list[str]]:
    """Columns that the page shows, and notes on columns without any value."""
    names = {column.name for column in table.columns}
    ends = {f"{name}{end}" for name in names for end in _ENDS if f"{name}_low" in names}
    shown, notes = [], []
    for place, column in enumerate(table.columns):
        if column.filed or column.under or column.name in ends:
            continue
        cells = [row[place] for row in table.rows]
        if all(cell in (None, "") or isinstance(cell, Missing) for cell in cells) and cells:
            whys = sorted({str(cell) for cell in cells if isinstance(cell, Missing)} - {""})
            if whys:
                more = f"; and {len(whys) - 3} other reasons" if len(whys) > 3 else ""
                notes.append(f"No {column.label or column.name}: {'; '.join(whys[:3])}{more}.")
            if shown or not column.is_text:
                continue
        shown.append(column)
    return shown, notes


def _head(table: Table, column: Column, is_first: bool) -> str:
    of_all = {other.name for other in table.columns}
    small = ["" if column.unit in UNITS_IN_CELLS else column.unit]
    small += [
        other.label
        for place, other in enumerate(table.columns)
        if other.under == column.name and any(row[place] for row in table.rows)
    ]
    if f"{column.name}_low" in of_all:
        small.append("places it may have" if column.kind == "rank" else "95% interval")
    text = ", ".join(filter(None, small))
    style = "" if column.is_text else ' class="n"'
    style = ' class="first"' if is_first else style
    rank = ' data-rank=""' if column.kind == "rank" else ""
    below = f"<small>{_text(text)}</small>" if text else ""
    return f'<th scope="col"{style}{rank}>{_text(column.label or column.name)}{below}</th>'


def _cell(
    cells: Mapping[str, Cell], table: Table, column: Column, tag: str, reasons: dict[str, str]
) -> str:
    cell, style, sort, mark = cells[column.name], "", "", ""
    if cell is None or isinstance(cell, Missing) or cell == "":
        text = cell.word if isinstance(cell, Missing) else words.NOT_KNOWN if cell is None else "-"
        style = "x" if column.is_text else "x n"
        if isinstance(cell, Missing) and cell:
            letters = string.ascii_lowercase[:MOST_REASONS]
            mark = reasons.setdefault(
                str(cell), letters[len(reasons)] if len(reasons) < len(letters) else "*"
            )
    elif isinstance(cell, str):
        text = in_words(cell, column)
        style = "d" if column.kind == "date" else "" if column.is_text else "x n"
    else:
        text = in_words(cell, column)
        style, sort = ("", str(int(cell))) if isinstance(cell, bool) else ("n", repr(cell))
    small = "; ".join(filter(None, _below(cells, table, column)))
    if not style and len(text) > 40 and not small:
        style = "long"
    attributes = ' scope="row"' if tag == "th" else ""
    attributes += f' class="{style}"' if style else ""
    attributes += f' data-sort="{sort}"' if sort and table.sortable else ""
    mark = f"<sup>{mark}</sup>" if mark else ""
    small = f"<small>{_text(words.shortened(small, _MOST_SMALL))}</small>" if small else ""
    return f"<{tag}{attributes}>{_text(text)}{mark}{small}</{tag}>"


def _below(cells: Mapping[str, Cell], table: Table, column: Column) -> list[str]:
    """Lines below a cell: its interval, and the columns that stand under it."""
    low, high = (cells.get(f"{column.name}{end}") for end in ("_low", "_high"))
    lines = []
    if isinstance(low, int | float) and isinstance(high, int | float):
        kind = cells.get(f"{column.name}_ends")
        if column.kind == "rank":
            lines.append("" if low == high else f"{low}\N{EN DASH}{high}")
        else:
            text = functools.partial(in_words, column=column)
            lines.append(ends_text(low, high, str(kind or ""), text))
    for other in table.columns:
        value = cells[other.name]
        if other.under == column.name and value not in (None, "") and value != cells[column.name]:
            lines.append(in_words(value, other))
    return lines


def _date(cells: Mapping[str, Cell], columns: list[Column], table: Table) -> str:
    dates = [column.name for column in columns if column.kind == "date"]
    if not table.sortable or not dates:
        return ""
    return f' data-date="{_text(str(cells[dates[0]] or ""))}"'


def _text(text: str) -> str:
    """Escape a text; a name of a field may break behind a dot or an underscore."""
    safe = str(markupsafe.escape(escaped(text)))
    return re.sub(r"(?<=\w[._])(?=[a-z])", "<wbr>", safe) if "=" in text else safe
