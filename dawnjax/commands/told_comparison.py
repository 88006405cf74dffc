"""A comparison as programs are told of it: two sides, the verdict, and what changed."""

import dataclasses

from dawnjax.commands.told_study import Advice, Disturbed, Ladder, ToldStudy, Verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two that are compared.

    Attributes:
      given: Its path as it was given.
      arm: The study's arm; `all` for every trial.
      reached: Trials that reached the target.
      expected_seconds: Time of all trials over the number that reached; null where none did.
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
class Change:
    """A quantity of both sides, means over their trials.

    Attributes:
      first: Of A; null where no trial has it.
      second: Of B likewise.
      ratio: Second over first.
      low: Lower end of the ratio's interval, or of the range of few trials.
      high: Upper end likewise.
      level: Chance that such an interval holds the truth; null for a range.
      trials: Of the smaller side.
    """

    name: str
    unit: str
    first: float | None
    second: float | None
    ratio: float | None
    low: float | None
    high: float | None
    level: float | None
    trials: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A budget: `amount` of `unit`; null for the end of each trial."""

    unit: str
    amount: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality:
    """Verdict on the quality of B beside A at a budget.

    Attributes:
      word: `better`, `worse`, `equivalent` or `undecided`.
      difference: Mean of B less that of A, in the metric's unit.
      low: Lower end of its interval, or of the range of few trials.
      high: Upper end likewise.
      level: Chance that such an interval holds the truth; null for a range.
      means: Of A and B.
      margin: Difference that counts as equal; null where none was given.
      trials: Of A and B, with a value at the budget.
      missing: Of each side the trials without a value there, by the reason.
      between: Trials of each side whose value lies on a line between two evaluations.
      line_error: Least and greatest error of those lines, which the interval has.
      why: What the verdict rests on, or why there is none.
    """

    at: Place
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
class IsoPoint:
    """What B needs to reach what A has at a place of its curve.

    Attributes:
      place: Of A, in the unit.
      quality: Mean of A's trials there.
      other: Place of B with that quality; null where B has it at once, or has not shown it.
      low: Lower end of the band of `other`; null where there is none.
      high: Upper end likewise.
      is_at_first: Whether B has it at its first evaluation already.
    """

    place: float
    quality: float
    other: float | None
    low: float | None
    high: float | None
    is_at_first: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class IsoQuality:
    """Iso-quality along A's curve; `unit` is seconds, tokens or steps."""

    unit: str
    points: tuple[IsoPoint, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What a loop that keeps or discards changes needs.

    Attributes:
      decision: `keep`, `discard` or `more_trials`.
      verdict: The verdict's word; several budgets' words with commas. `undecided` where every
        trial of a side was disturbed.
      effect: The measured effect, of which `effect_of` says what it is; of several budgets at the
        first that decided.
      low: Lower end of its interval.
      high: Upper end likewise.
      level: Chance that such an interval holds the truth; null for a range of few trials.
      trials_needed: Further trials of each side that may decide; null if decided or unknown. `next`
        asks the same again, after so many more.
    """

    decision: str
    verdict: str
    effect: float | None
    effect_of: str
    low: float | None
    high: float | None
    level: float | None
    trials_needed: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToldComparison:
    """B beside A; or the arms of a study beside its first.

    Attributes:
      verdict: On the times; null where qualities are compared.
      qualities: Verdicts at the budgets of `--at`.
      disturbed: Null where no trial was disturbed.
      undisturbed_qualities: Verdicts at the budgets without the disturbed trials.
      same_mathematics: Whether both sides train the same; null where that cannot be decided.
      mathematics: The same in words.
      changed_fields: Fields of the experiments that differ.
      changes: Time of both sides: compilation, steps, evaluations, epochs to the target.
      step_parts: Parts of a step by the profiles.
      ops: Ops that gained or lost most seconds a step.
      cautions: What a reader of the verdict should know.
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
    iso_quality: IsoQuality | None = None
    decision: Decision | None = None
    study: ToldStudy | None = None
    arms: tuple[ArmQualities, ...] = ()
    ladder: Ladder | None = None
