"""Rules of the rounds of MLPerf Training by benchmark: quality, number of trials, drops.

v0.5 writes its targets into the logs; later rounds have them in their rules alone. The numbers are
in `mlperf_benchmarks.csv` and `mlperf_targets.csv`. A benchmark without a target there has two
targets at once, or one that the log does not hold.

Source: mlcommons/logging 4.1.68, as each row says; mlcommons/training_results_v0.5 for v0.5.
"""

import functools
import re
from pathlib import Path

from dawnjax.machine import data_tables
from dawnjax.results.entries import EntryTarget


@functools.cache
def _benchmarks() -> dict[str, dict[str, str]]:
    path = Path(__file__).with_name("mlperf_benchmarks.csv")
    filled = ("benchmark", "trials", "dropped", "source")
    return {row["benchmark"]: row for _, row in data_tables.rows(path, filled)}


@functools.cache
def _targets() -> tuple[dict[str, str], ...]:
    path = Path(__file__).with_name("mlperf_targets.csv")
    filled = ("benchmark", "first_round", "value", "direction", "source")
    return tuple(row for _, row in data_tables.rows(path, filled))


def is_known(benchmark: str) -> bool:
    return benchmark in _benchmarks()


def model(benchmark: str) -> str:
    """Model that the closed division prescribes; empty if unknown."""
    return _benchmarks()[benchmark]["model"] if is_known(benchmark) else ""


def round_in(path: str) -> str:
    """Round in a path, such as `v0.5` or `v4.1`; empty if none."""
    match = re.search(r"(?:^|[/_.-])v(\d{1,2}\.\d)(?:\.\d+)?(?=$|[/_.-])", path)
    return f"v{match[1]}" if match else ""


def target(benchmark: str, round_name: str, largest: float | None) -> EntryTarget:
    """Target of a benchmark in a round from v0.6 on; its value is None if unknown.

    An empty round is enough for a target that never changed. `largest`, the largest evaluation,
    shows if the logs hold BLEU or its hundredth.
    """
    unit = unit_in_v05(benchmark)
    rows = [row for row in _targets() if row["benchmark"] == benchmark]
    if round_name:
        number = _number(round_name)
        rows = [
            row
            for row in rows
            if _number(row["first_round"]) <= number <= _number(row["last_round"] or "v99.0")
        ]
    if len(rows) != 1:
        unit = "" if unit == "bleu" else unit
        return EntryTarget(metric="eval_accuracy", value=None, unit=unit)
    value, direction = float(rows[0]["value"]), rows[0]["direction"]
    if unit == "bleu":
        in_points = largest is not None and largest > 1
        value, unit = (100 * value, "bleu") if in_points else (value, "fraction")
    return EntryTarget(metric="eval_accuracy", value=value, direction=direction, unit=unit)


def unit_in_v05(benchmark: str) -> str:
    """Unit of a benchmark's quality in the logs of v0.5; empty if unknown."""
    return _benchmarks()[benchmark]["unit"] if is_known(benchmark) else ""


def num_trials(benchmark: str, round_name: str) -> int | None:
    """Number of trials that an entry must have; None if unknown."""
    if not is_known(benchmark):
        return None
    if benchmark == "ncf" and round_name == "v0.5":
        return 100
    return int(_benchmarks()[benchmark]["trials"])


def drops(benchmark: str) -> int:
    """Number of trials that the score omits at each end."""
    return int(_benchmarks()[benchmark]["dropped"]) if is_known(benchmark) else 1


def _number(round_name: str) -> tuple[int, int]:
    major, minor = round_name.removeprefix("v").split(".")
    return int(major), int(minor)
