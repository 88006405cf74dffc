"""`dawnjax runs`: a user's own runs, the newest first."""

import dataclasses
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from absl import flags
from rich.console import Console

from dawnjax.commands.answer import Answer
from dawnjax.commands.told_run import ToldRun, told_run
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.page.boxes import boxed
from dawnjax.page.table import Column, Table, row_of
from dawnjax.page.words import NOT_REACHED, counted
from dawnjax.runs.log import log_path
from dawnjax.runs.logged_run import HEARTBEAT_SECONDS
from dawnjax.text import escaped
from dawnjax.trials.labels import quality, target_label
from dawnjax.trials.ours import find_run_directories, read_run, with_swept
from dawnjax.trials.trial import Trial

SILENT_SECONDS = 30 * HEARTBEAT_SECONDS
"""If a log without an end has not grown for this long, its process has ended."""

_COLUMNS = (
    Column("run", "run"),
    Column("experiment", "experiment"),
    Column("changed", "changed"),
    Column("seed", "seed", kind="integer"),
    Column("target", "target"),
    Column("state", "state", kind="word"),
    Column("time_to_accuracy_seconds", "time to accuracy", "s", "number"),
    Column("best", "best quality"),
    Column("total_seconds", "whole process", "s", "number"),
    Column("last_written", "last written (UTC)"),
)


@dataclasses.dataclass(frozen=True)
class ListedRun:
    """A run in a folder, with its path there and the time of its log's last line."""

    path: str
    run: Trial
    unix_seconds: float

    @property
    def state(self) -> str:
        """The result's status; `stopped` if the log has no end and no process writes it."""
        status = self.run.status
        is_silent = time.time() - self.unix_seconds > SILENT_SECONDS
        return "stopped" if status == "running" and is_silent else status


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed:
    """A run of the folder.

    Attributes:
      run: Its path in the folder.
      last_written_unix_seconds: Time of its log's last line.
      swept: Value of each field that a flag changed in any of the folder's runs.
    """

    run: str
    last_written_unix_seconds: float
    swept: dict[str, Any]
    figures: ToldRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The runs in a folder, the newest first.

    Attributes:
      problems: Runs that cannot be read, and why.
    """

    folder: str
    runs: tuple[Listed, ...]
    problems: tuple[str, ...]


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    folders = command_line.parse(
        "runs",
        flag_values,
        argv,
        "dawnjax runs [FOLDER]",
        "Lists the runs in a folder (default: `runs`), newest first: target, state, time to\n"
        "accuracy, and the fields that flags changed. A run is `stopped` if its log has no end\n"
        "and no process writes to it; the command that started it resumes it.",
    )
    if len(folders) > 1:
        raise ConfigError(f"one folder is needed; {len(folders)} were given")
    folder = Path(folders[0] if folders else "runs")
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; give the folder of your runs")
    listed, problems = read_folder(folder)
    for problem in counted(problems):
        print(escaped(f"dawnjax runs: left out: {problem}"), file=sys.stderr)
    if not listed and not problems:
        raise ConfigError(f"{folder} holds no run: no folder in it has an experiment.json")
    table = Table(name="runs", title="", columns=_COLUMNS, rows=tuple(map(_row, listed)))
    text = table.to_text()
    if sys.stdout.isatty():
        console = Console(highlight=False)
        with console.capture() as captured:
            console.print(boxed(_narrow(table)))
        text = captured.get().rstrip("\n")
    swept = with_swept([one.run for one in listed])
    rows = (
        Listed(
            run=one.path,
            last_written_unix_seconds=one.unix_seconds,
            swept=fields.fields,
            figures=told_run(one.run, one.run.directory or folder, one.state),
        )
        for one, fields in zip(listed, swept, strict=True)
    )
    return Answer(
        result=Result(folder=str(folder), runs=tuple(rows), problems=tuple(problems)),
        text=text,
        status=ExitStatus.DONE if listed else ExitStatus.FAILED,
        reasons=() if listed else problems,
        next=[shlex.join(["dawnjax", "report", str(folder), "--out=report"])] if listed else (),
    )


def read_folder(folder: Path) -> tuple[list[ListedRun], list[str]]:
    """Read the runs of a folder, the newest first, and the reason for each that cannot be read."""
    listed, problems = [], []
    for path in find_run_directories(folder):
        try:
            run = read_run(path)
            written = log_path(path).stat().st_mtime
        except (RunError, OSError) as error:
            problems.append(str(error))
            continue
        inside = path.relative_to(folder)
        listed.append(ListedRun(str(inside) if inside.parts else run.name, run, written))
    return sorted(listed, key=lambda one: (-one.unix_seconds, one.path)), problems


def _row(one: ListedRun) -> tuple[Any, ...]:
    result = one.run
    target = result.target
    best = result.best.get(target.metric)
    seconds = result.time_to_accuracy_seconds
    return row_of(
        _COLUMNS,
        result,
        run=one.path,
        changed=", ".join(f"{name}={value}" for name, value in sorted(result.overrides.items())),
        target=target_label(target).removeprefix("target "),
        state=one.state,
        time_to_accuracy_seconds=NOT_REACHED if seconds is None and not result.reached else seconds,
        best=None if best is None else quality(best, target),
        last_written=time.strftime("%Y-%m-%d %H:%M", time.gmtime(one.unix_seconds)),
    )


def _narrow(table: Table) -> Table:
    """The columns that a person looks for first; the others do not fit a terminal."""
    kept = ("run", "experiment", "changed", "target", "state", "time_to_accuracy_seconds")
    names = [name for name in kept if name != "changed" or any(table.column(name))]
    places = [index for index, column in enumerate(table.columns) if column.name in names]
    return dataclasses.replace(
        table,
        columns=tuple(table.columns[index] for index in places),
        rows=tuple(tuple(row[index] for index in places) for row in table.rows),
    )
