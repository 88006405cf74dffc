"""Checks of trials and entries read from a file, which may come from anywhere."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.tasks.metric import declared_metrics
from dawnjax.trials.group import MAX_SCALING_FACTOR, SUITES, Entry, trial_json
from dawnjax.trials.trial import Trial

_CHOICES = {
    "suite": SUITES,
    "kind": ("training", "inference"),
    "target.direction": ("at_least", "at_most"),
}
"""Fields that hold one of a few words."""

_OTHERS = re.compile(r"others\[\d+\]\.")

_AMOUNT = re.compile(r"(seconds\w*|usd|cv|_std|epochs\w*|num_\w+|batch_size)$")

MOST_DROPS = 4
"""Trials that a score leaves out at each end, by the rules of any benchmark."""

_LARGEST = 1e300
"""Squares and sums of larger numbers overflow, and a page would show infinities."""

_LONGEST_SECONDS = 1e10
"""Three centuries; no run has a later moment."""

_MOST_EPOCHS = 1e9

_SLACK_SECONDS = 0.01
"""Stamps of a log are rounded."""


def check(entry: Entry) -> None:
    """Refuse an entry with a mistyped field, an impossible number, or trials in contradiction."""
    plain = entry.to_json()
    fault = _mistyped(plain, Entry) or _impossible(plain)
    runs = [trial.run_id for trial in entry.trials if trial.run_id]
    if not fault and len(set(runs)) < len(runs):
        fault = "two of its trials are one run"
    if fault:
        source = str(entry.source)[:200]
        raise RunError(
            f"the entry {source!r} is damaged: {fault}; correct it or leave the entry out"
        )


def check_trial(trial: Trial) -> None:
    """Refuse one of our trials with a mistyped field or a number that no run has."""
    if fault := _mistyped(
        records.plain(dataclasses.replace(trial, directory=None)), Trial
    ) or _fault_of_log(trial):
        raise RunError(fault)
    if fault := _impossible({"trials": [trial_json(trial)]}):
        raise RunError(fault.removeprefix("trials[0]."))


def _mistyped(plain: dict[str, Any], kind: type) -> str:
    try:
        records.convert(plain, kind)
    except records.FieldError as error:
        return str(error)
    return ""


def _impossible(plain: dict[str, Any]) -> str:
    """Fault of the first value that no result has; empty without one."""
    for where, value in _leaves(plain, ""):
        # Of another metric of the target; of a million evaluations no place is searched.
        choices = _CHOICES.get(_OTHERS.sub("", where) if where.startswith("target") else where)
        is_number = isinstance(value, int | float)
        fault = ""
        if choices and value not in choices:
            fault = f"choose {' or '.join(choices)}"
        elif where == "scaling_factor" and not 1 <= value <= MAX_SCALING_FACTOR:
            fault = f"it must be from 1 to {MAX_SCALING_FACTOR:g}"
        elif where == "drops" and not 1 <= value <= MOST_DROPS:
            fault = f"it must be from 1 to {MOST_DROPS}"
        elif is_number and not abs(value) < _LARGEST:  # nor is NaN below it
            fault = "it must be finite"
        elif is_number and value < 0 and _is_amount(where):
            fault = "it must not be negative"
        if fault:
            return f"{where} is {str(value)[:60]!r}; {fault}"
    for number, trial in enumerate(plain.get("trials", ())):
        seconds = trial.get("time_to_accuracy_seconds")
        if seconds is not None and not trial["reached"]:
            return f"trials[{number}].reached is False, its time to accuracy {seconds}"
    return ""


def _is_amount(where: str) -> bool:
    # A swept field is what a recipe makes of it.
    return not where.startswith("config.") and _AMOUNT.search(where) is not None


def _fault_of_log(trial: Trial) -> str:
    """Fault of a figure that a forged log gives; empty without one."""
    if trial.epochs is not None and not 0 <= trial.epochs <= _MOST_EPOCHS:
        return f"it trained {trial.epochs} epochs, no number of a run"
    for name, took in (*trial.phases.items(), *trial.wall_seconds.items()):
        if took < -_SLACK_SECONDS:
            return f"its {name} took {took} s"
    metrics = declared_metrics(trial.metrics)
    for row in trial.evaluations:
        seconds = row.seconds_since_run_start
        if seconds is not None and not 0 <= seconds <= _LONGEST_SECONDS:
            return f"its evaluation at step {row.step} is {seconds} s after run_start"
        for name, value in row.metrics.items():
            metric = metrics.get(name)
            if metric and isinstance(value, int | float) and not metric.allows(value):
                span = f"{metric.least:g} to {metric.most:g}"
                return f"{name} is {value} at step {row.step}, outside of {span}"
    for name in ("time_to_accuracy_seconds", "clock_seconds", "total_seconds"):
        took = getattr(trial, name)
        if took is not None and not 0 <= took <= _LONGEST_SECONDS:
            return f"its {name} is {took} s"
    return ""


def _leaves(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{where}.{name}" if where else name)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{where}[{number}]")
    else:
        yield where, value
