"""Looks at trials that are still being added: the level of each, and the cost of unplanned looks.

A study that tests its trials at 5 % several times finds a difference between equal arms in more
than 5 % of cases. Group-sequential bounds correct that: look k of K claims a difference only below
a nominal level. All looks together then find one between equal arms in 5 % of studies. The levels
spend the 5 % as O'Brien and Fleming's bounds do: little early, most at the end.

Source: K. K. G. Lan and D. L. DeMets, "Discrete Sequential Boundaries for Clinical Trials",
Biometrika 70 (1983), the first spending function; P. Armitage, C. K. McPherson and B. C. Rowe,
"Repeated Significance Tests on Accumulating Data", J. R. Statist. Soc. A 132 (1969), the recursion;
C. Jennison and B. W. Turnbull, "Group Sequential Methods" (2000), section 4.4, the use of nominal
levels for t statistics. `python -m benchmarks verdicts` measures the resulting error rates.
"""

import functools
import math

import numpy as np

from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS

_GRID = 501
_LARGEST = 8.0
"""Standard deviations that the recursion covers."""


def looks_of(seeds: int, looks: int) -> tuple[int, ...]:
    """Trials of each arm at each look, evenly spaced up to `seeds`.

    Raises:
      ValueError: The first look would have fewer trials than a verdict needs.
    """
    at = tuple(math.ceil(seeds * look / looks) for look in range(1, looks + 1))
    if at[0] < FEWEST_TRIALS:
        raise ValueError(
            f"looks={looks}: the first look would have {at[0]} trials of each arm, and a verdict "
            f"needs {FEWEST_TRIALS}; take fewer looks or more seeds"
        )
    return at


@functools.lru_cache(maxsize=256)
def nominal_levels(at: tuple[int, ...], alpha: float = ALPHA) -> tuple[float, ...]:
    """Two-sided level of each look, so that all looks together err with a chance of `alpha`.

    Args:
      at: Trials of each arm at each look, ascending; the last is the study's end.
    """
    from scipy import special

    if len(at) == 1:
        return (alpha,)
    times = [count / at[-1] for count in at]
    # Half of alpha on either side, each spent as 2 - 2 Phi(z / sqrt(t)).
    spent = [4 * special.ndtr(special.ndtri(alpha / 4) / math.sqrt(t)) for t in times]
    levels: list[float] = []
    grid = density = None
    for index, time in enumerate(times):
        share = spent[index] - (spent[index - 1] if index else 0.0)
        step = time - (times[index - 1] if index else 0.0)
        bound = _bound(grid, density, step, math.sqrt(time), share)
        levels.append(float(2 * special.ndtr(-bound / math.sqrt(time))))
        if index + 1 < len(times):
            grid, density = _continued(grid, density, step, bound)
    return tuple(levels)


@functools.lru_cache(maxsize=256)
def false_verdicts(at: tuple[int, ...], levels: tuple[float, ...]) -> float:
    """Chance that equal sides differ at one look or more, each with a two-sided level."""
    from scipy import special

    chance, earlier = 0.0, 0.0
    grid = density = None
    for count, level in zip(at, levels, strict=True):
        time = count / at[-1]
        bound = -float(special.ndtri(level / 2)) * math.sqrt(time)
        chance += _tail(grid, density, time - earlier, bound)
        if count < at[-1]:
            grid, density = _continued(grid, density, time - earlier, bound)
        earlier = time
    return chance


def _tail(grid: np.ndarray | None, density: np.ndarray | None, step: float, bound: float) -> float:
    """Chance that the walk, not stopped so far, lies outside of a bound after a step."""
    from scipy import special

    scale = math.sqrt(step)
    if grid is None or density is None:
        return float(2 * special.ndtr(-bound / scale))
    outside = special.ndtr((-bound - grid) / scale) + special.ndtr((grid - bound) / scale)
    return float(np.trapezoid(density * outside, grid))


def _bound(
    grid: np.ndarray | None, density: np.ndarray | None, step: float, deviation: float, share: float
) -> float:
    """Bound that the walk passes with a chance of `share`."""
    low, high = 0.0, _LARGEST * deviation
    for _ in range(60):
        middle = (low + high) / 2
        if _tail(grid, density, step, middle) > share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _continued(
    grid: np.ndarray | None, density: np.ndarray | None, step: float, bound: float
) -> tuple[np.ndarray, np.ndarray]:
    """Density of the walk within the bound after a step, if no earlier look stopped it."""
    inside = np.linspace(-bound, bound, _GRID)
    scale = math.sqrt(step)
    if grid is None or density is None:
        return inside, np.exp(-((inside / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi))
    moves = (inside[:, None] - grid[None, :]) / scale
    kernel = np.exp(-(moves**2) / 2) / (scale * math.sqrt(2 * math.pi))
    return inside, np.asarray(np.trapezoid(kernel * density[None, :], grid, axis=1))
