"""Measured runs that a plan learns from: official results, and our own steps.

`observations.csv` has a row each with its source. `extracts.json` has the compiled programs, so
that fitting compiles nothing; the programs of our own steps are of the code that ran. An official
result ran another program than ours (MXNet, TensorFlow or PyTorch of 2018);
`python -m benchmarks plan_validation` shows that difference as error.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax import records
from dawnjax.plan.compiling.compiled import Programs
from dawnjax.plan.epochs.epochs import Point
from dawnjax.plan.hardware.systems import System, parse_system

FOLDER = Path(__file__).parent
EXTRACTS = FOLDER / "extracts.json"

TARGETS = {"imagenet_resnet50_mlperf": 0.749, "wmt_transformer_big": 25.0}
"""Target of the observed official results, all of MLPerf Training v0.5, of each experiment."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedResult:
    """A measured experiment on a system.

    Attributes:
      experiment: Ours, of the same model and data.
      flags: Flags that make ours compute as the system did.
      global_batch: Examples a step.
      epochs: Mean epochs to the target over the trials; None of a step alone.
      every_epochs: Epochs between its evaluations.
      train_seconds_per_epoch: Median over all stretches of training between two evaluations; None
        of a step alone.
      evaluation_seconds: Median over all evaluations, from `eval_start` to `eval_stop`.
      time_to_accuracy_seconds: Mean over trials; None of a step alone.
      examples_per_second: Rate of the train step alone; None for an official result.
      source: Document or log of the figures.
    """

    name: str
    system: System
    experiment: str
    flags: tuple[str, ...]
    global_batch: int
    epochs: float | None
    every_epochs: float | None
    train_seconds_per_epoch: float | None
    evaluation_seconds: float | None
    time_to_accuracy_seconds: float | None
    examples_per_second: float | None
    source: str


@functools.cache
def observations() -> tuple[PublishedResult, ...]:
    return results_of(FOLDER / "observations.csv")


def results_of(path: Path) -> tuple[PublishedResult, ...]:
    """Rows of a table such as `observations.csv`."""
    rows = records.csv_rows(path, ("id", "system", "experiment", "source"))
    return tuple(
        PublishedResult(
            name=row["id"],
            system=parse_system(row["system"]),
            experiment=row["experiment"],
            flags=tuple(row["flags"].split()),
            global_batch=int(row["global_batch"]),
            epochs=_number(row["epochs"]),
            every_epochs=_number(row["every_epochs"]),
            train_seconds_per_epoch=_number(row["train_seconds_per_epoch"]),
            evaluation_seconds=_number(row["evaluation_seconds"]),
            time_to_accuracy_seconds=_number(row["time_to_accuracy_seconds"]),
            examples_per_second=_number(row["examples_per_second"]),
            source=row["source"],
        )
        for _, row in rows
    )


def _number(text: str) -> float | None:
    return float(text) if text else None


@functools.cache
def observed_programs() -> dict[str, Programs]:
    answers = records.read_json(EXTRACTS, dict[str, dict[str, Any]])
    return {name: records.convert(answer["programs"], Programs) for name, answer in answers.items()}


def official_points(experiment: str, rows: Sequence[PublishedResult] | None = None) -> list[Point]:
    """Epochs of the official results of an experiment; of all observations, or of some."""
    return [
        Point(row.global_batch, row.epochs, TARGETS[experiment])
        for row in (observations() if rows is None else rows)
        if row.experiment == experiment and row.epochs is not None
    ]


class Reference(NamedTuple):
    """A reference point of MLPerf.

    Attributes:
      round: First round that had it, such as (4, 0); empty where its source names none.
      unit: Unit of its count: `epochs` or `examples`.
      point: With that count as its epochs.
    """

    round: tuple[int, ...]
    unit: str
    point: Point


@functools.cache
def references() -> dict[str, tuple[Reference, ...]]:
    """Rows of `convergence.csv` by experiment, or by MLPerf's benchmark where we have none."""
    columns = ("experiment", "target", "batch", "count", "unit", "runs", "source")
    found: dict[str, list[Reference]] = {}
    for _, row in records.csv_rows(FOLDER / "convergence.csv", columns):
        point = Point(int(row["batch"]), float(row["count"]), float(row["target"]))
        reference = Reference(_round(row["source"]), row["unit"], point)
        found.setdefault(row["experiment"], []).append(reference)
    return {name: tuple(rows) for name, rows in found.items()}


def _round(source: str) -> tuple[int, ...]:
    named = re.search(r"_(\d+)\.(\d+)\.\d+/rcps_", source)
    return (int(named[1]), int(named[2])) if named else ()


def newest(rows: Iterable[Reference]) -> list[Reference]:
    """Points of the newest round that has one at their batch and to their target."""
    by_batch = {}
    for row in sorted(rows, key=lambda row: row.round):
        by_batch[row.point.target, row.point.batch] = row
    return list(by_batch.values())


@functools.cache
def convergence_points(experiment: str, train_examples: int) -> tuple[Point, ...]:
    """Reference points of MLPerf for an experiment, of `convergence.csv`.

    Args:
      train_examples: Examples of an epoch: points of language models count examples.
    """
    examples = {"epochs": 1, "examples": train_examples}
    return tuple(
        row.point._replace(epochs=row.point.epochs / examples[row.unit])
        for row in newest(references().get(experiment, ()))
    )
