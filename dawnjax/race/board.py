"""The board of a folder of entries: a table for each track, as text, JSON or a page."""

from collections.abc import Sequence
from pathlib import Path

import jinja2

from dawnjax.errors import ConfigError
from dawnjax.page.html_table import to_html
from dawnjax.page.table import Table, of_words
from dawnjax.race import tracks
from dawnjax.race.entry import VERDICTS, Entry, entries_in
from dawnjax.race.verdicts import BASELINE, JudgedEntry, read_verdict
from dawnjax.text import escaped

_HEADS = ("rank", "entry", "own code", "verdict", f"beside {BASELINE}", "reached", "expected, s")
_HEADS += ("on", "date")
_ORDER = ("accepted", "tie", "slower", "refused")

Row = tuple[Entry, JudgedEntry | None]
Boards = dict[str, list[Row]]

_PAGE = jinja2.Environment(autoescape=True).from_string("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Race</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{font:1em/1.5 system-ui;margin:2em auto;max-width:75em;padding:0 1em}
.scroll{overflow:auto}table{border-collapse:collapse}caption{text-align:left}
td,th{padding:.2em .8em .2em 0;text-align:left;border-top:1px solid #8886}</style></head>
<body><h1>Race</h1>
{% for name, title, table, verdicts in boards %}<h2 id="{{ name }}">{{ title }}</h2>{{ table }}
{% for entry, text in verdicts %}<h3>{{ entry }}</h3><pre>{{ text }}</pre>{% endfor %}
{% endfor %}</body></html>
""")


def read_board(folder: Path) -> Boards:
    """Entries of a folder by track, the record first, each with its verdict.

    A verdict on another recipe than the entry has now is none.

    Raises:
      ConfigError: The folder holds no entry, or a damaged one.
    """
    boards: Boards = {}
    for _, entry in entries_in(folder):
        verdict = read_verdict(folder / VERDICTS, entry.name, entry.recipe)
        boards.setdefault(entry.track, []).append((entry, verdict))
    if not boards:
        raise ConfigError(f"{folder} holds no entry: no folder in it has an entry.json")
    for rows in boards.values():
        rows.sort(key=_place)
    return {name: boards[name] for name in sorted(boards)}


def _place(row: Row) -> tuple[int, tuple[int, float], str]:
    entry, verdict = row
    if verdict is None:
        return len(_ORDER), (0, 0.0), entry.name
    return _ORDER.index(verdict.word), verdict.standing, entry.name


def ranks(rows: Sequence[Row]) -> list[str]:
    """Rank of each row; an entry that ties with one that has a rank shares it."""
    places: dict[str, str] = {}
    for entry, verdict in rows:
        if verdict and verdict.word == "accepted":
            places[entry.name] = str(len(places) + 1)
    ties = [verdict and verdict.word == "tie" and places.get(verdict.rival) for _, verdict in rows]
    return [
        f"={tie}" if tie else places.get(entry.name, "")
        for (entry, _), tie in zip(rows, ties, strict=True)
    ]


def board_table(rows: Sequence[Row]) -> Table:
    """Rows of one track."""
    cells = [_cells(*row, rank) for row, rank in zip(rows, ranks(rows), strict=True)]
    return of_words(_HEADS, cells, texts=range(len(_HEADS)))


def board_text(boards: Boards) -> str:
    """All boards for a terminal."""
    return "\n\n".join(
        f"{tracks.read_track(name).title}\n{board_table(rows).to_text()}"
        for name, rows in boards.items()
    )


def board_page(boards: Boards) -> str:
    """One HTML page, which fetches and runs nothing: the tables, and the text of each verdict."""
    shown = [
        (
            name,
            tracks.read_track(name).title,
            to_html(board_table(rows), f"board-{name}"),
            [(entry.name, escaped(verdict.text())) for entry, verdict in rows if verdict],
        )
        for name, rows in boards.items()
    ]
    return _PAGE.render(boards=shown)


def _cells(entry: Entry, verdict: JudgedEntry | None, rank: str) -> list[str]:
    if verdict is None:
        return ["", entry.name, entry.code, "not yet judged"]
    word = str(verdict.word)
    if verdict.word == "tie":
        word = f"tie with {verdict.rival}"
    if verdict.word == "refused":
        word = f"refused: {verdict.rule}"
    own = verdict.sides.get(entry.name)
    return [
        *(rank, entry.name, entry.code, word),
        verdict.baseline.text() if verdict.baseline else "",
        *((own.reached, own.time) if own else ("", "")),
        *(verdict.hardware, verdict.date),
    ]
