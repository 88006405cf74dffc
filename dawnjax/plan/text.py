"""A plan as text: the systems, the parts of their steps, and why a row is missing."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dawnjax.text import aligned

if TYPE_CHECKING:
    from dawnjax.plan.predict import Interval, Prediction
    from dawnjax.plan.validation import Check


@dataclasses.dataclass(frozen=True)
class Row:
    """One system and batch: a prediction, or the reason for there being none."""

    target: str
    num_devices: int
    global_batch: int
    prediction: "Prediction | None"
    reason: str = ""


def order(row: Row) -> tuple[float, float, int]:
    """By time to accuracy, then by step; those without a prediction last."""
    if row.prediction is None:
        return math.inf, math.inf, row.num_devices
    time = row.prediction.time_to_accuracy_seconds
    rate = row.prediction.examples_per_second.value
    return (time.value if time else math.inf), -rate, row.num_devices


def row_json(row: Row) -> dict[str, Any]:
    """A row as plain JSON values."""
    if row.prediction is None:
        fields = dataclasses.asdict(row)
        del fields["prediction"]
        return fields
    return dataclasses.asdict(row.prediction)


def text(rows: Sequence[Row]) -> str:
    """The rows as tables, then what is the same of several rows once."""
    known = [row.prediction for row in rows if row.prediction]
    lines = []
    if known:
        head = ["system", "batch", "step", "95 %", "examples/s", "MFU", "memory GB", "epochs",
                "time to accuracy", "95 %", "cost USD"]  # fmt: skip
        lines += aligned([head, *(_cells(prediction) for prediction in known)])
        lines += ["", *aligned([["part of a step", *_columns(known)], *_part_rows(known)])]
        costs = [p for p in known if p.cost_usd]
        if len(costs) > 1:
            cheapest = sorted(costs, key=lambda p: p.cost_usd.value if p.cost_usd else 0.0)
            names = (f"{p.target} batch {p.global_batch}" for p in cheapest)
            lines += ["", f"by cost, the lowest first: {', '.join(names)}"]
    for row in rows:
        if row.prediction is None:
            batch = f" batch {row.global_batch}" if row.global_batch else ""
            lines.append(f"{row.target}{batch}: {row.reason}")
    notes: dict[str, list[str]] = {}
    for prediction in known:
        for note in _notes(prediction):
            notes.setdefault(note, []).append(prediction.target)
    for note, targets in notes.items():
        named = dict.fromkeys(targets)
        lines.append(f"{'all' if len(named) == len(known) else ', '.join(named)}: {note}")
    return "\n".join(lines)


def _notes(prediction: "Prediction") -> list[str]:
    notes = [f"epochs: {prediction.epochs_basis}"] if prediction.epochs else []
    reasons = (f"no {name}: {reason}" for name, reason in prediction.reasons.items())
    return [*notes, *reasons, *prediction.notes]


def _columns(predictions: Sequence["Prediction"]) -> list[str]:
    return [f"{p.target}/{p.global_batch}" for p in predictions]


def _part_rows(predictions: Sequence["Prediction"]) -> list[list[str]]:
    names = list(predictions[0].parts)
    return [
        [name, *(f"{100 * p.parts[name] / p.step_seconds.value:.1f} %" for p in predictions)]
        for name in names
    ]


def _cells(prediction: "Prediction") -> list[str]:
    time, cost = prediction.time_to_accuracy_seconds, prediction.cost_usd
    needs, has = (size / 1e9 for size in (prediction.memory_bytes, prediction.memory_limit_bytes))
    return [
        prediction.target,
        f"{prediction.global_batch:,}",
        _seconds(prediction.step_seconds.value),
        _ends(prediction.step_seconds),
        f"{prediction.examples_per_second.value:,.0f}",
        "-" if prediction.mfu is None else f"{100 * prediction.mfu:.0f} %",
        f"{needs:.1f} of {has:.0f}",
        "-" if prediction.epochs is None else f"{prediction.epochs:.3g}",
        "-" if time is None else _seconds(time.value),
        "" if time is None else _ends(time),
        "-" if cost is None else f"{cost.value:,.2f}",
    ]


def _seconds(value: float) -> str:
    if value < 1:
        return f"{1e3 * value:.3g} ms"
    if value < 600:
        return f"{value:.3g} s"
    return f"{value / 60:,.0f} min" if value < 36_000 else f"{value / 3600:,.1f} h"


def _ends(interval: "Interval") -> str:
    return f"{_seconds(interval.low)} to {_seconds(interval.high)}"


def validation_text(checks: "Sequence[Check]") -> str:
    """Predictions beside what was published, and how many are near."""
    cells = [["result", "quantity", "predicted", "published", "error"]]
    for check in checks:
        figures = map(_seconds, (check.predicted, check.published))
        cells.append([check.name, check.quantity, *figures, f"{100 * check.error:+.0f} %"])
    lines = aligned(cells)
    for bound in (0.15, 0.30):
        near = sum(check.is_within(bound) for check in checks)
        lines.append(f"within {100 * bound:.0f} %: {near} of {len(checks)}")
    lines.append("each is predicted from the results of other systems alone")
    return "\n".join(lines)
