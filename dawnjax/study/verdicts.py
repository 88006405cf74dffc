"""Looks of a study at its trials: verdicts that hold together, and arms that are decided."""

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dawnjax.errors import ConfigError
from dawnjax.statistics.interval import ALPHA
from dawnjax.statistics.looks import false_verdicts, looks_of, nominal_levels
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import MARGIN, UNDECIDED, Verdict, judge, judge_all
from dawnjax.study.design import Arm, Look, Study, TrialPlan
from dawnjax.trials.figures import figures
from dawnjax.trials.trial import Trial

Trials = Mapping[Arm, Mapping[int, Trial]]
"""Finished trials of each arm by seed; the other arms are compared with the first."""


class Looks:
    """Looks of a study; a study with one look tests at its end."""

    def __init__(self, study: Study, margin: float = MARGIN):
        self._margin = margin
        self._seeds = range(study.first_seed, study.first_seed + study.seeds)
        try:
            self.at = looks_of(study.seeds, study.looks) if study.looks > 1 else (study.seeds,)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def levels(self) -> tuple[float, ...]:
        """Two-sided level of each look, for a study of two arms."""
        return nominal_levels(self.at)

    def verdicts(self, trials: Trials) -> dict[Arm, Verdict]:
        """Joint verdicts on all arms but the first.

        A verdict comes from the look that decided its arm, or else from the last look so far.
        There is no verdict before the first look, even in a study with one look: reading verdicts
        while trials arrive is an extra look. An arm has no verdict while it or the first arm has no
        trial, or a trial of unknown duration.
        """
        verdicts = self._after(trials, self.at[-1])
        first, *others = [(arm, _sample(of, of)) for arm, of in trials.items()]
        for arm, sample in others:
            if arm not in verdicts and first[1] is not None and sample is not None:
                verdict = judge(first[1], sample, self._margin)
                verdicts[arm] = verdict.before_a_look(self.at[0])
        return verdicts

    def without(self, left: tuple[Sample, Sample], over: int, others: int) -> Verdict:
        """Verdict on an arm, by the undisturbed trials of it and of the first arm.

        It is held to the level of the first claim of all arms at the last look so far; before the
        first look nothing is claimed.

        Args:
          over: Trials of each, the disturbed ones included.
          others: Arms beside the first.
        """
        look = sum(count <= over for count in self.at) - 1
        [verdict] = judge_all(
            *(left[0], [left[1]], self._margin),
            alpha_of=functools.partial(self._level, max(0, look)),
            left=others,
            may_be_equivalent=look == len(self.at) - 1,
        )
        return verdict if look >= 0 else verdict.before_a_look(self.at[0])

    def needs_no_more(self, trials: Trials, plan: TrialPlan) -> bool:
        """True if an earlier look has decided the trial's arm, so that it need not run.

        The first arm needs no more trials once all other arms are decided.
        """
        place = self._seeds.index(plan.seed)
        # Before the first look, every arm needs its trials.
        if place < self.at[0]:
            return False
        first, *others = trials
        verdicts = self._after(trials, place)
        arms = others if plan.arm == first else [plan.arm]
        return all(_is_decided(verdicts.get(arm)) for arm in arms)

    def _after(self, trials: Trials, most: int) -> dict[Arm, Verdict]:
        """Verdicts of the looks after at most `most` trials of each arm.

        Look k tests an arm at its group-sequential level when the arms that are still open share
        the 5 %: Holm's procedure on group-sequential bounds.

        Source: W. Maurer and F. Bretz, "Multiple Testing in Group Sequential Trials Using Graphical
        Approaches", Statistics in Biopharmaceutical Research 5 (2013).
        """
        first, *others = trials
        verdicts: dict[Arm, Verdict] = {}
        for look, count in enumerate(self.at):
            samples = {arm: _sample(of, self._seeds[:count]) for arm, of in trials.items()}
            if count > most or (of_first := samples[first]) is None:
                break
            undecided = [arm for arm in others if not _is_decided(verdicts.get(arm))]
            judged = {arm: side for arm in undecided if (side := samples[arm]) is not None}
            found = judge_all(
                of_first,
                list(judged.values()),
                self._margin,
                alpha_of=functools.partial(self._level, look),
                left=len(undecided),
                # An early claim of equivalence would spend its own 5 % several times.
                may_be_equivalent=count == self.at[-1],
            )
            verdicts |= dict(zip(judged, found, strict=True))
        return verdicts

    def _level(self, look: int, left: int) -> float:
        """Level of a test at a look, when `left` arms that are still open share the 5 %."""
        return nominal_levels(self.at, ALPHA / left)[look]


def _is_decided(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.word != UNDECIDED


def _sample(trials: Mapping[int, Trial], seeds: Collection[int]) -> Sample | None:
    """Sample of the seeds' trials; None if one has not ended, or its duration is not known."""
    chosen = [trials[seed] for seed in sorted(seeds) if seed in trials]
    return figures(chosen).sample if chosen and len(chosen) == len(seeds) else None


MOST_LOOKS = 100
"""Largest number of looks with an exact chance of a false verdict, computed in some seconds."""


def looks_made(earlier: Sequence[Look], looks: Looks) -> list[Look]:
    """Looks so far as (trials of an arm, level), those before an extension included.

    If two looks have the same number of trials, the wider level counts.
    """
    made: dict[int, float] = {}
    now = zip(looks.at, looks.levels, strict=True)
    for count, level in itertools.chain(earlier, now):
        made[count] = max(level, made.get(count, 0.0))
    return [Look(*item) for item in sorted(made.items())]


def cost_of_looks(made: Sequence[Look], comparisons: int) -> dict[str, Any]:
    """Chance of a false verdict in a study's looks if all arms are equal.

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
        f"the study was judged after {looks} trials of each arm: if all arms are equal, up to "
        f"{100 * chance:.0f} % of such studies have a false verdict; --looks keeps 5 %"
    ]
