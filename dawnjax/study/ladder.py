"""A ladder of sizes: the gain of one change at each size, and its trend, from runs or logs."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

from dawnjax.errors import ConfigError
from dawnjax.page.table import of_words
from dawnjax.statistics.interval import Interval
from dawnjax.statistics.ladder import FADES, GROWS, Gain, Trend, quality, speedup, trend
from dawnjax.statistics.verdict import MARGIN, UNDECIDED
from dawnjax.study.at_budget import (
    END,
    SAME_WORK,
    Budget,
    curves,
    difference_text,
    different_ends,
    direction_of,
    ends_of,
    in_unit,
    other_clocks,
    other_steps,
)
from dawnjax.study.disturbed import Disturbed, disturbed
from dawnjax.study.sides import Side, apart, refuse_shared_trials

_ALONG = ("tokens", "flops", "seconds", "steps")
"""Units of a speedup without a budget: the first that all sides record and in which the trials "
"of a side end together. A step may be different work on each side."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ladder:
    """Gains of B over A at several sizes.

    Attributes:
      unit: Unit of the speedup; empty if the gain is a difference of the metric.
      sizes: Ascending.
      size_name: What a size counts, `parameters`; empty if the user gave it.
      sides: Paths or arms of each size.
      margin: Ratio of speedups, or difference, that counts as no change; None if none does.
      without: Verdict on the trials that other work did not disturb, in words; empty where none
        was disturbed.
    """

    metric: str
    direction: str
    budget: Budget
    unit: str
    sizes: tuple[float, ...]
    size_name: str
    sides: tuple[tuple[str, str], ...]
    gains: tuple[Gain, ...]
    trend: Trend
    margin: float | None
    cautions: tuple[str, ...]
    without: str = ""

    def shown(self, found: Interval | None) -> Interval | None:
        """A gain in the reader's unit: the speedup of its logarithm, or the difference itself."""
        if found is None or not self.unit:
            return found
        low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
        return dataclasses.replace(found, value=math.exp(found.value), low=low, high=high)

    @property
    def fitted(self) -> tuple[float, ...]:
        """Gain of the line at each size, in the reader's unit."""
        return tuple(math.exp(gain) if self.unit else gain for gain in self.trend.line)

    def lines(self) -> list[str]:
        """Table of the sizes, then the verdict and the cautions."""
        gain = f"speedup in {self.unit}" if self.unit else f"better by ({self.metric})"
        head = [
            self.size_name or "size",
            "trials",
            f"{self.metric} of A",
            "B - A",
            "95 %",
            gain,
            "95 %",
        ]
        rows = []
        for size, found, line in itertools.zip_longest(self.sizes, self.gains, self.fitted):
            a, of_difference = found.means[0], found.difference
            told = difference_text(of_difference)
            interval = self.shown(found.interval)
            row = [f"{size:,.10g}", f"{found.trials[0]} and {found.trials[1]}"]
            places = len(told[0].partition(".")[2])
            row += ["-" if a is None else f"{a:.{places}f}", *told]
            digits = 3 if self.unit else _decimals(interval)
            row += (
                ["-", ""]
                if interval is None
                else [f"{interval.value:.{digits}f}", interval.ends_text(digits)]
            )
            rows.append([*row, "-" if line is None else f"{line:.{digits}f}"])
        table = of_words([*head, "the line"], rows).to_text()
        lacking = [
            f"  at {size:,.10g}: {found.lacks}"
            for size, found in zip(self.sizes, self.gains, strict=True)
            if found.lacks
        ]
        said = [f"without the disturbed trials: {self.without}"] if self.without else []
        cautions = [f"  caution: {it}" for it in self.cautions]
        return [table, *lacking, "", self.sentence(), *said, *cautions]

    def sentence(self) -> str:
        """The verdict in one line."""
        found = self.trend
        text = f"verdict of the ladder {self.budget}: {self.trend_text}: {found.why}"
        change = self.shown(found.change)
        if change is not None:
            first, last = (f"{size:,.10g}" for size in (self.sizes[0], self.sizes[-1]))
            digits = 3 if self.unit else _decimals(change)
            by = (
                f"the speedup changes by a factor of {change.value:.3f}"
                if self.unit
                else f"the gain changes by {change.value:+.{digits}f}"
            )
            span = f"{first} to {last} {self.size_name}".rstrip()
            ends = change.ends_text(digits)
            text += (
                f"; {self._shows_text}; from {span} {by} (95 % {ends}); beyond that it is unknown"
            )
        return text

    @property
    def _signs(self) -> list[int]:
        """For each size 1 if its interval shows a gain, -1 for a loss, else 0."""
        ends = [
            (it.low, it.high) if it else (None, None) for it in (g.interval for g in self.gains)
        ]
        return [int((low or 0) > 0) - int((high or 0) < 0) for low, high in ends]

    @property
    def shows(self) -> str:
        """`gain` or `loss` if B is better or worse at each size, `some` if it is better at some "
        "sizes, else `none`."""
        if len(signs := set(self._signs)) == 1:
            return {1: "gain", -1: "loss", 0: "none"}[signs.pop()]
        return "some" if 1 in signs else "none"

    @property
    def trend_text(self) -> str:
        """The trend in words, of a gain or of a loss."""
        word, shows = self.trend.word, self.shows
        if word == UNDECIDED:
            return word
        if shows == "loss":
            return "the loss " + {GROWS: "shrinks", FADES: "grows"}.get(word, word)
        if shows == "none":
            way = {GROWS: "moves in B's favour", FADES: "moves in A's favour"}
            return "the difference " + way.get(word, word)
        return f"the gain {word}"

    @property
    def _shows_text(self) -> str:
        if self.shows == "some":
            lacking = [size for size, sign in zip(self.sizes, self._signs, strict=True) if sign < 1]
            return f"no gain is shown at {' and '.join(f'{size:,.10g}' for size in lacking)}"
        return {
            "gain": "B is better at each size",
            "loss": "B is worse at each size",
            "none": "no size shows a gain",
        }[self.shows]

    def to_json(self) -> dict[str, Any]:
        rows = [
            {
                "size": size,
                "a": a,
                "b": b,
                "trials": list(found.trials),
                "means": list(found.means),
                "difference": _json(found.difference),
                "gain": _json(self.shown(found.interval)),
                "line": line,
                "lacks": found.lacks,
            }
            for size, (a, b), found, line in itertools.zip_longest(
                self.sizes, self.sides, self.gains, self.fitted
            )
        ]
        return {
            "word": self.trend.word,
            "shows": self.shows,
            "why": self.trend.why,
            "at": {"unit": self.budget.unit, "amount": self.budget.amount},
            "metric": self.metric,
            "direction": self.direction,
            "gain_is": f"speedup in {self.unit}" if self.unit else f"difference of {self.metric}",
            "size_is": self.size_name,
            "margin": self.margin,
            "change": _json(self.shown(self.trend.change)),
            "sizes": rows,
            "cautions": list(self.cautions),
            "without_disturbed": self.without,
        }


def _json(found: Interval | None) -> dict[str, Any] | None:
    return found and {
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "ends": found.ends,
    }


def _decimals(found: Interval | None) -> int:
    value = abs(found.value) if found else 0.0
    return min(8, max(3, 2 - math.floor(math.log10(value)))) if value else 3


def ladder(
    pairs: Sequence[tuple[Side, Side]],
    *,
    sizes: Sequence[float] = (),
    budget: Budget | None = None,
    metric: str = "",
    margin: float | None = None,
) -> Ladder:
    """Gains of pairs of sides, and their trend.

    Args:
      pairs: A and B at each size.
      sizes: Of each pair; empty takes the parameters of A's runs.
      budget: Where all are read; None for each side's end.
      margin: Of the change: a ratio of speedups above 1 by it, `MARGIN` unless given; for
        differences in the metric's unit, none unless given.

    Raises:
      ConfigError: The sides measure different metrics, or a size or the budget's unit is not
        recorded.
    """
    for first, second in pairs:
        refuse_shared_trials(first, second)
    every = list(itertools.chain.from_iterable(pairs))
    names = {metric or side.entry.target.metric for side in every}
    if len(names) > 1:
        raise ConfigError(
            f"the sides have {' and '.join(sorted(names))}: give a --metric that all have"
        )
    [name] = names
    directions = {direction_of(side.entry, metric, side.given) for side in every}
    if len(directions) > 1:
        raise ConfigError(f"greater values of {name} are better on only some sides")
    [direction] = directions
    known = list(sizes) or [_num_params(first) for first, _ in pairs]
    if len(known) != len(pairs):
        raise ConfigError(f"{len(known)} sizes were given for {len(pairs)} pairs of sides")
    if not all(0 < size < math.inf for size in known) or len(set(known)) < len(known):
        raise ConfigError("the sizes of a ladder must be different finite numbers above 0")
    order = sorted(range(len(pairs)), key=lambda place: known[place])
    pairs = [pairs[place] for place in order]
    at = budget or Budget(END)
    unit = at.unit if at.amount is not None else _unit(every)
    ascending = tuple(known[place] for place in order)
    found = _judged(pairs, ascending, at, unit, name, direction, margin)
    found = dataclasses.replace(
        found,
        size_name="" if sizes else "parameters",
        cautions=tuple(_cautions(pairs, at, unit, ascending)),
    )
    if unit not in ("seconds", "usd"):
        return found
    # What other work disturbs is the time that a trial took.
    calm = [disturbed(first.entry.trials, second.entry.trials) for first, second in pairs]
    if not any(calm):
        return found
    lacking = [f"{size:,.10g}" for size, it in zip(ascending, calm, strict=True) if it and it.alone]
    if lacking:
        without = f"not known: a side has none at {' and '.join(lacking)}"
    else:
        left = [_without(pair, it) for pair, it in zip(pairs, calm, strict=True)]
        again = _judged(left, ascending, at, unit, name, direction, margin)
        without = f"{again.trend_text}: {again.trend.why}"
    return dataclasses.replace(found, without=without)


def _without(pair: tuple[Side, Side], found: Disturbed | None) -> tuple[Side, Side]:
    if found is None:
        return pair
    entries = found.entries_left([side.entry for side in pair])
    a, b = (dataclasses.replace(it, entry=e) for it, e in zip(pair, entries, strict=True))
    return a, b


def _judged(
    pairs: Sequence[tuple[Side, Side]],
    sizes: tuple[float, ...],
    at: Budget,
    unit: str,
    metric: str,
    direction: str,
    margin: float | None,
) -> Ladder:
    """Gains and trend of pairs in ascending order of their sizes, without cautions."""
    drawn = [tuple(curves(it.entry, unit, metric, it.given) for it in pair) for pair in pairs]
    # Trials of one evaluation have no curve that says what equal quality takes.
    has_curves = unit != END and all(
        len(places) > 1 for pair in drawn for side in pair for places in side.places
    )
    gain = speedup if has_curves else quality
    gains = tuple(gain(a, b, at.amount, direction) for a, b in drawn)
    if has_curves:
        margin = MARGIN if margin is None else margin
    return Ladder(
        metric=metric,
        direction=direction,
        budget=at,
        unit=unit if has_curves else "",
        sizes=sizes,
        size_name="",
        sides=tuple((first.given, second.given) for first, second in pairs),
        gains=gains,
        trend=trend(sizes, gains, math.log1p(margin) if margin and has_curves else margin),
        margin=margin,
        cautions=(),
    )


def _num_params(side: Side) -> float:
    found = {trial.num_params for trial in side.entry.trials}
    count = found.pop() if len(found) == 1 else None
    if count is None:
        raise ConfigError(
            f"{side.given}: the size of its model is not recorded; give --sizes=N,N,N"
        )
    return float(count)


def _unit(sides: Sequence[Side]) -> str:
    """Unit of a speedup at the sides' ends; `END` if no unit is recorded by all."""
    for unit in _ALONG:
        if all(len(set(ends_of(side.entry, unit))) == 1 for side in sides):
            return unit
    return END


def _cautions(
    pairs: Sequence[tuple[Side, Side]], budget: Budget, unit: str, sizes: Sequence[float]
) -> list[str]:
    """Cautions: the sides of a size did unequal work, or their times reflect more than the "
    "recipes."""
    said = []
    for pair, size in zip(pairs, sizes, strict=True):
        entries, at = (pair[0].entry, pair[1].entry), f"at {size:,.10g}"
        found = other_clocks(*entries)
        if unit in ("seconds", "usd"):
            calm = disturbed(entries[0].trials, entries[1].trials)
            found += [*apart(*entries), *([calm.sentence()] if calm else [])]
        if unit == "steps":
            found += other_steps(*entries)
        if budget.amount is None:
            found += different_ends(entries)
        said += [f"{at} {text}" for text in found]
        for work in ("tokens", "flops"):
            ends = [ends_of(entry, work) for entry in entries]
            if work == unit or not all(ends):
                continue
            a, b = (sum(of) / len(of) for of in ends)
            if max(a, b) > SAME_WORK * min(a, b) > 0:
                said.append(
                    f"{at} A ends at {in_unit(work, a)} and B at {in_unit(work, b)}: "
                    f"--at={work}=AMOUNT compares equal work"
                )
    return said
