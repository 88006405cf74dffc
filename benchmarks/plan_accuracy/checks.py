"""Predictions beside the published values that their fit left out, and how many hold."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

from dawnjax.page import words
from dawnjax.plan.epochs.interval import Interval

STEP, TIME, EPOCHS = "train step", "time to accuracy", "epochs"
DECODER_STEP, DECODER_TIME = "step from shapes", "time from shapes"
HELD_OUT_STEP = "step of a held-out benchmark"
QUANTITIES = (STEP, DECODER_STEP, EPOCHS, TIME, DECODER_TIME)
REFERENCE_POINT = "reference point,"
"""Beginning of the names of checks of MLPerf's reference points."""

ITS_SYSTEM, OTHER_TARGET = "its system", "its target"
AS_LARGE, AS_SMALL, ITS_BATCH = "all as large", "all as small", "its batch"
LATER, ITS_CHIP, ITS_FAMILY = "its round and later", "its chip", "its family"
ITS_BENCHMARK = "its benchmark"
ALL_RESULTS = "all results"
"""Quantities, and which results a fit leaves out beside the predicted one."""


@dataclasses.dataclass(frozen=True)
class Check:
    """A prediction beside a published result that its fit left out.

    Attributes:
      left_out: Other results that the fit left out too.
      octaves: Doublings from the fitted range (devices of a step, batch of epochs) to the result.
      predicted: Seconds, or epochs.
    """

    name: str
    quantity: str
    left_out: str
    octaves: float
    predicted: Interval
    published: float

    @property
    def error(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted.value / self.published - 1

    @property
    def holds(self) -> bool:
        return self.predicted.low <= self.published <= self.predicted.high

    def is_within(self, bound: float) -> bool:
        """True if the prediction is within a factor of 1 + bound of the published value."""
        return abs(math.log1p(self.error)) <= math.log1p(bound)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """Errors and intervals of one quantity, at one distance from the fit.

    Attributes:
      held: Published values inside their interval.
      median, worst: Of the errors' logarithm, regardless of sign, as a factor less 1.
    """

    quantity: str
    distance: str
    held: int
    tried: int
    median: float
    worst: float


def coverage(rows: Sequence[Check]) -> list[Coverage]:
    classes = (
        ("within the fit", -1.0, 0.0),
        ("up to 1 doubling outside", 0.0, 1.0),
        ("1 to 2 doublings outside", 1.0, 2.0),
        ("further outside", 2.0, math.inf),
    )
    found = []
    for quantity in QUANTITIES:
        for distance, least, most in classes:
            here = [row for row in rows if row.quantity == quantity and least < row.octaves <= most]
            if here:
                errors = [math.expm1(abs(math.log1p(row.error))) for row in here]
                found.append(
                    Coverage(
                        quantity=quantity,
                        distance=distance,
                        held=sum(row.holds for row in here),
                        tried=len(here),
                        median=statistics.median(errors),
                        worst=max(errors),
                    )
                )
    return found


COVERAGE_HEAD = [
    "quantity", "distance of the result from the fit", "inside the interval", "median error",
    "worst error",
]  # fmt: skip


def coverage_rows(checks: Sequence[Check]) -> list[list[str]]:
    return [
        [
            row.quantity,
            row.distance,
            f"{row.held} of {row.tried}",
            f"{words.rounded(100 * row.median, 2)} %",
            f"{words.rounded(100 * row.worst, 2)} %",
        ]
        for row in coverage(checks)
    ]


def _error(error: float) -> str:
    digits = 2 if abs(error) < 1 else 3
    return f"{'+' if error >= 0 else '-'}{words.rounded(100 * abs(error), digits)} %"


def rows_of(checks: Sequence[Check]) -> list[list[str]]:
    """Result, quantity, what was left out, prediction, its interval, published, error, verdict."""
    rows = []
    for check in checks:
        value = words.rounded if check.quantity == EPOCHS else words.about
        rows.append(
            [
                check.name,
                check.quantity,
                check.left_out,
                value(check.predicted.value),
                f"{value(check.predicted.low)} to {value(check.predicted.high)}",
                value(check.published),
                _error(check.error),
                "yes" if check.holds else "no",
            ]
        )
    return rows
