"""The paper's tables on the page, published beside recomputed."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dawnjax.analysis.paper import AGREES, DISAGREES, NO_LOGS, Recomputed
from dawnjax.page.section import Section
from dawnjax.page.table import Column, Table, row_of

_COLUMNS = (
    Column("table", "in the paper"),
    Column("row", "row"),
    Column("cell", "cell"),
    Column("published", "published"),
    Column("recomputed", "recomputed", kind="number", digits=5),
    Column("unit", "unit"),
    Column("tolerance", "tolerance", kind="number", filed=True),
    Column("verdict", "verdict"),
    Column("remark", "remark"),
    Column("source", "entry", filed=True),
)

_TITLES = {
    "Table 1": "Table 1: entries by processor and framework",
    "Table 2": "Table 2: quality targets",
    "Table 3b": "Table 3b: variation of MLPerf entries",
    "Table 4": "Table 4: epochs and time per epoch",
    "Table 7": "Table 7: throughput against time to accuracy",
    "Table 8": "Table 8: systems",
    "section 4.1": "Section 4.1: how much the time to accuracy varies",
    "text": "Figures of the text: DAWNBench",
}

_NOTES = {
    "Table 1": ("tensorpack counts as TensorFlow, fast.ai as PyTorch, Intel's Caffe as Caffe.",),
    "Table 3b": (
        "The 2019 text calls it variance over mean; the printed figures are standard deviation "
        "over mean, as the 2018 text says.",
    ),
}


def paper_section(parts: Mapping[str, Sequence[Recomputed]]) -> Section:
    """The cells that logs do not give, then the paper's tables.

    Args:
      parts: Parts of `analysis.paper.recomputed`.
    """
    every = [cell for cells in parts.values() for cell in cells]
    counts = Counter(cell.verdict for cell in every)
    wrong = [cell for cell in every if cell.verdict == DISAGREES]
    errata = _table("errata", "Cells of the paper that its logs do not confirm", wrong)
    tables = (
        _table(name, _TITLES[name], cells, *_NOTES.get(name, ())) for name, cells in parts.items()
    )
    return Section(
        name="paper",
        title="The paper's tables, published and recomputed",
        lead=(
            "Every cell that these results can check: "
            f"{counts[AGREES]} agree, {counts[DISAGREES]} do not, and {counts[NO_LOGS]} have no "
            "logs here.",
            "Published figures: Analysis of DAWNBench, a Time-to-Accuracy Machine Learning "
            "Performance Benchmark (arXiv 1806.01427).",
        ),
        blocks=tuple(table for table in (errata, *tables) if table.rows),
    )


def _table(name: str, title: str, cells: Sequence[Recomputed], *notes: str) -> Table:
    file = name.lower().replace(" ", "_").replace(".", "_")
    rows = tuple(row_of(_COLUMNS, cell) for cell in cells)
    return Table(name=f"paper_{file}", title=title, columns=_COLUMNS, rows=rows, notes=notes)
