"""Two sides in turn, their ratio with its spread, and a record of the machine and every run."""

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dawnjax import versions

RESULTS = Path(__file__).parent / "results"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sides, measured in pairs.

    Attributes:
      first: One figure a round of the first side, such as seconds.
      second: The same of the second.
    """

    first: list[float]
    second: list[float]

    @property
    def ratio(self) -> float:
        """Median over the rounds of first / second."""
        return float(np.median(np.divide(self.first, self.second)))

    def interval(self, level: float = 0.95, draws: int = 10_000) -> tuple[float, float]:
        """Gives the bootstrap interval of `ratio`: rounds are drawn again, as pairs."""
        ratios = np.divide(self.first, self.second)
        random = np.random.default_rng(0)
        medians = np.median(random.choice(ratios, (draws, len(ratios))), axis=1)
        low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def to_json(self) -> dict[str, Any]:
        """Gives every round, and the ratio with its interval."""
        low, high = self.interval()
        return {
            "first": self.first,
            "second": self.second,
            "first_median": float(np.median(self.first)),
            "second_median": float(np.median(self.second)),
            "ratio_median": self.ratio,
            "ratio_interval_95": [low, high],
        }


def alternate(
    first: Callable[[], float], second: Callable[[], float], rounds: int, warm_ups: int = 1
) -> Comparison:
    """Measures two sides in turn, so that a machine that changes speed changes it for both.

    Args:
      first: Runs the first side once and gives its figure.
      second: Runs the second side once and gives its figure.
      rounds: Pairs that count; in every other one the second side goes first.
      warm_ups: Pairs before them that do not.
    """
    figures: tuple[list[float], list[float]] = ([], [])
    for number in range(-warm_ups, rounds):
        order = ((0, first), (1, second)) if number % 2 == 0 else ((1, second), (0, first))
        for side, run in order:
            figure = run()
            if number >= 0:
                figures[side].append(figure)
    return Comparison(*figures)


def environment() -> dict[str, Any]:
    """Gives the machine, the versions and the day."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions.installed(),
    }


def write(name: str, record: dict[str, Any]) -> Path:
    """Writes a record with its environment to `results/NAME.json`, and gives the path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(), **record}, indent=1) + "\n")
    return path


def table(rows: Sequence[Sequence[str]]) -> str:
    """Gives rows as aligned text, the first one as the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
