"""Runs of MLflow: a database, whose experiments are entries, or the folders of the older store.

Source: the tables of MLflow 3 (`runs`, `metrics`, `params`, `experiments`); a file of the
older store has lines `milliseconds value step` of one metric of one run.
"""

import contextlib
import itertools
import re
import sqlite3
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.other_logs.rows import MOST_BYTES, RUN, Cells, Row, lines

SUFFIX = ".db"

_DELETED = re.compile(rb"^lifecycle_stage: deleted$", re.MULTILINE)
_START = re.compile(rb"^start_time: (\d+)$", re.MULTILINE)

_EXPERIMENTS = """
    SELECT DISTINCT experiments.name FROM experiments JOIN runs USING (experiment_id)
    WHERE runs.lifecycle_stage = 'active' ORDER BY experiments.name
"""
_METRICS = """
    SELECT run_uuid, runs.name, start_time, key, value, is_nan, timestamp, step,
        (SELECT value FROM params WHERE key = 'seed' AND params.run_uuid = runs.run_uuid LIMIT 1)
    FROM metrics JOIN runs USING (run_uuid) JOIN experiments USING (experiment_id)
    WHERE experiments.name = ? AND runs.lifecycle_stage = 'active'
    ORDER BY run_uuid, step, timestamp
"""

MOST_EXPERIMENTS, MOST_TEXT_BYTES = 1000, 2**16
MOST_SQLITE_STEPS, _STEPS_A_CALL = 150_000_000, 1_000_000
"""Limit of a query, some six seconds: untrusted tables may lack keys and indices."""


def experiments(path: Path) -> list[str]:
    """Names of a database's experiments with runs; empty if it is not MLflow's.

    Raises:
      RunError: It cannot be read.
    """
    with _opened(path) as database:
        found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {name for (name,) in found}
        if not {"experiments", "runs", "metrics", "params"} <= tables:
            return []
        names = [name for (name,) in database.execute(_EXPERIMENTS)]
        if len(names) > MOST_EXPERIMENTS or not all(isinstance(name, str) for name in names):
            raise RunError(
                f"{path} has more than {MOST_EXPERIMENTS:,} experiments, or unnamed ones"
            )
        return names


def rows(path: Path, experiment: str) -> Iterator[Row]:
    """Rows of the runs of one experiment in a database, without deleted runs."""
    with _opened(path) as database:
        found = database.execute(_METRICS, (experiment,))
        for number, row in enumerate(found, start=1):
            run, name, start, key, value, is_nan, moment, step, seed = row
            fits = isinstance(run, str) and isinstance(key, str) and isinstance(value, int | float)
            if not (fits and isinstance(moment, int) and isinstance(start, int | None)):
                raise sqlite3.DataError(f"metric {number} is not a number: {row!r:.100}")
            # Infinity is stored as the greatest finite number. A metric may be named `step`.
            is_finite = not is_nan and abs(value) < sys.float_info.max
            cells: Cells = {key: value if is_finite else "nan"}
            cells |= {RUN: f"{name or ''} {run[:8]}".strip(), "step": step}
            cells |= _seconds(moment, start)
            yield number, cells | ({} if seed is None else {"seed": seed})


def folder(path: Path) -> Iterator[Row]:
    """Rows of one run in the older file store, `metrics/NAME` and `meta.yaml`.

    Raises:
      RunError: A file cannot be read, or a line is of another form.
    """
    try:
        about = records.read_plain(path / "meta.yaml")
        seed = path / "params" / "seed"
        told: Cells = {"seed": records.read_plain(seed, 100).decode()} if seed.exists() else {}
        files = [here / name for here, _, names in records.walk(path / "metrics") for name in names]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot read {path} as an MLflow run: {reason}") from None
    if _DELETED.search(about):
        return
    start, metrics = _START.search(about), path / "metrics"
    for file in sorted(files):
        name = file.relative_to(metrics).as_posix()
        for number, line in lines(file):
            try:
                moment, value, step = line.split()[:3]
                cells: Cells = {name: float(value), "step": int(step)}
                cells |= _seconds(int(moment), start and int(start[1]))
            except ValueError:
                raise RunError(f"{file}:{number} is not a line of an MLflow log") from None
            yield number, cells | told


def _seconds(moment: int, start: int | None) -> Cells:
    """Seconds since a run's start; the moment itself where that is not known."""
    return {"timestamp": moment} if start is None else {"seconds": (moment - start) / 1000}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A database, opened read-only; missing or damaged content is a `RunError`."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RunError(f"{path} has more than {MOST_BYTES:,} bytes")
        quoted = urllib.parse.quote(str(path.resolve()))
        with contextlib.closing(sqlite3.connect(f"file:{quoted}?mode=ro", uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_TEXT_BYTES)
            calls = itertools.count(1)
            database.set_progress_handler(
                lambda: next(calls) * _STEPS_A_CALL > MOST_SQLITE_STEPS, _STEPS_A_CALL
            )
            yield database
    except (OSError, sqlite3.Error, TypeError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"cannot read {path} as an MLflow database: {reason}") from None
