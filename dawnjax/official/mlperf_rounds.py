"""Rules of the rounds of MLPerf Training by benchmark: quality, number of trials, drops, epochs.

v0.5 writes its targets into the logs; later rounds have them in their rules alone. The numbers are
in `mlperf_benchmarks.csv` and `mlperf_targets.csv`. A benchmark with several metrics has a row
there for each; all must be reached at once. `mlperf_epochs.csv` has the unit of the labels of
evaluations.

Source: mlcommons/logging 4.1.68, as each row says; mlcommons/training_results_v0.5 for v0.5.
"""

import dataclasses
import functools
import re
from pathlib import Path

from dawnjax import records
from dawnjax.trials.target import Target

_ALIASES = {"mask": "maskrcnn"}
"""Names of a benchmark in some logs. Google's of v0.6 say `mask`, as MLPerf's summarizer knows."""

_FIRST_RETINANET = (2, 0)
"""Round from which `ssd` is RetinaNet on OpenImages; v5.0 renamed it `retinanet`."""


@functools.cache
def _rows(table: str, *filled: str) -> tuple[dict[str, str], ...]:
    path = Path(__file__).with_name(f"mlperf_{table}.csv")
    return tuple(row for _, row in records.csv_rows(path, ("benchmark", "source", *filled)))


def _benchmark(benchmark: str) -> dict[str, str]:
    """Row of a benchmark; empty if it is unknown."""
    rows = _rows("benchmarks", "trials", "dropped")
    return next((row for row in rows if row["benchmark"] == benchmark), {})


def _targets(benchmark: str) -> list[dict[str, str]]:
    rows = _rows("targets", "first_round", "value", "direction")
    return [row for row in rows if row["benchmark"] == benchmark]


@dataclasses.dataclass(frozen=True)
class EpochRule:
    """Meaning of the labels of evaluations in a benchmark's logs from v0.6 on.

    Attributes:
      name: `labels` (whole epochs, from 0 or 1), `amount` (epochs trained), `fraction` (parts of an
        epoch, from 0 or 1), `label_samples` (examples, under the name of an epoch), `samples`
        (examples) or `none`.
      examples: Training examples of an epoch; None where the rule needs none.
      reason: Why there is no number, for `none`.
    """

    name: str
    examples: int | None = None
    reason: str = ""


def epoch_rule(benchmark: str, round_name: str) -> EpochRule:
    """Rule for epochs of a benchmark in a round; an empty round is enough if no round differs."""
    every = _rows("epochs", "first_round", "rule")
    rows = _in_round([row for row in every if row["benchmark"] == benchmark], round_name)
    if not rows:
        return EpochRule("none", reason="no rule says what the labels of this benchmark count")
    if len({row["rule"] for row in rows}) > 1:
        reason = "labels count epochs in some rounds and samples in others; no folder names a round"
        return EpochRule("none", reason=reason)
    examples = int(rows[0]["examples"]) if rows[0]["examples"] else None
    return EpochRule(rows[0]["rule"], examples, rows[0]["reason"])


def is_known(benchmark: str) -> bool:
    return bool(_benchmark(benchmark))


def benchmark_of(logged: str) -> str:
    """Benchmark's one name for a name in a log."""
    return _ALIASES.get(logged, logged)


def curve_metric(benchmark: str) -> str:
    """Metric shown of a benchmark that logs several, the first of its target; empty for others."""
    return next((row["metric"] for row in _targets(benchmark)), "")


def model(benchmark: str, round_name: str = "") -> str:
    """Model that the closed division prescribes; empty if unknown."""
    if benchmark == "ssd" and round_name and _number(round_name) >= _FIRST_RETINANET:
        benchmark = "retinanet"
    return _benchmark(benchmark).get("model", "")


def round_in(path: str) -> str:
    """Round in a path, such as `v0.5` or `v4.1`; empty if none."""
    match = re.search(r"(?:^|[/_.-])v(\d{1,2}\.\d)(?:\.\d+)?(?=$|[/_.-])", path)
    return f"v{match[1]}" if match else ""


def target(benchmark: str, round_name: str, largest: float | None) -> Target:
    """Target of a benchmark in a round from v0.6 on; its value is None if unknown.

    An empty round is enough for a target that never changed. `largest`, the largest evaluation,
    shows if the logs hold BLEU or its hundredth.
    """
    every = _targets(benchmark)
    rows, unit = _in_round(every, round_name), unit_in_v05(benchmark)
    unknown = Target(
        metric=curve_metric(benchmark) or "eval_accuracy",
        value=None,
        direction=every[0]["direction"] if every else "at_least",
        unit="" if unit == "bleu" else unit,
    )
    if not rows or len({row["metric"] for row in rows}) < len(rows):  # or of several rounds
        return unknown
    value = float(rows[0]["value"])
    if unit == "bleu":
        in_points = largest is not None and largest > 1
        value, unit = (100 * value, "bleu") if in_points else (value, "fraction")
    others = tuple(
        Target(metric=row["metric"], value=float(row["value"]), direction=row["direction"])
        for row in rows[1:]
    )
    return dataclasses.replace(unknown, value=value, unit=unit, others=others)


def unit_in_v05(benchmark: str) -> str:
    """Unit of a benchmark's quality in the logs of v0.5; empty if unknown."""
    return _benchmark(benchmark).get("unit", "")


def num_trials(benchmark: str, round_name: str) -> int | None:
    if not is_known(benchmark):
        return None
    if benchmark == "ncf" and round_name == "v0.5":
        return 100
    return int(_benchmark(benchmark)["trials"])


def drops(benchmark: str) -> int:
    """Number of trials that the score omits at each end."""
    return int(_benchmark(benchmark).get("dropped", 1))


def _in_round(rows: list[dict[str, str]], round_name: str) -> list[dict[str, str]]:
    if not round_name:
        return rows
    number = _number(round_name)
    return [
        row
        for row in rows
        if _number(row["first_round"]) <= number <= _number(row["last_round"] or "v99.0")
    ]


def _number(round_name: str) -> tuple[int, int]:
    major, minor = round_name.removeprefix("v").split(".")
    return int(major), int(minor)
