"""Statistics of each arm of a study, and the verdict on it beside the first arm."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dawnjax.page import words
from dawnjax.study.design import Arm, PlannedTrial, Study
from dawnjax.study.looks import Looks, Row, Rows
from dawnjax.trials.figures import figures as trial_figures
from dawnjax.trials.trial import Trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmFigures:
    """Statistics of an arm's finished trials; times are seconds.

    Attributes:
      arm: Its name.
      flags: Flags that make the arm.
      planned: Trials of the arm in the study.
      trials: Trials that are over.
      reached: Trials that reached the target.
      mean_seconds: Mean time to accuracy of those that reached.
      cv: Their population standard deviation over their mean.
      expected_seconds: Time of all trials over the number that reached.
      low: Lower end of its interval; where all trials reached that is the mean's.
      high: Upper end.
      ends: Kind of the ends: `95 %`, `range of 3`; empty where there are none.
      epochs_mean: Mean epochs to the target.
      examples_per_second: Mean of the trials' throughputs.
      exposed_communication: Mean share of a step that no computation hid; None without profiles.
      verdict: The arm beside the study's first (`Verdict.to_json`), with its `advice_text`; None
        for the first.
      rows: Each trial: seed, status, whether it reached, its time to accuracy, run directory.
      machines: Systems of its trials.
      elsewhere: How machines and libraries of its trials are not those of the first arm; empty
        where they are the same, or without a verdict.
    """

    arm: str
    flags: list[str]
    planned: int
    trials: int
    reached: int
    mean_seconds: float | None
    cv: float | None
    expected_seconds: float | None
    low: float | None
    high: float | None
    ends: str
    epochs_mean: float | None
    examples_per_second: float | None
    exposed_communication: float | None
    verdict: dict[str, Any] | None
    rows: list[dict[str, Any]]
    machines: list[str]
    elsewhere: str = ""

    @property
    def caution(self) -> str:
        """Sentences on different machines and on trials of unknown length; empty without any."""
        said = []
        if len(self.machines) > 1:
            machines = "; ".join(self.machines)
            said.append(f"{self.arm}: its times are of different machines ({machines})")
        if self.elsewhere:
            said.append(f"{self.arm}: {self.elsewhere}, so its ratio is not of the recipes alone")
        if self.reached and self.expected_seconds is None:
            said.append(f"{self.arm}: {self.why_no_time}, so it has no expected time")
        return "; ".join(said)

    @property
    def why_no_time(self) -> str:
        """Reason why there is no expected time."""
        return "how long a trial ran is not known" if self.reached else "no trial reached"

    @property
    def time_text(self) -> str:
        """Expected time with its ends, such as `5.2 s (95 %: 4.9 to 5.6)`."""
        if self.expected_seconds is None:
            return self.why_no_time
        text = f"{words.rounded(self.expected_seconds)} s"
        if self.low is None or self.high is None:
            return text
        return f"{text} ({self.ends}: {words.rounded(self.low)} to {words.rounded(self.high)})"


def own_trials(study: Study, rows: Sequence[ArmFigures]) -> Sequence[ArmFigures]:
    """Rows with trials of their own: all thresholds of a study are read from the same trials."""
    return rows[:1] if study.kind == "threshold" else rows


def best_of(study: Study, rows: Sequence[ArmFigures]) -> ArmFigures | None:
    """Arm of a grid with the least expected time; None for other studies, or without a choice."""
    there = [row for row in rows if row.expected_seconds is not None]
    if study.kind != "grid" or len(there) < 2:
        return None
    return min(there, key=lambda row: row.expected_seconds or math.inf)


def best_sentence(best: ArmFigures, among: int) -> str:
    """The best arm and its time, and why that flatters it."""
    return (
        f"best of {among} arms: {best.arm}, {best.time_text}; the same trials chose it, so expect "
        "more on fresh seeds"
    )


def figures(
    study: Study, arms: Sequence[Arm], runs: Mapping[PlannedTrial, Trial], out: Path
) -> list[ArmFigures]:
    """Figures of each arm, or of each threshold, in the study's order; of a search, of its winner.

    Args:
      arms: The others are compared with the first.
      runs: Trials that are over (`reading.trials_over`).
      out: The study's folder.
    """
    looks = Looks(study)
    if study.kind == "threshold":
        return [_arm(study, arms[0], runs, out, value)[0] for value in study.thresholds]
    told: list[ArmFigures] = []
    rows: dict[Arm, Rows] = {}
    if study.search:  # those that chose are no results
        runs = {trial: run for trial, run in runs.items() if not trial.chooses}
        arms = [arm for arm in arms if any(trial.arm == arm for trial in runs)]
        return [_arm(study, arm, _of_arm(runs, arm), out, None)[0] for arm in arms]
    for arm in arms:
        of_arms, rows[arm] = _arm(study, arm, _of_arm(runs, arm), out, None)
        told.append(of_arms)
    verdicts = looks.verdicts(rows)
    for place, arm in enumerate(arms):
        if arm in verdicts:
            advice = verdicts[arm].advice
            record = {**verdicts[arm].to_json(), "advice_text": advice.text() if advice else ""}
            own, first = (list(_of_arm(runs, one).values()) for one in (arm, arms[0]))
            elsewhere = _elsewhere(study, own, first)
            told[place] = dataclasses.replace(told[place], verdict=record, elsewhere=elsewhere)
    return told


def _of_arm(runs: Mapping[PlannedTrial, Trial], arm: Arm) -> dict[PlannedTrial, Trial]:
    return {trial: run for trial, run in runs.items() if trial.arm == arm}


def _elsewhere(study: Study, own: Sequence[Trial], first: Sequence[Trial]) -> str:
    """Differences of an arm's machines and libraries from the first arm's; empty without any."""

    def ran_with(run: Trial) -> set[str]:
        machine = str(run.system)
        if study.kind == "scaling":  # it chooses the numbers of devices and hosts
            machine = run.system._replace(num_hosts=1).hardware
        versions = run.versions.items()
        return {machine, *(f"{name} {text}" for name, text in versions if name != "commit")}

    def hosts_of(runs: Sequence[Trial]) -> set[str]:
        hosts = [host for run in runs for host in run.hosts if isinstance(host, dict)]
        return {str(host["hostname"]) for host in hosts if "hostname" in host}

    sides = [set[str]().union(*map(ran_with, runs)) for runs in (own, first)]
    said = [
        f"{who} alone ran with {', '.join(sorted(side - other))}"
        for who, side, other in (("it", *sides), ("the first arm", *sides[::-1]))
        if side - other
    ]
    # Arms that share some hosts took turns on them.
    hosts = [hosts_of(runs) for runs in (own, first)]
    if all(hosts) and not hosts[0] & hosts[1]:
        said.append("no host trained both")
    return ", ".join(said)


def _arm(
    study: Study, arm: Arm, runs: Mapping[PlannedTrial, Trial], out: Path, threshold: float | None
) -> tuple[ArmFigures, Rows]:
    """Figures of an arm, and its trials by seed; no trials where the duration of one is unknown."""
    results = list(runs.values())
    direction = results[0].target.direction if results else "at_least"
    summary = trial_figures(results, threshold, direction)
    seconds, sample = summary.seconds, summary.sample
    interval = None if sample is None else summary.interval
    rows = {}
    if sample is not None:
        rows = {
            trial.seed: Row(
                float(amount), bool(reached), run.finite_losses, step, run.budget_seconds
            )
            for (trial, run), amount, reached, step in zip(
                runs.items(), sample.amounts, sample.reached, sample.steps, strict=True
            )
        }
    told = [
        {
            "seed": trial.seed,
            "status": run.status,
            "reached": second is not None,
            "time_to_accuracy_seconds": second,
            "run_dir": str(trial.directory(out).relative_to(out)),
        }
        for (trial, run), second in zip(runs.items(), seconds, strict=True)
    ]
    target = results[0].target if results else None
    metric = target.metric if target else "target"
    # The others of several targets are not asked for.
    alone = " alone" if target and target.others else ""
    return (
        ArmFigures(
            arm=arm.name if threshold is None else f"{metric} {threshold:g}{alone}",
            flags=list(arm.flags),
            planned=study.seeds,
            trials=len(results),
            reached=summary.reached,
            mean_seconds=summary.mean_seconds,
            cv=summary.cv,
            expected_seconds=summary.expected_seconds,
            low=interval and interval.low,
            high=interval and interval.high,
            ends=interval.ends if interval else "",
            epochs_mean=summary.epochs_mean,
            examples_per_second=_mean([result.examples_per_second for result in results]),
            exposed_communication=_mean([_exposed(result) for result in results]),
            verdict=None,
            rows=sorted(told, key=lambda row: row["seed"]),
            machines=sorted({str(run.system) for run in runs.values()}),
        ),
        rows,
    )


def _exposed(result: Trial) -> float | None:
    shares = [(host.get("communication") or {}).get("exposed_fraction") for host in result.hosts]
    return _mean(shares)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None
