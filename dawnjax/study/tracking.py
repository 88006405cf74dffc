"""Figures of a study for trackers and TensorBoard, beside those of its trials.

They are sent once the trials are over: a tracker that serves a trial and its study in one process
at the same time may mix them up.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dawnjax.config.config_json import to_json
from dawnjax.config.run_options import RunOptions
from dawnjax.runs.directory import flatten
from dawnjax.runs.scalars import ScalarWriter
from dawnjax.runs.trackers import Trackers
from dawnjax.study.design import Arm, Study
from dawnjax.study.figures import ArmFigures, own_trials
from dawnjax.text import without_secrets

FIGURES = ("trials", "reached", "mean_seconds", "expected_seconds", "epochs_mean")
"""Fields of an arm that a tracker gets; one without a value is left out."""


def arm_scalars(rows: Sequence[ArmFigures]) -> dict[str, float]:
    """Figures of each arm, named `ARM/expected_seconds` by the arm's folder.

    MLflow takes letters, digits and few signs in a name, and so do folders.
    """
    scalars: dict[str, float] = {}
    for row in rows:
        figures = {name: getattr(row, name) for name in FIGURES}
        if row.ends == "95 %":  # a tracker would show the range of few trials as an interval
            figures |= {"low": row.low, "high": row.high}
        if row.verdict is not None:
            figures["ratio"] = row.verdict["ratio"]
            if row.verdict["level"] is not None:
                figures |= {f"ratio_{name}": row.verdict[name] for name in ("low", "high")}
        folder = Arm(row.arm).folder
        known = {name: value for name, value in figures.items() if value is not None}
        scalars |= {f"{folder}/{name}": float(value) for name, value in known.items()}
    return scalars


def send(
    study: Study,
    rows: Sequence[ArmFigures],
    out: Path,
    run_id: str,
    options: RunOptions,
    warn: Callable[[str], None],
) -> None:
    """Send the arms' figures to the trackers of the trials, at the number of trials as the step.

    Args:
      run_id: Of the study's first trial; the study is known by it in all its extensions.
      options: Of the trials: which trackers, and whether TensorBoard.
    """
    scalars, step = arm_scalars(rows), sum(row.trials for row in own_trials(study, rows))
    board = ScalarWriter(out / "tensorboard" if options.tensorboard else None, warn)
    board.write(step, scalars)
    board.close()
    config: dict[str, Any] = without_secrets(flatten(to_json(study)))
    trackers = Trackers(options.tracker, f"study_{run_id}", out, config, warn)
    trackers.wait_until_open()
    trackers.write(step, scalars)
    trackers.close({"status": "over", **scalars})
