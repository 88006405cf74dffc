"""Logs of other programs for tests."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def curve(final: float, *, steps: int = 100, every: int = 10, second: float = 0.1) -> list[dict]:
    """Rows of a run whose loss falls to `final` as 1 / step, evaluated each `every` steps."""
    return [
        {"step": step, "seconds": second * step, "val_loss": final + 1 / step - 1 / steps}
        for step in range(every, steps + 1, every)
    ]


def write_side(
    folder: Path, finals: Sequence[float], *, seeds: bool = True, **of_curve: Any
) -> Path:
    """Write a trial for each final loss, with a seed of its own."""
    for number, final in enumerate(finals):
        rows = curve(final, **of_curve)
        write_lines(
            folder / f"run_{number}.jsonl",
            [row | ({"seed": number} if seeds else {}) for row in rows],
        )
    return folder


def normal(mean: float, deviation: float, count: int, seed: int = 0) -> list[float]:
    """Numbers with exactly this mean and sample deviation, in a random order."""
    drawn = np.random.default_rng(seed).normal(size=count)
    scaled = (drawn - drawn.mean()) / drawn.std(ddof=1)
    return [float(value) for value in mean + deviation * scaled]
