"""Epochs to the target, by the size of the batch.

    epochs(batch) = epochs(small batch) x (1 + batch / critical batch)

Both numbers are fitted on official results of the same benchmark; the epochs double at the critical
batch. Without official results, the experiment's own `Observation`s count. Without those only the
budget is known, which is a bound and no estimate.

Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch Training" (arXiv 1812.06162),
equation 2.11, which gives the examples that a batch needs in this form.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Epochs:
    """An estimate of the epochs to the target.

    Attributes:
      mean: The estimate; None where nothing is known.
      spread: Standard deviation of its logarithm.
      basis: Source of the estimate, or the reason why there is none.
      critical_batch: Batch that needs twice the epochs; None where it was not fitted.
      batches: Global batches of the observations; empty if any batch may be asked for.
      of_official_results: Whether another recipe and target gave the observations.
    """

    mean: float | None
    spread: float
    basis: str
    critical_batch: float | None = None
    batches: tuple[int, ...] = ()
    of_official_results: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Fitted epochs by batch; a batch outside smallest to largest is extrapolated.

    Attributes:
      small_batch_epochs: Epochs of a batch far below the critical one.
      critical_batch: Examples; infinite where no observed batch needs more epochs.
      spread: Standard deviation of the logarithm of the residuals.
    """

    small_batch_epochs: float
    critical_batch: float
    spread: float
    smallest_batch: int
    largest_batch: int
    observations: int

    def at(self, batch: float) -> float:
        """Epochs to the target at a batch of so many examples."""
        return self.small_batch_epochs * (1 + batch / self.critical_batch)


SMALLEST_SPREAD = 0.02


def fit(batches: Sequence[int], epochs: Sequence[float]) -> Curve | None:
    """Fit the curve on batches (examples a step) and epochs to the target; None without any."""
    if not batches:
        return None
    from scipy.optimize import nnls

    sizes, wanted = np.array(batches, float), np.array(epochs, float)
    scale = sizes.max()
    # Relative errors: each row is divided by what was observed. Neither number is below zero.
    rows = np.stack([np.ones_like(sizes), sizes / scale], axis=1) / wanted[:, None]
    # One batch size determines no slope: take the epochs as constant.
    if len(set(batches)) == 1:
        rows = rows[:, :1]
    found = nnls(rows, np.ones_like(wanted))[0]
    base = float(found[0])
    slope = float(found[1]) / scale if len(found) > 1 else 0.0
    curve = Curve(
        small_batch_epochs=base,
        critical_batch=base / slope if slope > 0 else math.inf,
        spread=0.0,
        smallest_batch=min(batches),
        largest_batch=max(batches),
        observations=len(batches),
    )
    errors = np.log([curve.at(batch) for batch in batches]) - np.log(wanted)
    freedom = max(1, len(errors) - 2)
    spread = max(SMALLEST_SPREAD, float(np.sqrt((errors**2).sum() / freedom)))
    return dataclasses.replace(curve, spread=spread)
