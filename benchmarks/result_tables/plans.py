"""Predictions of plans beside what was published or measured."""

import math
import statistics
from collections.abc import Sequence

from benchmarks import predictions
from benchmarks.plan_accuracy import checks
from benchmarks.plan_accuracy.checks import Check, rows_of
from benchmarks.result_tables.result_files import Record, Rows
from dawnjax.page import words
from dawnjax.plan.epochs.interval import Interval

Files = list[tuple[str, Record]]


def _checks(files: Files) -> list[Check]:
    [(_, record)] = files
    return [Check(**{**row, "predicted": Interval(**row["predicted"])}) for row in record["rows"]]


def plan_validation(files: Files) -> Rows:
    """Each official result beside its prediction without its system."""
    kinds = (checks.STEP, checks.EPOCHS, checks.TIME)
    known = [c for c in _checks(files) if c.left_out == checks.ITS_SYSTEM and c.quantity in kinds]
    head = ["result", "quantity", "predicted", "interval", "published", "error", "inside"]
    rows = [head, *([*row[:2], *row[3:]] for row in rows_of(known))]
    for quantity in kinds:
        here = [check for check in known if check.quantity == quantity]
        for bound in (0.15, 0.30):
            near = sum(check.is_within(bound) for check in here)
            rows.append([f"within {100 * bound:.0f} %", quantity, f"{near} of {len(here)}"])
    return rows


def plan_held_out(files: Files) -> Rows:
    """Steps of official results that no fit sees, and what plans predict of them."""
    rows = rows_of([c for c in _checks(files) if c.quantity == checks.HELD_OUT_STEP])
    head = ["result", "predicted", "interval", "published", "error", "inside"]
    return [head, *([row[0], *row[3:]] for row in rows)]


_FITTED_BEFORE = ("imagenet_resnet50", "imagenet_amoebanet_d", "wmt_transformer_big")
"""Experiments whose steps of an earlier day the fit of `plan_before_nvidia_h200.json` had."""


def plan_before(files: Files) -> Rows:
    """Predictions that were written before a measurement, beside what it measured."""
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
        [cells] = rows_of(
            [Check(plan["experiment"], checks.STEP, checks.ITS_SYSTEM, 0.0, predicted, seconds)]
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


def plan_decoders(files: Files) -> Rows:
    """Published steps of decoders, and times, predicted from shapes without their system."""
    steps = [c for c in _checks(files) if c.quantity == checks.DECODER_STEP]
    shown = [c for c in steps if c.left_out == checks.ITS_SYSTEM]
    beside = {
        left_out: {c.name: c for c in steps if c.left_out == left_out}
        for left_out in (checks.ITS_FAMILY, checks.ITS_CHIP)
    }
    head = ["step", "predicted", "interval", "published", "error", "inside"]
    found = [[*head, "error without its family", "without its chip"]]
    others = [[of[c.name] for c in shown] for of in beside.values()]
    errors = [[row[6] for row in rows_of(side)] for side in others]
    for row, *more in zip(rows_of(shown), *errors, strict=True):
        found.append([row[0], *row[3:], *more])
    return [*found, *_summary((shown, *others))]


def _summary(sides: Sequence[Sequence[Check]]) -> Rows:
    """Rows of the median error and of the count within the goal, in the columns of the errors."""
    errors = [[math.expm1(abs(math.log1p(check.error))) for check in side] for side in sides]
    median = [f"{100 * statistics.median(side):.2g} %" for side in errors]
    within = [f"{sum(c.is_within(0.15) for c in side)} of {len(side)}" for side in sides]
    return [
        ["median error", "", "", "", median[0], "", *median[1:]],
        ["within 15 %", "", "", "", within[0], "", *within[1:]],
    ]


def plan_outside(files: Files) -> Rows:
    """Predictions whose interval does not hold the published value."""
    outside = [check for check in _checks(files) if not check.holds]
    head = ["result", "quantity", "left out", "predicted", "interval", "published", "error"]
    return [head, *(row[:-1] for row in rows_of(outside))]


def plan_coverage(files: Files) -> Rows:
    """Left-out results inside their interval, by quantity and distance from the fit."""
    return [checks.COVERAGE_HEAD, *checks.coverage_rows(_checks(files))]


def predictions_of_v6_1(files: Files) -> Rows:
    """Predicted minutes of systems of MLPerf Training v6.1."""
    [(_, record)] = files
    rows = [predictions.Predicted(**row) for row in record["rows"]]
    head = [*predictions.HEAD[:5], "groups and arithmetic"]
    return [head, *([*predictions.cells(row)[:5], row.arrangement] for row in rows)]


def results_of_v6_0(files: Files) -> Rows:
    """Results of MLPerf Training v6.0, which no fit has, beside their prediction."""
    [(_, record)] = files
    rows = [predictions.Predicted(**row) for row in record["before"]]
    return [predictions.HEAD, *(predictions.cells(row) for row in rows)]


def plan_memory(files: list[tuple[str, Record]]) -> Rows:
    """Memory of each experiment's train step on each chip, or why it is not known."""
    chips = {name.removeprefix("plan_memory_"): record["rows"] for name, record in files}
    of_chips = [{row["experiment"]: row for row in rows} for rows in chips.values()]
    found = [["experiment", "devices", "flags", *chips]]
    for experiment in sorted(set().union(*of_chips)):
        own = [rows.get(experiment) for rows in of_chips]
        first = next(row for row in own if row)
        devices, flags = first["system"].partition(":")[2], " ".join(first["flags"])
        found.append([f"`{experiment}`", devices, flags, *map(_memory_cell, own)])
    return found


def _memory_cell(row: Record | None) -> str:
    if row is None:
        return "not tried"
    if "reason" in row:
        return row["reason"]
    again = ", XLA computes again" if row["recomputed"] else ""
    return words.scaled(row["num_bytes"], "B") + again
