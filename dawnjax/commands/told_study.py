"""A study and its verdicts as JSON."""

import dataclasses
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.study.figures import StudyFigures
from dawnjax.study.search import SearchFigures


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    """Further trials of each side that may decide; null if no number can be computed.

    Attributes:
      minimum: Trials needed for any verdict.
      if_equal: Trials that show equivalence, in 80 % of cases, if the sides are equal.
      if_as_measured: Trials that find a difference likewise if the ratio is the measured one.
      looks: Trials of each side at each look, if the advice is followed until a verdict.
      error_probability: Chance that the test of one look finds a difference between equal sides.
      false_verdicts: Chance that equal sides differ at one of two looks.
      if_repeated: The same if the advice is followed until a verdict.
    """

    minimum: int | None
    if_equal: int | None
    if_as_measured: int | None
    looks: tuple[int, ...]
    error_probability: float
    false_verdicts: float | None
    if_repeated: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """B beside A, or an arm of a study beside the first.

    Attributes:
      word: The verdict; `dawnjax compare --help` explains each.
      ratio: Expected time of B over that of A; null where a side has none.
      low: Lower end of its interval; null if unknown.
      high: Upper end likewise.
      level: Chance that such an interval holds the truth; null for a range of few trials.
      margin: What counts as equal: a ratio between 1 / (1 + margin) and 1 + margin.
      is_slower_excluded: Whether the interval excludes that B is slower by the margin or more.
      trials: Of A and B.
      reached: Trials of each that reached the target.
      is_paired: Whether the trials were compared as pairs by seed.
      is_conditional: Whether the verdict supposes that all trials reach, because none missed.
      apart: Side (0 for A) and place of a trial that stands apart.
      why: The verdict's basis, or why there is none.
    """

    word: str
    ratio: float | None
    low: float | None
    high: float | None
    level: float | None
    margin: float
    is_slower_excluded: bool
    trials: tuple[int, int]
    reached: tuple[int, int]
    is_paired: bool
    is_conditional: bool
    apart: tuple[int, int] | None
    advice: Advice | None
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disturbed:
    """Trials during which other work took much of the machine's processor time.

    Attributes:
      a: A's (in a study the first arm's), in words; empty without any.
      b: B's likewise.
      alone: Sides, `A` or `B`, without an undisturbed trial: a gate then decides nothing.
      without: Verdict on the times without them.
    """

    a: str
    b: str
    alone: tuple[str, ...]
    without: Verdict | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialRow:
    """A finished trial of a study; `run_dir` is its path in the study's folder."""

    seed: int
    status: str
    reached: bool
    time_to_accuracy_seconds: float | None
    run_dir: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm of a study, or a threshold of a threshold study.

    Attributes:
      flags: Flags that make its trials.
      planned: Planned trials of the arm.
      trials: Those that are over.
      mean_seconds: Mean time to accuracy of those that reached.
      cv: Population standard deviation over mean of these times.
      expected_seconds: Time of all trials divided by the number that reached; null if none did.
      low_seconds: Lower end of its interval, or of the range of few trials.
      high_seconds: Upper end likewise.
      ends: Kind of `low_seconds` and `high_seconds`, such as `95 %` or `range of 3`; empty without.
      exposed_communication: Exposed communication as a fraction of a step; null without profiles.
      verdict: The arm beside the study's first; null for the first.
      rows: The trials, by their seed.
      disturbed: Null where no trial was disturbed.
      elsewhere: How its machines and libraries differ from the first arm's; empty if not.
    """

    arm: str
    flags: tuple[str, ...]
    planned: int
    trials: int
    reached: int
    mean_seconds: float | None
    cv: float | None
    expected_seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    ends: str
    epochs_mean: float | None
    examples_per_second: float | None
    exposed_communication: float | None
    verdict: Verdict | None
    rows: tuple[TrialRow, ...]
    disturbed: Disturbed | None
    machines: tuple[str, ...]
    elsewhere: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Looks:
    """Cost of looking at a study more than once.

    Attributes:
      looks: Trials of each arm at each look.
      false_verdicts: Bound of the chance of a false verdict if all arms are equal.
    """

    looks: tuple[int, ...]
    false_verdicts: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ends:
    """An estimate with the ends of its interval, null where there is none.

    Attributes:
      ends: Kind of `low` and `high`, such as `95 %` or `range of 3`; empty without.
    """

    value: float
    low: float | None
    high: float | None
    ends: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rung:
    """One size of a ladder.

    Attributes:
      a: Path or arm without the change.
      b: With it.
      trials: Of A and B.
      means: Qualities of A and B at the budget; null if a trial has none.
      difference: B's less A's.
      gain: Of B; null where `lacks` says why there is none.
      line: Gain of the fitted line; null without one.
    """

    size: float
    a: str
    b: str
    trials: tuple[int, int]
    means: tuple[float | None, float | None]
    difference: Ends | None
    gain: Ends | None
    line: float | None
    lacks: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ladder:
    """Gains of one change over sizes.

    Attributes:
      word: `grows`, `holds`, `fades` or `undecided`; beyond the largest size nothing is said.
      shows: `gain` or `loss` if B is better or worse at each size, `some` if it is better at some
        sizes, else `none`.
      at: Unit and amount of the budget.
      gain_is: What a gain is: a speedup, or a difference of the metric.
      size_is: What a size counts; empty where it was given.
      margin: What counts as no change; null where none does.
      change: Of the gain from the smallest size to the largest: a ratio of speedups, or a
        difference.
      sizes: Ascending.
      cautions: Where the sides of a size spent other work.
      without_disturbed: Verdict on the trials that other work did not disturb, in words; empty
        where it disturbed none.
    """

    word: str
    shows: str
    why: str
    at: dict[str, Any]
    metric: str
    direction: str
    gain_is: str
    size_is: str
    margin: float | None
    change: Ends | None
    sizes: tuple[Rung, ...]
    cautions: tuple[str, ...]
    without_disturbed: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Margin:
    """Narrowest margin that a number of trials of each side detects in 80 % of comparisons.

    Attributes:
      margin: If the noise is as measured; null where so few give no verdict.
      at_most: If it is the largest noise consistent with the pilot trials.
    """

    trials: int
    margin: float | None
    at_most: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FigureNoise:
    """Noise of one figure.

    Attributes:
      of: The figure, such as `expected time`.
      is_ratio: Whether margins are fractions of it; else they are in its unit.
      deviation: Of a single trial; null where `lacks` says why it is not known.
      pilots: Trials behind the estimate.
      unseen: Sum of squared deviations of the trials that a verdict counts beside those it sees: a
        failure, and two that take an evaluation more. 0 for a quality.
    """

    of: str
    is_ratio: bool
    deviation: float | None
    pilots: int
    unseen: float
    lacks: str
    narrowest: tuple[Margin, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise of trials of one recipe.

    Attributes:
      given: Their path, or their arm.
    """

    given: str
    trials: int
    noise: tuple[FigureNoise, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToldStudy:
    """A study with the figures of its arms.

    Attributes:
      folder: The study's folder, whose result.json has the same figures.
      study: Its fields, by the names of their flags.
      best: The fastest arm of a grid; null for other studies or without a choice.
      search: Figures of a search; null for other studies.
      looks: Null for one arm, or while the study runs.
      ladder: Gains of a ladder; null for other studies, or while a trial runs.
      remarks: Cautions about the figures.
      noise: With `--noise`; without a study the noise of existing trials.
    """

    folder: str = ""
    study: dict[str, Any] = dataclasses.field(default_factory=dict)
    arms: tuple[Arm, ...] = ()
    best: str | None = None
    search: SearchFigures | None = None
    looks: Looks | None = None
    ladder: Ladder | None = None
    remarks: tuple[str, ...] = ()
    noise: tuple[Noise, ...] = ()


def told_study(found: StudyFigures, folder: Path) -> ToldStudy:
    fields = {**found.to_json(), "folder": str(folder), "remarks": found.remarks}
    return records.convert(fields, ToldStudy, others=True)
