"""Tables as the page shows them: numbers in words, with a reason where a number is missing."""

import dataclasses
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dawnjax.analysis.cost import system_price
from dawnjax.analysis.entry_tables import COMPILATION, WHAT, compile_seconds, mean_compile_seconds
from dawnjax.analysis.tables import Cell, Column, Table
from dawnjax.report import words
from dawnjax.results.entries import Entry

MOST_ROWS = 60
"""Rows of a table on the page, leaderboards excepted; the table's file has all rows."""

MOST_REASONS = 12
"""Reasons below a table; further ones are in the table of warnings."""


@dataclasses.dataclass(frozen=True)
class CellView:
    """A cell as it is shown.

    Attributes:
      text: In words.
      small: A second line in small letters.
      sort: What to sort by: a number as text, or empty for the text itself.
      kind: `number`, `text`, `date` or `null`.
      mark: Letter of the reason below the table; empty for none.
    """

    text: str
    small: str = ""
    sort: str = ""
    kind: str = "text"
    mark: str = ""


def number_cell(value: float, text: str, small: str = "") -> CellView:
    """The cell of a number, sorted by its exact value."""
    return CellView(text, small, sort=repr(value), kind="number")


@dataclasses.dataclass(frozen=True)
class HeadView:
    """The head of a column.

    Attributes:
      text: In words.
      small: Its unit or what it is, in small letters.
      number: Whether its cells are numbers, which stand to the right.
      rank: `time` or `cost` where its cells are ranks, which a cut-off day changes; else empty.
    """

    text: str
    small: str = ""
    number: bool = False
    rank: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableView:
    """A table as it is shown.

    Attributes:
      name: Of the table it is from, whose files hold all rows and columns.
      caption: Its title.
      heads: Of the columns; the first column names the row.
      rows: Each as long as `heads`.
      reasons: (letter, reason) of the cells without a number.
      notes: What a reader should know.
      total: Rows of the table, of which `rows` may be a part.
      sortable: Whether the page may sort and filter it.
      dates: The date of each row, where the table can be cut at a day; else empty.
      header: The column whose cell names its row.
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
    """Letters for reasons, the same reason the same letter."""

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
        """Lists (letter, reason) in the order of the letters."""
        return tuple((letter, reason) for reason, letter in self._letters.items())


def records_of(table: Table) -> list[dict[str, Any]]:
    """Rows by column name, untyped."""
    return list(table.records())


_KEY = ("suite", "benchmark", "source")
"""The columns of `key_of`."""


def key_of(entry: Entry) -> tuple[str, ...]:
    """Cells by which the tables of the analysis tell entries apart."""
    return f"{entry.suite} {entry.round}".strip(), entry.benchmark, entry.source


def label(entry: Entry, *, benchmark: bool = False) -> str:
    """Short name of an entry.

    A DAWNBench entry is known by the name of its file, an MLPerf entry by who and what, one of ours
    by its experiment and what was changed of it.
    """
    if entry.suite == "dawnbench":
        name = entry.source.rsplit("/", 1)[-1] or entry.source
    elif entry.suite == "dawnjax":
        name = " ".join(filter(None, [entry.benchmark, entry.variant, f"on {entry.system}"]))
        return f"{name} ({entry.distinction})" if entry.distinction else name
    else:
        many = f" · {entry.num_accelerators} acc." if (entry.num_accelerators or 0) > 1 else ""
        name = f"{entry.submitter} {entry.system or entry.hardware}{many}".strip()
        name += f" ({entry.distinction})" if entry.distinction else ""
    return f"{entry.benchmark} · {name}" if benchmark else name


def labels_apart(entries: Sequence[Entry]) -> list[str]:
    """Names of entries that stand beside each other: what ours share is left out of them.

    Names that are still equal get the first detail that differs, such as the framework or the day.
    """
    whole = [label(entry) for entry in entries]
    parts = [_parts(entry) for entry in entries]
    ours = [set(of) for entry, of in zip(entries, parts, strict=True) if entry.suite == "dawnjax"]
    shared = set.intersection(*ours) if len(ours) > 1 else set()
    names = [
        " ".join(part for part in of if part not in shared) or entry.benchmark
        for entry, of in zip(entries, parts, strict=True)
    ]
    return _told_apart(names if len(set(names)) == len(set(whole)) else whole, entries)


def labels_by_key(entries: Sequence[Entry]) -> dict[tuple[str, ...], str]:
    """Names of entries by `key_of`, as `labels_apart` has them within each benchmark."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.suite, entry.round, entry.benchmark), []).append(entry)
    return {
        key_of(entry): name
        for group in groups.values()
        for entry, name in zip(group, labels_apart(group), strict=True)
    }


_DETAILS: tuple[Callable[[Entry], str], ...] = (
    lambda entry: entry.framework,
    lambda entry: f"batch {entry.global_batch_size}" if entry.global_batch_size else "",
    lambda entry: entry.date,
    lambda entry: entry.identity[:8],
    lambda entry: entry.source,
)
"""What tells entries of one name apart, in the order of what a reader knows best."""


def _told_apart(names: Sequence[str], entries: Sequence[Entry]) -> list[str]:
    """Adds to names that several entries have the first detail that differs in all of them."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    apart = list(names)
    for name, alike in places.items():
        if len(alike) == 1:
            continue
        for detail in _DETAILS:
            details = [detail(entries[place]) for place in alike]
            if len(set(details)) == len(alike):
                for place, words_of in zip(alike, details, strict=True):
                    apart[place] = f"{name} ({words_of})" if words_of else name
                break
    return apart


def _parts(entry: Entry) -> tuple[str, ...]:
    """What a label is put together from; a changed field has the last part of its name."""
    if entry.suite != "dawnjax":
        return (label(entry),)
    changed = re.split(r", (?=[\w.]+=)", entry.variant)
    fields = (re.sub(r"^[\w.]*\.", "", field) for field in changed if field)
    return tuple(filter(None, [entry.benchmark, *fields, f"on {entry.system}", entry.distinction]))


def shown(cell: Cell, column: Column) -> CellView:
    """Cell in words, without the reason of a null."""
    if cell is None:
        return CellView(words.NOT_KNOWN, kind="null")
    if isinstance(cell, bool):
        return CellView("yes" if cell else "no", sort=str(int(cell)))
    if isinstance(cell, str):
        if not cell:
            return CellView("not given", kind="null")
        return CellView(cell, kind="text" if column.kind == "text" else "null")
    if column.kind == "fraction":
        text = words.percent(cell)
    elif column.unit in ("s", "h"):
        text = words.duration(cell * (3600 if column.unit == "h" else 1))
    elif column.unit in ("USD", "USD/h"):
        text = words.usd(cell) + ("/h" if column.unit == "USD/h" else "")
    elif column.unit == "x":
        text = words.times(cell)
    else:
        text = words.number(cell)
    return number_cell(cell, text)


def view(
    table: Table,
    columns: Sequence[str] | None = None,
    *,
    entries: Mapping[tuple[str, ...], Entry] | None = None,
    why: Callable[[Entry | None, str, Mapping[str, Cell]], str] | None = None,
    caption: str = "",
    keep: Callable[[Mapping[str, Any]], bool] | None = None,
) -> TableView:
    """Makes the view of a table.

    Columns `X_low`, `X_high` and `X_ends` are shown below `X`; the columns that tell entries
    apart as one, the entry's label over its source. Compilation is left out where none is known.

    Args:
      table: From the analysis.
      columns: Names of those to show, in this order; all if None.
      entries: By `key_of`, for labels and reasons.
      why: From an entry, a column and the row to why there is no number.
      caption: Instead of the table's title.
      keep: Which rows to show; all if None.
    """
    by_name = {column.name: column for column in table.columns}
    identity = [column.name for column in WHAT]
    keyed = entries if all(name in by_name for name in identity) else None
    intervals = {name for name in by_name if f"{name}_low" in by_name and f"{name}_high" in by_name}
    hidden = {f"{name}{end}" for name in intervals for end in ("_low", "_high", "_ends")}
    hidden |= set(identity) if keyed is not None else set()
    records = [record for record in records_of(table) if keep is None or keep(record)]
    if all(record.get(COMPILATION.name) is None for record in records):
        hidden.add(COMPILATION.name)
    names = [name for name in (columns or by_name) if name not in hidden]
    reasons = Reasons()

    def cell_of(entry: Entry | None, record: dict[str, Any], name: str) -> CellView:
        cell = shown(record[name], by_name[name])
        if name in intervals and cell.kind == "number":
            return dataclasses.replace(cell, small=interval(record, name, by_name[name]))
        if record[name] is None:
            reason = why(entry, name, record) if why else ""
            return dataclasses.replace(cell, mark=reasons.mark(reason))
        return cell

    rows = []
    for record in records[:MOST_ROWS]:
        entry = None if keyed is None else keyed.get(tuple(record[name] for name in _KEY))
        first = [entry_cell(entry, record)] if keyed is not None else []
        rows.append((*first, *(cell_of(entry, record, name) for name in names)))
    heads = [HeadView("entry")] if keyed is not None else []
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
    """Head of a column; units that each cell shows are not repeated."""
    if column.unit and column.unit not in ("s", "h", "x", "USD", "USD/h"):
        small = f"{column.unit} {small}".strip()
    return HeadView(column.label or column.name, small, column.kind not in ("text", "flag"))


def entry_cell(entry: Entry | None, record: Mapping[str, Cell]) -> CellView:
    """Cell that names a row's entry."""
    if entry is None:
        return CellView(str(record.get("system") or record["source"]), str(record["source"]))
    name = label(entry, benchmark=entry.suite != "dawnjax")
    # Two of our entries with different code have the same name; their sources differ.
    return CellView(name, entry.source if entry.suite == "dawnjax" else "")


COMPILATION_HEAD = HeadView(COMPILATION.label, number=True)


def compilation_cell(entry: Entry) -> CellView:
    """Cell of an entry's compilation, which stands beside its time to accuracy."""
    seconds = mean_compile_seconds(entry)
    if seconds is None:
        return CellView(words.NOT_KNOWN, kind="null")
    if isinstance(seconds, str):
        return CellView(seconds, kind="null")
    number = len(compile_seconds(entry, "cold"))
    small = "" if number == len(entry.trials) else f"of {number} of {len(entry.trials)} trials"
    return number_cell(seconds, words.duration(seconds), small)


def hardware(entry: Entry) -> str:
    """Hardware of an entry, with its number where the entry's own text does not give it."""
    if entry.suite == "dawnbench":
        return entry.hardware or entry.system
    many = f"{entry.num_accelerators} × " if entry.num_accelerators else ""
    hosts = f" on {entry.num_hosts} hosts" if (entry.num_hosts or 0) > 1 else ""
    if not entry.num_accelerators and entry.suite == "mlperf_training":
        return entry.system or entry.hardware
    return f"{many}{entry.hardware or entry.system}{hosts}"


def why_null(entry: Entry | None, name: str, record: Mapping[str, Cell]) -> str:
    """Reason why a cell of an entry's table has no number; empty where it is not known."""
    if entry is None:
        return ""
    summary = entry.summary
    given = entry.reasons.get(name, "")
    if name in ("mean_cost_usd", "cost_per_hour_usd"):
        return system_price(entry).source if summary and summary.reached else words.NOT_REACHED
    if given:
        return given
    if name.startswith(("epochs", "seconds_per_epoch")):
        return entry.reasons.get("epochs", "the logs do not tell the epochs")
    if summary is None:
        return ""
    if not summary.reached and name != "compile_seconds":
        return "no trial reached the target"
    if name in ("cv", "ratio_of_cvs") and summary.reached < 2:
        return "variation needs two trials that reached"
    if name == "ratio_of_cvs":
        return "the time per epoch does not vary, or the epochs are not known"
    if name == "score_seconds":
        if summary.trials < 3:
            return "a score needs at least 3 trials"
        if summary.reached == summary.trials:
            return "too few trials for a score: the rules leave out several at each end"
        return f"{summary.trials - summary.reached} of {summary.trials} trials did not reach"
    if name == "expected_seconds":
        return "how long the trials that did not reach ran is not known"
    if name == "compile_seconds":
        return "these results do not tell compilation"
    if name in ("num_accelerators", "num_hosts", "global_batch_size"):
        return "the results do not tell it"
    return ""


def by_key(entries: Iterable[Entry]) -> dict[tuple[str, ...], Entry]:
    """Entries by `key_of`; entries that were loaded together have different keys."""
    return {key_of(entry): entry for entry in entries}


def with_labels(
    shown: TableView,
    table: Table,
    names: Mapping[tuple[str, ...], str],
    columns: Sequence[str],
) -> TableView:
    """Replaces sources in a view by the labels of their entries.

    Args:
      shown: The view.
      table: What it shows, with a column `benchmark`.
      names: Labels by (benchmark, source).
      columns: Those that hold sources.
    """
    places = [head.text for head in shown.heads]
    by_name = {column.name: column.label or column.name for column in table.columns}
    rows = []
    for row, record in zip(shown.rows, table.records(), strict=False):
        cells = list(row)
        for column in columns:
            text = names.get((str(record["benchmark"]), str(record[column])))
            if text:
                cells[places.index(by_name[column])] = CellView(text)
        rows.append(tuple(cells))
    return dataclasses.replace(shown, rows=tuple(rows))


def interval(record: Mapping[str, Cell], name: str, column: Column) -> str:
    """Ends of a column in words, such as `1.02 to 1.10`; empty where a row has none.

    What the ends are stands before them unless it is a 95 % interval: `range of 3: 1.02 to 1.10`.
    """
    low, high = record[f"{name}_low"], record[f"{name}_high"]
    if not isinstance(low, int | float):
        return ""
    kind = record.get(f"{name}_ends")
    before = "" if kind in (None, "95 %") else f"{kind}: "
    return f"{before}{shown(low, column).text} to {shown(high, column).text}"
