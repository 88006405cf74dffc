"""Alternate two sides, keep every round with a record of the machine, and show the ratio.

`alternate` measures both sides into `Rounds`, and `same_losses` checks that both did the same work.
`Results` writes every figure at once, so that a time limit costs only the rest. A side that needs
a process of its own (another framework, other XLA flags) is a `workers.Worker`.
"""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import math
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.machine import hosts
from dawnjax.page.table import of_words
from dawnjax.runs import versions
from dawnjax.statistics.interval import Interval, paired_ratio

RESULTS = Path(__file__).parent / "results"
RESULTS_VARIABLE = "DAWNJAX_BENCHMARK_RESULTS"
"""The environment variable that names another folder for results."""


class NotTheSame(Exception):
    """The two sides did not do the same work, so their ratio is meaningless."""


@dataclasses.dataclass(frozen=True)
class Rounds:
    """Figures of two sides, measured in pairs.

    Attributes:
      first: One figure a round of the first side, such as seconds.
      unit: Unit of a figure, such as `ms a step`; a ratio below 1 means that the first has less.
    """

    first: list[float]
    second: list[float]
    unit: str = ""

    def __post_init__(self) -> None:
        if len(self.first) != len(self.second) or not self.first:
            raise ValueError(f"{len(self.first)} and {len(self.second)} rounds are no pairs")
        for figure in (*self.first, *self.second):
            if not (math.isfinite(figure) and figure > 0):
                raise ValueError(f"a figure of {figure} has no ratio to another")

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Rounds":
        return cls(facts["first"], facts["second"], facts.get("unit", ""))

    @property
    def ratio(self) -> Interval:
        """Geometric mean over the rounds of first / second, with the interval of the pairs."""
        return paired_ratio(self.first, self.second)

    @property
    def medians(self) -> tuple[float, float]:
        return float(np.median(self.first)), float(np.median(self.second))

    def to_json(self) -> dict[str, Any]:
        """Every round; statistics are computed when they are shown."""
        return {"unit": self.unit, "first": self.first, "second": self.second}


def alternate(
    first: Callable[[], float],
    second: Callable[[], float],
    rounds: int,
    warm_ups: int = 1,
    unit: str = "",
) -> Rounds:
    """Measure two sides in turn, so that a machine's change of speed meets both.

    Args:
      first: Runs the first side once and returns its figure.
      rounds: Pairs that count; in every other one the second side goes first.
      warm_ups: Pairs before them that do not count.
    """
    figures: tuple[list[float], list[float]] = ([], [])
    for number in range(-warm_ups, rounds):
        order = ((0, first), (1, second)) if number % 2 == 0 else ((1, second), (0, first))
        for side, run in order:
            figure = run()
            if number >= 0:
                figures[side].append(figure)
    return Rounds(*figures, unit)


def same_losses(
    first: Sequence[float], second: Sequence[float], tolerance: float
) -> dict[str, Any]:
    """Check that two programs have the same losses at their first steps; return a record of it.

    Args:
      first: Losses of the first side, step by step, from the same parameters and data as `second`.
      tolerance: Largest difference, as a fraction of the second's loss. It must lie well below the
        movement of the losses over these steps, or two untrained networks would pass.

    Raises:
      NotTheSame: They differ by more, are not finite, or do not move enough to tell.
    """
    ours, theirs = np.asarray(first, float), np.asarray(second, float)
    if ours.shape != theirs.shape or len(ours) < 2:
        raise NotTheSame(f"{len(ours)} and {len(theirs)} losses; two or more of each are needed")
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise NotTheSame(f"losses that are not finite: {ours.tolist()} and {theirs.tolist()}")
    difference = float(np.max(np.abs(ours - theirs) / np.abs(theirs)))
    movement = float((theirs.max() - theirs.min()) / np.abs(theirs).max())
    if difference > tolerance:
        raise NotTheSame(
            f"losses differ by {difference:.2%}, more than {tolerance:.2%}: "
            f"{ours.round(5).tolist()} and {theirs.round(5).tolist()}"
        )
    if movement < 2 * tolerance:
        raise NotTheSame(
            f"losses move by {movement:.2%} only, which a tolerance of {tolerance:.2%} cannot tell"
        )
    return {
        "check": "losses of the first steps",
        "first_losses": ours.tolist(),
        "second_losses": theirs.tolist(),
        "largest_difference": difference,
        "tolerance": tolerance,
        "movement": movement,
    }


class Results:
    """A result file that is rewritten whenever something is added."""

    def __init__(self, name: str, **facts: Any):
        """Begin `NAME.json` with the environment and the facts known before the first figure."""
        self.path = folder() / f"{name}.json"
        self._record: dict[str, Any] = {"environment": environment(), **facts}

    def add(self, **facts: Any) -> None:
        """Add figures, and write the whole file."""
        self._record.update(facts)
        text = records.json_text(self._record, indent=1) + "\n"
        beside = self.path.with_suffix(".part")
        beside.write_text(text)
        beside.replace(self.path)  # a reader, or a time limit, never meets half a file

    def show(self, table: str) -> None:
        """Print the result as that table of the pages shows it, and the file's path."""
        from benchmarks import tables  # which imports this module

        head, *rows = tables.TABLES[table].rows([(self.path.stem, self._record)])
        print(of_words(head, rows).to_text())
        print(self.path)


def folder() -> Path:
    """Folder of results, created if missing."""
    path = Path(os.environ.get(RESULTS_VARIABLE) or RESULTS)
    path.mkdir(parents=True, exist_ok=True)
    return path


def environment() -> dict[str, Any]:
    """The machine, its load, the versions and the day.

    It starts no JAX and no PyTorch: the comparing process may hold no memory of an accelerator.
    """
    installed = versions.installed()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        installed["torch"] = importlib.metadata.version("torch")
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": hosts.processor_name(),
        "cores": hosts.visible_cores(),
        "load_before": round(os.getloadavg()[0], 2),
        "accelerators": _accelerators(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": installed,
    }


def _accelerators() -> list[str]:
    """Name, memory and driver of each NVIDIA GPU; empty where there is none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        listing = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listing.stdout.splitlines() if line.strip()]
