"""Proportions of trials that reached the target, or of correct examples."""

import math
import statistics
from fractions import Fraction

from dawnjax.statistics.interval import ALPHA, CONFIDENCE, Interval


def wilson(successes: int, trials: int) -> Interval:
    """A proportion and its score interval, which also holds at 0 and at 1.

    Centre (p + z²/2n) / (1 + z²/n), half width z sqrt(p(1-p)/n + z²/4n²) / (1 + z²/n).

    Source: E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference",
    JASA 22 (1927).
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes in {trials} trials")
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    p = successes / trials
    scale = 1 + z * z / trials
    centre = (p + z * z / (2 * trials)) / scale
    half = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials)) / scale
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Interval(p, low, high, CONFIDENCE, trials)


def unseen_share(trials: int, alpha: float = ALPHA) -> float:
    """Largest share of all trials of which so many trials show none with a chance of `alpha`.

    Source: C. J. Clopper and E. S. Pearson, "The Use of Confidence or Fiducial Limits Illustrated
    in the Case of the Binomial", Biometrika 26 (1934), the limit at no success.
    """
    return 1 - alpha ** (1 / trials)


def score(points: float, games: int) -> Interval:
    """Mean points of games that were won (1), drawn (1/2) or lost (0), and its interval.

    It is Wilson's interval, with a half point left out below and counted as a whole above: a little
    too wide, since a draw varies less than a game won or lost.
    """
    low, high = wilson(math.floor(points), games), wilson(math.ceil(points), games)
    return Interval(points / games, low.low, high.high, CONFIDENCE, games)


def difference(first: int, first_trials: int, second: int, second_trials: int) -> Interval:
    """Difference of two independent proportions, first less second.

    With p - q the difference and (l, u) the score interval of each, its interval reaches
    sqrt((p - l_p)^2 + (u_q - q)^2) down and sqrt((u_p - p)^2 + (q - l_q)^2) up.

    Source: R. G. Newcombe, "Interval estimation for the difference between independent
    proportions", Statistics in Medicine 17 (1998), method 10.
    """
    p, q = wilson(first, first_trials), wilson(second, second_trials)
    # A proportion has both ends.
    assert p.low is not None and p.high is not None
    assert q.low is not None and q.high is not None
    value = p.value - q.value
    down = math.hypot(p.value - p.low, q.high - q.value)
    up = math.hypot(p.high - p.value, q.value - q.low)
    return Interval(value, value - down, value + up, CONFIDENCE, min(first_trials, second_trials))


def fisher(first: int, first_trials: int, second: int, second_trials: int) -> float:
    """Probability, if proportions are equal, of counts as unlikely as these: Fisher's exact test.

    Source: R. A. Fisher, "The Logic of Inductive Inference", J. R. Statist. Soc. 98 (1935).
    """
    successes, trials = first + second, first_trials + second_trials
    tables = {
        count: math.comb(first_trials, count) * math.comb(second_trials, successes - count)
        for count in range(max(0, successes - second_trials), min(successes, first_trials) + 1)
    }
    unlikely = sum(ways for ways in tables.values() if ways <= tables[first])
    return float(Fraction(unlikely, math.comb(trials, successes)))
