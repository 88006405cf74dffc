"""Published steps of decoders, and times to accuracy, each predicted without it and its like."""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence

from benchmarks.plan_accuracy.checks import (
    ALL_RESULTS,
    DECODER_STEP,
    DECODER_TIME,
    EPOCHS,
    ITS_CHIP,
    ITS_FAMILY,
    ITS_SYSTEM,
    Check,
)
from dawnjax.models.configs.llama import LLAMA_SIZES
from dawnjax.plan.decoders import step as decoder_step
from dawnjax.plan.decoders.step import PublishedStep, published_steps
from dawnjax.plan.epochs import epochs
from dawnjax.plan.epochs.interval import around
from dawnjax.plan.epochs.observations import convergence_points
from dawnjax.plan.steps.efficiency import octaves_outside

EXPERIMENTS = {
    "llama31_8b": "c4_llama31_8b",
    "llama2_70b_lora": "llama2_70b_lora",
}
"""Experiments whose reference points are those of MLPerf's benchmarks."""

TARGETS = {"llama31_8b": 3.3, "llama2_70b_lora": 0.925}
EVALUATIONS = {
    "llama31_8b": (12_288, 1024, 1 / 3),
    "llama2_70b_lora": (384, 173, 1 / 2),
}
"""Rows between two evaluations, rows of one, and the time of a row in it over that of a step's row:
the forward pass alone. Source: MLPerf Training v5.1 and v6.0, `training_rules.adoc`."""


def checks() -> Iterator[Check]:
    """Steps without their system, family and chip; times and rows to the target."""
    for row in published_steps():
        for left_out, others in _left_out(row).items():
            yield from _of_step(row, left_out, others)
        if row.examples is not None:
            yield from _of_epochs(row, row.examples)


def _left_out(row: PublishedStep) -> dict[str, tuple[PublishedStep, ...]]:
    steps, system = published_steps(), row.arrangement.system
    others = tuple(r for r in steps if r.arrangement.system != system)
    return {
        ITS_SYSTEM: others,
        ITS_FAMILY: tuple(r for r in steps if family_of(r) != family_of(row)),
        ITS_CHIP: tuple(r for r in others if r.chip != row.chip),
    }


def family_of(row: PublishedStep) -> tuple[str, bool, str]:
    """A model, trained whole or by adapters, on TPUs or on GPUs: nearly one program."""
    platform = row.arrangement.system.accelerator.device.platform
    size = dataclasses.replace(row.model, lora=dataclasses.replace(row.model.lora, rank=0))
    name = next(name for name, known in LLAMA_SIZES.items() if known == size)
    return name, row.model.lora.rank > 0, platform


@functools.cache
def _errors() -> dict[bool, list[tuple[PublishedStep, float]]]:
    """Error of the logarithm of each step, without its family or without its chip.

    By whether other steps of its chip were known, as in `decoder_step.ERRORS`.
    """
    found: dict[bool, list[tuple[PublishedStep, float]]] = {True: [], False: []}
    for row in published_steps():
        without = _left_out(row)
        for left_out in (ITS_FAMILY, ITS_CHIP):
            factors = decoder_step.fit(row.arrangement.system.accelerator, without[left_out])
            known = row.arrangement.products in factors.products
            if known == (left_out == ITS_FAMILY):
                value = factors.step(row.model, row.arrangement).value
                found[known].append((row, abs(math.log(value / row.seconds))))
    return found


def errors(besides: PublishedStep | None = None) -> dict[bool, float]:
    """Error that 9 of 10 steps stay within: of all, or of other families and chips than a step's.

    Each family, or chip, weighs as much as any other.
    """
    found = {}
    for known, rows in _errors().items():
        group = family_of if known else _chip
        kept = [(group(row), error) for row, error in rows]
        kept = [pair for pair in kept if besides is None or pair[0] != group(besides)]
        sizes = collections.Counter(name for name, _ in kept)
        weighed = sorted((error, 1 / sizes[name]) for name, error in kept)
        reached = itertools.accumulate(weight for _, weight in weighed)
        enough = 0.9 * len(sizes) - 1e-9
        found[known] = next(
            error for (error, _), done in zip(weighed, reached, strict=True) if done >= enough
        )
    return found


def _chip(row: PublishedStep) -> str:
    return row.chip


def _of_step(row: PublishedStep, left_out: str, others: Sequence[PublishedStep]) -> Iterator[Check]:
    system = row.arrangement.system
    factors = decoder_step.fit(system.accelerator, others, errors(row))
    step = factors.step(row.model, row.arrangement)
    away = octaves_outside(factors.sizes, system.num_devices)
    yield Check(row.name, DECODER_STEP, left_out, away, step, row.seconds)
    if row.minutes is None or left_out != ITS_SYSTEM:
        return
    benchmark, batch = benchmark_of(row), row.arrangement.rows
    curve = curve_of(benchmark)
    time = time_to_target(benchmark, batch, step.value, curve.at(batch))
    spread = math.hypot(factors.spread_at(row.model, row.arrangement), curve.spread_at(batch))
    away = max(away, octaves_outside(curve.batches, batch))
    predicted = around(time, spread)
    yield Check(row.name, DECODER_TIME, left_out, away, predicted, 60 * row.minutes)


def _of_epochs(row: PublishedStep, examples: float) -> Iterator[Check]:
    curve, batch = curve_of(benchmark_of(row)), row.arrangement.rows
    away = octaves_outside(curve.batches, batch)
    predicted = around(curve.at(batch), curve.spread_at(batch))
    yield Check(row.name, EPOCHS, ALL_RESULTS, away, predicted, examples)


def benchmark_of(row: PublishedStep) -> str:
    return "llama2_70b_lora" if row.model.lora.rank else "llama31_8b"


def curve_of(benchmark: str) -> epochs.Curve:
    """Rows to the target by batch, of MLPerf's reference points alone."""
    curve = epochs.fit(convergence_points(EXPERIMENTS[benchmark], 1), TARGETS[benchmark])
    assert curve is not None
    return curve


def time_to_target(benchmark: str, batch: int, step_seconds: float, rows: float) -> float:
    """Seconds of the steps, and of the evaluations until the target, on the clock of v5.1."""
    every, evaluated, share = EVALUATIONS[benchmark]
    # MLPerf leaves out the first evaluations of the adapters.
    skipped = math.floor(0.125 * batch + 2) if benchmark == "llama2_70b_lora" else 0
    evaluations = max(1, math.ceil(rows / every) - skipped)
    return (rows + evaluations * evaluated * share) * step_seconds / batch
