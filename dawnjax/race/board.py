"""The board of a folder of entries: a table for each track."""

from collections.abc import Sequence
from pathlib import Path

from dawnjax.errors import ConfigError
from dawnjax.page.table import Table, of_words
from dawnjax.race import tracks
from dawnjax.race.entry import VERDICTS, Entry, entries_in
from dawnjax.race.verdicts import BASELINE, JudgedEntry, read_verdict

_HEADS = ("rank", "entry", "verdict", f"beside {BASELINE}", "reached", "expected, s", "on", "date")
_ORDER = ("accepted", "tie", "slower", "refused")

Row = tuple[Entry, JudgedEntry | None]


def read_board(folder: Path) -> dict[str, list[Row]]:
    """Entries of a folder by track, the record first, each with its verdict.

    A verdict on another recipe than the entry has now is none.

    Raises:
      ConfigError: The folder holds no entry, a damaged one, or two of one name.
    """
    boards: dict[str, list[Row]] = {}
    for name, (_, entry) in entries_in(folder).items():
        verdict = read_verdict(folder / VERDICTS, name, entry.recipe)
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


def board_table(rows: Sequence[Row]) -> Table:
    """Rows of one track; an entry that ties with a ranked entry shares its rank."""
    ranks: dict[str, str] = {}
    for entry, verdict in rows:
        if verdict and verdict.word == "accepted":
            ranks[entry.name] = str(len(ranks) + 1)
    cells = [_cells(entry, verdict, ranks) for entry, verdict in rows]
    return of_words(_HEADS, cells, texts=range(len(_HEADS)))


def board_text(boards: dict[str, list[Row]]) -> str:
    """All boards for a terminal."""
    return "\n\n".join(
        f"{tracks.read_track(name).title}\n{board_table(rows).to_text()}"
        for name, rows in boards.items()
    )


def _cells(entry: Entry, verdict: JudgedEntry | None, ranks: dict[str, str]) -> list[str]:
    if verdict is None:
        return ["", entry.name, "not yet judged"]
    rank, word = ranks.get(entry.name, ""), str(verdict.word)
    if verdict.word == "tie":
        tied = ranks.get(verdict.rival)
        rank, word = f"={tied}" if tied else "", f"tie with {verdict.rival}"
    if verdict.word == "refused":
        word = f"refused: {verdict.rule}"
    own = verdict.sides.get(entry.name)
    return [
        *(rank, entry.name, word, verdict.baseline.text() if verdict.baseline else ""),
        *((own.reached, own.time) if own else ("", "")),
        *(verdict.hardware, verdict.date),
    ]
