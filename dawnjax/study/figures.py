"""Statistics of each arm of a study, and the verdict on it beside the first arm."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dawnjax.config.config_json import to_json
from dawnjax.errors import ConfigError
from dawnjax.page import words
from dawnjax.statistics.interval import Interval
from dawnjax.statistics.verdict import MARGIN, Verdict
from dawnjax.study.design import Arm, Look, Study, TrialPlan, trials_of
from dawnjax.study.disturbed import Disturbed, disturbed, words_of_disturbed
from dawnjax.study.ladder import Ladder, ladder
from dawnjax.study.reading import read_study, trials_over
from dawnjax.study.search import SearchFigures, search_figures
from dawnjax.study.sides import Side
from dawnjax.study.verdicts import Looks, cost_of_looks, words_of_cost
from dawnjax.trials.figures import Figures
from dawnjax.trials.figures import figures as figures_of
from dawnjax.trials.hosts import hosts_of
from dawnjax.trials.ours import entries_of
from dawnjax.trials.target import Target
from dawnjax.trials.trial import Trial

SCHEMA_VERSION = 1
"""Version of `result.json`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmFigures:
    """An arm's finished trials, their statistics, and the verdict.

    Attributes:
      name: The arm's name, or a threshold's value.
      threshold: That value; None for an arm.
      planned: Trials of the arm in the study.
      trials: Finished trials by seed, in ascending order.
      figures: Their statistics; for a threshold, of the times to it.
      verdict: The arm beside the study's first; None for the first.
      disturbed: Trials that other work disturbed, of the first arm (A) and of this one (B); None
        without any, or without a verdict.
      without: The verdict without them, held to the level that all arms share at this look.
      elsewhere: How machines and libraries of its trials differ from the first arm's; empty where
        they are the same, or without a verdict.
    """

    name: str
    threshold: float | None = None
    arm: Arm
    planned: int
    trials: Mapping[int, Trial]
    figures: Figures
    verdict: Verdict | None = None
    disturbed: Disturbed | None = None
    without: Verdict | None = None
    elsewhere: str = ""

    @property
    def interval(self) -> Interval | None:
        """The expected time with its ends; if all trials reached, the mean's ends."""
        return self.figures.interval

    @property
    def reached(self) -> str:
        """How many trials reached, such as `4 of 5`."""
        return f"{self.figures.reached} of {len(self.trials)}"

    @property
    def examples_per_second(self) -> float | None:
        """Mean of the trials' throughputs."""
        return _mean(trial.examples_per_second for trial in self.trials.values())

    @property
    def exposed_communication(self) -> float | None:
        """Mean exposed communication as a fraction of a step; None without profiles."""
        return _mean(
            _mean(host.communication.exposed_fraction for host in hosts_of(trial))
            for trial in self.trials.values()
        )

    @property
    def machines(self) -> list[str]:
        """Systems of its trials."""
        return sorted({str(trial.system) for trial in self.trials.values()})

    @property
    def cautions(self) -> list[str]:
        """Sentences on different machines and on trials of unknown length."""
        said = []
        if len(self.machines) > 1:
            machines = "; ".join(self.machines)
            said.append(f"its times come from different machines ({machines})")
        if self.disturbed:
            said += filter(None, [self.disturbed.gate_words or self._without_disturbed])
        if self.elsewhere:
            said.append(f"{self.elsewhere}, so its ratio reflects more than the recipes")
        if self.figures.reached and self.figures.expected_seconds is None:
            said.append(f"{self.why_no_time}, so it has no expected time")
        return said

    @property
    def _without_disturbed(self) -> str:
        found = self.without
        if found is None:
            return ""
        said = f"without the disturbed trials it is {words.of_name(found.word)}"
        if found.ratio is None:
            return said
        ends = found.ratio.ends_text()
        return f"{said}, {found.ratio.value:.3f}" + (f" ({ends})" if ends else "")

    @property
    def why_no_time(self) -> str:
        """Reason why there is no expected time."""
        reached = self.figures.reached
        return "the length of a trial is not known" if reached else "no trial reached"

    @property
    def time_text(self) -> str:
        """Expected time with its ends, such as `5.2 s (95 % if all reach: 4.9 to 5.6)`."""
        if self.figures.expected_seconds is None:
            return self.why_no_time
        text = f"{words.rounded(self.figures.expected_seconds)} s"
        ends = self.interval.ends_text(text=words.rounded, known="") if self.interval else ""
        return f"{text} ({ends})" if ends else text

    @property
    def advice(self) -> str:
        """Further trials that may decide the verdict, in words; empty without any."""
        return self.verdict.advice.text() if self.verdict and self.verdict.advice else ""

    def to_json(self) -> dict[str, Any]:
        found, interval = self.figures, self.interval
        rows = [
            {
                "seed": seed,
                "status": trial.status,
                "reached": trial.reached if self.threshold is None else seconds is not None,
                "time_to_accuracy_seconds": seconds,
                "run_dir": str(TrialPlan(0, self.arm, seed).directory(Path())),
            }
            for (seed, trial), seconds in zip(self.trials.items(), found.seconds, strict=True)
        ]
        return {
            "arm": self.name,
            "flags": list(self.arm.flags),
            "planned": self.planned,
            "trials": found.trials,
            "reached": found.reached,
            "mean_seconds": found.mean_seconds,
            "cv": found.cv,
            "expected_seconds": found.expected_seconds,
            "low_seconds": interval and interval.low,
            "high_seconds": interval and interval.high,
            "ends": interval.ends if interval else "",
            "epochs_mean": found.epochs_mean,
            "examples_per_second": self.examples_per_second,
            "exposed_communication": self.exposed_communication,
            "verdict": self.verdict and {**self.verdict.to_json(), "advice_text": self.advice},
            "rows": rows,
            "disturbed": self.disturbed
            and self.disturbed.to_json(self.without and self.without.to_json()),
            "machines": self.machines,
            "elsewhere": self.elsewhere,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyFigures:
    """A study with the figures of its arms.

    Attributes:
      name: Name of its folder.
      arms: Figures of each arm or threshold, in the study's order; for a search, of the winner.
      search: Figures of a search; None for any other study.
      looks: Cost of its looks (`verdicts.cost_of_looks`); None for one arm or an unfinished study.
      ladder: Gains of a ladder; None for any other study, or while a trial runs.
      no_ladder: Why there is none.
    """

    name: str
    study: Study
    arms: tuple[ArmFigures, ...]
    search: SearchFigures | None = None
    looks: dict[str, Any] | None = None
    ladder: Ladder | None = None
    no_ladder: str = ""

    @property
    def own(self) -> Sequence[ArmFigures]:
        """Arms with trials of their own: all thresholds are read from the same trials."""
        return self.arms[:1] if self.study.kind == "threshold" else self.arms

    @property
    def sides(self) -> list[Side]:
        """Arms as sides of a comparison.

        Raises:
          ConfigError: An arm has no finished trial, or its trials ran on several systems.
        """
        sides = []
        for arm in self.own:
            entries = entries_of(arm.trials.values())
            if len(entries) != 1:
                why = "ran on several systems" if entries else "has no finished trial"
                raise ConfigError(f"the arm {arm.name} {why}, so its quality is not compared")
            sides.append(Side(given=arm.name, entry=entries[0], arm=arm.name))
        return sides

    @property
    def pairs(self) -> list[tuple[Side, Side]]:
        """A ladder's sides at each size: without and with the change.

        Raises:
          ConfigError: A trial has not ended: judging while trials arrive is one more look.
        """
        if any(len(arm.trials) < self.study.seeds for arm in self.arms):
            raise ConfigError(f"a ladder is judged after {self.study.seeds} trials of each arm")
        return list(zip(self.sides[::2], self.sides[1::2], strict=True))

    @property
    def best(self) -> ArmFigures | None:
        """Fastest arm of a grid; None for other studies, or without a choice."""
        there = [arm for arm in self.arms if arm.figures.expected_seconds is not None]
        if self.study.kind != "grid" or len(there) < 2:
            return None
        return min(there, key=lambda arm: arm.figures.expected_seconds or math.inf)

    @property
    def remarks(self) -> list[str]:
        """Sentences that a reader needs beside the table."""
        said = []
        if best := self.best:
            said.append(
                f"best of {len(self.arms)} arms: {best.name}, {best.time_text}; the same trials "
                "chose it, so expect a longer time on fresh seeds"
            )
        said += self._disturbed
        cautions = ((arm.name, caution) for arm in self.arms for caution in arm.cautions)
        for names, caution in words.shared(cautions):
            said.append(f"arm{'s' * (len(names) > 1)} {', '.join(names)}: {caution}")
        said += words_of_cost(self.looks) if self.looks else []
        said += [f"no ladder yet: {self.no_ladder}"] if self.no_ladder else []
        machines = [machine for arm in self.arms for machine in arm.machines]
        if self.study.kind == "scaling" and any("cpu" in machine for machine in machines):
            said.append("simulated devices share a machine's cores: expect no speedup")
        return said

    @property
    def _disturbed(self) -> list[str]:
        """A sentence on the trials of all arms that other work disturbed; empty without any."""
        found = [(arm.name, arm.disturbed.sides) for arm in self.arms if arm.disturbed]
        if not found:
            return []
        sides = [(self.arms[0].name, found[0][1][0]), *((name, own) for name, (_, own) in found)]
        return [words_of_disturbed(sides)]

    def to_json(self) -> dict[str, Any]:
        """Content of `result.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "study": to_json(self.study),
            "arms": [arm.to_json() for arm in self.arms],
            "ladder": self.ladder and self.ladder.to_json(),
            "best": self.best and self.best.name,
            "search": self.search and dataclasses.asdict(self.search),
            "looks": self.looks,
        }


def read_figures(path: Path, margin: float = MARGIN) -> StudyFigures | None:
    """Figures of the study in a folder, by its trials' logs; None where there is no study.

    Raises:
      RunError: `study.json` is damaged, or a trial's folder holds another run.
    """
    record = read_study(path)
    if record is None:
        return None
    study, arms, looks_made = record["study"], record["arms"], record["looks_made"]
    over = trials_over(trials_of(study, arms), path, record["origins"])
    return figures(study, arms, over, path, looks_made, margin)


def figures(
    study: Study,
    arms: Sequence[Arm],
    runs: Mapping[TrialPlan, Trial],
    out: Path,
    looks_made: Sequence[Look] = (),
    margin: float = MARGIN,
) -> StudyFigures:
    """Figures of a study's trials.

    Args:
      arms: The others are compared with the first.
      runs: Finished trials (`reading.trials_over`).
      out: The study's folder.
      looks_made: Looks at its trials, once they have ended.
      margin: Ratios within it count as equal.
    """
    search = search_figures(study, runs)
    cost = cost_of_looks(looks_made, len(arms) - 1) if looks_made and len(arms) > 1 else None
    found = StudyFigures(
        name=out.resolve().name,
        study=study,
        arms=tuple(_arms(study, arms, runs, margin)),
        search=search,
        looks=None if search or study.kind == "ladder" else cost,
    )
    if study.kind != "ladder":
        return found
    try:
        return dataclasses.replace(found, ladder=ladder(found.pairs))
    except ConfigError as error:
        return dataclasses.replace(found, no_ladder=str(error))


def _arms(
    study: Study,
    arms: Sequence[Arm],
    runs: Mapping[TrialPlan, Trial],
    margin: float,
) -> list[ArmFigures]:
    # Trials that chose are not results.
    ran = {plan: trial for plan, trial in runs.items() if not plan.chooses}
    of_arms = {
        arm: {plan.seed: trial for plan, trial in ran.items() if plan.arm == arm} for arm in arms
    }
    if study.kind == "threshold":
        [(arm, trials)] = of_arms.items()
        return [_arm(study, arm, trials, value) for value in study.thresholds]
    if study.search:
        return [_arm(study, arm, trials) for arm, trials in of_arms.items() if trials]
    if study.kind == "ladder":  # an arm is compared with that of its size
        return [_arm(study, arm, trials) for arm, trials in of_arms.items()]
    looks = Looks(study, margin)
    verdicts = looks.verdicts(of_arms)
    first = [*of_arms[arms[0]].values()]
    found = []
    for arm, trials in of_arms.items():
        row, own = _arm(study, arm, trials), [*trials.values()]
        if arm in verdicts:
            calm = disturbed(first, own)
            left, over = calm and calm.samples, min(len(first), len(own))
            row = dataclasses.replace(
                row,
                verdict=verdicts[arm],
                disturbed=calm,
                without=left and looks.without(left, over, len(arms) - 1),
                elsewhere=_elsewhere(study, own, first),
            )
        found.append(row)
    return found


def _elsewhere(study: Study, own: Sequence[Trial], first: Sequence[Trial]) -> str:
    """Differences of an arm's machines and libraries from the first arm's; empty without any."""

    def ran_with(run: Trial) -> set[str]:
        machine = str(run.system)
        if study.kind == "scaling":  # it chooses the numbers of devices and hosts
            machine = run.system._replace(num_hosts=1).hardware
        versions = run.versions.items()
        return {machine, *(f"{name} {text}" for name, text in versions if name != "commit")}

    def hosts_under(runs: Sequence[Trial]) -> set[str]:
        return {host.hostname for run in runs for host in hosts_of(run) if host.hostname}

    sides = [set[str]().union(*map(ran_with, runs)) for runs in (own, first)]
    said = [
        f"only {who} ran with {', '.join(sorted(side - other))}"
        for who, side, other in (("it", *sides), ("the first arm", *sides[::-1]))
        if side - other
    ]
    # Arms that share some hosts took turns on them.
    hosts = [hosts_under(runs) for runs in (own, first)]
    if all(hosts) and not hosts[0] & hosts[1]:
        said.append("no host trained both")
    return ", ".join(said)


def _arm(
    study: Study,
    arm: Arm,
    trials: Mapping[int, Trial],
    threshold: float | None = None,
) -> ArmFigures:
    """Figures of an arm's trials, given by their seeds."""
    by_seed = dict(sorted(trials.items()))
    target = next((trial.target for trial in by_seed.values()), Target(metric="target"))
    # The others of several targets are not asked for.
    alone = " alone" if target.others else ""
    return ArmFigures(
        name=arm.name if threshold is None else f"{target.metric} {threshold:g}{alone}",
        threshold=threshold,
        arm=arm,
        planned=study.seeds,
        trials=by_seed,
        figures=figures_of([*by_seed.values()], threshold, target.direction),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
