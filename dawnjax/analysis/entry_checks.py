"""Checks of entries read from a file, which may come from anywhere."""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.official import mlperf_rounds
from dawnjax.official.outcome import Imported, Refused, printable
from dawnjax.trials.group import MAX_SCALING_FACTOR, SUITES, Entry, Trial, summary_of

_CHOICES = {
    "suite": SUITES,
    "kind": ("training", "inference"),
    "target.direction": ("at_least", "at_most"),
}
"""Fields that hold one of a few words."""

_AMOUNT = re.compile(r"(seconds\w*|usd|cv|_std|epochs|num_\w+|batch_size)$")

_LARGEST = 1e300
"""Squares and sums of larger numbers overflow, and a page would show infinities."""


def without_damaged(imported: Imported) -> Imported:
    """Reject the entries of an import that `check` refuses, so that the rest can be read."""
    sound: list[Entry] = []
    rejections = list(imported.rejections)
    for entry in imported.entries:
        try:
            check(entry)
            sound.append(entry)
        except RunError as error:
            rejections.append(Refused(printable(str(error)), file=entry.source))
    return dataclasses.replace(imported, entries=tuple(sound), rejections=tuple(rejections))


def check(entry: Entry) -> None:
    """Refuse an entry with a mistyped field, an impossible number, or trials in contradiction."""
    plain = records.plain(entry)
    try:
        records.convert(plain, Entry)
    except records.FieldError as error:
        raise _damage(entry, str(error)) from None
    for where, value in _leaves(plain, ""):
        fault = ""
        choices = _CHOICES.get(re.sub(r"others\[\d+\]\.", "", where))
        if choices and value not in choices:
            fault = f"choose {' or '.join(choices)}"
        elif where == "scaling_factor" and not 1 <= value <= MAX_SCALING_FACTOR:
            fault = f"it must be from 1 to {MAX_SCALING_FACTOR:g}"
        elif isinstance(value, int | float) and not abs(value) < _LARGEST:  # nor is NaN below it
            fault = "it must be finite"
        elif isinstance(value, int | float) and value < 0 and _is_amount(where):
            fault = "it must not be negative"
        if fault:
            raise _damage(entry, f"{where} is {str(value)[:60]!r}; {fault}")
    if fault := _fault_of_trials(entry.trials):
        raise _damage(entry, fault)


def _is_amount(where: str) -> bool:
    # A swept field is what a recipe makes of it.
    return not where.startswith("config.") and _AMOUNT.search(where) is not None


def _fault_of_trials(trials: Sequence[Trial]) -> str:
    """Contradiction that would count a trial wrong; empty without any."""
    for number, trial in enumerate(trials):
        seconds = trial.time_to_accuracy_seconds
        if trial.reached != (seconds is not None):
            return f"trials[{number}].reached is {trial.reached}, its time to accuracy {seconds}"
    runs = [trial.run_id for trial in trials if trial.run_id]
    return "two of its trials are one run" if len(set(runs)) < len(runs) else ""


def _damage(entry: Entry, fault: str) -> RunError:
    source = str(entry.source)[:200]
    return RunError(f"the entry {source!r} is damaged: {fault}; correct it or leave the entry out")


def with_summary_of_trials(entry: Entry) -> Entry:
    """Compute the summary of an entry from its trials, with a warning where its file differs.

    A file's deviation of 0 for a single trial means none, and causes no warning.
    """
    if not entry.trials and entry.summary is None:
        return entry
    drops, factor = 1, 1.0
    if entry.suite == "mlperf_training":
        drops, factor = mlperf_rounds.drops(entry.benchmark), entry.scaling_factor
    summary = summary_of(entry.trials, entry.cost_per_hour_usd, drops, factor)
    given = {} if entry.summary is None else dataclasses.asdict(entry.summary)
    computed = dataclasses.asdict(summary)
    different = [
        f"{name} {value} and not {computed[name]}"
        for name, value in given.items()
        if not math.isclose(value or 0.0, computed[name] or 0.0, rel_tol=1e-9)
    ]
    warnings = entry.warnings
    if different:
        warnings += (
            f"its file gave a summary that is not that of its trials ({', '.join(different)}); it "
            "is computed from the trials",
        )
    return dataclasses.replace(entry, summary=summary, warnings=warnings)


def _leaves(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{where}.{name}" if where else name)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{where}[{number}]")
    else:
        yield where, value
