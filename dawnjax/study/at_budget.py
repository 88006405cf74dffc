"""Quality of two sides at a budget: its unit, the curves along it, and the answer in words."""

import dataclasses
import itertools
import math
import operator
import re
import shlex
from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Context
from typing import Any

import numpy as np

from dawnjax.errors import ConfigError
from dawnjax.page.words import rounded
from dawnjax.statistics.budget import BETTER, WORSE, QualityVerdict, judge_pairs
from dawnjax.statistics.curves import Curves
from dawnjax.statistics.further import Advice
from dawnjax.statistics.interval import Interval
from dawnjax.statistics.iso_quality import IsoPoint, iso_quality
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import BETTER as FASTER
from dawnjax.statistics.verdict import UNDECIDED
from dawnjax.statistics.verdict import WORSE as SLOWER
from dawnjax.study.sides import Side, apart
from dawnjax.tasks.metric import declared_metrics
from dawnjax.trials.group import OTHER, Entry
from dawnjax.trials.trial import Evaluation, Trial

END = "end"
UNITS = ("seconds", "steps", "tokens", "flops", "usd")

SAME_WORK = 1.01
"""Ratio of tokens per step, or of the sides' ends, above which a caution is printed."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """An amount of a unit; None for the end of each trial."""

    unit: str
    amount: float | None = None

    def __str__(self) -> str:
        if self.amount is None:
            return "at the last evaluation"
        return f"at {in_unit(self.unit, self.amount)}"


def in_unit(unit: str, amount: float) -> str:
    """An amount with its unit, such as `1,000 steps`."""
    text = f"{amount:,g}" if amount >= 1e6 else rounded(amount, 5)
    if unit == "usd":
        return f"{text} USD"
    return f"{text} {'s' if unit == 'seconds' else unit.replace('flops', 'FLOPs')}"


def parse(texts: Sequence[str]) -> list[Budget]:
    """Budgets of `--at` flags.

    Raises:
      ConfigError: A text is not `UNIT=AMOUNT`, or is repeated.
    """
    budgets = []
    for text in texts:
        found = re.fullmatch(rf"({'|'.join(UNITS)})=(\S+)", text)
        try:
            amount = float(found[2]) if found else None
        except ValueError:
            amount = math.nan
        if text != END and (amount is None or not 0 < amount < math.inf):
            raise ConfigError(
                f"--at={text} must be {', '.join(f'{unit}=AMOUNT' for unit in UNITS)} or {END}, "
                "with an amount above 0"
            )
        budgets.append(Budget(END if found is None else found[1], amount))
        if len(set(budgets)) < len(budgets):
            raise ConfigError(f"--at={text} is given twice")
    return budgets


def curves(entry: Entry, unit: str, metric: str, given: str) -> Curves:
    """Evaluations of an entry's trials along a unit.

    Args:
      metric: The metric; empty takes the target's.
      given: The path, for messages.

    Raises:
      ConfigError: A trial's log lacks the unit or the metric.
    """
    place_of = _place_of(entry, unit, given)
    placed = [
        [(place_of(row), _value(row, metric, entry)) for row in _rows(t)] for t in entry.trials
    ]
    for trial, points in zip(entry.trials, placed, strict=True):
        if any(place is None for place, _ in points):
            raise ConfigError(
                f"{given}: {trial.name} {_UNKNOWN.get(unit, 'does not record its ' + unit)}"
            )
        if points and not any(value is not None for _, value in points):
            raise ConfigError(f"{given}: {trial.name} has no evaluation of {metric}")
    rows = [[(at, value) for at, value in points if value is not None] for points in placed]
    if unit in ("tokens", "flops"):
        _refuse_standing(entry, rows, unit, given)
    firsts = [trial.finite_losses for trial in entry.trials]
    pairing = Sample(
        np.ones(len(rows)),
        np.ones(len(rows), bool),
        tuple(trial.seed for trial in entry.trials),
        tuple(firsts) if any(firsts) else (),
    )
    return Curves(
        places=tuple(np.array([at for at, _ in points], np.float64) for points in rows),
        values=tuple(np.array([value for _, value in points], np.float64) for points in rows),
        pairing=pairing,
    )


def _refuse_standing(entry: Entry, rows: Sequence[Sequence[Any]], unit: str, given: str) -> None:
    """Refuse amounts that do not rise with the training: those of a step, and not of all steps."""
    for trial, points in zip(entry.trials, rows, strict=True):
        if any(after <= before for (before, _), (after, _) in itertools.pairwise(points)):
            raise ConfigError(
                f"{given}: the {unit} of {trial.name} do not rise from evaluation to evaluation: "
                f"--{unit} must name what was spent since the start"
            )


_UNKNOWN = {
    "seconds": "has an evaluation without a time",
    "steps": "has an evaluation without a step",
    "tokens": "does not record its tokens: only runs of language models do; for other programs' "
    "logs give --tokens=COLUMN or a number a step",
    "usd": "has an evaluation without a time",
    "flops": "does not record its FLOPs (neither older versions nor self-play do); for other "
    "programs' logs give --flops=COLUMN",
}


def _place_of(entry: Entry, unit: str, given: str) -> Callable[[Evaluation], float | None]:
    if unit == "usd":
        price = entry.cost_per_hour_usd
        if price is None:
            raise ConfigError(
                f"{given}: {entry.reasons.get('cost_per_hour_usd', 'no price is known')}"
            )
        return lambda row: _times(row.seconds_since_run_start, price / 3600)
    if unit == "seconds":
        return lambda row: row.seconds_since_run_start
    if unit == "steps":
        return lambda row: row.step
    if unit == END:
        return lambda row: 0.0
    return operator.attrgetter(unit)


def _times(amount: float | None, factor: float) -> float | None:
    return None if amount is None else amount * factor


def _rows(trial: Trial) -> list[Evaluation]:
    """Evaluations in the order of the training, one at each step."""
    known = all(row.step is not None for row in trial.evaluations)
    return (
        sorted(trial.evaluations, key=lambda row: row.step or 0) if known else [*trial.evaluations]
    )


def _value(row: Evaluation, metric: str, entry: Entry) -> float | None:
    if metric in ("", entry.target.metric):
        return row.value
    value = row.metrics.get(metric)
    if value is None:
        return None
    return value if isinstance(value, int | float) and math.isfinite(value) else math.nan


def direction_of(entry: Entry, metric: str, given: str) -> str:
    """Direction of better values of a metric.

    Raises:
      ConfigError: The entry's runs do not declare the metric.
    """
    if metric in ("", entry.target.metric):
        return entry.target.direction
    declared = [declared_metrics(trial.metrics) for trial in entry.trials]
    if not declared or metric not in declared[0]:
        names = ", ".join(sorted(declared[0] if declared else ())) or entry.target.metric
        raise ConfigError(f"{given}: --metric={metric} is none of {names}")
    return declared[0][metric].direction


@dataclasses.dataclass(frozen=True, kw_only=True)
class Iso:
    """What B needs to reach what A reached, along A's curve; seconds, tokens or steps."""

    unit: str
    points: tuple[IsoPoint, ...]

    def sentence(self, metric: str) -> str:
        """The last place of A's curve, in words; empty without one."""
        if not self.points:
            return ""
        last = self.points[-1]
        place, quality = in_unit(self.unit, last.place), rounded(last.quality, 5)
        there = f"what A has at {place} ({metric} {quality})"
        found = last.speedup
        if last.is_at_first:
            return f"iso-quality: B already has {there} at its first evaluation"
        if found is None or last.other is None:
            return f"iso-quality: B did not reach {there} in its evaluations"
        ends = "no band: fewer than 5 trials of each, or both ends lie beyond B's evaluations"
        if last.low is not None and last.high is not None:
            ends = f"95 %: {in_unit(self.unit, last.low)} to {in_unit(self.unit, last.high)}"
        elif last.low is not None:
            ends = f"95 %: from {in_unit(self.unit, last.low)} on, without an upper end"
        elif last.high is not None:
            ends = f"95 %: up to {in_unit(self.unit, last.high)}"
        needs = f"iso-quality: B needs {in_unit(self.unit, last.other)} to reach {there}"
        return f"{needs} ({ends}), {found.value:.3f} times as fast"


def iso(first: Entry, second: Entry, metric: str = "", unit: str = "") -> Iso | None:
    """Iso-quality along a budget's unit, or the first unit that both sides record.

    Steps may differ in size, so they come last.
    """
    units = ("seconds", "tokens", "steps") if unit in (END, "", "steps") else (unit,)
    for unit in units:
        try:
            sides = [curves(entry, unit, metric, "") for entry in (first, second)]
        except ConfigError:
            continue
        direction = direction_of(first, metric, "")
        points = iso_quality(sides[0], sides[1], direction) if all(map(_is_rising, sides)) else []
        return Iso(unit=unit, points=tuple(points)) if points else None
    return None


def _is_rising(side: Curves) -> bool:
    return all((np.diff(places) > 0).all() for places in side.places)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Qualities:
    """Qualities of B beside A at some budgets.

    Attributes:
      verdicts: One for each budget; they hold together.
      cautions: Cautions about the comparison.
    """

    metric: str
    direction: str
    budgets: tuple[Budget, ...]
    verdicts: tuple[QualityVerdict, ...]
    cautions: tuple[str, ...]

    def lines(self) -> list[str]:
        """The verdicts in words, a line each, then the cautions."""
        said = [
            f"verdict {budget}: {self._line(verdict)}"
            for budget, verdict in zip(self.budgets, self.verdicts, strict=True)
        ]
        return said + [f"  caution: {caution}" for caution in self.cautions]

    def _line(self, verdict: QualityVerdict) -> str:
        subject = "" if verdict.word == UNDECIDED else "B is "
        text = f"{subject}{verdict.word}: {verdict.why}"
        found, (a, b) = verdict.difference, verdict.means
        if found is not None and a is not None and b is not None:
            digits = _digits(found.value, found.low, found.high)
            value, ends = difference_text(found)
            kind = "95 % " if found.ends == "95 %" else ""
            text += f"; {self.metric} {a:.{digits}f} of A and {b:.{digits}f} of B, a difference of "
            text += value + (f" ({kind}{ends})" if ends else "")
        counts = sum(verdict.between)
        if counts:
            text += f"; {counts} of {sum(verdict.trials)} values are interpolated between two "
            text += "evaluations"
            low, high = verdict.line_error
            if high > low:
                text += f", whose error may be {max(-low, high):.2g}"
        advice = verdict.advice.text("difference") if verdict.advice else ""
        return text + (f"; {advice}" if advice else "")

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"at": {"unit": budget.unit, "amount": budget.amount}, "metric": self.metric}
            | {"direction": self.direction}
            | verdict.to_json()
            for budget, verdict in zip(self.budgets, self.verdicts, strict=True)
        ]


def difference_text(found: Interval | None) -> tuple[str, str]:
    """A difference and its ends, with three digits of the smallest number."""
    if found is None:
        return "-", ""
    digits = _digits(found.value, found.low, found.high)
    return f"{found.value:+.{digits}f}", found.ends_text(digits)


def _digits(*values: float | None) -> int:
    """Decimals that show three digits of the smallest of some numbers; at most 8."""
    least = min((abs(value) for value in values if value), default=1.0)
    return min(8, max(0, 2 - math.floor(math.log10(least))))


def qualities(
    first: Side,
    others: Sequence[Side],
    budgets: Sequence[Budget],
    metric: str = "",
    margin: float | None = None,
) -> list[Qualities]:
    """Compare the qualities of sides with those of a first one, at some budgets, all together.

    Without a budget the end of the training counts, if all trials end at the same step or within 1
    % of the same time.

    Raises:
      ConfigError: The sides measure different metrics, a log lacks a budget's unit, or no budget is
        given and the trials end at different places.
    """
    sides = [first, *others]
    names = {metric or side.entry.target.metric for side in sides}
    if len(names) > 1:
        raise ConfigError(
            f"the sides have {' and '.join(sorted(names))}: give a --metric that all have"
        )
    directions = {direction_of(side.entry, metric, side.given) for side in sides}
    if len(directions) > 1:
        raise ConfigError(f"greater values of {names.pop()} are better on only one side")
    given = list(budgets) or [_same_end([side.entry for side in sides])]
    drawn = [[curves(side.entry, it.unit, metric, side.given) for it in given] for side in sides]
    [name], [direction] = names, directions
    amounts = [budget.amount for budget in given]
    verdicts = judge_pairs(
        [case for of_other in drawn[1:] for case in zip(drawn[0], of_other, amounts, strict=True)],
        direction,
        margin,
    )
    found = []
    for number, other in enumerate(others):
        own = tuple(verdicts[number * len(given) :][: len(given)])
        entries = first.entry, other.entry
        pairs = list(zip(drawn[0], drawn[number + 1], strict=True))
        cautions = (*other_clocks(*entries), *_cautions(entries, given, own, pairs))
        made = Qualities(
            metric=name,
            direction=direction,
            budgets=tuple(given),
            verdicts=own,
            cautions=cautions,
        )
        found.append(made)
    return found


def ends_of(entry: Entry, unit: str) -> list[float]:
    """Where each trial's last evaluation lies; empty if one does not record it."""
    place_of = _place_of(entry, unit, "")
    found = [place_of(trial.evaluations[-1]) for trial in entry.trials if trial.evaluations]
    return [] if None in found else [float(place) for place in found if place is not None]


def _same_end(entries: Sequence[Entry]) -> Budget:
    said = []
    for unit, most in (("steps", 1.0), ("seconds", SAME_WORK)):
        sides = [ends_of(entry, unit) for entry in entries]
        if not all(sides):
            continue
        ends = [end for side in sides for end in side]
        least, greatest = min(ends), max(ends)
        if greatest <= most * least:
            return Budget(END)
        said.append(f"{unit}={_not_beyond(least)}")
    shown = " or ".join(f"--at={text}" for text in said) or "--at=end"
    raise ConfigError(
        "the trials share no final step or time: give --target=VALUE to compare times to a "
        f"target, or a budget to compare quality there; every trial reaches {shown}"
    )


def _not_beyond(place: float) -> str:
    """A place as a flag has it, rounded down: a trial that ends there reaches it."""
    exact = Context(prec=9, rounding=ROUND_FLOOR).create_decimal(repr(place))
    return rounded(float(exact), 9).replace(",", "")


def other_clocks(first: Entry, second: Entry) -> list[str]:
    """A caution if only one side's clock is another program's."""
    if (first.suite == OTHER) == (second.suite == OTHER):
        return []
    name = "AB"[second.suite == OTHER]
    return [
        f"the times of {name} come from another program's clock, which may include other things"
    ]


def _cautions(
    entries: tuple[Entry, Entry],
    budgets: Sequence[Budget],
    verdicts: Sequence[QualityVerdict],
    pairs: Sequence[tuple[Curves, ...]],
) -> list[str]:
    # Load of the machine moves no quality at an equal number of steps.
    is_timed = any(budget.unit in ("seconds", "usd") for budget in budgets)
    said = apart(*entries) if is_timed else []
    for budget, verdict, sides in zip(budgets, verdicts, pairs, strict=True):
        if budget.amount is None:
            said += different_ends(entries)
        elif any(side["short"] for side in verdict.missing):
            every = [places for side in sides for places in side.places]
            if not all(map(len, every)):
                continue  # a trial without an evaluation reaches no budget
            last = min(float(places[-1]) for places in every)
            said.append(f"every trial reaches --at={budget.unit}={_not_beyond(last)}")
    if any(budget.unit == "steps" for budget in budgets):
        said += other_steps(*entries)
    return said


def other_steps(first: Entry, second: Entry) -> list[str]:
    """A caution if one side's steps are more work than the other's."""
    for unit in ("tokens", "flops"):
        work = [_work_a_step(entry, unit) or 0.0 for entry in (first, second)]
        if min(work) and max(work) > SAME_WORK * min(work):
            a, b = (in_unit(unit, amount) for amount in work)
            return [
                f"a step of A is {a} and of B {b}: equal steps are not equal work; "
                f"--at={unit}=AMOUNT is"
            ]
    return []


def different_ends(entries: tuple[Entry, Entry]) -> list[str]:
    """A caution if the sides end at different steps or times."""
    said = []
    for unit in ("steps", "seconds"):
        sides = [ends_of(entry, unit) for entry in entries]
        if not all(sides):
            continue
        means = [sum(side) / len(side) for side in sides]
        if max(means) > SAME_WORK * min(means):
            said.append(
                f"A ends at {in_unit(unit, means[0])} and B at {in_unit(unit, means[1])} (means): "
                "the sides were not trained alike"
            )
        elif unit == "steps":
            return []  # whatever time they took
    return said


def _work_a_step(entry: Entry, unit: str) -> float | None:
    place_of = _place_of(entry, unit, "")
    rows = [trial.evaluations[-1] for trial in entry.trials if trial.evaluations]
    pairs = [(place_of(row), row.step) for row in rows]
    found = [work / step for work, step in pairs if step and work is not None]
    return sum(found) / len(found) if found else None


KEEP, DISCARD, MORE = "keep", "discard", "more_trials"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision for a loop that keeps or discards changes.

    Attributes:
      decision: `keep`, `discard` or `more_trials`.
      verdict: The verdict's word; several budgets' words with commas. `undecided` where every
        trial of a side was disturbed.
      effect: The measured effect, described by `effect_of`; with several budgets, at the first that
        decided.
      low: Lower end of its interval.
      high: Upper end likewise.
      level: Chance that such an interval holds the truth; None for a range of few trials.
      trials_needed: Further trials of each side that may decide; None if decided or unknown. `next`
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

    def line(self, nothing: str = "") -> str:
        """The decision in one line; `nothing` says why there is none."""
        if nothing:
            return f"decision: {nothing}"
        if self.decision != MORE:
            return f"decision: {self.decision} B"
        more = self.trials_needed
        wanted = "" if more is None else f"; {more:,} more trials of each may suffice"
        return f"decision: not decided{wanted}"

    def following(self, paths: tuple[str, str], argv: Sequence[str]) -> list[str]:
        """Commands that make sense now.

        Args:
          paths: Paths of A and B, for the page of a decided comparison.
          argv: Arguments of the comparison, to run again after further trials.
        """
        if self.decision != MORE:
            return [shlex.join(["dawnjax", "report", *paths, "--out=report"])]
        return [] if self.trials_needed is None else [shlex.join(["dawnjax", "compare", *argv])]


def decided(
    words: Sequence[str], *, effect: str, found: Interval | None, advice: Advice | None
) -> Decision:
    """Decision on B by its verdicts, for programs: keep, discard or train more.

    B is kept if it is better or faster somewhere, and nowhere undecided or worse.

    Args:
      effect: What `found` is, in words.
    """
    decision = DISCARD
    if not any(word in (WORSE, *SLOWER) for word in words):
        is_better = any(word in (BETTER, *FASTER) for word in words)
        decision = MORE if UNDECIDED in words else KEEP if is_better else DISCARD
    return Decision(
        decision=decision,
        verdict=words[0] if len(set(words)) == 1 else ", ".join(words),
        effect=found and found.value,
        effect_of=effect,
        low=found and found.low,
        high=found and found.high,
        level=found and found.level,
        trials_needed=_further(advice) if decision == MORE else None,
    )


def _further(advice: Advice | None) -> int | None:
    """Further trials of each side: the fewest for a verdict, or as many as the effect needs."""
    if advice is None:
        return None
    known = (advice.minimum, advice.if_as_measured, advice.if_equal)
    return next((count for count in known if count is not None), None)
