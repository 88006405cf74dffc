"""Loads DawnJAX's results, official results and logs of other programs as one list of entries."""

import collections
import dataclasses
import hashlib
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dawnjax.errors import ConfigError, RunError, install
from dawnjax.official import importer
from dawnjax.official.outcome import without_damaged
from dawnjax.other_logs.columns import BY_NAME, Columns
from dawnjax.other_logs.reading import is_other_log, read_logs
from dawnjax.runs.directory import RECORD_FILE, is_record_file
from dawnjax.trials import ours
from dawnjax.trials.checks import check
from dawnjax.trials.figures import Figures
from dawnjax.trials.group import Entry, read_entries, set_apart, write_entries
from dawnjax.trials.trial import Scalar, Trial

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]

ROWS = ("entry", "trial", "evaluation")

_TRIAL = (
    "name",
    "reached",
    "time_to_accuracy_seconds",
    "clock_seconds",
    "epochs",
    "epochs_to_target",
    "status",
    "seed",
    "run_id",
    "interruptions",
    "compile_seconds_before_run_start",
    "cost_usd",
    "clock_cost_usd",
)
"""Columns of a trial."""

_INTEGERS = {
    "num_accelerators",
    "num_hosts",
    "global_batch_size",
    "figures_trials",
    "figures_reached",
    "seed",
}


class Entries(tuple[Entry, ...]):
    """Entries in the order read; `problems` has a line for everything left out."""

    problems: tuple[str, ...]

    def __new__(cls, entries: Iterable[Entry], problems: Iterable[str] = ()) -> "Entries":
        made = super().__new__(cls, entries)
        made.problems = tuple(problems)
        return made

    def __repr__(self) -> str:
        suites = sorted({entry.suite for entry in self})
        not_read = f"; {len(self.problems)} left out, see .problems" if self.problems else ""
        return f"<{len(self)} entries of {', '.join(suites) or 'no suite'}{not_read}>"

    def where(self, **fields: Any) -> "Entries":
        """Entries with the given values of fields, as `where(suite="dawnbench")`."""
        known = {field.name for field in dataclasses.fields(Entry)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise ConfigError(f"an entry has no field {unknown[0]!r}; it has {sorted(known)}")
        chosen = [
            entry
            for entry in self
            if all(getattr(entry, name) == value for name, value in fields.items())
        ]
        return Entries(chosen)

    def records(self, rows: str = "entry") -> list[dict[str, Any]]:
        """Flat rows of plain values: an entry, a trial or an evaluation each.

        Fields of the target, figures and inference have its name as a prefix: `figures_cv`. Fields
        that a flag changed in any of the entries are columns `config.FIELD`.
        """
        if rows not in ROWS:
            raise ConfigError(f"rows are {', '.join(ROWS)}, not {rows!r}")
        names = sorted({name for entry in self for name in entry.config})
        if rows == "entry":
            return [{**_flat(entry), **config_cells(entry, names)} for entry in self]
        flat = []
        for entry in self:
            header = {name: getattr(entry, name) for name in ("suite", "round", "benchmark")}
            for number, trial in enumerate(entry.trials):
                row = {**header, "source": entry.source, "trial": number}
                row |= config_cells(entry, names)
                if rows == "trial":
                    cells = {name: getattr(trial, name) for name in _TRIAL}
                    flat.append({**row, **cells, "compile_cache": trial.compiled})
                else:
                    cells = ("epoch", "seconds_since_run_start", "value")
                    flat += [
                        {**row, **{name: getattr(evaluation, name) for name in cells}}
                        for evaluation in trial.evaluations
                    ]
        return flat

    def to_dataframe(self, rows: str = "entry") -> "pandas.DataFrame":
        """`records(rows)` as a pandas DataFrame; `ConfigError` without pandas."""
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ConfigError(
                f"a DataFrame needs pandas: {install('notebook')}; .records() does not"
            ) from None
        frame = pandas.DataFrame(self.records(rows))
        # pandas would make floats of integers beside None, and objects of None alone.
        for name in _INTEGERS & set(frame.columns):
            frame[name] = frame[name].astype("Int64")
        for name in set(frame.columns) - _INTEGERS:
            if str(frame[name].dtype) == "object" and bool(frame[name].isna().all()):
                frame[name] = frame[name].astype(float)
        return frame

    def save(self, path: str | Path) -> None:
        """Write the entries to a JSON Lines file, which `load` reads again."""
        write_entries(Path(path), self)


def load(*paths: str | Path, columns: Columns = BY_NAME) -> Entries:
    """Read DawnJAX's results, official results and logs of other programs, in any mixture.

    Args:
      *paths: Each a `.jsonl` file of entries, a run directory, a folder of run directories,
        official results (DAWNBench entries or MLPerf logs as a folder or an archive), or another
        program's logs: a file or a folder of one entry's trials.
      columns: Columns of other programs' logs; unnamed columns are recognized by their names.

    Returns:
      The entries, each once, in the order given; runs are grouped at the place of the first.
      `problems` names the results left out, and a Python warning counts them. In a folder with run
      directories, everything else is ignored.

    Raises:
      ConfigError: No path is given, or there is nothing at one.
      RunError: Nothing could be read, for the first reason; or an entry is damaged.
    """
    entries, _ = load_with_runs(*paths, columns=columns)
    if entries.problems:
        warnings.warn(
            f"{len(entries.problems)} files, runs or entries were left out; .problems says why",
            stacklevel=2,
        )
    return entries


def load_with_runs(*paths: str | Path, columns: Columns = BY_NAME) -> tuple[Entries, list[Trial]]:
    """Read the entries of `load`, and our runs beside them; issue no warning."""
    if not paths:
        raise ConfigError("nothing to load: give a .jsonl file, run directories or results")
    read: list[tuple[Entry, str]] = []  # each with the file of entries that it is from
    runs: list[Trial] = []
    before_runs: int | None = None
    problems: list[str] = []
    for path in map(Path, paths):
        if not path.exists():
            raise ConfigError(f"there is nothing at {path}")
        directories = list(ours.find_run_directories(path)) if path.is_dir() else []
        if not directories and is_other_log(path):
            read += [(entry, "") for entry in read_logs(path, columns)]
        elif path.suffix == ".jsonl" and path.is_file():
            read += [(entry, path.name) for entry in _checked(path)]
        elif directories:
            before_runs = len(read) if before_runs is None else before_runs
            for directory in directories:
                try:
                    runs.append(ours.read_run(directory))
                except RunError as error:
                    problems.append(str(error))
        elif is_record_file(path):
            problems.append(f"{path.name}: {RECORD_FILE}")
        else:
            imported = without_damaged(importer.import_results([path]))
            read += [(entry, "") for entry in imported.entries]
            problems += map(str, imported.rejections)
    runs = ours.with_swept(ours.distinct(runs))
    of_runs = [(entry, "") for entry in ours.entries_of(t for t in runs if not t.chooses)]
    read[before_runs or 0 : before_runs or 0] = of_runs
    if chose := sum(trial.chooses for trial in runs):
        problems.append(f"{chose} trials chose a recipe in a search: their times are not results")
    if not read and not chose:
        why = problems[0] if problems else f"no results in {', '.join(map(str, paths))}"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise RunError(f"nothing could be read: {why}{more}")
    unique: dict[bytes, tuple[Entry, str]] = {}
    for entry, file in read:
        unique.setdefault(_digest(entry), (entry, file))
    if len(unique) < len(read):
        problems.append(
            f"{len(read) - len(unique)} entries are copies of others given; each counts once"
        )
    return Entries(_with_shared_trials(told_apart(unique.values())), problems), runs


def _checked(path: Path) -> Iterator[Entry]:
    for entry in read_entries(path):
        try:
            check(entry)
        except RunError as error:
            raise RunError(f"{path}: {error}") from None
        yield entry


def config_cells(entry: Entry, names: Iterable[str]) -> dict[str, Scalar]:
    """Values of fields as columns `config.FIELD`; None where the entry does not tell one."""
    return {f"config.{name}": entry.config.get(name) for name in names}


def told_apart(entries: Iterable[tuple[Entry, str]]) -> list[Entry]:
    """Rename entries so that no two have one source, which is the key that joins tables.

    The first of several keeps its name; runs keep theirs before entries of a file, which are named
    after their files.
    """
    pairs = list(entries)
    apart, taken = [entry for entry, _ in pairs], set[str]()
    numbers = collections.Counter[tuple[str, str]]()
    for place in sorted(range(len(pairs)), key=lambda place: bool(pairs[place][1])):
        entry, file = pairs[place]
        words = f"from {file}" if file else "another"
        named = entry
        while named.source in taken:
            numbers[entry.source, words] += 1
            number = numbers[entry.source, words]
            named = set_apart(entry, words if number == 1 else f"{words}, {number}")
        taken.add(named.source)
        apart[place] = named
    return apart


def _with_shared_trials(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Warn of entries that have trials in common."""
    of_entry = [{trial.run_id for trial in entry.trials} - {""} for entry in entries]
    holders = collections.Counter(itertools.chain.from_iterable(of_entry))
    for entry, run_ids in zip(entries, of_entry, strict=True):
        if shared := sum(holders[run_id] > 1 for run_id in run_ids):
            said = (
                f"{shared} of its {len(entry.trials)} trials are also in another entry given: "
                "the entries are not independent results"
            )
            entry = dataclasses.replace(entry, warnings=(*entry.warnings, said))
        yield entry


def _digest(entry: Entry) -> bytes:
    """Hash of a result, wherever its files lay and whatever they were called."""
    plain = entry.to_json()
    # Warnings name files; `config` has the fields of all runs that were read together.
    for name in ("source", "distinction", "warnings", "config"):
        plain.pop(name, None)
    plain["target"].pop("title", None)
    for trial in plain["trials"]:
        trial.pop("name", None)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).digest()


def _flat(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in dataclasses.fields(entry):
        value = getattr(entry, field.name)
        if field.name == "warnings":
            row["warnings"] = "; ".join(value)
        elif field.name == "reasons":
            row["reasons"] = "; ".join(f"{name}: {why}" for name, why in value.items())
        elif field.name not in ("target", "inference", "trials", "schema_version", "config"):
            row[field.name] = value
    target = entry.target
    row |= {f"target_{name}": getattr(target, name) for name in ("metric", "value", "direction")}
    row |= {"target_unit": target.unit, "target_title": target.title}
    row["target_others"] = " and ".join(other.words() for other in target.others)
    if entry.kind == "training":
        row |= {f"figures_{name}": getattr(entry.figures, name) for name in _FIGURES}
    elif entry.inference is not None:
        row |= {f"inference_{name}": cell for name, cell in vars(entry.inference).items()}
    return row


_FIGURES = tuple(
    field.name for field in dataclasses.fields(Figures) if field.name not in ("seconds", "sample")
)
