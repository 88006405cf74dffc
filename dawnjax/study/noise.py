"""The margin that a number of trials can detect, from the noise of a few pilot trials."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dawnjax.page.table import of_words
from dawnjax.page.words import count, rounded
from dawnjax.statistics.further import POWER, Narrowest, narrowest
from dawnjax.statistics.interval import FEWEST_TRIALS
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES
from dawnjax.study.at_budget import END, Budget, curves
from dawnjax.study.sides import Side

TRIALS = (3, 5, 10, 20)
"""Trials of each side for which the narrowest margin is printed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise of one figure over trials that differ in their seed.

    Attributes:
      what: The figure, such as `expected time`.
      is_ratio: Whether the deviation is of the logarithm, and margins are ratios.
      deviation: Of a single trial; None where `lacks` says why it is not known.
      pilots: Trials behind the estimate.
      fewest: Trials of each side without which there is no verdict.
      unseen: Sum of squared deviations of the trials that a verdict counts beside those it sees.
    """

    what: str
    is_ratio: bool
    deviation: float | None
    pilots: int
    fewest: int = FEWEST_TRIALS
    unseen: float = 0.0
    lacks: str = ""

    def narrowest(self, trials: int) -> Narrowest | None:
        """Margins for that many trials of each side; None if they give no verdict."""
        if self.deviation is None or trials < self.fewest:
            return None
        return narrowest(self.deviation, self.pilots - 1, trials, self.unseen)

    def margin(self, value: float) -> float:
        """A margin as flags have it: a fraction for a ratio."""
        return float(np.expm1(value)) if self.is_ratio else value

    def cells(self, trials: int) -> list[str]:
        found = self.narrowest(trials)
        if found is None:
            return [f"no verdict below {self.fewest}" if self.deviation is not None else "-", ""]
        return [self._text(found.as_measured), self._text(found.at_most)]

    def _text(self, value: float) -> str:
        margin = self.margin(value)
        return f"{rounded(100 * margin, 3)} %" if self.is_ratio else rounded(margin, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseOf:
    """Noise of one side's trials.

    Attributes:
      given: Its path, or its arm.
      trials: Those that it has.
      noise: Of the time to its target, if it has one, and of its quality at each budget.
    """

    given: str
    trials: int
    noise: tuple[Noise, ...]

    def lines(self) -> list[str]:
        """A table of the narrowest margins by the number of trials, in words."""
        said = [f"noise of {self.given}: {count(self.trials, 'trial')}"]
        for it in self.noise:
            if it.deviation is None:
                said.append(f"  {it.what}: {it.lacks}")
            else:
                unit = f"{rounded(100 * it.deviation, 3)} %" if it.is_ratio else ""
                said.append(
                    f"  {it.what}: a trial deviates by {unit or rounded(it.deviation, 3)}, from "
                    f"{it.pilots} trials"
                    + (
                        "; a verdict also allows for misses that it does not see"
                        if it.unseen
                        else ""
                    )
                )
        known = [it for it in self.noise if it.deviation is not None]
        if not known:
            return said
        head = ["trials of each side"]
        for it in known:
            head += [f"narrowest margin, {it.what}", "at most"]
        rows = [[str(n), *(cell for it in known for cell in it.cells(n))] for n in TRIALS]
        said += ["", of_words(head, rows).to_text(), "", _MEANING]
        return said

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; margins as `--margin` takes them."""
        rows = []
        for it in self.noise:
            margins = []
            for trials in TRIALS:
                of = it.narrowest(trials)
                margins.append(
                    {
                        "trials": trials,
                        "margin": of and it.margin(of.as_measured),
                        "at_most": of and it.margin(of.at_most),
                    }
                )
            row = {"of": it.what, "is_ratio": it.is_ratio, "deviation": it.deviation}
            row |= {"pilots": it.pilots, "unseen": it.unseen, "lacks": it.lacks}
            rows.append({**row, "narrowest": margins})
        return {"given": self.given, "trials": self.trials, "noise": rows}


_MEANING = (
    "If the noise is as measured, a difference as large as the margin is found in "
    f"{100 * POWER:.0f} % of comparisons, and an equal side passes a gate of that margin as often. "
    "Few trials may measure too little noise: with 3 pilots the difference was found in 6 of 10 "
    "simulated comparisons, with 5 in two thirds. The other column assumes the largest noise "
    "consistent with the trials (95 %); its difference was found in 9 of 10 or more. Paired seeds "
    "need fewer trials."
)


def noises(
    sides: Sequence[Side], budgets: Sequence[Budget] = (), metric: str = ""
) -> list[NoiseOf]:
    """Noise of each of some sides.

    Raises:
      ConfigError: A log lacks a budget's unit or the metric.
    """
    return [
        NoiseOf(
            given=side.given,
            trials=len(side.entry.trials),
            noise=tuple(_noise(side, budgets, metric)),
        )
        for side in sides
    ]


def _noise(side: Side, budgets: Sequence[Budget], metric: str) -> list[Noise]:
    """Noise of a side's times to its target, and of its qualities at some budgets."""
    found = [_of_times(side)] if side.entry.target.value is not None else []
    name = metric or side.entry.target.metric
    for budget in budgets or (Budget(END),):
        drawn = curves(side.entry, budget.unit, metric, side.given)
        reading = drawn.ends() if budget.amount is None else drawn.at(budget.amount)
        what, values = f"{name} {budget}", reading.values
        missing = len(drawn) - len(values)
        lacks = f"{missing} of {len(drawn)} trials have no value there" if missing else ""
        found.append(_of(what, values, lacks))
    return found


def _of_times(side: Side) -> Noise:
    sample = side.entry.figures.sample
    what = "expected time"
    if sample is None or not sample.num_reached or len(sample) < 2:
        why = (
            "the length of a trial is not known"
            if sample is None
            else "fewer than two trials reached"
        )
        return Noise(what=what, is_ratio=True, deviation=None, pilots=0, lacks=why)
    pilots, square = len(sample), float(sample.amounts.mean()) ** 2
    unseen = (sample.longest_failure**2 + sample.unseen_steps) / square if square else 0.0
    # Influences add up to 0; equal times leave some rounding.
    seen = float((sample.influence**2).sum()) / (pilots - 1) if square else 0.0
    if not unseen and seen < 1e-24:
        why = "the trials took equal times, and the time between evaluations is not known"
        return Noise(what=what, is_ratio=True, deviation=None, pilots=pilots, lacks=why)
    return Noise(
        what=what,
        is_ratio=True,
        deviation=math.sqrt(seen),
        pilots=pilots,
        fewest=FEWEST_WITH_FAILURES if sample.has_failures else FEWEST_TRIALS,
        unseen=unseen,
    )


def _of(what: str, values: np.ndarray, lacks: str) -> Noise:
    if lacks or len(values) < 2 or not values.std():
        lacks = lacks or "the trials show no variation"
        return Noise(what=what, is_ratio=False, deviation=None, pilots=len(values), lacks=lacks)
    return Noise(what=what, is_ratio=False, deviation=float(values.std(ddof=1)), pilots=len(values))
