"""Labels of entries on a page, their hardware, and the reason for a missing number."""

import re
from collections.abc import Callable, Iterable, Sequence

from dawnjax.analysis.cost import system_price
from dawnjax.analysis.entry_tables import COMPILATION, WHAT, compile_seconds, mean_compile_seconds
from dawnjax.page import words
from dawnjax.page.table import Table
from dawnjax.page.view import CellView, HeadView, Naming, Record, TableView, number_cell, view
from dawnjax.trials.group import Entry

KEY = ("suite", "benchmark", "source")
"""The columns of `key_of`."""


def key_of(entry: Entry) -> tuple[str, ...]:
    """Cells that identify an entry in the tables of `analysis`."""
    return f"{entry.suite} {entry.round}".strip(), entry.benchmark, entry.source


def label(entry: Entry, *, benchmark: bool = False) -> str:
    """Short name: an entry's file, its submitter and system, or our experiment and its changes."""
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
    """Names of entries that stand together: what all of ours share is omitted.

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
    return _distinct(names if len(set(names)) == len(set(whole)) else whole, entries)


def labels_by_key(entries: Sequence[Entry]) -> dict[tuple[str, ...], str]:
    """Names by `key_of`, distinct within each benchmark."""
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
"""Details that distinguish entries of one name, those that a reader knows best first."""


def _distinct(names: Sequence[str], entries: Sequence[Entry]) -> list[str]:
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
    if entry.suite != "dawnjax":
        return (label(entry),)
    changed = re.split(r", (?=[\w.]+=)", entry.variant)
    fields = (re.sub(r"^[\w.]*\.", "", field) for field in changed if field)
    return tuple(filter(None, [entry.benchmark, *fields, f"on {entry.system}", entry.distinction]))


def entry_view(
    table: Table,
    entries: Iterable[Entry],
    columns: Sequence[str] | None = None,
    *,
    caption: str = "",
    keep: Callable[[Record], bool] | None = None,
    no_interval: str = "",
) -> TableView:
    """View of a table of entries, whose identifying columns become one label over its source.

    Args:
      table: Has the columns `WHAT`.
      columns: Further columns to show; all if None.
    """
    keyed = by_key(entries)

    def entry_of(record: Record) -> Entry | None:
        return keyed.get(tuple(record[name] for name in KEY))

    identity = tuple(column.name for column in WHAT)
    return view(
        table,
        columns,
        naming=Naming("entry", identity, lambda record: entry_cell(entry_of(record), record)),
        why=lambda name, record: why_null(entry_of(record), name),
        caption=caption,
        keep=keep,
        hide_empty=(COMPILATION.name,),
        no_interval=no_interval,
    )


def entry_cell(entry: Entry | None, record: Record) -> CellView:
    """Cell with an entry's label, over its source."""
    if entry is None:
        return CellView(str(record.get("system") or record["source"]), str(record["source"]))
    name = label(entry, benchmark=entry.suite != "dawnjax")
    # Two of our entries with different code have the same name; their sources differ.
    return CellView(name, entry.source if entry.suite == "dawnjax" else "")


COMPILATION_HEAD = HeadView(COMPILATION.label, number=True)


def compilation_cell(entry: Entry) -> CellView:
    """Mean compile time before the clock starts, or why there is none."""
    seconds = mean_compile_seconds(entry)
    if seconds is None:
        return CellView(words.NOT_KNOWN, kind="null")
    if isinstance(seconds, str):
        return CellView(seconds, kind="null")
    number = len(compile_seconds(entry, "cold"))
    small = "" if number == len(entry.trials) else f"of {number} of {len(entry.trials)} trials"
    return number_cell(seconds, words.duration(seconds), small)


def hardware(entry: Entry) -> str:
    """Hardware of an entry, with the number of devices where its own text lacks it."""
    if entry.suite == "dawnbench":
        return entry.hardware or entry.system
    many = f"{entry.num_accelerators} × " if entry.num_accelerators else ""
    hosts = f" on {entry.num_hosts} hosts" if (entry.num_hosts or 0) > 1 else ""
    if not entry.num_accelerators and entry.suite == "mlperf_training":
        return entry.system or entry.hardware
    return f"{many}{entry.hardware or entry.system}{hosts}"


def why_null(entry: Entry | None, name: str) -> str:
    """Reason why a cell of an entry's table has no number; empty where unknown."""
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
    if name in ("score_seconds", "unscaled_score_seconds"):
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
    """Entries by `key_of`, which is unique among entries that were loaded together."""
    return {key_of(entry): entry for entry in entries}
