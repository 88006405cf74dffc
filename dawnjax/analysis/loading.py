"""Loader of results, ours and official ones, as one list of entries."""

import dataclasses
import hashlib
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dawnjax import records
from dawnjax.analysis import our_entries, our_run, our_runs
from dawnjax.analysis.entry_checks import check, with_summary_of_trials, without_damaged
from dawnjax.errors import ConfigError, RunError
from dawnjax.official import importer
from dawnjax.runs.directory import RECORD_FILE, is_record_file
from dawnjax.trials.group import Entry, Scalar, read_entries, set_apart, write_entries

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]

ROWS = ("entry", "trial", "evaluation")


_INTEGERS = {
    "num_accelerators",
    "num_hosts",
    "global_batch_size",
    "summary_trials",
    "summary_reached",
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

        Fields of the target, summary and inference have its name as a prefix: `summary_cv`. Fields
        that a flag changed in any of the entries are columns `config.FIELD`.
        """
        if rows not in ROWS:
            raise ConfigError(f"rows are {', '.join(ROWS)}, not {rows!r}")
        names = sorted({name for entry in self for name in entry.config})
        if rows == "entry":
            return [{**_flat(entry), **config_cells(entry, names)} for entry in self]
        flat = []
        for entry in self:
            for number, trial in enumerate(entry.trials):
                row = {
                    "suite": entry.suite,
                    "round": entry.round,
                    "benchmark": entry.benchmark,
                    "source": entry.source,
                    "trial": number,
                    **config_cells(entry, names),
                }
                if rows == "trial":
                    cells = {f.name: getattr(trial, f.name) for f in dataclasses.fields(trial)}
                    del cells["evaluations"], cells["first_losses"]
                    flat.append({**row, **cells})
                else:
                    flat += [{**row, **dataclasses.asdict(line)} for line in trial.evaluations]
        return flat

    def to_dataframe(self, rows: str = "entry") -> "pandas.DataFrame":
        """`records(rows)` as a pandas DataFrame; `ConfigError` without pandas."""
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ConfigError(
                "a DataFrame needs pandas: pip install -e '.[notebook]'; .records() does not"
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


def load(*paths: str | Path) -> Entries:
    """Read results: ours and official ones, in any mixture.

    Args:
      *paths: Each a `.jsonl` file of entries, a run directory, a folder of run directories, or
        official results: DAWNBench entries or MLPerf logs as a folder, an archive or one file.

    Returns:
      The entries, each once, with summaries computed from their trials. `problems` names the
      results left out, and a Python warning counts them. A folder that holds run directories is
      read for those alone.

    Raises:
      ConfigError: No path is given, or there is nothing at one.
      RunError: Nothing could be read, for the first reason; or an entry is damaged.
    """
    entries, _ = load_with_runs(*paths)
    if entries.problems:
        warnings.warn(
            f"{len(entries.problems)} files, runs or entries were left out; .problems says why",
            stacklevel=2,
        )
    return entries


def load_with_runs(*paths: str | Path) -> tuple[Entries, list[our_run.OurRun]]:
    """Read the entries of `load`, and our runs beside them; issue no warning."""
    if not paths:
        raise ConfigError("nothing to load: give a .jsonl file, run directories or results")
    entries: list[Entry] = []
    runs: list[our_run.OurRun] = []
    problems: list[str] = []
    files: dict[int, Path] = {}  # of the entries read from a file of entries, by their place
    for path in map(Path, paths):
        if not path.exists():
            raise ConfigError(f"there is nothing at {path}")
        directories = list(our_runs.find_run_directories(path)) if path.is_dir() else []
        if path.suffix == ".jsonl" and path.is_file():
            begin = len(entries)
            entries += read_entries(path)
            files |= dict.fromkeys(range(begin, len(entries)), path)
        elif directories:
            for directory in directories:
                try:
                    runs.append(our_runs.read_run(directory))
                except RunError as error:
                    problems.append(str(error))
        elif is_record_file(path):
            problems.append(f"{path.name}: {RECORD_FILE}")
        else:
            _load_official(path, entries, problems)
    runs = our_entries.with_swept(our_entries.distinct(runs))
    entries += our_entries.entries_of(run for run in runs if not run.chooses)
    if chose := sum(run.chooses for run in runs):
        problems.append(f"{chose} trials chose a recipe in a search: their times are no result")
    unique: list[Entry] = []
    origins: list[str] = []
    seen: set[bytes] = set()
    for place, entry in enumerate(entries):
        try:
            check(entry)
        except RunError as error:
            raise RunError(f"{files[place]}: {error}" if place in files else str(error)) from None
        entry = with_summary_of_trials(entry)
        if (digest := _digest(entry)) not in seen:
            seen.add(digest)
            unique.append(entry)
            # Entries of runs and official files have no origin, so that they keep their source's
            # name.
            origins.append(files[place].name if place in files else "")
    if len(unique) < len(entries):
        problems.append(
            f"{len(entries) - len(unique)} entries were given more than once; each counts once"
        )
    if not entries and not any(run.chooses for run in runs):
        why = problems[0] if problems else f"no results in {', '.join(map(str, paths))}"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise RunError(f"nothing could be read: {why}{more}")
    return Entries(_told_apart(_with_shared_trials(unique), origins), problems), runs


def config_cells(entry: Entry, names: Iterable[str]) -> dict[str, Scalar]:
    """Values of fields as columns `config.FIELD`; None where the entry does not tell one."""
    return {f"config.{name}": entry.config.get(name) for name in names}


def _told_apart(entries: Sequence[Entry], origins: Sequence[str]) -> list[Entry]:
    """Rename entries so that no two have one source, which is the key that joins tables.

    Among entries with one source, that of the runs themselves keeps it, else the first. The rest
    are named after their files.
    """
    groups: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        groups.setdefault(entry.source, []).append(place)
    apart = list(entries)
    taken = set(groups)
    for places in groups.values():
        keeps = next((place for place in places if not origins[place]), places[0])
        names: dict[str, Iterator[str]] = {}
        for place in places:
            if place == keeps:
                continue
            words = f"from {origins[place]}" if origins[place] else "another"
            numbered = names.setdefault(words, _numbered(words))
            candidates = (set_apart(entries[place], name) for name in numbered)
            apart[place] = next(named for named in candidates if named.source not in taken)
            taken.add(apart[place].source)
    return apart


def _numbered(words: str) -> Iterator[str]:
    yield words
    yield from (f"{words}, {number}" for number in itertools.count(2))


MOST_SHARING = 20
"""Entries that a trial is followed through: a file may have it in all of its entries."""


def _with_shared_trials(entries: Sequence[Entry]) -> list[Entry]:
    places: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        for run_id in {trial.run_id for trial in entry.trials if entry.suite == "dawnjax"} - {""}:
            if len(of_run := places.setdefault(run_id, [])) < MOST_SHARING:
                of_run.append(place)
    warned = list(entries)
    for place, entry in enumerate(entries):
        shared: dict[int, list[str]] = {}
        for trial in entry.trials if entry.suite == "dawnjax" else ():
            for second in places.get(trial.run_id, ()):
                if second != place:
                    shared.setdefault(second, []).append(trial.file)
        if shared:
            said = (_shared(entry, entries[it], files) for it, files in sorted(shared.items()))
            warned[place] = dataclasses.replace(entry, warnings=(*entry.warnings, *said))
    return warned


def _shared(entry: Entry, second: Entry, files: Sequence[str]) -> str:
    return (
        f"{len(files)} of its {len(entry.trials)} trials ({', '.join(files)}) are also in another "
        f"entry, of {second.benchmark} on {second.system} with {len(second.trials)} trials: the "
        "two are not independent results"
    )


def _digest(entry: Entry) -> bytes:
    """Hash of all that tells entries apart."""
    plain = records.plain(entry)
    del plain["config"], plain["target"]["title"]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).digest()


def _load_official(path: Path, entries: list[Entry], problems: list[str]) -> None:
    imported = without_damaged(importer.import_results([path]))
    entries += imported.entries
    problems += map(str, imported.rejections)
    problems += (f"{copy}; it counts once" for copy in imported.copies)


def _flat(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in dataclasses.fields(entry):
        value = getattr(entry, field.name)
        if field.name in ("target", "summary", "inference"):
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                for name, cell in vars(value).items():
                    in_words = name == "others"
                    row[f"{field.name}_{name}"] = " and ".join(map(str, cell)) if in_words else cell
        elif field.name == "warnings":
            row["warnings"] = "; ".join(value)
        elif field.name == "reasons":
            row["reasons"] = "; ".join(f"{name}: {why}" for name, why in value.items())
        elif field.name not in ("trials", "schema_version", "config"):
            row[field.name] = value
    return row
