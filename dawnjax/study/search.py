"""Search for a fast recipe: some seeds choose it, others judge it.

A recipe that was chosen for its time on some seeds is slower on others: the fastest of many noisy
times is partly luck. Choosing trials are therefore marked (`RunOptions.chooses`) and left out of
entries, and the winner runs again on fresh seeds before a time is quoted.

Optuna draws the recipes from a seed and decides how many trials each gets. It keeps its state in
memory: the logs hold the times, so that a resumed search draws and decides the same again.

Source of `asha`: L. Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020.
The resource is the number of trials, because a run that is cut short shows little about its time to
accuracy: a schedule with a decaying learning rate reaches its target at its end.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dawnjax.errors import ConfigError, RunError, install
from dawnjax.study.axes import Axis, axis_of
from dawnjax.study.design import RUNGS, Arm, Study, TrialPlan, arm_at
from dawnjax.study.reading import is_over
from dawnjax.study.verdicts import Trials
from dawnjax.trials.figures import figures
from dawnjax.trials.trial import Trial

MOST_VAIN_DRAWS = 1000
"""Draws in a row of recipes that were drawn before, or that cannot be trained."""

Run = Callable[[TrialPlan], tuple[Trial | None, str]]

Admit = Callable[[Arm], bool]
"""True if a new arm can be trained; it is then part of the study."""


def optuna() -> Any:
    """Load Optuna; `ConfigError` says how to install it."""
    try:
        import optuna as library  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(f"--search needs Optuna: {install('search')}") from None
    library.logging.set_verbosity(library.logging.WARNING)
    return library


def score(trials: Iterable[Trial]) -> float:
    """Expected time of a recipe; infinite if no trial reached.

    A trial that failed before its clock started counts as infinite, not zero.
    """
    expected = figures([*trials]).expected_seconds
    return math.inf if expected is None else expected


def winner(trials: Trials) -> Arm | None:
    """Fastest of the recipes that passed the most rungs; None if no trial reached the target."""

    def place(arm: Arm) -> tuple[int, float]:
        rungs = sum(len(trials[arm]) >= rung for rung in RUNGS)
        return -rungs, score(trials[arm].values())

    there = [arm for arm in trials if math.isfinite(score(trials[arm].values()))]
    return min(there, key=place, default=None)


class Draws:
    """Recipes drawn from the axes, each once, and Optuna's decisions on their trials."""

    def __init__(self, study: Study):
        library = optuna()
        self._axes = [axis_of(text) for text in study.axes]
        distributions = library.distributions
        self._distributions = {
            axis.field: _distribution(distributions, axis) for axis in self._axes
        }
        halving = library.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
        self._study = library.create_study(
            sampler=library.samplers.RandomSampler(seed=study.order_seed),
            pruner=halving if study.search == "asha" else library.pruners.NopPruner(),
        )
        self._states = library.trial.TrialState
        self._trial: Any = None
        self._seen: set[str] = set()

    def draw(self, admits: Admit) -> Arm:
        """Draw the next new recipe that can be trained."""
        for _ in range(MOST_VAIN_DRAWS):
            self._trial = self._study.ask(self._distributions)
            values = [axis.text(self._trial.params[axis.field]) for axis in self._axes]
            arm = arm_at(self._axes, values)
            if arm.name not in self._seen:
                self._seen.add(arm.name)
                if admits(arm):
                    return arm
            self._study.tell(self._trial, state=self._states.FAIL)
        raise ConfigError(
            f"{MOST_VAIN_DRAWS:,} draws in a row gave no new trainable recipe: widen the axes"
        )

    def is_dropped(self, trials: Collection[Trial]) -> bool:
        """True if a recipe with these trials gets no more."""
        value = score(trials)
        self._trial.report(value, step=len(trials))
        # Asked in any case: Optuna counts the value among those that later ones compete with.
        is_slow = self._trial.should_prune()
        return is_slow or math.isinf(value)

    def end(self) -> None:
        """Close the recipe that was drawn last."""
        self._study.tell(self._trial, state=self._states.PRUNED)


def _distribution(distributions: Any, axis: Axis) -> Any:
    if axis.values:
        return distributions.CategoricalDistribution(axis.values)
    if axis.distribution == "int":
        return distributions.IntDistribution(axis.low, axis.high)
    return distributions.FloatDistribution(axis.low, axis.high, log=axis.distribution == "log")


def run_search(
    study: Study, run: Run, admits: Admit
) -> Iterator[tuple[TrialPlan, Trial | None, str]]:
    """Run the choosing trials, then the winner's; yield each with its run.

    Args:
      run: Runs a trial unless it has ended.
      admits: Takes each new arm into the study.

    Raises:
      RunError: A trial failed before its clock started, so it cannot help to choose.
    """
    draws, trials, number = Draws(study), dict[Arm, dict[int, Trial]](), 0
    while number < study.trials:
        arm = draws.draw(admits)
        of_arm = trials.setdefault(arm, {})
        for seed in study.seeds_that_choose:
            trial = TrialPlan(number, arm, seed, chooses=True)
            of_run, why = run(trial)
            if of_run is None or not is_over(of_run):
                raise RunError(
                    f"{arm.name}, seed {seed}: {why or 'it has not ended'}; a search needs it; "
                    "run the same command to try it again"
                )
            of_arm[seed] = of_run
            number += 1
            yield trial, of_run, why
            if draws.is_dropped(of_arm.values()) or number == study.trials:
                break
        draws.end()
    best = winner(trials)
    if best is None:
        return
    for seed in study.seeds_that_judge:
        trial = TrialPlan(number, best, seed)
        number += 1
        yield (trial, *run(trial))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchFigures:
    """Recipes of a search by the trials that chose, and the winner.

    Attributes:
      planned: Trials that the search may choose by.
      trials: Those that are over.
      chose: Seeds that chose.
      judged: Fresh seeds that judge the winner.
      winner: Chosen arm; empty while the search runs, or if no trial reached.
      recipes: Each drawn recipe, the fastest first: arm, flags, trials, reached, and
        `choosing_seconds`, the time of its trials divided by the number that reached. The winner's
        is not an estimate of its time, because it was chosen for being low.
    """

    planned: int
    trials: int
    chose: list[int]
    judged: list[int]
    winner: str
    recipes: list[dict[str, Any]]

    def sentence(self) -> str:
        """Which seeds chose and which judge."""
        said = f"{self.trials} of {self.planned} trials of {len(self.recipes)} recipes, on "
        said += f"{_seeds(self.chose)}, chose"
        if not self.winner:
            none = "no trial reached the target, so there is no winner"
            return none if self.trials >= self.planned else f"{said} nothing yet"
        return f"{said} {self.winner}; {_seeds(self.judged)}, which did not choose it, judge it"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def search_figures(study: Study, runs: Mapping[TrialPlan, Trial]) -> SearchFigures | None:
    """Figures of a search's trials so far; None for any other study."""
    if not study.search:
        return None
    trials: dict[Arm, dict[int, Trial]] = {}
    for plan, trial in runs.items():
        if plan.chooses:
            trials.setdefault(plan.arm, {})[plan.seed] = trial
    count = sum(map(len, trials.values()))
    best = winner(trials) if count >= study.trials else None
    recipes = []
    for arm, of_arm in trials.items():
        value = score(of_arm.values())
        recipes.append(
            {
                "arm": arm.name,
                "flags": list(arm.flags),
                "trials": len(of_arm),
                "reached": figures([*of_arm.values()]).reached,
                "choosing_seconds": value if math.isfinite(value) else None,
            }
        )
    recipes.sort(
        key=lambda row: (row["arm"] != (best and best.name), row["choosing_seconds"] or math.inf)
    )
    return SearchFigures(
        planned=study.trials,
        trials=count,
        chose=list(study.seeds_that_choose),
        judged=list(study.seeds_that_judge),
        winner=best.name if best else "",
        recipes=recipes,
    )
