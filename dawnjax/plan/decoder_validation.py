"""Published steps of decoders, and times to accuracy, each predicted without it and its like."""

import math
from collections.abc import Iterator, Sequence

from dawnjax.plan.checks import (
    ALL_RESULTS,
    DECODER_STEP,
    DECODER_TIME,
    EPOCHS,
    ITS_CHIP,
    ITS_SYSTEM,
    Check,
)
from dawnjax.plan.decoders import step as decoder_step
from dawnjax.plan.decoders.step import PublishedStep, chip_of, published_steps
from dawnjax.plan.epochs import epochs
from dawnjax.plan.epochs.interval import around, octaves_outside
from dawnjax.plan.epochs.observations import convergence_points

TARGETS = {"c4_llama31_8b": 3.3, "llama2_70b_lora": 0.925}
EVALUATIONS = {"c4_llama31_8b": (12_288, 1024, 1 / 3), "llama2_70b_lora": (384, 173, 1 / 2)}
"""Rows between two evaluations, rows of one, and the time of a row in it over that of a step's row:
the forward pass alone. Source: MLPerf Training v5.1 `training_rules.adoc`."""


def checks() -> Iterator[Check]:
    """Steps without their system and without their chip; times and rows to the target."""
    for row in published_steps():
        for left_out, others in _left_out(row).items():
            yield from _of_step(row, left_out, others)
        if row.examples is not None:
            yield from _of_epochs(row, row.examples)


def _left_out(row: PublishedStep) -> dict[str, tuple[PublishedStep, ...]]:
    system = row.arrangement.system
    others = [r for r in published_steps() if r.arrangement.system != system]
    found = {ITS_SYSTEM: tuple(others)}
    found[ITS_CHIP] = tuple(r for r in others if r.chip != chip_of(system.accelerator))
    return found


def _of_step(row: PublishedStep, left_out: str, others: Sequence[PublishedStep]) -> Iterator[Check]:
    system = row.arrangement.system
    factors = decoder_step.fit(system.accelerator, others)
    step = factors.step(row.model, row.arrangement)
    away = octaves_outside(factors.sizes, system.num_devices)
    yield Check(row.name, DECODER_STEP, left_out, away, step, row.seconds)
    if row.minutes is None or left_out != ITS_SYSTEM:
        return
    curve = _curve(row)
    batch = row.arrangement.rows
    time = _time_to_accuracy(row, step.value, curve.at(batch))
    spread = math.hypot(factors.spread_at(row.model, row.arrangement), curve.spread_at(batch))
    away = max(away, octaves_outside(curve.batches, batch))
    predicted = around(time, spread)
    yield Check(row.name, DECODER_TIME, left_out, away, predicted, 60 * row.minutes)


def _of_epochs(row: PublishedStep, examples: float) -> Iterator[Check]:
    curve, batch = _curve(row), row.arrangement.rows
    away = octaves_outside(curve.batches, batch)
    predicted = around(curve.at(batch), curve.spread_at(batch))
    yield Check(row.name, EPOCHS, ALL_RESULTS, away, predicted, examples)


def _experiment(row: PublishedStep) -> str:
    return "llama2_70b_lora" if row.model.lora.rank else "c4_llama31_8b"


def _curve(row: PublishedStep) -> epochs.Curve:
    """Rows to the target by batch, of MLPerf's reference points alone."""
    name = _experiment(row)
    curve = epochs.fit(convergence_points(name, 1), TARGETS[name])
    assert curve is not None
    return curve


def _time_to_accuracy(row: PublishedStep, step_seconds: float, examples: float) -> float:
    """Seconds of the steps, and of the evaluations until the target, on the clock of v5.1."""
    name, batch = _experiment(row), row.arrangement.rows
    every, evaluated, share = EVALUATIONS[name]
    # MLPerf leaves out the first evaluations of the adapters.
    skipped = math.floor(0.125 * batch + 2) if row.model.lora.rank else 0
    evaluations = max(1, math.ceil(examples / every) - skipped)
    return (examples + evaluations * evaluated * share) * step_seconds / batch
