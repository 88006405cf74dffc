"""Looks of a study at its trials: verdicts that hold together, and arms that are decided."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dawnjax.errors import ConfigError
from dawnjax.statistics.interval import ALPHA
from dawnjax.statistics.looks import false_verdicts, looks_of, nominal_levels
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import UNDECIDED, Verdict, judge_all
from dawnjax.study.design import Arm, Look, PlannedTrial, Study
from dawnjax.trials.figures import mean_of_all


class Row(NamedTuple):
    """A trial that is over; `seconds` is its time to accuracy, or its duration without one."""

    seconds: float
    reached: bool
    first_losses: tuple[float, ...] = ()
    step: float | None = None
    budget: float | None = None


Rows = dict[int, Row]
"""The trials of an arm by their seed."""


class Looks:
    """Looks of a study; a study with one look tests at its end."""

    def __init__(self, study: Study):
        self._seeds = range(study.first_seed, study.first_seed + study.seeds)
        try:
            self.at = looks_of(study.seeds, study.looks) if study.looks > 1 else (study.seeds,)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def levels(self) -> tuple[float, ...]:
        """Two-sided level of each look, for a study of two arms."""
        return nominal_levels(self.at)

    def verdicts(self, rows: Mapping[Arm, Rows]) -> dict[Arm, Verdict]:
        """Joint verdicts on all arms but the first.

        A verdict comes from the look that decided its arm, or else from the last look so far.
        Nothing is claimed before the first look, even in a study of one look: reading verdicts
        while trials arrive is an extra look. An arm lacks a verdict while it or the first arm has
        no trial.
        """
        verdicts = self._after(rows, self.at[-1])
        first, *others = rows
        for arm in others:
            if arm not in verdicts and rows[first] and rows[arm]:
                sides = _sample(rows[first]), _sample(rows[arm])
                [verdict] = judge_all(sides[0], [sides[1]])
                verdicts[arm] = verdict.before_a_look(self.at[0])
        return verdicts

    def needs_no_more(self, rows: Mapping[Arm, Rows], trial: PlannedTrial) -> bool:
        """True if an earlier look has decided the trial's arm, so that it need not run.

        The first arm needs no more trials once all other arms are decided.
        """
        place = self._seeds.index(trial.seed)
        # Before the first look, every arm needs its trials.
        if place < self.at[0]:
            return False
        first, *others = rows
        arms = others if trial.arm == first else [trial.arm]
        verdicts = self._after(rows, place)
        return all(arm in verdicts and verdicts[arm].word != UNDECIDED for arm in arms)

    def _after(self, rows: Mapping[Arm, Rows], most: int) -> dict[Arm, Verdict]:
        """Verdicts of the looks after at most `most` trials of each arm.

        Look k tests an arm at its group-sequential level when the arms that are still open share
        the 5 %: Holm's procedure on group-sequential bounds.

        Source: W. Maurer and F. Bretz, "Multiple Testing in Group Sequential Trials Using Graphical
        Approaches", Statistics in Biopharmaceutical Research 5 (2013).
        """
        first, *others = rows
        verdicts: dict[Arm, Verdict] = {}
        for number, count in enumerate(self.at):
            seeds = self._seeds[:count]

            def is_there(arm: Arm, seeds: range = seeds) -> bool:
                return all(seed in rows[arm] for seed in seeds)

            decided = [arm for arm, verdict in verdicts.items() if verdict.word != UNDECIDED]
            judged = [arm for arm in others if arm not in decided and is_there(arm)]
            if count > most or not is_there(first):
                break
            found = judge_all(
                _sample(rows[first], seeds),
                [_sample(rows[arm], seeds) for arm in judged],
                alpha_of=lambda left, number=number: nominal_levels(self.at, ALPHA / left)[number],
                left=len(others) - len(decided),
                # An early claim of equivalence would spend its own 5 % several times.
                may_be_equivalent=count == self.at[-1],
            )
            verdicts |= dict(zip(judged, found, strict=True))
        return verdicts


def _sample(rows: Rows, seeds: range | None = None) -> Sample:
    chosen = sorted(rows) if seeds is None else list(seeds)
    return Sample(
        np.array([rows[seed].seconds for seed in chosen], np.float64),
        np.array([rows[seed].reached for seed in chosen], bool),
        tuple(chosen),
        tuple(rows[seed].first_losses for seed in chosen),
        steps=tuple(rows[seed].step for seed in chosen),
        budget=mean_of_all([rows[seed].budget for seed in chosen]),
    )


MOST_LOOKS = 100
"""Looks whose chance of a false verdict is computed exactly, in some seconds."""


def looks_made(earlier: Sequence[Look], looks: Looks) -> list[Look]:
    """Looks so far as (trials of an arm, level), those before an extension included.

    The widest level counts where two looks have the same number of trials.
    """
    made: dict[int, float] = {}
    now = zip(looks.at, looks.levels, strict=True)
    for count, level in itertools.chain(earlier, now):
        made[count] = max(level, made.get(count, 0.0))
    return [Look(*item) for item in sorted(made.items())]


def cost_of_looks(made: Sequence[Look], comparisons: int) -> dict[str, Any]:
    """Chance of a false verdict in the looks at a study whose arms are all equal.

    Args:
      comparisons: Arms beside the first.

    Returns:
      `looks`: trials of each arm at each. `false_verdicts`: upper bound of the chance; 5 % for a
      study that was not extended.
    """
    at = tuple(look.trials for look in made)
    levels = tuple(look.level / comparisons for look in made)
    # Of so many the sum of the levels is a bound that takes no time.
    chance = false_verdicts(at, levels) if len(at) <= MOST_LOOKS else sum(levels)
    return {"looks": list(at), "false_verdicts": min(1.0, comparisons * chance)}


def words_of_cost(cost: dict[str, Any]) -> list[str]:
    """A sentence on the looks, if more than 5 % of equal arms would get a false verdict."""
    chance = cost["false_verdicts"]
    if chance <= 1.02 * ALPHA:  # The recursion of planned looks ends near 5 %.
        return []
    looks = ", ".join(map(str, cost["looks"]))
    return [
        f"the study was judged after {looks} trials of each arm: if all arms are equal, a verdict "
        f"is false in up to {100 * chance:.0f} % of such studies; --looks plans looks that keep 5 %"
    ]
