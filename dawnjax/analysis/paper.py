"""The paper's figures side by side: printed, from the logs, and whether they agree.

Printed figures are from "Analysis of DAWNBench, a Time-to-Accuracy Machine Learning Performance
Benchmark" (arXiv 1806.01427): its version of 2019, unless a row names the one of 2018. They are in
`paper_cells.csv`, one row a cell, with the entries and the quantity that recompute it; the entries
that Table 1a counts are in `paper_table_1a.csv`. All else is computed from the given entries.

A figure agrees within half a unit of the last printed digit, or within the row's own tolerance.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.analysis.counts import Counts, ListedEntry, count, count_listed
from dawnjax.analysis.leaderboard import up_to
from dawnjax.analysis.scaling import speedup
from dawnjax.trials.group import Entry

AGREES = "agrees"
DISAGREES = "does not agree"
NO_LOGS = "no logs here"

_FOLDER = Path(__file__).parent

_AUTHORS_OF_THE_BENCHMARK = "Stanford DAWN"

_CUT_OFF_2018 = "2018-09-28"
"""The last day of the entries that the earlier version of the paper speaks of."""

_TRANSFORMER_ON_ONE = "v0.5.0/nvidia/submission/results/dgx1_ngc18.11_pytorch/transformer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recomputed:
    """A figure of the paper beside the same figure from the given entries.

    Attributes:
      table: Where the paper has it, with its row and its cell.
      published: As it is printed.
      recomputed: From the entries; None where they lack its logs.
      tolerance: Allowed difference; None where nothing is printed as a number, or only a bound.
      verdict: `AGREES`, `DISAGREES`, `NO_LOGS`, or empty where nothing is printed.
      source: The entries that it was computed from.
    """

    table: str
    row: str
    cell: str
    published: str
    recomputed: float | None
    unit: str
    tolerance: float | None
    verdict: str
    remark: str
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Cell:
    """One published figure and its recomputation.

    Attributes:
      value: The figure as a number; None where it is not checked.
      tolerance: Allowed difference; None if the text says only that it is below `value`.
      quantity: A key of `_QUANTITIES`, or a field of the entries' summary or of `Counts`.
      entries: Paths of its entries, or names in `_chosen_entries`; empty where the archives lack
        the paper's logs.
      remark: Note that is always shown; `erratum` only if the figures disagree.
      missing: Shortfall of the archives, as they leave entries out.
    """

    table: str
    row: str
    cell: str
    printed: str
    value: float | None
    tolerance: float | None
    unit: str
    quantity: str
    entries: tuple[str, ...]
    remark: str
    erratum: str
    missing: float


_QUANTITIES: dict[str, Callable[..., float | None]] = {
    "target": lambda entry: entry.target.value,
    "target_percent": lambda entry: _percent(entry.target.value),
    "cv_percent": lambda entry: _percent(entry.figures.cv),
    "batch_size": lambda entry: entry.global_batch_size,
    "hosts": lambda entry: entry.num_hosts,
    "speedup_tta": lambda small, large: speedup(small, large).tta,
    "speedup_throughput": lambda small, large: speedup(small, large).throughput,
}


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


@functools.cache
def _published(*tables: str) -> tuple[_Cell, ...]:
    cells = []
    for _, row in records.csv_rows(_FOLDER / "paper_cells.csv", ("table", "row", "cell", "source")):
        if row["table"] in tables:
            fields: dict[str, Any] = {**row}
            del fields["source"]
            fields["value"] = records.load_json(row["value"] or "null")
            below = row["tolerance"] == "below"
            fields["tolerance"] = None if below else records.load_json(row["tolerance"] or "0.0")
            fields["entries"] = tuple(filter(None, row["entries"].split(" and ")))
            fields["missing"] = int(row["missing"] or 0)
            cells.append(_Cell(**fields))
    return tuple(cells)


TABLES = ("Table 2", "Table 3b", "Table 4", "Table 7", "Table 8")
"""Tables of the paper of which each cell is of one entry, or of two."""


def recomputed(
    entries: Iterable[Entry], entry_list: Sequence[ListedEntry] | None = None
) -> dict[str, list[Recomputed]]:
    """Cells of the paper's tables, then figures of its text, each recomputed from entries.

    Args:
      entries: Of the official archives: DAWNBench training entries and MLPerf v0.5.
      entry_list: All official entries of MLPerf v0.5 (`counts.read_entry_list`), for Table 1b, as
        not all have logs.
    """
    chosen = [entry for entry in entries if entry.kind == "training" and not _is_history(entry)]
    names = _chosen_entries(chosen)

    def cells_of(*printed: str) -> list[Recomputed]:
        cells = []
        for cell in _published(*printed):
            paths = tuple(names.get(entry, entry) for entry in cell.entries)
            cell = dataclasses.replace(cell, entries=paths)
            cells.append(_beside(cell, _recompute(cell, chosen)))
        return cells

    return {
        "Table 1": _counts(chosen, entry_list),
        **{name: cells_of(name) for name in TABLES},
        "section 4.1": _variation(chosen),
        "text": cells_of("text (2018)", "abstract"),
    }


def find_entry(entries: Iterable[Entry], path: str) -> Entry | None:
    """Entry at a path of the official repositories, wherever they lie; None if absent."""
    matching = [
        entry
        for entry in entries
        if not _is_history(entry) and (entry.source == path or entry.source.endswith(f"/{path}"))
    ]
    return min(matching, key=lambda entry: len(entry.source), default=None)


def _is_history(entry: Entry) -> bool:
    """True for a superseded version, which lies in a folder named for a blob."""
    return re.match(r"(?:.*/)?[0-9a-f]{8}/", entry.source) is not None


def _recompute(cell: _Cell, entries: Sequence[Entry]) -> float | None:
    known = [entry for path in cell.entries if (entry := find_entry(entries, path)) is not None]
    if not known or len(known) < len(cell.entries):
        return None
    if cell.quantity in _QUANTITIES:
        return _QUANTITIES[cell.quantity](*known)
    return getattr(known[0].figures, cell.quantity)


def _beside(cell: _Cell, value: float | None) -> Recomputed:
    verdict, remark = NO_LOGS, cell.remark
    if value is None and cell.entries:
        remark = "; ".join(filter(None, ["the entry is not among those given", remark]))
    elif value is not None and cell.value is None:
        verdict = ""  # nothing is printed that it could be held against
    elif value is not None and cell.value is not None:
        if cell.tolerance is None:
            agrees = value < cell.value
        else:
            # A value at the very edge of the tolerance agrees: 1e-9 is for binary fractions.
            agrees = abs(value - cell.value) <= cell.tolerance + 1e-9
        if agrees:
            verdict = AGREES
        elif not cell.missing or value != cell.value - cell.missing:
            verdict = DISAGREES
            remark = "; ".join(filter(None, [cell.erratum, remark]))
    return Recomputed(
        table=cell.table,
        row=cell.row,
        cell=cell.cell,
        published=cell.printed,
        recomputed=value,
        unit=cell.unit,
        tolerance=None if cell.value is None else cell.tolerance,
        verdict=verdict,
        remark=remark,
        source=" and ".join(cell.entries),
    )


def _counts(entries: Sequence[Entry], entry_list: Sequence[ListedEntry] | None) -> list[Recomputed]:
    """Entries by processor and framework."""
    dawnbench = [entry for entry in entries if entry.suite == "dawnbench"]
    by_submitters = [e for e in dawnbench if e.submitter != _AUTHORS_OF_THE_BENCHMARK]
    until_2018 = up_to(by_submitters, _CUT_OFF_2018)
    # By name and not by date: the last of Huawei's was replaced in place later.
    listed = records.csv_rows(_FOLDER / "paper_table_1a.csv", ("entry", "source"))
    named = [find_entry(dawnbench, row["entry"]) for _, row in listed]
    table_1a = [entry for entry in named if entry is not None]
    counts: dict[tuple[str, str], Counts | None] = {
        ("Table 1a", "DAWNBench ImageNet"): (
            count(table_1a) if len(table_1a) == len(named) else None
        ),
        ("Table 1b", "MLPerf v0.5"): None if entry_list is None else count_listed(entry_list),
    }
    for benchmark in ("ImageNet", "CIFAR10"):
        of_benchmark = [e for e in until_2018 if e.benchmark == benchmark]
        key = ("Table 1 (2018)", f"DAWNBench {benchmark}")
        counts[key] = count(of_benchmark) if of_benchmark else None
    rows = []
    published = _published("Table 1a", "Table 1b", "Table 1 (2018)")
    for (table, row, quantity), group in itertools.groupby(
        published, key=lambda cell: (cell.table, cell.row, cell.quantity)
    ):
        cells = list(group)
        counted = counts[table, row]
        numbers = None if counted is None else getattr(counted, quantity)
        # What is counted but not printed would otherwise go unseen.
        unseen = [name for name in numbers or () if name not in [cell.cell for cell in cells]]
        cells += [
            dataclasses.replace(cells[0], cell=name, printed="", value=0, missing=0)
            for name in unseen
        ]
        for cell in cells:
            if table == "Table 1b" and entry_list is None:
                remark = f"{cell.remark}; needs the list of all official entries"
                cell = dataclasses.replace(cell, remark=remark)
            rows.append(_beside(cell, None if numbers is None else numbers.get(cell.cell, 0)))
    return rows


def _variation(entries: Sequence[Entry]) -> list[Recomputed]:
    """Largest CVs; the paper says below 14 %, save Transformer on larger systems."""
    known = [
        (cv, entry)
        for entry in entries
        if entry.suite == "mlperf_training"
        and entry.round == "v0.5"
        and entry.benchmark != "ncf"
        and (cv := entry.figures.cv) is not None
    ]
    large_transformers = [
        (cv, entry)
        for cv, entry in known
        if entry.benchmark == "transformer" and not entry.source.endswith(_TRANSFORMER_ON_ONE)
    ]
    without = [pair for pair in known if pair not in large_transformers]
    rows = []
    for cell, pairs in zip(_published("section 4.1"), (without, large_transformers), strict=True):
        cv, entry = max(pairs, key=lambda pair: pair[0], default=(None, None))
        remark = f"of {len(pairs)} entries with logs here"
        paths = () if entry is None else (entry.source,)
        cell = dataclasses.replace(cell, remark=remark, entries=paths)
        rows.append(_beside(cell, _percent(cv)))
    return rows


def _chosen_entries(entries: Sequence[Entry]) -> dict[str, str]:
    """Paths of the entries that `paper_cells.csv` names by the record they held in 2018."""
    then = up_to([entry for entry in entries if entry.suite == "dawnbench"], _CUT_OFF_2018)
    imagenet = [entry for entry in then if entry.benchmark == "ImageNet"]
    cheapest = _best(imagenet, "cost_usd")
    return {
        "fastest ImageNet": _best(imagenet, "mean_seconds"),
        "fastest ImageNet on CPUs": _best(
            [entry for entry in imagenet if entry.processor_class == "CPU"], "mean_seconds"
        ),
        "cheapest ImageNet": cheapest,
        "next cheapest ImageNet": _best([e for e in imagenet if e.source != cheapest], "cost_usd"),
        "fastest CIFAR10": _best([e for e in then if e.benchmark == "CIFAR10"], "mean_seconds"),
        "fastest ImageNet of April 2018": _best(
            [e for e in imagenet if "2018-04-01" <= e.date <= "2018-04-30"], "mean_seconds"
        ),
    }


def _best(entries: Sequence[Entry], quantity: str) -> str:
    """Path of the entry whose summary has the least of a quantity; words if there is none."""
    known = [
        (value, e.source) for e in entries if (value := getattr(e.figures, quantity)) is not None
    ]
    return min(known, default=(0.0, "none of the entries given"))[1]
