"""A plan as text and JSON: systems, parts of their steps, and the reason for a missing row."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dawnjax.page import words
from dawnjax.page.table import of_words

if TYPE_CHECKING:
    from dawnjax.plan.predict import Interval, Prediction
    from dawnjax.plan.validation import Check


@dataclasses.dataclass(frozen=True)
class Planned:
    """One system and batch: a prediction, or the reason why there is none."""

    system: str
    num_devices: int
    global_batch: int
    prediction: "Prediction | None"
    reason: str = ""


def order(row: Planned) -> tuple[float, float, int]:
    """Sort key: time to accuracy, then step; rows without a prediction come last."""
    if row.prediction is None:
        return math.inf, math.inf, row.num_devices
    time = row.prediction.time_to_accuracy_seconds
    rate = row.prediction.examples_per_second.value
    return (time.value if time else math.inf), -rate, row.num_devices


def to_json(row: Planned) -> dict[str, Any]:
    """Plain JSON values of a row."""
    if row.prediction is None:
        fields = dataclasses.asdict(row)
        del fields["prediction"]
        return fields
    return dataclasses.asdict(row.prediction)


def text(rows: Sequence[Planned]) -> str:
    """Tables of the rows; notes that several rows share follow once."""
    known = [row.prediction for row in rows if row.prediction]
    lines = []
    if known:
        head = ["system", "batch", "step", "95 %", "examples/s", "MFU", "memory GB", "epochs",
                "time to accuracy", "95 %", "cost USD"]  # fmt: skip
        lines.append(of_words(head, map(_cells, known)).to_text())
        names = (f"{p.system}/{p.global_batch}" for p in known)
        parts = of_words(["part of a step", *names], _part_rows(known))
        lines += ["", parts.to_text()]
        costs = [p for p in known if p.cost_usd]
        if len(costs) > 1:
            cheapest = sorted(costs, key=lambda p: p.cost_usd.value if p.cost_usd else 0.0)
            names = (f"{p.system} batch {p.global_batch}" for p in cheapest)
            lines += ["", f"by cost, the lowest first: {', '.join(names)}"]
    for row in rows:
        if row.prediction is None:
            batch = f" batch {row.global_batch}" if row.global_batch else ""
            lines.append(f"{row.system}{batch}: {row.reason}")
    notes: dict[str, list[str]] = {}
    for prediction in known:
        for note in _notes(prediction):
            notes.setdefault(note, []).append(prediction.system)
    for note, systems in notes.items():
        named = dict.fromkeys(systems)
        lines.append(f"{'all' if len(named) == len(known) else ', '.join(named)}: {note}")
    return "\n".join(lines)


def _notes(prediction: "Prediction") -> list[str]:
    notes = [f"epochs: {prediction.epochs_basis}"] if prediction.epochs else []
    reasons = (f"no {name}: {reason}" for name, reason in prediction.reasons.items())
    return [*notes, *reasons, *prediction.notes]


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
        prediction.system,
        f"{prediction.global_batch:,}",
        words.about(prediction.step_seconds.value),
        _ends(prediction.step_seconds),
        f"{prediction.examples_per_second.value:,.0f}",
        "-" if prediction.mfu is None else f"{100 * prediction.mfu:.0f} %",
        f"{needs:.1f} of {has:.0f}",
        "-" if prediction.epochs is None else f"{prediction.epochs:.3g}",
        "-" if time is None else words.about(time.value),
        "" if time is None else _ends(time),
        "-" if cost is None else f"{cost.value:,.2f}",
    ]


def _ends(interval: "Interval") -> str:
    return f"{words.about(interval.low)} to {words.about(interval.high)}"


def validation_text(checks: "Sequence[Check]") -> str:
    """Predictions beside published results, and the number that lie near."""
    rows = []
    for check in checks:
        times = map(words.about, (check.predicted, check.published))
        rows.append([check.name, check.quantity, *times, f"{100 * check.error:+.0f} %"])
    lines = [of_words(["result", "quantity", "predicted", "published", "error"], rows).to_text()]
    for bound in (0.15, 0.30):
        near = sum(check.is_within(bound) for check in checks)
        lines.append(f"within {100 * bound:.0f} %: {near} of {len(checks)}")
    lines.append("each is predicted from the results of other systems alone")
    return "\n".join(lines)
