"""What a report is made of: entries and our runs, read, validated and redacted."""

import dataclasses
import math
import re
import types
import typing
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax import analysis
from dawnjax.analysis import our_runs
from dawnjax.analysis.entries import Entry
from dawnjax.analysis.our_runs import OurRun
from dawnjax.errors import RunError
from dawnjax.report.privacy import Redactor


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Everything that a page shows.

    Attributes:
      entries: Ours and official ones, in the order read.
      runs: Our runs by (experiment's identity, run's name): what an entry does not hold.
      problems: What was not read, and why.
    """

    entries: tuple[Entry, ...]
    runs: tuple[OurRun, ...] = ()
    problems: tuple[str, ...] = ()


def read(paths: Sequence[Path], *, include_hosts: bool = False) -> Inputs:
    """Reads files of entries, run directories and official results.

    Args:
      paths: What `analysis.load` takes.
      include_hosts: Whether host names, absolute paths and e-mail addresses stay.

    Raises:
      ConfigError: There is nothing at a path.
      RunError: Nothing could be read, or a file is damaged.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what was not read is in `problems`
        loaded = analysis.load(*paths)
    runs: list[OurRun] = []
    for path in paths:
        for directory in our_runs.find_run_directories(path) if path.is_dir() else ():
            try:
                runs.append(our_runs.read_run(directory))
            except RunError:
                continue  # `load` has said so
    runs = our_runs.distinct(runs)
    hosts = {str(host.get("hostname", "")) for run in runs for host in run.result.hosts if host}
    redactor = Redactor(hosts, keep=include_hosts)
    for entry in loaded:
        check(entry)
    return Inputs(
        entries=tuple(redactor.value(entry) for entry in loaded),
        runs=tuple(redactor.value(run) for run in runs),
        problems=tuple(redactor.text(problem) for problem in loaded.problems),
    )


def check(entry: Entry) -> None:
    """Checks that every field of an entry holds what its type says, and only possible numbers.

    A file of entries may come from anywhere.

    Raises:
      RunError: A field does not; it is named.
    """
    for where, value, wanted in _fields(entry, ""):
        if not _is_a(value, wanted) or _is_impossible(where, value):
            raise RunError(
                f"the entry {str(entry.source)[:200]!r} is damaged: {where} is {str(value)[:60]!r}"
            )


def _is_impossible(where: str, value: Any) -> bool:
    """Tells whether a time, a cost or a variation is negative; evaluations keep their stamps."""
    never_negative = re.search(r"(seconds|usd|cv|_std|epochs)\w*$", where) is not None
    return (
        never_negative
        and ".evaluations[" not in where
        and isinstance(value, int | float)
        and value < 0
    )


def _fields(record: Any, prefix: str):
    hints = _hints(type(record))
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        where = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _fields(value, where + ".")
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for number, one in enumerate(value):
                yield from _fields(one, f"{where}[{number}].")
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
        return any(_is_a(value, one) for one in typing.get_args(wanted))
    if wanted is type(None):
        return value is None
    if wanted is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) < 1e300 and math.isfinite(value)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if origin is tuple:
        return isinstance(value, tuple) and all(
            _is_a(one, typing.get_args(wanted)[0]) for one in value
        )
    if origin is dict:
        return isinstance(value, dict) and all(
            isinstance(key, str) and isinstance(one, str) for key, one in value.items()
        )
    return isinstance(value, wanted)
