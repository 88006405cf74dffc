"""A comparison as JSON: two sides, the verdict, and what changed."""

import dataclasses

from dawnjax.commands.told_study import Advice, Disturbed, Ladder, ToldStudy, Verdict
from dawnjax.study.at_budget import Budget, Decision, Iso
from dawnjax.study.changes import Change


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two sides.

    Attributes:
      given: Its path as it was given.
      arm: The study's arm; `all` for every trial.
      reached: Trials that reached the target.
      expected_seconds: Time of all trials divided by the number that reached; null if none did.
    """

    given: str
    arm: str
    label: str
    source: str
    suite: str
    benchmark: str
    system: str
    trials: int
    reached: int
    expected_seconds: float | None
    warnings: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality:
    """Verdict on the quality of B beside A at a budget.

    Attributes:
      word: `better`, `worse`, `equivalent` or `undecided`.
      difference: Mean of B minus mean of A, in the metric's unit.
      low: Lower end of its interval, or of the range of few trials.
      high: Upper end likewise.
      level: Chance that such an interval holds the truth; null for a range.
      means: Of A and B.
      margin: Difference that counts as equal; null where none was given.
      trials: Of A and B, with a value at the budget.
      missing: Each side's trials without a value there, by reason.
      between: Trials of each side with a value interpolated between two evaluations.
      line_error: Least and greatest error of the interpolation, which the interval includes.
      why: The verdict's basis, or why there is none.
    """

    at: Budget
    metric: str
    direction: str
    word: str
    difference: float | None
    low: float | None
    high: float | None
    level: float | None
    means: tuple[float | None, float | None]
    margin: float | None
    is_worse_excluded: bool
    trials: tuple[int, int]
    missing: tuple[dict[str, int], dict[str, int]]
    between: tuple[int, int]
    line_error: tuple[float, float]
    is_paired: bool
    advice: Advice | None
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmQualities:
    """An arm of a study beside its first, at each budget."""

    arm: str
    qualities: tuple[Quality, ...]
    cautions: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToldComparison:
    """B beside A; or the arms of a study beside its first.

    Attributes:
      verdict: On the times; null if qualities are compared.
      qualities: Verdicts at the budgets of `--at`.
      disturbed: Null where no trial was disturbed.
      undisturbed_qualities: Verdicts at the budgets without the disturbed trials.
      same_mathematics: Whether both sides train the same; null if that cannot be decided.
      mathematics: The same in words.
      changed_fields: Fields of the experiments that differ.
      changes: Time of both sides: compilation, steps, evaluations, epochs to the target.
      step_parts: Parts of a step by the profiles.
      ops: Ops that gained or lost most seconds a step.
      cautions: Cautions about the verdict.
      study: A study whose arms are compared; null for two sides.
      arms: With `--at` the arms of a study.
      ladder: With `--ladder`, or of a study of that kind.
    """

    a: Side | None = None
    b: Side | None = None
    verdict: Verdict | None = None
    qualities: tuple[Quality, ...] = ()
    disturbed: Disturbed | None = None
    undisturbed_qualities: tuple[Quality, ...] = ()
    same_mathematics: bool | None = None
    mathematics: str = ""
    changed_fields: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    step_parts: tuple[Change, ...] = ()
    ops: tuple[Change, ...] = ()
    cautions: tuple[str, ...] = ()
    iso_quality: Iso | None = None
    decision: Decision | None = None
    study: ToldStudy | None = None
    arms: tuple[ArmQualities, ...] = ()
    ladder: Ladder | None = None
