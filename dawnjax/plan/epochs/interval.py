"""Intervals of predicted numbers."""

import dataclasses
import math
from collections.abc import Sequence

DEVIATIONS = 2.0
"""Standard deviations of the logarithm from an estimate to either end of its interval."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its interval, in one unit."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Interval":
        return Interval(self.value * factor, self.low * factor, self.high * factor)


def around(value: float, spread: float) -> Interval:
    """Interval of two standard deviations (`spread`) of the logarithm on either side."""
    factor = math.exp(DEVIATIONS * spread)
    return Interval(value, value / factor, value * factor)


def octaves_outside(known: Sequence[float], wanted: float) -> float:
    """Doublings or halvings from the known numbers' range to the wanted one; 0 within."""
    return max(0.0, math.log2(wanted / max(known)), math.log2(min(known) / wanted))
