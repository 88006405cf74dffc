"""Checks of entries read from a file, which may come from anywhere."""

import dataclasses
import math
import re
import types
import typing
from typing import Any

from dawnjax.errors import RunError
from dawnjax.official import mlperf_rounds
from dawnjax.official.outcome import Imported, Refused, printable
from dawnjax.results.entries import SUITES, Entry, summary_of

_CHOICES = {
    "suite": SUITES,
    "kind": ("training", "inference"),
    "target.direction": ("at_least", "at_most"),
}
"""Fields that hold one of a few words."""


def without_damaged(imported: Imported) -> Imported:
    """Rejects the entries of an import that `check` refuses, so that the others can be read."""
    sound: list[Entry] = []
    rejections = list(imported.rejections)
    for entry in imported.entries:
        try:
            check(entry)
            sound.append(entry)
        except RunError as error:
            rejections.append(Refused(printable(str(error)), file=entry.source))
    return dataclasses.replace(imported, entries=tuple(sound), rejections=tuple(rejections))


DIRECTIONS = ("at_least", "at_most")


def check(entry: Entry) -> None:
    """Checks that every field of an entry holds what its type says, and only finite numbers.

    Times, costs, deviations and epochs must not be negative either, and what is one of a few words
    must be one.

    Raises:
      RunError: A field does not; it is named.
    """
    for where, value, wanted in _fields(entry, ""):
        holds = _is_a(value, wanted) and value in _CHOICES.get(where, (value,))
        an_amount = re.search(r"(seconds\w*|usd|cv|_std|epochs)$", where) is not None
        if not holds or (an_amount and isinstance(value, int | float) and value < 0):
            must = "; it must not be negative" if holds else ""
            if where in _CHOICES:
                must = f"; choose {' or '.join(_CHOICES[where])}"
            raise RunError(
                f"the entry {str(entry.source)[:200]!r} is damaged: {where} is "
                f"{str(value)[:60]!r}{must}; correct it or leave the entry out"
            )
    if entry.target.direction not in DIRECTIONS:
        raise RunError(
            f"the entry {str(entry.source)[:200]!r} is damaged: target.direction is "
            f"{entry.target.direction[:60]!r}, none of {', '.join(DIRECTIONS)}"
        )


def with_summary_of_trials(entry: Entry) -> Entry:
    """Computes the summary of an entry from its trials, with a warning where its file differs.

    A deviation of 0 that a file gives for one trial is none, and no reason for a warning.
    """
    if not entry.trials and entry.summary is None:
        return entry
    drops = mlperf_rounds.drops(entry.benchmark) if entry.suite == "mlperf_training" else 1
    summary = summary_of(entry.trials, entry.cost_per_hour_usd, drops)
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


def _fields(record: Any, prefix: str):
    hints = _hints(type(record))
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        where = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _fields(value, where + ".")
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for number, item in enumerate(value):
                yield from _fields(item, f"{where}[{number}].")
        else:
            yield where, value, hints[field.name]


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind)
    return _HINTS[kind]


def _is_a(value: Any, wanted: Any) -> bool:
    origin = typing.get_origin(wanted)
    if origin in (types.UnionType, typing.Union):
        return any(_is_a(value, item) for item in typing.get_args(wanted))
    if wanted is type(None):
        return value is None
    if wanted is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) < 1e300 and math.isfinite(value)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if origin is tuple:
        return isinstance(value, tuple) and all(
            _is_a(item, typing.get_args(wanted)[0]) for item in value
        )
    if origin is dict:
        return isinstance(value, dict) and all(
            isinstance(key, str) and isinstance(item, str) for key, item in value.items()
        )
    return isinstance(value, wanted)
