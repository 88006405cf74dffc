"""Qualities of a side's trials along seconds, steps or another unit, and between evaluations.

A trial's quality at a budget lies on the line between two of its evaluations, and is unknown before
its first and beyond its last. A line errs where the curve bends, which the second differences on
either side of the budget show.

Source: the error of a chord is (x - a)(b - x) times the divided difference of second order, as in
F. B. Hildebrand, "Introduction to Numerical Analysis" (1956), chapter 2.
"""

import dataclasses
import math

import numpy as np

from dawnjax.statistics.sample import Sample


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """Qualities of one side at a budget.

    Attributes:
      values: Of the trials that have one there.
      trials: Places of those trials on their side.
      bends: Mean error of the line, by the evaluations on the left and on the right of the budget;
        None where a trial has no third evaluation that shows it.
      between: Trials whose value lies between two evaluations.
      short: Trials whose last evaluation came before the budget.
      late: Trials whose first evaluation came after it.
      lost: Trials without a finite quality there.
    """

    values: np.ndarray
    trials: tuple[int, ...]
    bends: tuple[float, float] | None
    between: int
    short: int
    late: int
    lost: int


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """Evaluations of one side's trials against one unit, such as seconds or steps.

    Attributes:
      places: Of each trial's evaluations, ascending.
      values: Qualities there; NaN where one is not a finite number.
      pairing: Seeds and first losses of the trials, by which sides may be pairs.
    """

    places: tuple[np.ndarray, ...]
    values: tuple[np.ndarray, ...]
    pairing: Sample | None = None

    def __len__(self) -> int:
        return len(self.places)

    def at(self, budget: float) -> Reading:
        """Qualities at a budget."""
        found, trials, errors = [], [], []
        between = short = late = lost = 0
        for number, (places, values) in enumerate(zip(self.places, self.values, strict=True)):
            if not len(places) or places[-1] < budget:
                short += 1
                continue
            if places[0] > budget:
                late += 1
                continue
            right = int(np.searchsorted(places, budget))
            is_between = bool(places[right] != budget)
            near = slice(right - 1, right + 1) if is_between else slice(right, right + 1)
            value = float(np.interp(budget, places[near], values[near]))
            if math.isnan(value):
                lost += 1
                continue
            between += is_between
            found.append(value)
            trials.append(number)
            errors.append(chord_errors(places, values, np.array([budget]))[0])
        bends = None
        if found and np.isfinite(errors).all():
            left, right_ = np.mean(errors, axis=0)
            bends = float(left), float(right_)
        return Reading(np.array(found), tuple(trials), bends, between, short, late, lost)

    def ends(self) -> Reading:
        """Qualities at each trial's last evaluation, wherever that is."""
        last = [float(values[-1]) if len(values) else math.nan for values in self.values]
        known = [number for number, value in enumerate(last) if not math.isnan(value)]
        empty = sum(not len(values) for values in self.values)
        return Reading(
            np.array([last[number] for number in known]),
            tuple(known),
            (0.0, 0.0),
            between=0,
            short=empty,
            late=0,
            lost=len(last) - len(known) - empty,
        )


def chord_errors(places: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Errors [places, 2] of a trial's lines, by the evaluations on the left and on the right.

    0 at an evaluation, and infinite where no third evaluation shows how the curve bends.
    """
    right = np.clip(np.searchsorted(places, at), 1, max(1, len(places) - 1))
    is_between = ~np.isin(at, places)
    if len(places) < 3:
        return np.where(is_between[:, None], np.inf, 0.0) * np.ones(2)
    # Divided differences of second order: half of the second derivatives. Evaluations of one moment
    # have none.
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.diff(values) / np.diff(places)
        bends = np.diff(slopes) / (places[2:] - places[:-2])
    bends = np.stack([bends[np.clip(right - n, 0, len(bends) - 1)] for n in (2, 1)], axis=1)
    # Beside a value that is not a number, the other side's bend is all that is known.
    bends = np.where(np.isfinite(bends), bends, bends[:, ::-1])
    bends = np.where(np.isfinite(bends), bends, np.inf)
    width = (at - places[right - 1]) * (places[right] - at)
    return np.where(is_between, width, 0.0)[:, None] * np.where(is_between[:, None], bends, 0.0)
