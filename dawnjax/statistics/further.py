"""Trials that a comparison needs, before its first trial or after an undecided verdict."""

import dataclasses
import math
from typing import Any, NamedTuple

from dawnjax.statistics import interval
from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS
from dawnjax.statistics.looks import false_verdicts

POWER = 0.8
MOST_TRIALS = 100_000
"""Two sides that need more trials than this count as equal."""

_LOOKS = 4
"""Looks that advice followed until a verdict takes at most, nearly always."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    """Further trials of each side after an undecided verdict.

    Attributes:
      minimum: Trials without which no verdict is possible; None where one was.
      if_equal: Trials that show equivalence with a probability of 80 % if the sides are equal; None
        where more than `MOST_TRIALS` would be needed.
      if_as_measured: Trials that find a difference with that probability if the true ratio is the
        measured one; None where that lies within the margin.
      looks: Trials of each side now, after the larger number of further trials, and at `_LOOKS`
        looks in all if each comparison is undecided and takes as many times the trials again.
      level: Of the test at each look.
    """

    minimum: int | None = None
    if_equal: int | None = None
    if_as_measured: int | None = None
    looks: tuple[int, ...] = ()
    level: float = ALPHA

    @property
    def false_verdicts(self) -> float | None:
        """Chance that equal sides differ at one of two looks; None without further trials."""
        return self._chance(2)

    @property
    def if_repeated(self) -> float | None:
        """The same if the advice is followed until a verdict."""
        return self._chance(_LOOKS)

    def _chance(self, looks: int) -> float | None:
        at = self.looks[:looks]
        return false_verdicts(at, (self.level,) * len(at)) if at else None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the chances of a false verdict."""
        chances = {"false_verdicts": self.false_verdicts, "if_repeated": self.if_repeated}
        fields = dataclasses.asdict(self) | chances
        # The level of a verdict is that of its interval.
        fields["error_probability"] = fields.pop("level")
        return fields

    def text(self, effect: str = "ratio") -> str:
        """The advice in words, with its chance of a false verdict; empty without advice."""
        if self.minimum is not None:
            return (
                f"no verdict without {self.minimum} more trials of each, the fewest that it takes"
            )
        cases = []
        if self.if_as_measured is not None:
            cases.append(f"{self.if_as_measured:,} more of each if the {effect} is as measured")
        if self.if_equal is not None:
            cases.append(f"{self.if_equal:,} more of each if the sides are equal")
        if not cases:
            return ""
        once, repeated = (
            100 * (chance or 0.0) for chance in (self.false_verdicts, self.if_repeated)
        )
        return (
            f"would decide in 80 % of cases: {', '.join(cases)}; judging again is a second look, "
            f"with {once:.1f} % false verdicts on equal sides, and up to {repeated:.1f} % if "
            "repeated until decided"
        )


def advise(
    *,
    distance: float,
    error: float,
    freedom: float,
    trials: int,
    edge: float | None,
    alpha: float,
    equivalence_alpha: float,
) -> Advice:
    """Further trials for an undecided verdict.

    Args:
      distance: Logarithm of the ratio, or a difference.
      error: Its standard error, with `freedom` degrees of freedom.
      trials: Trials of the smaller side.
      edge: Distance up to which the sides count as equal; None where none do.
      alpha: Level of the test of a difference.
      equivalence_alpha: That of the test of equivalence, less where several verdicts hold together.
    """
    variance, equal, measured = error**2 * trials, None, None
    if edge is not None:
        # Two one-sided tests both succeed with 80 % where each alone does with 90 %.
        equal = _stein(variance, freedom, edge, equivalence_alpha, 1 - (1 - POWER) / 2)
    if abs(distance) > (edge or 0.0):
        measured = _stein(variance, freedom, abs(distance), alpha / 2, POWER)
    more = [None if n is None else max(1, n - trials) for n in (equal, measured)]
    ends = [trials + n for n in more if n is not None]
    if not ends:
        return Advice()
    at = [math.ceil(trials * (max(ends) / trials) ** look) for look in range(_LOOKS)]
    return Advice(if_equal=more[0], if_as_measured=more[1], looks=tuple(at), level=alpha)


def _stein(
    variance: float, freedom: float, distance: float, alpha: float, power: float
) -> int | None:
    """Trials of each side after which a one-sided test finds a distance.

    Quantiles are those of t with the present variance's freedom: that variance may be too small by
    chance, and normal quantiles would then ask for too few trials.

    Source: C. Stein, "A Two-Sample Test for a Linear Hypothesis Whose Power is Independent of the
    Variance", Ann. Math. Statist. 16 (1945).
    """
    from scipy import special

    reach = float(special.stdtrit(freedom, 1 - alpha) + special.stdtrit(freedom, power))
    needed = variance * (reach / distance) ** 2
    return math.ceil(needed) if needed <= MOST_TRIALS else None


class Narrowest(NamedTuple):
    """Narrowest difference that a number of trials finds with a probability of 80 %.

    Attributes:
      as_measured: If the deviation is the measured one.
      at_most: If it is the greatest that the pilot trials cannot exclude at 5 %.
    """

    as_measured: float
    at_most: float


def narrowest(deviation: float, freedom: int, trials: int, unseen: float = 0.0) -> Narrowest:
    """Narrowest difference that so many trials of each side find, by the noise of pilot trials.

    Args:
      deviation: Of a single trial, in the unit of the difference or of a logarithm.
      freedom: Degrees of freedom of that deviation: of one side's pilot trials one fewer.
      trials: Of each side, 3 or more.
      unseen: Sum of squares of the trials that a verdict counts beside those it sees, known as it
        is; the more trials it sees, the less each of these weighs.

    Source: J. Cohen, "Statistical Power Analysis for the Behavioral Sciences" (1988), chapter 2;
    the bound of a deviation is that of the chi-square distribution.
    """
    from scipy import special

    own = interval.freedom_of((1.0, 1.0), (trials, trials))
    reach = float(special.stdtrit(own, 1 - ALPHA / 2) + special.stdtrit(own, POWER))
    factor = freedom / float(special.chdtri(freedom, 1 - ALPHA))
    as_measured, at_most = (
        math.sqrt((seen + unseen / (trials - 1)) * 2 / trials) * reach
        for seen in (deviation**2, deviation**2 * factor)
    )
    return Narrowest(as_measured, at_most)


def trials_needed(
    ratio: float, first_cv: float, second_cv: float, power: float = POWER
) -> int | None:
    """Trials of each side with which a t test finds a ratio of means.

    The smallest n, from `FEWEST_TRIALS` on, at which the two-sided 5 % test of the logarithms of
    log-normal times has the power. Its statistic follows the noncentral t distribution with
    noncentrality |ln(ratio)| / sqrt((s1² + s2²) / n), where s² = ln(1 + cv²), and
    (n - 1) (s1² + s2²)² / (s1⁴ + s2⁴) degrees of freedom. None if n would exceed `MOST_TRIALS`.

    Source: J. Cohen, "Statistical Power Analysis for the Behavioral Sciences" (1988), chapter 2 (an
    effect of d = 0.5 needs 64 of each).

    Args:
      ratio: Of the true means, above 0.
      first_cv: Sample standard deviation over mean of the first side's times.
      power: Probability of finding the difference.

    Raises:
      ValueError: An argument is out of its range.
    """
    if ratio <= 0 or first_cv < 0 or second_cv < 0:
        raise ValueError(f"ratio {ratio}, CVs {first_cv}, {second_cv}: none may be negative")
    if not 0 < power < 1:
        raise ValueError(f"power {power} must be between 0 and 1")
    from scipy import special

    variances = math.log1p(first_cv**2), math.log1p(second_cv**2)
    total, distance = sum(variances), abs(math.log(ratio))
    quantiles = float(special.ndtri(1 - ALPHA / 2) + special.ndtri(power))
    if total * quantiles**2 >= distance**2 * MOST_TRIALS:
        return None
    if not total:
        return FEWEST_TRIALS
    share = sum((variance / total) ** 2 for variance in variances)
    # The number for variances that are known, and thus too small: the search begins there.
    number = max(FEWEST_TRIALS, math.ceil(total * (quantiles / distance) ** 2))
    while True:
        freedom, shift = (number - 1) / share, distance * math.sqrt(number / total)
        critical = float(special.stdtrit(freedom, 1 - ALPHA / 2))
        missed = special.nctdtr(freedom, shift, critical)
        missed -= special.nctdtr(freedom, shift, -critical)
        if not missed > 1 - power:  # NaN where the distance is beyond all noise
            return number
        number += 1
