"""Predictions of systems of MLPerf Training v6.1, made before its results, and their score.

    python -m benchmarks predictions                  # shows results/predictions_v6.1.json
    python -m benchmarks predictions --score=FOLDER   # a folder that `dawnjax import` reads

A prediction is the time to the target of one system, with a 90 % interval. Nothing here writes the
file again: a prediction that is made after the results is none.
"""

import argparse
import dataclasses
import math
import re
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.result_tables.result_files import RESULTS
from dawnjax import records
from dawnjax.official.importer import import_results
from dawnjax.page import words
from dawnjax.page.table import of_words
from dawnjax.plan.hardware.systems import parse_system
from dawnjax.trials.group import Entry

FILE = RESULTS / "predictions_v6.1.json"

CHIPS = {
    "gb300": r"\bGB300",
    "gb200": r"\bGB200",
    "b300": r"(?<!G)B300",
    "b200": r"(?<!G)B200",
    "mi355x": r"MI355X",
    "v5p": r"v5p",
    "v6e": r"v6e|Trillium",
    "v7x": r"TPU ?v?7x?\b|Ironwood",
}
"""What the description of a result's accelerator says, by the accelerator of a plan."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predicted:
    """Time to the target of a system; of results with `published`, both in minutes.

    Attributes:
      chips: Accelerators as MLPerf counts them.
      basis: Source of the arrangement.
      low, high: Ends of the 90 % interval.
    """

    benchmark: str
    system: str
    chips: int
    batch: int
    arrangement: str
    minutes: float
    low: float
    high: float
    basis: str
    published: float | None = None


def main() -> int:
    parser = argparse.ArgumentParser(
        prog=sys.argv[0], description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--score", metavar="FOLDER", help="results of the round")
    folder = parser.parse_args().score
    if folder and not Path(folder).exists():
        parser.error(f"--score={folder}: there is no such folder")
    rows = kept()
    print(score(rows, Path(folder)) if folder else text(rows))
    return 0


def kept() -> list[Predicted]:
    """The committed predictions."""
    return [Predicted(**row) for row in records.read_json(FILE, dict[str, Any])["rows"]]


def score(rows: Iterable[Predicted], folder: Path) -> str:
    """Predictions beside the results of a folder, and how many lie inside their interval."""
    imported = import_results([folder])
    keyed = {(row.benchmark, row.system.partition(":")[0], row.chips): row for row in rows}
    scored, others = [], []
    for entry in imported.entries:
        row = keyed.get(_key(entry))
        seconds = entry.figures.score_seconds
        if row is None or seconds is None:
            others.append(entry)
            continue
        scored.append((entry, dataclasses.replace(row, published=seconds / 60)))
    lines = [f"{len(others)} other results, and {len(imported.rejections)} files left out"]
    if not scored:
        return f"no result in {folder} is of a predicted system; {lines[0]}"
    lines_of = [
        [
            f"{entry.submitter} {entry.system}",
            entry.round or "-",
            str(entry.global_batch_size or "-"),
            *cells(row),
        ]
        for entry, row in scored
    ]
    held = sum(_holds(row) for _, row in scored)
    errors = [abs(math.log(row.minutes / (row.published or 0))) for _, row in scored]
    median = math.expm1(statistics.median(errors))
    lines.insert(0, f"{held} of {len(scored)} inside their 90 % interval, median error "
                    f"{words.rounded(100 * median, 2)} %")  # fmt: skip
    return "\n".join(
        [of_words(["result", "round", "its batch", *HEAD], lines_of).to_text(), *lines]
    )


def _key(entry: Entry) -> tuple[str, str, int]:
    said = f"{entry.hardware} {entry.system}"
    chip = next((name for name, known in CHIPS.items() if re.search(known, said)), "")
    return entry.benchmark, chip, entry.num_accelerators or 0


HEAD = ["benchmark", "system", "batch", "minutes", "90 % interval", "published", "error", "inside"]


def text(rows: Iterable[Predicted]) -> str:
    return of_words(HEAD[:5], [cells(row)[:5] for row in rows]).to_text()


def cells(row: Predicted) -> list[str]:
    cells = [
        row.benchmark,
        parse_system(row.system).described,
        str(row.batch),
        words.rounded(row.minutes, 3),
        f"{words.rounded(row.low, 3)} to {words.rounded(row.high, 3)}",
    ]
    if row.published is None:
        return [*cells, "", "", ""]
    error = row.minutes / row.published - 1
    sign = "+" if error >= 0 else "-"
    return [
        *cells,
        words.rounded(row.published, 3),
        f"{sign}{words.rounded(100 * abs(error), 2)} %",
        "yes" if _holds(row) else "no",
    ]


def _holds(row: Predicted) -> bool:
    return row.published is not None and row.low <= row.published <= row.high


if __name__ == "__main__":
    sys.exit(main())
