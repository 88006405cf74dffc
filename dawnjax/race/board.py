"""The board of a folder of entries: a table for each track, as text and as one HTML page."""

import functools
import math
from collections.abc import Sequence
from pathlib import Path

import dawnjax
from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.page import html, words
from dawnjax.page.section import Section
from dawnjax.page.table import Cell, Column, Table
from dawnjax.page.view import view
from dawnjax.race import rules, tracks
from dawnjax.race.entry import VERDICTS, Entry, content_hash, entries_in, files_of, hashes_of
from dawnjax.race.tracks import Track
from dawnjax.race.verdicts import BASELINE, JudgedEntry, read_verdict, standing

PAGE = "index.html"

_COLUMNS = (
    Column("rank", "rank", kind="integer"),
    Column("entry", "entry"),
    Column("verdict", "verdict"),
    Column("ratio", "expected time over the baseline's", "x", "number"),
    Column("ratio_low", "ratio, from", "x", "number"),
    Column("ratio_high", "ratio, to", "x", "number"),
    Column("ratio_ends", "the ends are"),
    Column("p_value", "p", kind="number", digits=2),
    Column("reached", "reached"),
    Column("mean_seconds", "a trial, mean", "s", "number"),
    Column("hardware", "judged on"),
    Column("date", "judged"),
)
_GPU_COLUMNS = (
    Column("gpu_seconds", "GPU-seconds a trial", kind="number"),
    Column("cost_usd", "cost of a trial", "USD", "number"),
)

_ORDER = ("accepted", "tie", "slower", "not_judged", "refused", "")
"""Verdicts in the order of a board; the last is an entry that has none."""

_DEFINITIONS = (
    (
        "time",
        "From the moment at which a run gets its data to that at which its weights are saved.",
    ),
    ("baseline", "The track's own experiment, which runs in turn with every entry."),
    (
        "rank",
        "By the expected time over the baseline's; an entry that beat another in turn stands "
        "before it.",
    ),
    (
        "expected time",
        "Time of all trials over the number that reached. The mean and the cost of a trial are of "
        "all trials, those that missed the target too.",
    ),
    (
        "accepted",
        f"Faster than the record that stood then, at p < {rules.LEVEL}, on seeds drawn after the "
        "entry was handed in.",
    ),
    ("tie", "No such difference was found, or the rounds were too few; a note says which."),
)

Row = tuple[Entry, JudgedEntry | None]


def read_board(folder: Path, verdicts: Path | None = None) -> dict[str, list[Row]]:
    """Entries of a folder by track, the fastest first, each with its verdict.

    A verdict on other files than the entry has now is none.

    Raises:
      ConfigError: The folder holds no entry, a damaged one, or two of one name.
    """
    found = entries_in(folder)
    if not found:
        raise ConfigError(f"{folder} holds no entry: no folder in it has an entry.json")
    boards: dict[str, list[Row]] = {}
    for name, (path, entry) in found.items():
        verdict = read_verdict(verdicts or folder / VERDICTS, name)
        if verdict and verdict.entry_hash != content_hash(hashes_of(files_of(path))):
            verdict = None
        boards.setdefault(entry.track, []).append((entry, verdict))
    for rows in boards.values():
        accepted = {it.name: it for _, it in rows if it and it.word == "accepted"}
        rows.sort(key=functools.partial(_place, accepted=accepted))
    return {name: boards[name] for name in sorted(boards)}


def _place(row: Row, accepted: dict[str, JudgedEntry]) -> tuple[int, float, int, str]:
    entry, verdict = row
    if verdict is None:
        return _ORDER.index(""), math.inf, 0, entry.name
    others = accepted if verdict.word == "accepted" else {}
    return _ORDER.index(verdict.word), *standing(verdict, others), entry.name


def board_table(track: Track, rows: Sequence[Row]) -> Table:
    """Table of a track's entries; accepted ones have ranks."""
    columns = _COLUMNS + (_GPU_COLUMNS if track.platform == "gpu" else ())
    lines, notes = [], []
    for rank, (entry, verdict) in enumerate(rows, 1):
        cells: dict[str, Cell] = {column.name: None for column in columns}
        cells |= {"entry": entry.name, "verdict": "not yet judged"}
        if verdict is not None:
            cells |= _cells(verdict, rank)
            if verdict.word == "tie":
                notes.append(f"{entry.name} ties with {verdict.rival}: {verdict.why}.")
            elif verdict.word in ("refused", "not_judged"):
                how = f"{verdict.rule}: " if verdict.rule else ""
                notes.append(f"{entry.name}: {how}{verdict.why}.")
            if verdict.sandbox == "none":
                notes.append(f"{entry.name} ran without a sandbox.")
        lines.append(tuple(cells[column.name] for column in columns))
    return Table(
        name=f"race_{track.name}",
        title=f"{track.title}: {tracks.target_words(track)}",
        columns=columns,
        rows=tuple(lines),
        notes=tuple(notes),
    )


def _cells(verdict: JudgedEntry, rank: int) -> dict[str, Cell]:
    word = verdict.word.replace("_", " ")
    is_accepted = verdict.word == "accepted"
    cells: dict[str, Cell] = {
        "rank": rank if is_accepted else None,
        "verdict": f"tie with {verdict.rival}" if verdict.word == "tie" else word,
        "hardware": verdict.hardware,
        "date": verdict.date,
        "gpu_seconds": verdict.gpu_seconds,
        "cost_usd": verdict.cost_usd,
    }
    beside, own = verdict.baseline, verdict.sides.get(verdict.name)
    if beside is not None:
        cells |= {
            "ratio": beside.ratio,
            "ratio_low": beside.low,
            "ratio_high": beside.high,
            "ratio_ends": beside.ends or None,
            "p_value": beside.p_value,
        }
    if own is not None:
        reached = sum(trial.reached for trial in own.trials)
        cells |= {"reached": f"{reached} of {len(own.trials)}", "mean_seconds": own.mean_seconds}
    return cells


def tables_of(boards: dict[str, list[Row]]) -> list[Table]:
    return [board_table(tracks.read_track(name), rows) for name, rows in boards.items()]


def page_of(boards: dict[str, list[Row]]) -> str:
    """The boards as one HTML page that fetches nothing."""
    tables = tables_of(boards)
    sections = [
        Section(
            name=table.name,
            title=tracks.read_track(name).title,
            lead=tuple(tracks.read_track(name).rules),
            blocks=(view(table),),
            tables=(table,),
        )
        for name, table in zip(boards, tables, strict=True)
    ]
    judged = [verdict for rows in boards.values() for _, verdict in rows if verdict]
    accepted = sum(verdict.word == "accepted" for verdict in judged)
    entries = sum(map(len, boards.values()))
    return html.render(
        title="The race",
        facts=[(str(entries), "entries"), (str(accepted), "accepted")],
        conclusions=[_leader(name, rows) for name, rows in boards.items()],
        summary=Section(name="summary", title="Records"),
        sections=sections,
        definitions=_DEFINITIONS,
        version=dawnjax.__version__,
    )


def _leader(track: str, rows: Sequence[Row]) -> str:
    entry, verdict = rows[0]
    if verdict is None or verdict.word != "accepted":
        return f"{track}: {BASELINE} is the record."
    ratio = verdict.baseline and verdict.baseline.ratio
    if ratio is None:
        return f"{track}: {entry.name} is the record; {BASELINE} never reached the target."
    return f"{track}: {entry.name} takes {words.times(ratio)} {BASELINE}'s expected time."


def write_page(boards: dict[str, list[Row]], out: Path) -> Path:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out={out} is a file; choose a directory")
    records.write(out / PAGE, page_of(boards))
    return out / PAGE
