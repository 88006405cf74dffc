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
        head = ["system", "batch", "step", "interval", "examples/s", "MFU", "memory GB", "epochs",
                "interval", "time to accuracy", "interval", "cost USD"]  # fmt: skip
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
        [name, *(f"{_share(p.parts[name] / p.step_seconds.value)} %" for p in predictions)]
        for name in names
    ]


def _cells(prediction: "Prediction") -> list[str]:
    time, cost, epochs = (
        prediction.time_to_accuracy_seconds,
        prediction.cost_usd,
        prediction.epochs,
    )
    return [
        prediction.system,
        f"{prediction.global_batch:,}",
        words.about(prediction.step_seconds.value),
        _ends(prediction.step_seconds),
        words.rounded(prediction.examples_per_second.value),
        "-" if prediction.mfu is None else f"{words.rounded(100 * prediction.mfu, 2)} %",
        f"{_gb(prediction.memory_bytes)} of {_gb(prediction.memory_limit_bytes)}",
        "-" if epochs is None else f"{epochs.value:.3g}",
        "" if epochs is None else _span(epochs),
        "-" if time is None else words.about(time.value),
        "" if time is None else _ends(time),
        "-" if cost is None else words.rounded(cost.value),
    ]


def _share(fraction: float) -> str:
    return words.rounded(100 * fraction, 3)


def _gb(size: int) -> str:
    return words.rounded(size / 1e9, 3)


def _span(epochs: "Interval") -> str:
    if epochs.low == epochs.high:
        return "as given"
    return f"{words.rounded(epochs.low, 3)} to {words.rounded(epochs.high, 3)}"


def _ends(interval: "Interval") -> str:
    return f"{words.about(interval.low)} to {words.about(interval.high)}"


def validation_text(checks: "Sequence[Check]") -> str:
    """Predictions beside published results, and how many lie near and inside their interval."""
    from dawnjax.plan import validation

    head = ["result", "quantity", "left out", "predicted", "interval", "published", "error", "held"]
    lines = [of_words(head, validation_rows(checks)).to_text(), ""]
    shown = [check for check in checks if check.left_out == validation.ITS_SYSTEM]
    for quantity in dict.fromkeys(check.quantity for check in shown):
        errors = [check for check in shown if check.quantity == quantity]
        near = (sum(check.is_within(bound) for check in errors) for bound in (0.15, 0.30))
        text = "within 15 %: {} of {}, within 30 %: {} of {}"
        first, second = near
        lines.append(f"{quantity}, {text.format(first, len(errors), second, len(errors))}")
    lines += ["", of_words(COVERAGE_HEAD, coverage_rows(checks)).to_text()]
    lines.append("each is predicted without the results that are named as left out")
    return "\n".join(lines)


COVERAGE_HEAD = ["quantity", "distance of the result from the fit", "inside the interval"]


def coverage_rows(checks: "Sequence[Check]") -> list[list[str]]:
    """Rows under `COVERAGE_HEAD`."""
    from dawnjax.plan import validation

    return [
        [row.quantity, row.distance, f"{row.held} of {row.tried}"]
        for row in validation.coverage(checks)
    ]


def validation_rows(checks: "Sequence[Check]") -> list[list[str]]:
    """Result, quantity, what was left out, prediction, its interval, published, error, verdict."""
    rows = []
    for check in checks:
        value = words.rounded if check.is_count else words.about
        interval = check.predicted
        rows.append(
            [
                check.name,
                check.quantity,
                check.left_out,
                value(interval.value),
                f"{value(interval.low)} to {value(interval.high)}",
                value(check.published),
                f"{100 * check.error:+.0f} %",
                "yes" if check.holds else "no",
            ]
        )
    return rows
