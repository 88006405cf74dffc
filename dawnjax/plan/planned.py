"""A plan as text and JSON: systems, parts of their steps, and the reason for a missing row."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dawnjax.page import words
from dawnjax.page.table import of_words
from dawnjax.plan.hardware.systems import parse_system

if TYPE_CHECKING:
    from dawnjax.plan.epochs.interval import Interval
    from dawnjax.plan.steps.predict import Prediction


@dataclasses.dataclass(frozen=True)
class Planned:
    """One system and batch: a prediction, or why there is none."""

    system: str
    num_devices: int
    global_batch: int
    prediction: "Prediction | None"
    reason: str = ""


def order(row: Planned) -> tuple[float, float, int]:
    """Sort key: time to accuracy, step; rows without a plan come last."""
    if row.prediction is None:
        return math.inf, math.inf, row.num_devices
    time, rate = row.prediction.time_to_accuracy_seconds, row.prediction.examples_per_second.value
    return time.value if time else math.inf, -rate, row.num_devices


def to_json(row: Planned) -> dict[str, Any]:
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
                "interval", "time to accuracy", "interval", "cost USD", "interval"]  # fmt: skip
        lines.append(of_words(head, map(_cells, known)).to_text())
        names = (f"{p.system}/{p.global_batch}" for p in known)
        parts = of_words(["part of a step", *names], _part_rows(known))
        lines += ["", parts.to_text()]
    for row in rows:
        if row.prediction is None:
            batch = f" batch {row.global_batch}" if row.global_batch else ""
            lines.append(f"{row.system}{batch}: {row.reason}")
    notes: dict[str, list[Prediction]] = {}
    for prediction in known:
        for note in _notes(prediction):
            notes.setdefault(note, []).append(prediction)
    lines += [f"{_rows_named(those, known)}: {note}" for note, those in notes.items()]
    return "\n".join(lines)


def _rows_named(those: Sequence["Prediction"], known: Sequence["Prediction"]) -> str:
    if len(those) == len(known):
        return "all"
    return ", ".join(f"{one.system}/{one.global_batch}" for one in those)


def _notes(prediction: "Prediction") -> list[str]:
    reasons = dict(prediction.reasons)
    if prediction.epochs:
        notes = [f"epochs: {prediction.epochs_basis}"]
    elif budget := prediction.budget_seconds:
        ends = f"{words.about(budget.value)} ({_ends(budget, words.about)})"
        notes = [f"a run to the end of its budget takes {ends}"]
    else:
        notes = []
    if not prediction.epochs and prediction.price_basis != reasons.get("cost_usd"):
        reasons.pop("cost_usd", None)  # the time's reason again
    if prediction.cost_usd:
        notes.append(f"price: {prediction.price_basis}")
    lacking = (f"no {_NAMES[name]}: {reason}" for name, reason in reasons.items())
    return [*notes, *lacking, *prediction.notes]


_NAMES = {"mfu": "MFU", "time_to_accuracy_seconds": "time to accuracy", "cost_usd": "cost"}


def _part_rows(predictions: Sequence["Prediction"]) -> list[list[str]]:
    names = list(predictions[0].parts)
    return [
        [name, *(_percent(p.parts[name] / p.step_seconds.value) for p in predictions)]
        for name in names
    ]


def _cells(prediction: "Prediction") -> list[str]:
    return [
        parse_system(prediction.system).described,
        f"{prediction.global_batch:,}",
        words.about(prediction.step_seconds.value),
        _ends(prediction.step_seconds, words.about),
        words.rounded(prediction.examples_per_second.value),
        "-" if prediction.mfu is None else _percent(prediction.mfu, 2),
        f"{_gb(prediction.memory_bytes)} of {_gb(prediction.memory_limit_bytes)}",
        *estimate(prediction.epochs, _few),
        *estimate(prediction.time_to_accuracy_seconds, words.about),
        *estimate(prediction.cost_usd, _few),
    ]


def estimate(value: "Interval | None", in_words: Callable[[float], str]) -> tuple[str, str]:
    """An estimate and its interval; `-` where nothing is known."""
    if value is None:
        return "-", ""
    exact = value.low == value.high
    return in_words(value.value), "as given" if exact else _ends(value, in_words)


def _ends(ends: "Interval", in_words: Callable[[float], str]) -> str:
    return f"{in_words(ends.low)} to {in_words(ends.high)}"


def _few(value: float) -> str:
    return words.rounded(value, 3)


def _percent(fraction: float, digits: int = 3) -> str:
    return f"{words.rounded(100 * fraction, digits)} %" if fraction else "none"


def _gb(size: int) -> str:
    return words.rounded(size / 1e9, 3)
