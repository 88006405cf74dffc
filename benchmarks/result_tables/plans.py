"""Predictions of plans beside what was published or measured."""

import math
import statistics

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


_ERRORS = (
    (checks.STEP, checks.ITS_SYSTEM),
    (checks.HELD_OUT_STEP, checks.ITS_BENCHMARK),
    (checks.EPOCHS, checks.ITS_SYSTEM),
    (checks.TIME, checks.ITS_SYSTEM),
    (checks.DECODER_STEP, checks.ITS_SYSTEM),
    (checks.DECODER_STEP, checks.ITS_FAMILY),
    (checks.DECODER_STEP, checks.ITS_CHIP),
)


def plan_errors(files: Files) -> Rows:
    """Errors of predictions by what their fit left out."""
    head = ["quantity", "left out", "inside the interval", "median error", "within 15 %"]
    rows = [[*head, "within 30 %", "worst"]]
    for quantity, left_out in _ERRORS:
        here = [c for c in _checks(files) if (c.quantity, c.left_out) == (quantity, left_out)]
        errors = [math.expm1(abs(math.log1p(check.error))) for check in here]
        near = [sum(check.is_within(bound) for check in here) for bound in (0.15, 0.30)]
        rows.append(
            [
                quantity,
                left_out,
                f"{sum(check.holds for check in here)} of {len(here)}",
                f"{100 * statistics.median(errors):.2g} %",
                *map(str, near),
                f"{100 * max(errors):.2g} %",
            ]
        )
    return rows


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


ALIKE = 1.1
"""Ratio of two figures of memory up to which a table shows one of them."""


def plan_memory(files: list[tuple[str, Record]]) -> Rows:
    """Memory of each experiment's train step on each chip by the newest JAX, or why it is unknown.

    Another version's figure stands beside it where they are not alike.
    """
    cells: dict[tuple[str, str], dict[str, dict[str, Record]]] = {}
    for name, record in files:
        for row in record["rows"]:
            chip, _, devices = row["system"].partition(":")
            of_chips = cells.setdefault((row["experiment"], devices), {})
            of_chips.setdefault(chip, {})[name.removeprefix("plan_memory_jax_")] = row
    newest = files[-1][0].removeprefix("plan_memory_jax_")
    chips = sorted({chip for of_chips in cells.values() for chip in of_chips})
    rows = [
        [f"`{experiment}`", devices, *(_versions(of.get(chip, {}), newest) for chip in chips)]
        for (experiment, devices), of in sorted(cells.items())
    ]
    return [["experiment", "devices", *chips], *rows]


def _versions(found: dict[str, Record], newest: str) -> str:
    """Cell of a step by the newest JAX, and of others that differ or stand alone."""
    last = found.get(newest)
    others = [
        f"jax {version}: {_memory_cell(row)}"
        for version, row in found.items()
        if version != newest and (last is None or not _alike(row, last))
    ]
    cell = "not tried" if last is None else _memory_cell(last)
    return cell + (f" ({', '.join(others)})" if others else "")


def _alike(one: Record, other: Record) -> bool:
    if "reason" in one or "reason" in other:
        # Of two refusals the kind counts, not the figures in them.
        return one.get("reason", "").split(":")[0] == other.get("reason", "").split(":")[0]
    ratio = one["num_bytes"] / other["num_bytes"]
    same_kind = bool(one["recomputed"]) == bool(other["recomputed"])
    return same_kind and 1 / ALIKE <= ratio <= ALIKE


def _memory_cell(row: Record) -> str:
    if "reason" in row:
        # What to do about it, and where in the compiler it failed, is not part of a table.
        return row["reason"].partition("; ")[0].partition(": INTERNAL")[0]
    again = ", recomputes" if row["recomputed"] else ""
    return words.scaled(row["num_bytes"], "B") + again
