"""`dawnjax import`: official results and logs of other programs as entries in a file."""

import dataclasses
import functools
import shlex
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.analysis.loading import ROWS, Entries, told_apart
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.official.importer import import_results
from dawnjax.official.outcome import Imported, printable, without_damaged
from dawnjax.other_logs import flags as column_flags
from dawnjax.other_logs.reading import is_other_log, read_logs
from dawnjax.page.table import Column, Table, of_words
from dawnjax.page.words import counted
from dawnjax.text import escaped
from dawnjax.trials.group import write_entries

USAGE = "dawnjax import PATH... --out=FILE.jsonl [--csv=DIR] [--metric=COLUMN...]"

DESCRIPTION = """
Reads official results (DAWNBench entries of training and inference, and MLPerf Training results
from v0.5 on) and logs of other programs, as `dawnjax compare` does: a file or a folder for each
entry. A PATH is a folder, its .tar, .tar.gz, .tar.xz, .tar.bz2 or .zip, or a single MLPerf log;
name archives inside a folder by their own paths. Each entry becomes one line of JSON. --csv writes
every field as DIR/entries.csv, trials.csv and evaluations.csv, which `source` and `trial` join. Odd
input is read with a warning. Input that would give a wrong number is rejected with file, line and
reason, and the exit status is 1.
"""

MAX_SHOWN = 5

_NOTHING = Imported(entries=(), rejections=())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Official results that were read.

    Attributes:
      out: The file of entries, one a line; null without `--out`.
      tables: Paths of the tables of `--csv`.
      entries: Entries that were read.
      trials: Their trials.
      entries_with_warnings: Entries with something odd, which their `warnings` name.
      rejected: Files that would give a wrong number: file, line and reason.
      other_files: Files whose names are not those of results.
    """

    out: str | None
    tables: tuple[str, ...]
    entries: int
    trials: int
    entries_with_warnings: int
    rejected: tuple[str, ...]
    other_files: tuple[str, ...]


RESULT = Result


def main(argv: list[str]) -> Answer:
    """Run the command; its status is 1 if anything was rejected."""
    flag_values = flags.FlagValues()
    text = functools.partial(flags.DEFINE_string, flag_values=flag_values)
    text("out", None, "The JSON Lines file to write.")
    text("csv", None, "The folder for tables.")
    column_flags.define(flag_values)
    warnings = "Print every warning, not only their number."
    flags.DEFINE_bool("warnings", False, warnings, flag_values=flag_values)
    given = command_line.parse("import", flag_values, argv, USAGE, DESCRIPTION)
    if not given:
        raise ConfigError(f"no path given; {USAGE}")
    paths = [records.path_of(path) for path in given]
    resolved = [path.resolve() for path in paths]
    for path in resolved:
        if resolved.count(path) > 1:
            raise ConfigError(f"{str(path)!r} is given twice; give it once")
    out, tables = (
        records.path_of(v) if (v := flag_values[n].value) else None for n in ("out", "csv")
    )
    if out is None and tables is None:
        raise ConfigError("--out is missing: the JSON Lines file to write; or --csv: a folder")
    if tables is not None and tables.exists() and not tables.is_dir():
        raise ConfigError(f"--csv={tables} is not a folder; name one, such as tables")
    if out is not None:
        _refuse_out(out, resolved)
    columns = column_flags.columns(flag_values)
    column_flags.refuse_unused(columns, paths)
    logs = [path for path in paths if path.exists() and is_other_log(path)]
    official = [path for path in paths if path not in logs]
    imported = without_damaged(import_results(official)) if official else None
    read = [entry for path in logs for entry in read_logs(path, columns)]
    every = [*(imported.entries if imported else ()), *read]
    entries = tuple(told_apart((entry, "") for entry in every))
    imported = dataclasses.replace(imported or _NOTHING, entries=entries)
    for rejection in imported.rejections:
        print(escaped(f"rejected: {rejection}"))
    if flag_values["warnings"].value:
        for entry in imported.entries:
            for warning in counted(entry.warnings):
                print(f"warning: {printable(entry.source)}: {printable(warning)}")
    if not imported.entries:
        shown = ", ".join(map(printable, given[:3]))
        raise RunError(f"no entry was read from {shown}{_not_read(imported)}; nothing was written")
    print(table(imported))
    if out is not None:
        write_entries(out, imported.entries)
        print(f"{out}: {len(imported.entries)} entries")
    written = write_tables(tables, Entries(imported.entries)) if tables is not None else []
    rejected = tuple(str(rejection) for rejection in imported.rejections)
    result = Result(
        out=None if out is None else str(out),
        tables=tuple(map(str, written)),
        entries=len(imported.entries),
        trials=sum(len(entry.trials) for entry in imported.entries),
        entries_with_warnings=sum(bool(entry.warnings) for entry in imported.entries),
        rejected=rejected,
        other_files=tuple(map(printable, imported.other_files)),
    )
    return Answer(
        result=result,
        status=ExitStatus.FAILED if rejected else ExitStatus.DONE,
        reasons=rejected,
        next=[] if out is None else [shlex.join(["dawnjax", "report", str(out), "--out=report"])],
    )


def _refuse_out(out: Path, sources: Sequence[Path]) -> None:
    if out.is_dir():
        raise ConfigError(f"--out={out} is a folder; name a file such as {out / 'results.jsonl'}")
    if out.resolve() in sources:
        raise ConfigError(f"--out={out} is a source and would be overwritten")


def write_tables(folder: Path, entries: Entries) -> list[Path]:
    """Write entries, trials and evaluations with every field, a CSV file each; their paths."""
    files = []
    for rows in ROWS:
        made = entries.records(rows)
        names = list(dict.fromkeys(name for row in made for name in row))
        cells = tuple(tuple(row.get(name) for name in names) for row in made)
        columns = tuple(Column(name, kind="number") for name in names)
        made_table = Table(name=rows, title="", columns=columns, rows=cells)
        file = folder / ("entries.csv" if rows == "entry" else f"{rows}s.csv")
        records.write(file, made_table.to_csv())
        print(f"{file}: {len(made)} rows, {len(names)} columns")
        files.append(file)
    return files


def table(imported: Imported) -> str:
    """Closing table: numbers of results read, warned about and rejected."""
    rows = []
    kinds = sorted({(e.suite, e.round, e.kind) for e in imported.entries})
    for kind in [*kinds, None]:
        entries = [e for e in imported.entries if kind in (None, (e.suite, e.round, e.kind))]
        name = "read" if kind is None else " ".join(part for part in kind if part)
        trials = sum(len(entry.trials) for entry in entries)
        warned = sum(bool(entry.warnings) for entry in entries)
        rows.append((name, str(len(entries)), str(trials), str(warned)))
    rows.append(("rejected", str(len(imported.rejections)), "", ""))
    rows.append(("other files, not read", str(len(imported.other_files)), "", ""))
    lines = [of_words(["", "entries", "trials", "with warnings"], rows).to_text()]
    if imported.other_files:
        lines.append(f"not read: {_names(imported.other_files)}")
    return "\n".join(lines)


def _names(files: Sequence[str]) -> str:
    more = "" if len(files) <= MAX_SHOWN else f" and {len(files) - MAX_SHOWN} more"
    return f"{', '.join(map(printable, files[:MAX_SHOWN]))}{more}"


def _not_read(imported: Imported) -> str:
    hint = ""
    if any(name.rsplit("/", 1)[-1] == "experiment.json" for name in imported.other_files):
        hint = "; runs of DawnJAX need no import: dawnjax report RUN_DIR"
    if imported.rejections:
        return hint
    if not imported.other_files:
        return ", which is empty"
    return f": not results by name or content: {_names(imported.other_files)}{hint}"
