"""The paper's tables side by side: what it prints, what the logs give, and whether they agree.

Published figures are from "Analysis of DAWNBench, a Time-to-Accuracy Machine Learning Performance
Benchmark" (arXiv 1806.01427): its version of 2019, unless a row names the earlier one of 2018.
Everything else here is computed from the entries that are given.

A figure agrees if it is within half a unit of the last printed digit; where a row allows more, its
tolerance says so.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from dawnjax.analysis.counts import Counts, ListedEntry, count, count_listed
from dawnjax.analysis.entries import Entry
from dawnjax.analysis.leaderboard import up_to
from dawnjax.analysis.paper_cells import (
    TABLE_1A_IMAGENET,
    TABLE_2,
    TABLE_3B,
    TABLE_4,
    TABLE_7,
    TABLE_8,
    TRANSFORMER_1,
    Cell,
    summary_of,
)
from dawnjax.analysis.tables import Column, Table

AGREES = "agrees"
DISAGREES = "does not agree"
NO_LOGS = "no logs here"

_AUTHORS_OF_THE_BENCHMARK = "Stanford DAWN"

_CUT_OFF_2018 = "2018-09-28"
"""The last day of the entries that the earlier version of the paper speaks of."""

COLUMNS = (
    Column("table", "in the paper"),
    Column("row", "row"),
    Column("cell", "cell"),
    Column("published", "published"),
    Column("recomputed", "recomputed", kind="number"),
    Column("unit", "unit"),
    Column("tolerance", "tolerance", kind="number"),
    Column("verdict", "verdict"),
    Column("remark", "remark"),
    Column("source", "entry"),
)


def paper_tables(
    entries: Iterable[Entry], entry_list: Sequence[ListedEntry] | None = None
) -> list[Table]:
    """Gives the paper's tables, published beside recomputed.

    Args:
      entries: Of the official archives: DAWNBench training entries and MLPerf v0.5.
      entry_list: All official entries of MLPerf v0.5 (`counts.read_entry_list`), for Table 1b, as
        not all have logs.

    Returns:
      One table for each of the paper's, then the figures of its text.
    """
    chosen = [entry for entry in entries if entry.kind == "training" and not _is_history(entry)]
    return [
        _counts_table(chosen, entry_list),
        _table("paper_table_2", "Table 2: quality targets", chosen, TABLE_2),
        _table(
            "paper_table_3b",
            "Table 3b: variation of MLPerf entries",
            chosen,
            TABLE_3B,
            "The text of 2019 calls it variance over mean; the printed figures are standard "
            "deviation over mean, as the text of 2018 says.",
        ),
        _table("paper_table_4", "Table 4: epochs and time per epoch", chosen, TABLE_4),
        _table("paper_table_7", "Table 7: throughput against time to accuracy", chosen, TABLE_7),
        _table("paper_table_8", "Table 8: systems", chosen, TABLE_8),
        _variation_table(chosen),
        _table("paper_headlines", "Figures of the text: DAWNBench", chosen, _headlines(chosen)),
    ]


def errata(tables: Iterable[Table]) -> Table:
    """Gives the cells that do not agree, of all tables."""
    rows = []
    for table in tables:
        verdicts = table.column("verdict")
        rows += [
            row for row, verdict in zip(table.rows, verdicts, strict=True) if verdict == DISAGREES
        ]
    return Table(
        name="paper_errata",
        title="Cells of the paper that its logs do not give",
        columns=COLUMNS,
        rows=tuple(rows),
    )


def find_entry(entries: Iterable[Entry], path: str) -> Entry | None:
    """Gives the entry at a path of the official repositories, wherever they lie; None if absent."""
    found = [
        entry
        for entry in entries
        if not _is_history(entry) and (entry.source == path or entry.source.endswith(f"/{path}"))
    ]
    return min(found, key=lambda entry: len(entry.source), default=None)


def _is_history(entry: Entry) -> bool:
    """Tells superseded versions, which lie in folders named for a blob."""
    return re.match(r"(?:.*/)?[0-9a-f]{8}/", entry.source) is not None


def _table(
    name: str, title: str, entries: Sequence[Entry], cells: Iterable[Cell], *notes: str
) -> Table:
    return Table(
        name=name,
        title=title,
        columns=COLUMNS,
        rows=tuple(_row(cell, _recompute(cell, entries)) for cell in cells),
        notes=("Published figures: arXiv 1806.01427.", *notes),
    )


def _recompute(cell: Cell, entries: Sequence[Entry]) -> float | None:
    if cell.compute is None:
        return None
    found = [find_entry(entries, source) for source in cell.sources]
    known = [entry for entry in found if entry is not None]
    return cell.compute(*known) if len(known) == len(found) else None


def _row(cell: Cell, value: float | None) -> tuple[str | float | None, ...]:
    verdict, remark = NO_LOGS, cell.remark
    if value is not None and cell.value is not None:
        # A value at the very edge of the tolerance agrees: 1e-9 is for binary fractions.
        agrees = abs(value - cell.value) <= cell.tolerance + 1e-9
        if cell.below:
            agrees = value < cell.value
        verdict = AGREES if agrees else DISAGREES
        if not agrees and cell.missing and value == cell.value - cell.missing:
            verdict = NO_LOGS
        elif not agrees:
            remark = "; ".join(part for part in (cell.erratum, cell.remark) if part)
    elif cell.compute is not None:
        remark = "; ".join(part for part in ("the entry is not among those given", remark) if part)
    return (
        cell.table,
        cell.row,
        cell.cell,
        cell.printed,
        value,
        cell.unit,
        None if cell.value is None or cell.below else cell.tolerance,
        verdict,
        remark,
        " and ".join(cell.sources),
    )


def _counts_table(entries: Sequence[Entry], entry_list: Sequence[ListedEntry] | None) -> Table:
    dawnbench = [entry for entry in entries if entry.suite == "dawnbench"]
    others = [e for e in dawnbench if e.submitter != _AUTHORS_OF_THE_BENCHMARK]
    until_2018 = up_to(others, _CUT_OFF_2018)
    named = [find_entry(dawnbench, f"ImageNet/train/{name}") for name in TABLE_1A_IMAGENET]
    table_1a = [entry for entry in named if entry is not None]
    rows = [
        *_count_rows(
            "Table 1a",
            "DAWNBench ImageNet",
            count(table_1a) if len(table_1a) == len(named) else None,
            {"GPU": 8, "TPU": 8, "CPU": 3},
            {"TensorFlow": 11, "PyTorch": 4, "Caffe": 3, "MXNet": 1},
            "the entries in the repository on 2019-02-01, by name",
        ),
        *_count_rows(
            "Table 1b",
            "MLPerf v0.5",
            None if entry_list is None else count_listed(entry_list),
            {"GPU": 28, "TPU": 7, "CPU": 6},
            {"PyTorch": 22, "TensorFlow": 10, "Caffe": 3, "MXNet": 5, "BigDL": 1},
            "without research systems, each system once; needs the list of all official entries"
            if entry_list is None
            else "without research systems, each system once",
        ),
        *_count_rows(
            "Table 1 (2018)",
            "DAWNBench ImageNet",
            _some([e for e in until_2018 if e.benchmark == "ImageNet"]),
            {"GPU": 6, "TPU": 6, "CPU": 3},
            {"TensorFlow": 8, "PyTorch": 4, "Caffe": 3},
            f"entries dated up to {_CUT_OFF_2018}, the benchmark's authors left out",
        ),
        *_count_rows(
            "Table 1 (2018)",
            "DAWNBench CIFAR10",
            _some([e for e in until_2018 if e.benchmark == "CIFAR10"]),
            {"GPU": 6, "TPU": 0, "CPU": 0},
            {"TensorFlow": 2, "PyTorch": 4},
            "as above; one of the six entries, with PyTorch, is not in the archives",
            {"GPU": 1, "PyTorch": 1},
        ),
    ]
    return Table(
        name="paper_table_1",
        title="Table 1: entries by processor and framework",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=("tensorpack counts as TensorFlow, fast.ai as PyTorch, Intel's Caffe as Caffe.",),
    )


def _some(entries: Sequence[Entry]) -> Counts | None:
    return count(entries) if entries else None


def _count_rows(
    table: str,
    row: str,
    counts: Counts | None,
    processors: dict[str, int],
    frameworks: dict[str, int],
    remark: str,
    missing: dict[str, int] | None = None,
) -> list[tuple[str | float | None, ...]]:
    rows = []
    for published, found in (
        (processors, None if counts is None else counts.processors),
        (frameworks, None if counts is None else counts.frameworks),
    ):
        # What is counted but not printed would otherwise go unseen.
        unseen = {} if found is None else {name: 0 for name in found if name not in published}
        for name, number in {**published, **unseen}.items():
            cell = Cell(
                table=table,
                row=row,
                cell=name,
                printed=str(number) if name in published else "",
                value=number,
                unit="entries",
                remark=remark,
                missing=(missing or {}).get(name, 0),
            )
            rows.append(_row(cell, None if found is None else found.get(name, 0)))
    return rows


def _variation_table(entries: Sequence[Entry]) -> Table:
    """Gives the largest CVs; the paper says below 14 %, save Transformer on larger systems."""
    known = [
        (summary.cv, entry)
        for entry in entries
        if entry.suite == "mlperf_training"
        and entry.round == "v0.5"
        and entry.benchmark != "ncf"
        and (summary := entry.summary) is not None
        and summary.cv is not None
    ]
    large_transformers = [
        (cv, entry)
        for cv, entry in known
        if entry.benchmark == "transformer" and not entry.source.endswith(TRANSFORMER_1)
    ]
    others = [pair for pair in known if pair not in large_transformers]
    rows = []
    for name, pairs, printed in (
        ("largest, Transformer on larger systems left out", others, "below 14%"),
        ("largest, Transformer on larger systems", large_transformers, ""),
    ):
        cv, entry = max(pairs, key=lambda pair: pair[0], default=(None, None))
        verdict = NO_LOGS if cv is None else ""
        if cv is not None and printed:
            verdict = AGREES if cv < 0.14 else DISAGREES
        rows.append(
            (
                "section 4.1",
                "MLPerf v0.5 without NCF",
                f"coefficient of variation: {name}",
                printed,
                None if cv is None else 100 * cv,
                "%",
                None,
                verdict,
                f"of {len(pairs)} entries with logs here",
                "" if entry is None else entry.source,
            )
        )
    return Table(
        name="paper_section_4_1",
        title="Section 4.1: how much the time to accuracy varies",
        columns=COLUMNS,
        rows=tuple(rows),
    )


def _headlines(entries: Sequence[Entry]) -> list[Cell]:
    """The figures of the text, each of the entry that holds it among those of its day."""
    then = up_to([entry for entry in entries if entry.suite == "dawnbench"], _CUT_OFF_2018)
    imagenet = [entry for entry in then if entry.benchmark == "ImageNet"]
    cpu = [entry for entry in imagenet if entry.processor_class == "CPU"]
    cifar = [entry for entry in then if entry.benchmark == "CIFAR10"]
    cheapest = _best(imagenet, _cost)
    early, late = "text (2018)", "abstract"

    def cell(table, row, printed, value, tolerance, unit, source, compute, remark=""):
        below = tolerance is None
        return Cell(
            table=table,
            row=row,
            cell="time" if unit == "s" else "cost",
            printed=printed,
            value=value,
            tolerance=0.0 if below else tolerance,
            unit=unit,
            compute=compute,
            sources=(source,),
            remark=remark,
            below=below,
        )

    fastest = _best(imagenet, _seconds)
    return [
        cell(
            early, "fastest ImageNet", "18 min 6 s", 1086, 1, "s", fastest, _seconds,
            "18:05.2, rounded up in print",
        ),
        cell(
            early, "ImageNet, half a TPUv2 pod", "30 min", 1800, 60, "s",
            "ImageNet/train/google_resnet50_tpupod_tensorflow18", _seconds, "30:43, cut in print",
        ),
        cell(
            early, "fastest ImageNet on CPUs", "3 h 26 min", 12360, 30, "s",
            _best(cpu, _seconds), _seconds, "128 machines",
        ),
        cell(early, "cheapest ImageNet", "$48.48", 48.48, 0.005, "USD", cheapest, _cost),
        cell(
            early, "next cheapest ImageNet", "$49.30", 49.30, 0.005, "USD",
            _best([e for e in imagenet if e.source != cheapest], _cost), _cost, "AmoebaNet",
        ),
        cell(
            early, "fastest CIFAR10", "under 3 minutes", 180, None, "s",
            _best(cifar, _seconds), _seconds, "8 V100",
        ),
        cell(
            early, "CIFAR10 on 1 V100", "$0.26", 0.26, 0.005, "USD",
            "CIFAR10/train/fastai_pytorch_single_volta", _cost,
        ),
        cell(
            late, "ImageNet", "under 3 minutes", 180, None, "s",
            "ImageNet/train/huaweicloud_resnet50_modelarts_16_machine_tensorflow18", _seconds,
        ),
        cell(
            late, "ImageNet, April 2018", "less than 30 minutes", 1800, None, "s",
            _best(
                [e for e in imagenet if "2018-04-01" <= e.date <= "2018-04-30"], _seconds
            ), _seconds,
            "the fastest entry of that month takes 30:43, so that about 30 minutes are meant",
        ),
    ]  # fmt: skip


def _best(entries: Sequence[Entry], quantity: Callable[[Entry], float | None]) -> str:
    """Gives the source of the entry with the least of a quantity; text that names none if none."""
    known = [(value, e.source) for e in entries if (value := quantity(e)) is not None]
    return min(known, default=(0.0, "none of the entries given"))[1]


def _seconds(entry: Entry) -> float | None:
    return summary_of(entry).mean_seconds


def _cost(entry: Entry) -> float | None:
    return summary_of(entry).cost_usd
