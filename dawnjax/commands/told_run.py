"""A run as JSON: its figures, each null with a reason if it is not known."""

import dataclasses
from pathlib import Path
from typing import Any

from dawnjax.trials.trial import Trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal:
    """A quality that the run was to reach.

    Attributes:
      value: In the metric's own unit: accuracies are fractions from 0 to 1.
      direction: `at_least` or `at_most`.
      best: The best value of all evaluations; null without one.
    """

    metric: str
    value: float | None
    direction: str
    best: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToldRun:
    """A run and its figures; result.json in its directory has all of them.

    Attributes:
      run_dir: Its directory.
      state: How its newest attempt ended: `reached`, `not_reached`, `diverged`, `interrupted`;
        `running`, or `stopped` where its log has no end and nobody writes it.
      targets: What one evaluation must reach, all together.
      changed: Flags that changed the experiment, with their values.
      time_to_accuracy_seconds: From `run_start` to the end of the first evaluation that reached the
        target.
      total_seconds_to_accuracy: From the start of the first process, compilation included.
      total_seconds: Lifetimes of all attempts.
      compile_seconds: The compile phase of all attempts.
      train_seconds: The train phase alone.
      interruptions: Attempts before the newest one.
      epochs_to_target: Epochs trained when the target was reached.
      examples_per_second: Examples of all train steps divided by `train_seconds`.
      cost_usd: Cost of `time_to_accuracy_seconds`.
      allocated_cost_usd: Cost of `total_seconds`.
      reasons: Why a figure is null, by its name.
      warnings: Cautions about the figures.
    """

    run_dir: str
    experiment: str
    seed: int | None
    state: str
    reached: bool
    targets: tuple[Goal, ...]
    changed: dict[str, Any]
    time_to_accuracy_seconds: float | None
    total_seconds_to_accuracy: float | None
    total_seconds: float
    compile_seconds: float
    train_seconds: float
    interruptions: int
    steps: int
    epochs: float | None
    epochs_to_target: float | None
    examples_per_second: float | None
    platform: str
    device_kind: str
    num_devices: int
    num_processes: int
    cost_usd: float | None
    allocated_cost_usd: float | None
    reasons: dict[str, str]
    warnings: tuple[str, ...]


_MADE_HERE = ("run_dir", "state", "targets", "changed", "reasons")
_OF_TRIAL = [field.name for field in dataclasses.fields(ToldRun) if field.name not in _MADE_HERE]


def told_run(trial: Trial, run_dir: Path, state: str = "") -> ToldRun:
    """The JSON record of a run; its state is the trial's status unless given."""
    figures = {name: getattr(trial, name) for name in _OF_TRIAL}
    # The epochs are those of that time.
    why = trial.reasons.get("time_to_accuracy_seconds", "")
    known = {"epochs_to_target": why, **trial.reasons}
    unknown = [name for name, value in figures.items() if value is None]
    reasons = {name: known[name] for name in unknown if known.get(name)}
    return ToldRun(
        run_dir=str(run_dir),
        state=state or trial.status,
        targets=tuple(
            Goal(
                metric=part.metric,
                value=part.value,
                direction=part.direction,
                best=trial.best.get(part.metric),
            )
            for part in trial.target.parts()
        ),
        changed=dict(trial.overrides),
        reasons=reasons,
        **figures,
    )
