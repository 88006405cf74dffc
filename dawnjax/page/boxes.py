"""A table in a box as wide as the terminal, its long texts wrapped."""

from collections.abc import Collection

import rich.table
from rich.text import Text

from dawnjax.page.table import Table, in_words


def boxed(table: Table, *, dim: Collection[int] = (), lines: bool = False) -> rich.table.Table:
    """Make the table that a console of `rich` prints; `dim` are places of faint columns."""
    columns = table.columns
    rows = [[in_words(*pair) for pair in zip(row, columns, strict=True)] for row in table.rows]
    box = rich.table.Table(title=table.title or None, title_justify="left", show_lines=lines)
    for place, column in enumerate(columns):
        box.add_column(
            column.head,
            justify="left" if column.is_text else "right",
            style="dim" if place in dim else None,
            # Whole names, in a terminal of any usual width: they are what a flag takes.
            min_width=max((len(row[0]) for row in rows), default=0) if place == 0 else None,
        )
    # `Text`, because `rich` would read square brackets in a string as markup.
    for row in rows:
        box.add_row(*map(Text, row))
    return box
