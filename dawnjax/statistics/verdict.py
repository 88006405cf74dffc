"""Is B faster than A: the ratio of two sets' expected times, its interval, and a verdict.

The expected time of a set is the time of all its trials over the number that reached. The interval
is Welch's t interval of the logarithm of the ratio of two expected times, with their variances by
linearization (the delta method): for trial i with time t_i and r_i = 1 if it reached,

    u_i = t_i / mean(t) - r_i / mean(r),    var(log E) = sum(u_i^2) / (n (n - 1)).

Where all trials reached that is the interval of the ratio of the mean times. The bootstrap of
`analysis.comparison` tells equal systems with 5 trials each apart 12 times of 100; this interval
does so 4 to 5 times (`tests/statistics/verdict_test.py` simulates both kinds of wrong verdict).

Source: B. L. Welch, "The Generalization of 'Student's' Problem when Several Different Population
Variances are Involved", Biometrika 34 (1947); W. G. Cochran, "Sampling Techniques" (1977), chapter
6, for the variance of a ratio; D. J. Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15
(1987), for equivalence by two one-sided tests.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

FASTER, SLOWER, EQUIVALENT, UNDECIDED = WORDS = ("faster", "slower", "equivalent", "undecided")

FEWEST_TRIALS = 5
"""Of each set: fewer say too little of their own variance."""

FEWEST_WITH_FAILURES = 20
"""Of each set where a trial of either did not reach. Of a system that reaches in 80 % of cases five
trials show no failure one time in three; against 20 trials of an equal system that would be a wrong
verdict 15 to 19 times of 100 (simulated)."""

POWER = 0.8
MOST_TRIALS = 100_000
"""Two sets that need more trials than this are as good as equal."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the trials of two sets allow to say of B beside A.

    Attributes:
      word: `faster`, `slower`, `equivalent` or `undecided`: B beside A.
      ratio: Expected time of B over that of A; None where a set has none.
      low: Lower end of its 95 % interval; None where there are too few trials.
      high: Upper end.
      margin: What counts as equivalent: a ratio between 1 / (1 + margin) and 1 + margin.
      is_slower_excluded: Whether the upper end lies below 1 + margin.
      trials: Of A and B.
      reached: Trials of each that reached.
      more_trials: How many more trials of each set would probably decide; None where that cannot be
        said.
      why: What the verdict rests on, or why there is none.
    """

    word: str
    ratio: float | None
    low: float | None
    high: float | None
    margin: float
    is_slower_excluded: bool
    trials: tuple[int, int]
    reached: tuple[int, int]
    more_trials: int | None
    why: str

    def before_a_look(self, trials: int) -> "Verdict":
        """The same without a claim: a study that looks several times has not yet looked."""
        why = f"the study first looks after {trials} trials of each"
        return dataclasses.replace(
            self, word=UNDECIDED, low=None, high=None, is_slower_excluded=False, why=why
        )

    def to_json(self) -> dict[str, object]:
        """The verdict as plain JSON values."""
        return dataclasses.asdict(self)


def judge(
    first: np.ndarray,
    second: np.ndarray,
    margin: float,
    *,
    level: float = 0.95,
    is_last: bool = True,
) -> Verdict:
    """Compares the expected times of two sets of trials.

    B is `equivalent` where the 90 % interval of the ratio lies between 1 / (1 + margin) and
    1 + margin (two one-sided tests at 5 %); else `faster` where the 95 % interval lies below 1, and
    `slower` where it lies above 1; else `undecided`.

    Args:
      first: Of A, for each trial how long it ran in seconds and 1 if it reached, else 0:
        `[trials, 2]`.
      second: The same of B.
      margin: Above 0 and below 1.
      level: Of the interval, which is wider where a study looks several times (`stopping`).
      is_last: Whether the sets may be called equivalent; looks before a study's last may not.

    Raises:
      ValueError: The margin is out of its range.
    """
    if not 0 < margin < 1:
        raise ValueError(f"a margin of {margin:g} is not between 0 and 1")
    sets = [np.asarray(rows, np.float64).reshape(-1, 2) for rows in (first, second)]
    trials = (len(sets[0]), len(sets[1]))
    reached = (int(sets[0][:, 1].sum()), int(sets[1][:, 1].sum()))

    def verdict(
        word: str,
        why: str,
        more: int | None = None,
        ratio: float | None = None,
        ends: tuple[float, float] | None = None,
    ) -> Verdict:
        return Verdict(
            word=word,
            ratio=ratio,
            low=None if ends is None else ends[0],
            high=None if ends is None else ends[1],
            margin=margin,
            is_slower_excluded=ends is not None and ends[1] < 1 + margin,
            trials=trials,
            reached=reached,
            more_trials=more,
            why=why,
        )

    for name, count, total in zip("AB", reached, trials, strict=True):
        if not count:
            return verdict(UNDECIDED, f"no trial of {name} reached the target, of {total}")
    distance, variances = _log_ratio(sets)
    ratio = math.exp(distance)
    has_failures = reached != trials
    needed = FEWEST_WITH_FAILURES if has_failures else FEWEST_TRIALS
    if min(trials) < needed:
        why = f"{trials[0]} and {trials[1]} trials; a verdict needs {needed} of each"
        why += ", since some did not reach the target" if has_failures else ""
        return verdict(UNDECIDED, why, needed - min(trials), ratio)
    error, freedom = _welch(variances, trials)
    ends = _ends(distance, error, freedom, level)
    inner_low, inner_high = _ends(distance, error, freedom, 0.90)
    if is_last and 1 / (1 + margin) < inner_low and inner_high < 1 + margin:
        why = f"the 90 % interval lies within the margin of {100 * margin:g} %"
        return verdict(EQUIVALENT, why, None, ratio, ends)
    if ends[1] < 1:
        return verdict(FASTER, f"the {name_of(level)} interval lies below 1", None, ratio, ends)
    if ends[0] > 1:
        return verdict(SLOWER, f"the {name_of(level)} interval lies above 1", None, ratio, ends)
    more = _more_trials(distance, variances, trials, margin)
    why = f"the {name_of(level)} interval holds 1, and is wider than the margin"
    return verdict(UNDECIDED, why, more, ratio, ends)


def name_of(level: float) -> str:
    """A level in percent: 95 %, 99.7 %."""
    return f"{100 * level:.4g} %"


def expected_seconds(rows: np.ndarray) -> float | None:
    """The time of all trials over the number that reached; None where none did.

    Args:
      rows: As `judge` takes them.
    """
    return float(rows[:, 0].sum() / rows[:, 1].sum()) if rows[:, 1].any() else None


def expected_interval(rows: np.ndarray) -> tuple[float, float] | None:
    """The 95 % interval of an expected time, by the t interval of its logarithm.

    Args:
      rows: As `judge` takes them.

    Returns:
      Its ends; None with fewer trials than `judge` needs for a verdict.
    """
    has_failures = len(rows) and not rows[:, 1].all()
    needed = FEWEST_WITH_FAILURES if has_failures else FEWEST_TRIALS
    if len(rows) < needed or not rows[:, 1].any():
        return None
    distance, variances = _log_ratio([np.ones((2, 2)), rows])
    return _ends(distance, math.sqrt(variances[1]), len(rows) - 1, 0.95)


def mean_ratio(
    first: Sequence[float], second: Sequence[float]
) -> tuple[float, float | None, float | None]:
    """The ratio of two means, second over first, and its 95 % interval by the same method.

    Args:
      first: Positive figures, such as seconds a step of each trial.
      second: The same of the second set.

    Returns:
      The ratio and its ends; None for the ends of fewer than `FEWEST_TRIALS` figures of either.
    """
    sets = [np.stack([values, np.ones(len(values))], 1) for values in (first, second)]
    distance, variances = _log_ratio(sets)
    sizes = (len(first), len(second))
    if min(sizes) < FEWEST_TRIALS:
        return math.exp(distance), None, None
    return math.exp(distance), *_ends(distance, *_welch(variances, sizes), 0.95)


def _log_ratio(sets: Sequence[np.ndarray]) -> tuple[float, tuple[float, float]]:
    """The logarithm of the ratio of expected times, and the variance of each set's logarithm."""
    logarithms, variances = [], []
    for rows in sets:
        means = rows.mean(axis=0)
        logarithms.append(math.log(means[0] / means[1]))
        influence = rows[:, 0] / means[0] - rows[:, 1] / means[1]
        count = len(rows)
        variances.append(float((influence**2).sum()) / (count * max(1, count - 1)))
    return logarithms[1] - logarithms[0], (variances[0], variances[1])


def _welch(variances: tuple[float, float], sizes: tuple[int, int]) -> tuple[float, float]:
    """The standard error of the difference, and its degrees of freedom."""
    total = sum(variances)
    if not total:
        return 0.0, float(sum(sizes) - 2)
    parts = sum(v**2 / (size - 1) for v, size in zip(variances, sizes, strict=True))
    return math.sqrt(total), total**2 / parts


def _ends(distance: float, error: float, freedom: float, level: float) -> tuple[float, float]:
    half = float(special.stdtrit(freedom, (1 + level) / 2)) * error
    return math.exp(distance - half), math.exp(distance + half)


def _more_trials(
    distance: float, variances: tuple[float, float], trials: tuple[int, int], margin: float
) -> int | None:
    """Trials more of each set that decide with a probability of 80 %, were the ratio the true one.

    A ratio inside the margin is to be shown equivalent, one outside of it faster or slower; the
    number is that of normal quantiles, with two more for the variances that are not known.
    """
    a_trial = sum(v * n for v, n in zip(variances, trials, strict=True))
    edge = math.log1p(margin)
    power = float(special.ndtri(POWER))
    if abs(distance) < edge:
        reach, quantile = edge - abs(distance), float(special.ndtri(0.95)) + power
    else:
        reach, quantile = abs(distance), float(special.ndtri(0.975)) + power
    needed = a_trial * (quantile / reach) ** 2 + 2
    if not needed < MOST_TRIALS:
        return None
    return max(1, math.ceil(needed) - min(trials))
