"""Logs at a path as one entry: each trial one file, or one value of a column."""

import dataclasses
import fnmatch
import functools
import hashlib
import itertools
import math
import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.official.mlperf import RESULT_FILE
from dawnjax.other_logs import mlflow, rows, tensorboard
from dawnjax.other_logs.columns import Columns, Told, tell
from dawnjax.other_logs.rows import Form
from dawnjax.trials.checks import check
from dawnjax.trials.group import OTHER, Entry
from dawnjax.trials.target import Target, reaches
from dawnjax.trials.trial import Evaluation, Trial

_JSON, _TABLE = Form("JSON lines", rows.json_lines), Form("table", rows.table)
_FORMS = {
    ".jsonl": _JSON,
    ".ndjson": _JSON,
    ".csv": _TABLE,
    ".tsv": _TABLE,
    ".txt": Form("text", rows.text),
    ".log": Form("text", rows.text),
    ".out": Form("text", rows.text),
}
_EVENTS = Form("TensorBoard's", tensorboard.scalars, is_in_order=False)
_MLFLOW = Form("MLflow's", mlflow.folder, is_in_order=False)

MOST_LOGS = MOST_TRIALS = 10_000
MOST_KINDS = 1000
"""Sets of columns that rows of one trial have."""

MOST_EVALUATIONS = 100_000
_DEEPEST = 6
_MOST_OPENED = 50
_HEAD_BYTES = 2**20
_FIRST_ROWS = 1000


class _Log(NamedTuple):
    name: str
    path: Path
    form: Form

    def read(self) -> Iterator[rows.Row]:
        left = rows.MOST_CELLS
        for place, cells in self.form.rows(self.path):
            cells.pop("", None)  # pandas writes its row numbers so; no flag can name them
            left -= rows.CELLS_A_ROW + len(cells)
            if left < 0:
                many = f"more than {rows.MOST_CELLS:,} values ({rows.CELLS_A_ROW} for each row)"
                raise RunError(f"{self.path}:{place} comes after {many}; log fewer steps")
            yield place, cells


def is_other_log(path: Path) -> bool:
    """True if a path holds logs of another program, and no file of DawnJAX or of an official
    result.

    Decided by the names of the files, and by the beginning of JSON lines and of text.
    """
    if path.suffix == mlflow.SUFFIX and path.is_file():
        return bool(mlflow.experiments(path))
    is_there = False
    for number, log in enumerate(_logs(path, "")):
        is_there = True
        if _has_official_name(log) or (number < _MOST_OPENED and _is_ours_or_official(log)):
            return False
    return is_there


def _has_official_name(log: _Log) -> bool:
    """True if a log has the name of an MLPerf result or a DAWNBench table."""
    of_dawnbench = log.path.suffix == ".tsv" and log.path.parent.name.lower() == "train"
    return of_dawnbench or RESULT_FILE.fullmatch(log.path.name) is not None


def _is_ours_or_official(log: _Log) -> bool:
    """True if a log is a file of entries, a run's own log, or one of MLPerf's."""
    if log.form is _EVENTS or log.form is _MLFLOW:
        return False
    try:
        with records.open_plain(log.path) as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, records.BoundError):
        return True
    if log.form is not _JSON:
        return b":::ML" in head
    line = head.partition(b"\n")[0]
    try:
        value = rows.json_value(line)
    except ValueError:
        return True
    if not isinstance(value, dict):
        return True
    # Others log events too, without an attempt.
    is_ours = {"event", "attempt"} <= value.keys()
    return is_ours or not value.keys().isdisjoint({"suite", "schema_version"})


def _logs(path: Path, pattern: str) -> Iterator[_Log]:
    """Logs at a path, by name."""
    if not path.is_dir():
        form = _EVENTS if tensorboard.MARK in path.name else _FORMS.get(path.suffix.lower())
        if form is not None:
            yield _Log(path.name, path, form)
        return
    for folder, folders, files in os.walk(path, followlinks=False):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if len(here.relative_to(path).parts) >= _DEEPEST:
            folders.clear()
        name = here.relative_to(path).as_posix()
        if "meta.yaml" in files and "metrics" in folders:
            folders.clear()
            yield _Log(name, here, _MLFLOW)
            continue
        wanted = [file for file in sorted(files) if fnmatch.fnmatch(file, pattern or "*")]
        if any(tensorboard.MARK in file for file in wanted):
            yield _Log(name, here, _EVENTS)
        for file in wanted:
            form = _FORMS.get(Path(file).suffix.lower())
            if form is not None and not file.startswith(".") and tensorboard.MARK not in file:
                yield _Log((here / file).relative_to(path).as_posix(), here / file, form)


def read_entry(path: Path, columns: Columns) -> Entry:
    """Read the logs at a path as the trials of one entry.

    Raises:
      ConfigError: The columns cannot be recognized, or the path holds logs of several forms.
      RunError: A log cannot be read, or contradicts itself.
    """
    return _read(path, list(_logs(path, columns.files)), columns)


def read_logs(path: Path, columns: Columns) -> list[Entry]:
    """The entry of `read_entry`, or of a database of MLflow an entry for each experiment."""
    if path.suffix != mlflow.SUFFIX:
        return [read_entry(path, columns)]
    entries = []
    for name in mlflow.experiments(path):
        form = Form("MLflow's", functools.partial(mlflow.rows, experiment=name), is_in_order=False)
        entry = _read(path, [_Log("", path, form)], columns)
        entries.append(dataclasses.replace(entry, source=name))
    return entries


def _read(path: Path, logs: list[_Log], columns: Columns) -> Entry:
    if len(logs) > MOST_LOGS:
        raise RunError(f"{path} has {len(logs):,} logs; at most {MOST_LOGS:,} are read")
    if not logs:
        among = f", named {columns.files}" if columns.files else ""
        raise ConfigError(f"{path} has no log in a known form{among}: {KNOWN}")
    # The first rows usually have every column, and then a log is read once. Where a later column
    # tells otherwise, perhaps of the trials that seemed to be one, all are read first.
    try:
        found = _found(path, logs, columns, _FIRST_ROWS)
    except ConfigError:
        found = None
    found = found or _found(path, logs, columns, None)
    assert found is not None  # all rows were read
    names, told, trials = found
    unread = [log.name for log in logs if not names[log.name]]
    return _entry(path, trials, told, columns, unread)


KNOWN = "JSON lines, CSV, TSV, TensorBoard's event files, MLflow's runs, printed text"


Names = dict[str, Any]
"""Columns, each with its first value."""


class _Found(NamedTuple):
    names: dict[str, Names]
    told: Told
    trials: list[Trial]


def _found(path: Path, logs: list[_Log], columns: Columns, first_rows: int | None) -> _Found | None:
    """Trials by the columns that the first rows have; None if later ones tell other columns.

    `first_rows` is None for all rows.
    """
    names: dict[str, Names] = {log.name: {} for log in logs}
    for log in logs:
        count = 0
        for place, cells in itertools.islice(log.read(), first_rows):
            _add_names(names[log.name], cells, log, place)
            count += 1
        if count == first_rows and not names[log.name]:
            return None  # a value may come later
    # A folder's notes and requirements are text too, with no line of a known form.
    read = [log for log in logs if names[log.name]]
    forms = sorted({log.form.name for log in read})
    if len(forms) > 1:
        raise ConfigError(
            f"{path} has logs of several forms ({', '.join(forms)}), perhaps of the same runs; "
            "choose one form with --files='*.csv'"
        )
    if not read:
        raise RunError(f"{path} has no line in a known form: {KNOWN}")
    told = tell(_of_all(names), columns)
    trials: list[Trial] = []
    try:
        while read:
            log = read.pop(0)
            trials += _trials(log, told, columns.target, names[log.name])
            if sum(len(trial.evaluations) for trial in trials) > MOST_EVALUATIONS:
                raise RunError(f"{path} has more than {MOST_EVALUATIONS:,} evaluations: log fewer")
    except RunError:
        # Two runs in one file, perhaps, unless a later column tells them apart.
        for later in read:
            for place, cells in later.read():
                _add_names(names[later.name], cells, later, place)
        if first_rows is None or tell(_of_all(names), columns) == told:
            raise
    if first_rows is not None and tell(_of_all(names), columns) != told:
        return None
    return _Found(names, told, trials)


def _of_all(names: dict[str, Names]) -> Names:
    every: Names = {}
    for of_log in names.values():
        every = of_log | every
    return every


def _add_names(names: Names, cells: rows.Cells, log: _Log, place: int) -> bool:
    """Add a row's columns; True if each of them has a value now."""
    for name, cell in cells.items():
        if name not in names and cell != "" and cell is not None:
            names[name] = cell
            if len(names) > rows.MOST_COLUMNS or len(name) > rows.LONGEST_NAME:
                raise RunError(
                    f"{log.path}:{place} has column {len(names):,}, of {len(name):,} letters: "
                    f"{rows.MOST_COLUMNS:,} of {rows.LONGEST_NAME:,} are read"
                )
    return cells.keys() <= names.keys()


@dataclasses.dataclass
class _Part:
    """A trial of a log while it is read, its clock as the log has it.

    Attributes:
      start: First moment of a clock that holds dates.
      step: Of the newest row that has one, and `seconds` likewise.
      latest: Greatest moment of the clock.
      before: Step and moment of the newest row with the same cells: what is trained and what is
        evaluated may be logged one after the other, each in its own order.
    """

    start: float | None = None
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)
    seed: int | None = None
    step: int | None = None
    seconds: float | None = None
    latest: float | None = None
    last_step: int = 0
    before: dict[tuple[str, ...], tuple[int | None, float | None]] = dataclasses.field(
        default_factory=dict
    )

    def with_settings(self, other: "_Part") -> "_Part":
        """The trial with the seed and the moments of a part that has no evaluations."""
        starts = [start for start in (self.start, other.start) if start is not None]
        ends = [end for end in (self.latest, other.latest) if end is not None]
        return dataclasses.replace(
            self,
            seed=other.seed if self.seed is None else self.seed,
            start=min(starts, default=None),
            latest=max(ends, default=None),
            last_step=max(self.last_step, other.last_step),
        )


def _trials(log: _Log, told: Told, target: float | None, names: Names) -> list[Trial]:
    """Trials of a log; columns that `names` lacks are added to it."""
    parts: dict[str, _Part] = {}
    named = set[tuple[str, ...]]()  # sets of columns that each have a value
    # Without a column for them, several seeds in one file are several trials.
    key = told.trial or told.seed
    reading = log.read()
    for place, cells in reading:
        cell = cells.get(key) if key else None
        name = "" if cell is None else str(cell)  # seed 0 is a name too
        part = parts.get(name)
        if part is None:
            part = parts[name] = _Part()
        try:
            if len(parts) > MOST_TRIALS or len(name) > rows.LONGEST_NAME:
                raise ValueError(f"more than {MOST_TRIALS:,} trials, or a name too long")
            kind = tuple(cells)
            if kind not in named and _add_names(names, cells, log, place):
                named.add(kind)
            _add(part, cells, told, kind if log.form.is_in_order else None)
        except ValueError as error:
            for later, others in reading:
                _add_names(names, others, log, later)
            where = f"{log.path}:{place}" + (f" ({key} {name})" if name else "")
            raise RunError(f"{where}: {error}") from None
    apart = [part for name, part in parts.items() if name]
    if len(apart) == 1 and "" in parts and not apart[0].evaluations:
        # A header of settings has the seed, or the name, of the file's one trial.
        parts = {"": parts[""].with_settings(apart[0])}
    elif apart and "" in parts and not parts[""].evaluations:
        del parts[""]  # rows of no trial, such as a header of settings
    several = len(parts) > 1
    return [
        _trial(f"{log.name} {name}".strip() if several else log.name or name, part, told, target)
        for name, part in parts.items()
    ]


def _add(part: _Part, cells: rows.Cells, told: Told, kind: tuple[str, ...] | None) -> None:
    """Add a row to its trial; `ValueError` where it contradicts the earlier ones.

    `kind` is the row's columns, or None if rows do not follow the training.
    """
    value = cells.get(told.metric)
    is_evaluation = value is not None and value != ""
    step = seconds = None
    if (cell := cells.get(told.step)) not in (None, ""):
        step = _whole(told.step, cell)
        if step > part.last_step:
            part.last_step = step
    if (cell := cells.get(told.time)) not in (None, ""):
        seconds = _finite(told.time, cell) * told.seconds
        if told.is_unix:
            # Not the first row's: an event file begins with the moment at which it was made.
            part.start = min(seconds, seconds if part.start is None else part.start)
    if kind is not None:
        _refuse_going_back(told, part.before.get(kind, (None, None)), (step, seconds))
        part.before[kind] = step, seconds
        if len(part.before) > MOST_KINDS:
            raise ValueError(f"its rows have more than {MOST_KINDS:,} different sets of columns")
    if seconds is not None and (kind is not None or is_evaluation):
        part.seconds = seconds
        if part.latest is None or seconds > part.latest:
            part.latest = seconds
    if part.seed is None and (cell := cells.get(told.seed)) not in (None, ""):
        part.seed = _whole(told.seed, cell)
    if not is_evaluation:
        part.step = step if step is not None else part.step
        return
    if seconds is None and step is not None and step == part.step:
        seconds = part.seconds  # an earlier row of the same step had it
    part.step = step if step is not None else part.step
    tokens = flops = None
    if told.tokens and (cell := cells.get(told.tokens)) not in (None, ""):
        tokens = _finite(told.tokens, cell) * (told.token_count or 1.0)
    elif not told.tokens and told.token_count is not None and step is not None:
        tokens = step * told.token_count
    if (cell := cells.get(told.flops)) not in (None, ""):
        flops = _finite(told.flops, cell)
    epoch = cells.get(told.epoch)
    evaluation = Evaluation(
        epoch=None if epoch in (None, "") else _finite(told.epoch, epoch),
        seconds_since_run_start=seconds,
        value=_quality(told.metric, value),
        step=step,
        tokens=tokens,
        flops=flops,
    )
    if part.evaluations and step is not None:
        before = part.evaluations[-1]
        if before.step == step and _is_same(before.value, evaluation.value):
            return
        if before.step is not None and step <= before.step:
            raise ValueError(
                f"step {step} has {told.metric} {evaluation.value:g} after {before.value:g} at "
                f"step {before.step}: if the log holds two runs, write one log per trial or name "
                "the column that separates them with --trial"
            )
    elif part.evaluations and kind is not None and seconds is None:
        # Nothing but the epoch shows where a second run was appended.
        before, now = part.evaluations[-1].epoch, evaluation.epoch
        if before is not None and now is not None and now < before:
            raise ValueError(
                f"epoch {now:g} after epoch {before:g}: if the file holds two runs, write one file "
                "per trial or name the column that separates them with --trial"
            )
    if len(part.evaluations) == MOST_EVALUATIONS:
        many = f"more than {MOST_EVALUATIONS:,} evaluations of {told.metric}"
        raise ValueError(f"{many}; log fewer of them")
    part.evaluations.append(evaluation)


def _refuse_going_back(
    told: Told, before: tuple[int | None, float | None], now: tuple[int | None, float | None]
) -> None:
    """`ValueError` if a row's step or time precedes an earlier row's."""
    if before[0] is not None and now[0] is not None and now[0] < before[0]:
        raise ValueError(
            f"step {now[0]} after step {before[0]}: if the file holds two runs, write one file "
            "per trial or name the column that separates them with --trial"
        )
    if before[1] is not None and now[1] is not None and now[1] < before[1] - 1e-6:
        raise ValueError(
            f"the clock {told.time} goes back from {before[1]:g} s to {now[1]:g} s: the file "
            "holds two runs, or the clock restarted when the run resumed"
        )


def _is_same(first: float, second: float) -> bool:
    return first == second or (math.isnan(first) and math.isnan(second))


def _whole(name: str, cell: Any) -> int:
    number = _finite(name, cell)
    whole = int(number)
    if number != whole or whole < 0:
        raise ValueError(f"{name} is {cell!r}, not a whole number")
    return whole


def _finite(name: str, cell: Any) -> float:
    if isinstance(cell, float) and math.isfinite(cell):
        return cell  # the usual case, of a million rows
    number = _quality(name, cell)
    if math.isnan(number):
        raise ValueError(f"{name} is {str(cell)[:40]!r}, not a finite number")
    return number


def _quality(name: str, cell: Any) -> float:
    """A cell's number; NaN for an infinity too."""
    if isinstance(cell, bool) or not isinstance(cell, (str, int, float)):
        raise ValueError(f"{name} is {str(cell)[:40]!r}, not a number")
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is {str(cell)[:40]!r}, not a number") from None
    return number if math.isfinite(number) else math.nan


def _trial(name: str, part: _Part, told: Told, target: float | None) -> Trial:
    rows_of = tuple(_since(part.start, row) for row in part.evaluations)
    first = None
    if target is not None:
        first = next((row for row in rows_of if reaches(row.value, target, told.direction)), None)
    seed = part.seed
    if seed is None and (found := re.search(r"seed[_=-]?(\d{1,9})(?!\d)", name, re.IGNORECASE)):
        seed = int(found[1])
    # By its own dates, so that two runs which began at other moments are no copies.
    run_id = _fingerprint(part.evaluations, seed)
    is_diverged = bool(rows_of) and math.isnan(rows_of[-1].value)
    status = "reached" if first else "diverged" if is_diverged else "not_reached"
    reasons = {
        "compile_seconds_before_run_start": "the log does not say what its clock includes",
    }
    if first is not None and first.seconds_since_run_start is None:
        reasons["time_to_accuracy_seconds"] = "the log has no clock"
    return Trial(
        name=name,
        reached=first is not None,
        time_to_accuracy_seconds=first and first.seconds_since_run_start,
        clock_seconds=None if part.latest is None else part.latest - (part.start or 0.0),
        epochs=rows_of[-1].epoch if rows_of else None,
        epochs_to_target=first and first.epoch,
        status=status,
        seed=seed,
        evaluations=rows_of,
        steps=part.last_step,
        run_id=run_id,
        reasons=reasons,
    )


def _since(start: float | None, row: Evaluation) -> Evaluation:
    """An evaluation by the seconds since a trial's first moment."""
    moment = row.seconds_since_run_start
    if start is None or moment is None:
        return row
    return dataclasses.replace(row, seconds_since_run_start=round(moment - start, 6))


def _fingerprint(evaluations: Sequence[Evaluation], seed: int | None) -> str:
    """Name of a trial from its measurements, equal for a copy of the log.

    Empty without a finite one: two trials that diverged at once are no copies.
    """
    if all(math.isnan(row.value) for row in evaluations):
        return ""
    digest = hashlib.sha256(str(seed).encode())
    for row in evaluations:
        moment = row.seconds_since_run_start
        digest.update(struct.pack("<dd", math.nan if moment is None else moment, row.value))
    return f"log {digest.hexdigest()[:16]}"


def _entry(
    path: Path, trials: list[Trial], told: Told, columns: Columns, unread: list[str]
) -> Entry:
    if not any(trial.evaluations for trial in trials):
        raise RunError(f"{path} has no evaluation: no row has a value of {told.metric}")
    copies: dict[str, str] = {}
    for trial in trials:
        if trial.run_id and (other := copies.setdefault(trial.run_id, trial.name)) != trial.name:
            raise RunError(
                f"{path}: {trial.name} is a copy of {other} (same evaluations at the same "
                "moments); remove one"
            )
    warnings = [*told.said]
    if unread:
        shown = ", ".join(unread[:3]) + (f" and {len(unread) - 3} more" if unread[3:] else "")
        warnings.append(f"not read, without a line in a known form: {shown}")
    empty = [trial.name for trial in trials if not trial.evaluations]
    if empty:
        warnings.append(
            f"{len(empty)} of {len(trials)} trials have no {told.metric} and count as not reached: "
            f"{', '.join(empty[:3])}"
        )
    reasons = {"global_batch_size": "the logs do not say"}
    if columns.price_per_hour_usd is None:
        reasons["cost_per_hour_usd"] = "no price given (--price_per_hour_usd)"
    entry = Entry(
        source=path.resolve().name,
        suite=OTHER,
        benchmark=told.metric,
        target=Target(metric=told.metric, value=columns.target, direction=told.direction),
        cost_per_hour_usd=columns.price_per_hour_usd,
        trials=tuple(trials),
        warnings=tuple(warnings),
        reasons=reasons,
    )
    check(entry)
    return entry
