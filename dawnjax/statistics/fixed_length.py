"""Ratio of two expected times where every trial has a fixed length: the rule of a race.

The only evaluation is at the end, so a trial that misses takes as long as one that reaches. The
ratio of expected times R = (t / p) / (t' / p') then holds a ratio of times, which are precise, and
a ratio of chances to reach, of which few trials say little. Where both ratios are given, so is
p = rho p' with rho = (t / t') / R, and the probability of counts as good for the side as those seen
follows from two binomial distributions. p' is not known: the largest probability counts. Counts are
ordered by their likelihood ratio. As t / t' is known but for an error, the probability is averaged
over Student's t distribution of its logarithm, with the variance of pairs.

Where all of n trials of both sides reach, the probability is rho^n or more: misses that the trials
may hide are counted. `python -m benchmarks race_rule` simulates how often the rule errs.

Source: I. S. F. Chan, "Exact Tests of Equivalence and Efficacy with a Non-zero Lower Bound for
Comparative Studies", Statistics in Medicine 17 (1998), for exact tests of a ratio of proportions;
O. Miettinen and M. Nurminen, "Comparative Analysis of Two Rates", Statistics in Medicine 4 (1985),
for the likeliest chances. Ordered by their score statistic, as there, 20 of 20 against 20 of 20
exclude a ratio of 0.70 at 0.0025; ordered by the likelihood ratio 0.74, as no test can exceed.
"""

import dataclasses
import functools
import math

import numpy as np

from dawnjax.statistics.interval import Interval
from dawnjax.statistics.sample import Sample

_LOG_RHO = np.linspace(-3, 3, 151)
"""Logarithms of rho at which probabilities are computed; between them their logarithms are linear,
as those of rho^n are."""

_CHANCES = np.sin(np.linspace(0, math.pi / 2, 65)[1:]) ** 2
"""Chances of the rival to reach, over the largest, among which the worst is sought."""

_NODES = 401
"""Of the average over the error of t / t'."""

_WIDEST = 3.0
"""Logarithm of the factor beyond which an end of an interval is none."""


@dataclasses.dataclass(frozen=True)
class FixedLength:
    """Trials of a side (`own`) and of its rival, which ran in turn: pairs by their places."""

    own: Sample
    rival: Sample

    @property
    def ratio(self) -> float | None:
        """Expected time over the rival's; None where a side never reached."""
        if not (self.own.expected and self.rival.expected):
            return None
        return self.own.expected / self.rival.expected

    @functools.cached_property
    def _log_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of t / t' that its error allows, and their weights."""
        from scipy import stats

        own, rival = self.own.amounts, self.rival.amounts
        pairs = own / own.mean() - rival / rival.mean()
        error = math.sqrt(float(np.var(pairs, ddof=1)) / len(own))
        freedom = len(own) - 1
        most = float(stats.t.isf(1e-6, freedom))
        nodes = np.linspace(-most, most, _NODES)
        weights = stats.t.pdf(nodes, freedom)
        return math.log(own.mean() / rival.mean()) + error * nodes, weights / weights.sum()

    def _p_one_sided(self, ratio: float) -> tuple[float, float]:
        """Probability of counts as good for the side, and for the rival, at a ratio."""
        count, reached, rivals = len(self.own), self.own.num_reached, self.rival.num_reached
        log_times, weights = self._log_times
        log_rho = log_times - math.log(ratio)
        good = np.interp(log_rho, _LOG_RHO, _log_probabilities(count, reached, rivals))
        bad = np.interp(-log_rho, _LOG_RHO, _log_probabilities(count, rivals, reached))
        return float(np.exp(good) @ weights), float(np.exp(bad) @ weights)

    def p_value(self, ratio: float = 1.0) -> float:
        """Probability of trials as far from this ratio of expected times, if it is the true one."""
        return min(1.0, 2 * min(self._p_one_sided(ratio)))

    @property
    def is_faster(self) -> bool:
        """Whether the trials speak for the side."""
        good, bad = self._p_one_sided(1.0)
        return good < bad

    def interval(self, alpha: float) -> Interval | None:
        """Ratios that a test at `alpha` does not exclude; None where a side never reached."""
        if self.ratio is None:
            return None
        low, high = (self._end(self.ratio, way, alpha) for way in (-1, 1))
        known = low is not None and high is not None
        return Interval(self.ratio, low, high, 1 - alpha if known else None, len(self.own))

    def _end(self, ratio: float, way: int, alpha: float) -> float | None:
        inside, outside = 0.0, _WIDEST
        if self.p_value(ratio * math.exp(way * outside)) >= alpha:
            return None
        for _ in range(40):
            middle = (inside + outside) / 2
            if self.p_value(ratio * math.exp(way * middle)) >= alpha:
                inside = middle
            else:
                outside = middle
        return ratio * math.exp(way * inside)


@functools.lru_cache(maxsize=1024)
def _log_probabilities(count: int, reached: int, rivals: int) -> np.ndarray:
    """For each rho, the log of the largest probability of counts as good as (reached, rivals)."""
    found = []
    for rho in np.exp(_LOG_RHO):
        scores = _scores(count, float(rho))
        is_as_good = scores >= scores[reached, rivals] - 1e-9
        q = _CHANCES * min(1.0, 1 / rho)
        own, rival = _binomial(count, rho * q), _binomial(count, q)
        found.append(((own @ is_as_good) * rival).sum(1).max())
    # The better the side may be, the likelier are good counts, also between the chances tried.
    return np.log(np.maximum(np.maximum.accumulate(found), 1e-300))


def _scores(count: int, rho: float) -> np.ndarray:
    """Signed likelihood ratio of p = rho p', for all counts of both sides: [count + 1, count + 1].

    Above 0 where the counts speak for the side.
    """
    own, rival = np.arange(count + 1.0)[:, None], np.arange(count + 1.0)[None]
    # Likeliest chances under the hypothesis: the roots of a quadratic equation.
    a, b = 2 * count * rho, count * (1 + rho) + own + rival * rho
    q = (b - np.sqrt(np.maximum(0.0, b * b - 4 * a * (own + rival)))) / (2 * a)
    least = _log_likelihood(own, rho * q, count) + _log_likelihood(rival, q, count)
    most = _log_likelihood(own, own / count, count) + _log_likelihood(rival, rival / count, count)
    return np.sign(own - rho * rival) * (most - least)


def _log_likelihood(successes: np.ndarray, chance: np.ndarray, count: int) -> np.ndarray:
    from scipy import special

    chance = np.clip(chance, 0.0, 1.0)
    return special.xlogy(successes, chance) + special.xlog1py(count - successes, -chance)


def _binomial(count: int, chances: np.ndarray) -> np.ndarray:
    """Probabilities of each count of successes, [chances, count + 1]."""
    from scipy import special

    k, p = np.arange(count + 1), np.minimum(1.0, chances)[:, None]
    ways = special.gammaln(count + 1) - special.gammaln(k + 1) - special.gammaln(count - k + 1)
    return np.exp(ways + special.xlogy(k, p) + special.xlog1py(count - k, -p))
