"""The board of a folder of entries: a table for each track, as text, JSON or a page."""

import dataclasses
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

_HEADS = ("rank", "entry", "own code", "verdict", f"beside {BASELINE}", "trials", "on", "date")
_ORDER = ("accepted", "tie", "slower", "worse", "refused")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """An entry on a board.

    Attributes:
      rank: Empty where it has none; `=1` where it ties with the first.
      verdict: None if the entry's present recipe was not judged.
    """

    rank: str
    name: str
    code: str
    verdict: JudgedEntry | None


Boards = dict[str, list[Place]]

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

    Raises:
      ConfigError: The folder has no entry, or a damaged one.
    """
    found: dict[str, list[tuple[Entry, JudgedEntry | None]]] = {}
    for _, entry in entries_in(folder):
        verdict = read_verdict(folder / VERDICTS, entry.name, entry.recipe)
        found.setdefault(entry.track, []).append((entry, verdict))
    if not found:
        raise ConfigError(f"{folder} has no entry: no folder in it has an entry.json")
    boards: Boards = {}
    for track, rows in sorted(found.items()):
        ranks: dict[str, str] = {}
        for entry, verdict in sorted(rows, key=lambda row: _order(*row)):
            if verdict and verdict.word == "accepted":
                ranks[entry.name] = str(len(ranks) + 1)
            ties = ranks.get(verdict.rival) if verdict and verdict.word == "tie" else None
            place = Place(
                rank=f"={ties}" if ties else ranks.get(entry.name, ""),
                name=entry.name,
                code=entry.code,
                verdict=verdict,
            )
            boards.setdefault(track, []).append(place)
    return boards


def _order(entry: Entry, verdict: JudgedEntry | None) -> tuple[int, tuple[int, float], str]:
    if verdict is None:
        return len(_ORDER), (0, 0.0), entry.name
    return _ORDER.index(verdict.word), verdict.standing, entry.name


def board_table(places: Sequence[Place]) -> Table:
    """Rows of one track."""
    return of_words(_HEADS, map(_cells, places), texts=range(len(_HEADS)))


def _cells(place: Place) -> list[str]:
    verdict = place.verdict
    if verdict is None:
        return ["", place.name, place.code, "not yet judged"]
    word, own = str(verdict.word), verdict.sides.get(place.name)
    if verdict.word == "tie":
        word = f"tie with {verdict.rival}"
    if verdict.word == "refused":
        word = f"refused: {verdict.rule}"
    return [
        *(place.rank, place.name, place.code, word),
        verdict.baseline.text() if verdict.baseline else "",
        own.text(tracks.read_track(verdict.track)) if own else "",
        *(verdict.hardware, verdict.date),
    ]


def board_text(boards: Boards) -> str:
    """All boards for a terminal."""
    return "\n\n".join(
        f"{tracks.read_track(name).title}\n{board_table(places).to_text()}"
        for name, places in boards.items()
    )


def board_page(boards: Boards) -> str:
    """One HTML page, which fetches and runs nothing: the tables, and the text of each verdict."""
    shown = [
        (
            name,
            tracks.read_track(name).title,
            to_html(board_table(places), f"board-{name}"),
            [(it.name, escaped(it.verdict.text())) for it in places if it.verdict],
        )
        for name, places in boards.items()
    ]
    return _PAGE.render(boards=shown)
