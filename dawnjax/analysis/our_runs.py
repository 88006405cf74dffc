"""Reader of our run directories: the log, and not `result.json`."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.analysis.entry_checks import check
from dawnjax.analysis.our_entries import entries_of
from dawnjax.analysis.our_run import OurRun, run_of
from dawnjax.errors import ConfigError, RunError
from dawnjax.runs import summary
from dawnjax.runs.directory import read_events_of, read_existing
from dawnjax.runs.summary import RunResult
from dawnjax.tasks.metric import declared_metrics

_MAX_DEPTH = 6


_LONGEST_SECONDS = 1e10
"""Three centuries; no run has a later moment."""

_MOST_EPOCHS = 1e9

_SLACK_SECONDS = 0.01
"""Stamps of a log are rounded."""


def find_run_directories(path: Path) -> Iterator[Path]:
    """Yield the run directories in a folder, or itself, by name; links are not followed."""
    depth = len(path.parts)
    for folder, folders, files in os.walk(path, followlinks=False):
        here = Path(folder)
        if "experiment.json" in files:
            folders.clear()
            yield here
        elif len(here.parts) - depth >= _MAX_DEPTH:
            folders.clear()
        folders.sort()


def read_run(path: Path) -> OurRun:
    """Read a run directory; `RunError` if it is none, or if its log says too little."""
    try:
        record = read_existing(path)
    except ConfigError as error:
        raise RunError(str(error)) from None
    events = read_events_of(path, record)
    try:
        _refuse_impossible_times(events)
        run = run_of(path.resolve().name, record, events)._replace(directory=path)
        _refuse_impossible_results(run.result)
        for entry in entries_of([run]):  # a field of another kind shows here, not on a page
            check(entry)
        json.dumps(run.result.to_json(), allow_nan=False)
    except (RunError, ArithmeticError, *records.FORGED) as error:
        why = str(error) if isinstance(error, RunError) else summary.of_another_kind(error)
        raise RunError(f"{path}: the log cannot be summarized: {why}") from None
    return run


def _refuse_impossible_times(events: Sequence[dict[str, Any]]) -> None:
    for event in events:
        if not 0 <= event["t"] <= _LONGEST_SECONDS:
            raise RunError(f"its event {event['event']!r} is at {event['t']} s, no time of a run")


def _refuse_impossible_results(result: RunResult) -> None:
    metrics = declared_metrics(result.metrics)
    if not 0 <= result.epochs <= _MOST_EPOCHS:
        raise RunError(f"it trained {result.epochs} epochs, no number of a run")
    for name, took in (*result.phases.items(), *result.wall_seconds.items()):
        if took < -_SLACK_SECONDS:
            raise RunError(f"its {name} took {took} s")
    for row in result.evaluations:
        seconds = row["seconds_since_run_start"]
        if seconds is not None and not 0 <= seconds <= _LONGEST_SECONDS:
            raise RunError(f"its evaluation at step {row['step']} is {seconds} s after run_start")
        for name, value in row.items():
            metric = metrics.get(name)
            if metric and isinstance(value, int | float) and not metric.allows(value):
                raise RunError(
                    f"{name} is {value} at step {row['step']}, outside of {metric.least:g} to "
                    f"{metric.most:g}"
                )
    seconds = result.time_to_accuracy_seconds
    if seconds is not None and not 0 <= seconds <= _LONGEST_SECONDS:
        raise RunError(f"its time to accuracy is {seconds} s")
