"""Least squares of a few numbers, such as the fits of plans.

SciPy's take half a second to import, a third of a plan from the cache, and are the tests' measure.
"""

import itertools
from collections.abc import Callable

import numpy as np

ROUNDS = 100
HALVINGS = 30
STEP = 1e-6
"""Of a difference that stands for a derivative."""
SAME = 1e-9
"""Part by which a sum of squares must be less: of equal ones that of the fewest terms is taken."""
NEAR = 1e-9
"""A smaller step ends the search."""


def nonnegative(terms: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Numbers [n] of 0 and more whose sum of `terms` [m, n] is nearest to `wanted` [m].

    Each set of terms is solved without bounds; the nearest solution that keeps them is the answer.
    """
    count = terms.shape[1]
    best, least = np.zeros(count), float(wanted @ wanted)
    for size in range(1, count + 1):
        for chosen in map(list, itertools.combinations(range(count), size)):
            found = np.linalg.lstsq(terms[:, chosen], wanted, rcond=None)[0]
            rest = terms[:, chosen] @ found - wanted
            if found.min() >= 0 and rest @ rest < (1 - SAME) * least:
                best, least = np.zeros(count), float(rest @ rest)
                best[chosen] = found
    return best


def within(
    residuals: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """Numbers [n] between bounds where the sum of squares of `residuals` [m] is least.

    Gauss and Newton's steps, halved until they help; a number at a bound is left out of a step that
    leads beyond.
    """
    at, found = start, residuals(start)
    for _ in range(ROUNDS):
        shifted = [residuals(at + shift) for shift in STEP * np.eye(len(at))]
        slopes = np.stack([each - found for each in shifted], axis=1) / STEP
        downhill = -slopes.T @ found
        free = ~((at <= low) & (downhill < 0) | (at >= high) & (downhill > 0))
        step = np.zeros(len(at))
        step[free] = np.linalg.lstsq(slopes[:, free], -found, rcond=None)[0]
        for halved in range(HALVINGS):
            new = np.clip(at + step / 2**halved, low, high)
            after = residuals(new)
            if after @ after < found @ found:
                break
        else:
            return at
        moved = np.abs(new - at).max()
        at, found = new, after
        if moved < NEAR:
            return at
    return at
