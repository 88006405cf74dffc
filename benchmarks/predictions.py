"""Predict systems of MLPerf Training v6.1 before its results, or score these predictions by them.

    python -m benchmarks predictions                  # writes results/predictions_v6.1.json
    python -m benchmarks predictions --score=FOLDER   # a folder that `dawnjax import` reads

A prediction is the time to the target of one system, with a 90 % interval: steps from shapes, by
factors that were fitted on v5.1, and rows to the target of MLPerf's reference points. Results of
v6.0, which no fit has, say how much software gained in a round, and how wide the interval must be.
"""

import argparse
import collections
import dataclasses
import datetime
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.plan_accuracy.decoders import curve_of, time_to_target
from benchmarks.result_tables.result_files import RESULTS
from dawnjax import records
from dawnjax.official.importer import import_results
from dawnjax.page import words
from dawnjax.page.table import of_words
from dawnjax.plan.decoders import step as decoder_step
from dawnjax.plan.epochs.epochs import NORMAL_90
from dawnjax.plan.hardware.systems import parse_system
from dawnjax.trials.group import Entry

FILE = RESULTS / "predictions_v6.1.json"
TABLES = Path(__file__).parent / "plan_accuracy"

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
    if folder:
        if not Path(folder).exists():
            parser.error(f"--score={folder}: there is no such folder")
        print(score(kept(), Path(folder)))
        return 0
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    found = {
        "round": "v6.1",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit,
        "rows": [_record(row) for row in predictions()],
        "before": [_record(row) for row in last_round()],
    }
    FILE.write_text(records.json_text(found, indent=1) + "\n")
    print(text(kept()))
    return 0


def _record(row: Predicted) -> dict[str, Any]:
    numbers = {name: round(getattr(row, name), 3) for name in ("minutes", "low", "high")}
    return {**dataclasses.asdict(row), **numbers}


def kept() -> list[Predicted]:
    """The committed predictions."""
    return [Predicted(**row) for row in records.read_json(FILE, dict[str, Any])["rows"]]


def last_round() -> list[Predicted]:
    """Results of v6.0, predicted by the fit on v5.1 alone."""
    return [_predicted(row, 0.0, 0.0) for row in _rows("v6.0.csv")]


def predictions() -> list[Predicted]:
    """Systems of v6.1, moved by what the results of v6.0 differ from their prediction."""
    errors = collections.defaultdict(list)
    for row in last_round():
        assert row.published is not None, row
        errors[row.benchmark].append(math.log(row.published / row.minutes))
    gains = {name: statistics.fmean(values) for name, values in errors.items()}
    rest = [value - gains[name] for name, values in errors.items() for value in values]
    # One mean of each benchmark was taken from them.
    spread = math.sqrt(sum(value**2 for value in rest) / (len(rest) - len(gains)))
    return [_predicted(row, gains[row["id"]], spread) for row in _rows("v6.1.csv")]


ONE_ROUND = 0.1
"""Spread of what software gains from v6.0 to v6.1. From v5.1 to v6.0 Llama 3.1 8B took as long on 8
B200, 4 % less time on 8 B300 and 18 % less on 72 GB300."""


def _rows(name: str) -> list[dict[str, str]]:
    columns = ("id", "system", "model", "rows", "mesh", "products", "source")
    return [row for _, row in records.csv_rows(TABLES / name, columns)]


def _predicted(row: Mapping[str, str], gain: float, spread: float) -> Predicted:
    model, arrangement = decoder_step.arranged(row)
    system, batch = arrangement.system, arrangement.rows
    factors = decoder_step.fitted(system.accelerator)
    step, curve = factors.step(model, arrangement), curve_of(row["id"])
    seconds = time_to_target(row["id"], batch, step.value, curve.at(batch)) * math.exp(gain)
    if spread:  # Results of v6.0 have what the fit's steps lack: experts that drop no token.
        arrangement = dataclasses.replace(arrangement, capacity=1.0)
    own = factors.spread_at(model, arrangement)
    factor = math.exp(
        NORMAL_90 * math.hypot(own, curve.spread_at(batch), spread, ONE_ROUND if spread else 0.0)
    )
    return Predicted(
        benchmark=row["id"],
        system=system.name,
        chips=system.num_devices // system.accelerator.devices_per_chip,
        batch=batch,
        arrangement=f"{row['mesh']}, {row['products']}",
        minutes=seconds / 60,
        low=seconds / 60 / factor,
        high=seconds / 60 * factor,
        basis=row["source"],
        published=float(row["minutes"]) if row["minutes"] else None,
    )


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
