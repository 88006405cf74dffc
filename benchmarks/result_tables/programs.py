"""Compiled programs, and predictions made of them."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarks.result_tables.cells import when
from benchmarks.result_tables.result_files import Record, Rows
from dawnjax.page import words

if TYPE_CHECKING:
    from dawnjax.plan.checks import Check

H100_BYTES_PER_SECOND = 3.35e12
"""Memory bandwidth of an H100 SXM. Source: NVIDIA H100 Tensor Core GPU data sheet."""


def compilation(_: str, record: Record) -> Iterator[list[str]]:
    """Row of each compiled step, or why there is none."""
    for row in record["rows"]:
        first = [f"`{row['experiment']}`", row["target"]]
        if "reason" in row:
            yield [*first, "", "", "", row["reason"], "", "", when(record, "jax")]
            continue
        is_text = "transformer" in row["experiment"]
        yield [
            *first,
            str(row["devices"]),
            f"{row['batch_per_device']}{' rows' if is_text else ''}",
            "" if is_text else str(row["crop_pixels"] or 32),  # CIFAR-10's images are not cropped
            f"{row['compile_seconds']:.1f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
            str(sum(row["collectives"].values())),
            when(record, "jax"),
        ]


def moved_bytes(_: str, record: Record) -> Iterator[list[str]]:
    """Bytes that a compiled step reads and writes."""
    for row in record["rows"]:
        moved, batch = row["moved_bytes"], row["batch_per_device"]
        is_h100 = row["target"] == "h100"
        seconds = moved / H100_BYTES_PER_SECOND
        yield [
            f"`{row['experiment']}`, {row['variant']}",
            f"{row['devices']} x {row['target']}",
            str(batch),
            f"{moved / 1e9:.1f}",
            f"{seconds * 1e3:.1f}" if is_h100 else "",
            f"{batch / seconds:,.0f}" if is_h100 else "",
            f"{row['peak_bytes'] / 1e9:.2f}",
            when(record, "jax"),
        ]


def plan_validation(_: list[tuple[str, Record]]) -> Rows:
    """Each official result beside its prediction without its system, computed anew."""
    from dawnjax.plan import planned, validation
    from dawnjax.plan.checks import EPOCHS, ITS_SYSTEM, STEP, TIME

    kinds = (STEP, EPOCHS, TIME)
    checks = [c for c in validation.checks() if c.left_out == ITS_SYSTEM and c.quantity in kinds]
    head = ["result", "quantity", "predicted", "interval", "published", "error", "inside"]
    rows = [head, *([*row[:2], *row[3:]] for row in planned.validation_rows(checks))]
    for quantity in kinds:
        here = [check for check in checks if check.quantity == quantity]
        for bound in (0.15, 0.30):
            near = sum(check.is_within(bound) for check in here)
            rows.append([f"within {100 * bound:.0f} %", quantity, f"{near} of {len(here)}"])
    return rows


def plan_held_out(_: list[tuple[str, Record]]) -> Rows:
    """Steps of official results that no fit sees, and what plans predict of them."""
    from dawnjax.plan import planned, validation

    rows = planned.validation_rows(list(validation.held_out_checks()))
    head = ["result", "predicted", "interval", "published", "error", "inside"]
    return [head, *([row[0], *row[3:]] for row in rows)]


_FITTED_BEFORE = ("imagenet_resnet50", "imagenet_amoebanet_d", "wmt_transformer_big")
"""Experiments whose steps of an earlier day the fit of `plan_before_nvidia_h200.json` had."""


def plan_before(files: list[tuple[str, Record]]) -> Rows:
    """Predictions that were written before a measurement, beside what it measured."""
    from dawnjax.plan import planned
    from dawnjax.plan.checks import ITS_SYSTEM, STEP, Check
    from dawnjax.plan.epochs.interval import Interval

    measured = {}
    for row in (record["variants"]["base"] for _, record in files if "variants" in record):
        experiment = row["flags"][0].removeprefix("--experiment=")
        measured[experiment, row["batch"]] = row
    head = ["experiment", "batch", "its step in the fit", "predicted", "interval", "measured"]
    rows = [[*head, "error", "inside", "memory planned", "device's peak"]]
    for plan in (plan for _, record in files for plan in record.get("plans", {}).values()):
        row = measured.get((plan["experiment"], plan["global_batch"]))
        if row is None:
            continue
        seconds = row["units_a_step"] / row["units_per_second"]
        predicted = Interval(**plan["step_seconds"])
        [cells] = planned.validation_rows(
            [Check(plan["experiment"], STEP, ITS_SYSTEM, 0.0, predicted, seconds)]
        )
        sizes = (plan["memory_bytes"], row["peak_bytes"])
        rows.append(
            [
                f"`{plan['experiment']}`",
                str(plan["global_batch"]),
                "of an earlier day" if plan["experiment"] in _FITTED_BEFORE else "no",
                *cells[3:],
                *(words.scaled(size, "B") for size in sizes),
            ]
        )
    return rows


def plan_decoders(_: list[tuple[str, Record]]) -> Rows:
    """Published steps of decoders, and times, predicted from shapes without their system."""
    from dawnjax.plan import planned, validation
    from dawnjax.plan.checks import DECODER_STEP, ITS_CHIP

    checks = validation.checks()
    steps = [c for c in checks if c.quantity == DECODER_STEP]
    without_chip = {c.name: c for c in steps if c.left_out == ITS_CHIP}
    head = ["step", "predicted", "interval", "published", "error", "inside", "without its chip"]
    shown = [c for c in steps if c.left_out != ITS_CHIP]
    others = [without_chip[c.name] for c in shown]
    rows, beside = planned.validation_rows(shown), planned.validation_rows(others)
    cells = [[row[0], *row[3:], other[6]] for row, other in zip(rows, beside, strict=True)]
    return [head, *cells, *_summary(shown, others)]


def _summary(shown: Sequence["Check"], without_chip: Sequence["Check"]) -> Rows:
    """Rows of the median error and of the count within the goal, in the columns of the errors."""
    sides = (shown, without_chip)
    errors = [[math.expm1(abs(math.log1p(check.error))) for check in side] for side in sides]
    median = [f"{100 * statistics.median(side):.2g} %" for side in errors]
    within = [f"{sum(c.is_within(0.15) for c in side)} of {len(side)}" for side in sides]
    return [
        ["median error", "", "", "", median[0], "", median[1]],
        ["within 15 %", "", "", "", within[0], "", within[1]],
    ]


def plan_outside(_: list[tuple[str, Record]]) -> Rows:
    """Predictions whose interval does not hold the published value."""
    from dawnjax.plan import planned, validation

    outside = [check for check in validation.checks() if not check.holds]
    head = ["result", "quantity", "left out", "predicted", "interval", "published", "error"]
    return [head, *(row[:-1] for row in planned.validation_rows(outside))]


def plan_coverage(_: list[tuple[str, Record]]) -> Rows:
    """Left-out results inside their interval, by quantity and distance from the fit."""
    from dawnjax.plan import planned, validation

    return [planned.COVERAGE_HEAD, *planned.coverage_rows(validation.checks())]
