"""Import of official results of any form as entries; a line names every file left out."""

import dataclasses
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dawnjax.errors import RunError
from dawnjax.official import dawnbench, mlperf, mlperf_rounds, sources, text
from dawnjax.official.mlperf_trial import TrialLog, read_trial
from dawnjax.official.outcome import Imported, Refused, SourceRefused, printable
from dawnjax.official.sources import SourceFile
from dawnjax.trials.group import Entry

_DAWNBENCH_FOLDERS = ("train", "inference")
_DESCRIPTIONS = ("entry.json", "submission.json")
_SCALING = "scaling.json"
MAX_EVALUATIONS = 400_000
"""Of all that is imported at once; those of MLPerf v0.5 are some 20,000."""

MAX_HELD_BYTES = 64 * 2**20
"""Of a source's descriptions and tables, which wait for what belongs to them."""

_LIMITS = {".json": sources.DESCRIPTION_BYTES, ".tsv": sources.TABLE_BYTES}


def import_results(paths: Sequence[Path]) -> Imported:
    """Read the entries of folders, archives and single files.

    A single bad file becomes a rejection; only an unreadable path or too many evaluations raise.
    """
    entries: list[Entry] = []
    rejections: list[Refused] = []
    other_files: list[str] = []
    num_evaluations = 0
    first: dict[tuple[Any, ...], str] = {}
    for source in (source for path in paths for source in _read_sources(path)):
        new: dict[tuple[Any, ...], str] = {}
        num_evaluations += source.num_evaluations
        if num_evaluations > MAX_EVALUATIONS:
            raise RunError(
                f"more than {MAX_EVALUATIONS:,} evaluations in all; import fewer sources at once"
            )
        for entry in source.entries:
            key = _measured(entry)
            if key in first:
                reason = f"has the trials of {first[key]}; import one of the two"
                rejections.append(Refused(reason, file=entry.source))
            else:
                new.setdefault(key, entry.source)
                entries.append(entry)
        # After the whole source: two of its own entries may share logs for a reason.
        first |= new
        rejections += source.rejections
        other_files += source.other_files
    return Imported(
        entries=tuple(sorted(entries, key=lambda entry: entry.source)),
        rejections=tuple(sorted(rejections, key=lambda r: (r.file, r.line or 0))),
        other_files=tuple(other_files),
    )


def _read_sources(path: Path, prefix: str = "") -> Iterator["Source"]:
    """Yield a source, then its archives as sources, whose names `prefix` (with a `/`) precedes."""
    source = Source()
    archives: list[SourceFile] = []
    try:
        for file in sources.files(path):
            if file.archive is None:
                source.add(file)
            else:
                archives.append(file)
        if path.is_file() and not sources.is_archive(path):
            source.add_partner(path)
    except SourceRefused as refused:
        # A source that breaks off would leave entries that lack some of their trials.
        source = Source()
        refused.file = prefix.rstrip("/") or refused.file or str(path)
        source.rejections.append(refused)
        yield source
        return
    source.finish(prefix)
    yield source
    for file in archives:
        assert file.archive is not None
        yield from _read_sources(file.archive, f"{file.name}/")


def _measured(entry: Entry) -> tuple[Any, ...]:
    """Name and measurements of an entry; only copies agree in them to the last digit."""
    trials = tuple(
        repr(dataclasses.replace(trial, name=posixpath.basename(trial.name)))
        for trial in entry.trials
    )
    name = posixpath.basename(entry.source)
    kind = entry.suite, entry.kind, entry.benchmark, name, entry.scaling_factor
    return *kind, trials, entry.inference


class Source:
    """Files of one source; each log becomes a trial at once, so that one file is in memory."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.rejections: list[Refused] = []
        self.other_files: list[str] = []
        self.num_evaluations = 0
        self._held_bytes = 0
        self._contexts: dict[str, str] = {}
        self._dawnbench: dict[str, dict[str, bytes | Refused]] = {}
        self._logs: dict[str, list[tuple[str, TrialLog]]] = {}
        self._bad_logs: dict[str, int] = {}
        self._descriptions: dict[str, bytes | Refused] = {}
        self._scalings: dict[str, tuple[str, bytes | Refused]] = {}
        self._unused: dict[str, str] = {}

    def add(self, file: SourceFile) -> None:
        """File a source's file under the kind that its path shows."""
        folder, base = posixpath.split(file.context)
        stem, ending = posixpath.splitext(base)
        parent = posixpath.basename(folder).lower()
        is_named = file.alone or mlperf.RESULT_FILE.fullmatch(base)
        if ending in _LIMITS:
            data = _read(file, _LIMITS[ending])  # once: a member of an archive gives its bytes once
            in_folder = parent in _DAWNBENCH_FOLDERS
            is_entry = (
                _is_table(data) if ending == ".tsv" else _describes_dawnbench(data, in_folder)
            )
            if base == _SCALING and not file.alone:
                self._hold(data)
                self._scalings[folder] = file.name, data
                self._unused[file.context] = file.name
            elif not is_entry and (
                base in _DESCRIPTIONS or (ending == ".json" and parent == "systems")
            ):
                self._hold(data)
                self._descriptions[file.context] = data
                self._unused[file.context] = file.name
            elif in_folder or is_entry:
                self._add_dawnbench(file, stem, ending, data)
            elif file.alone:
                self._add_log(file, data)
            else:
                self.other_files.append(file.name)
        elif is_named or mlperf.PERHAPS_RESULT_FILE.fullmatch(base):
            data = _read(file, sources.LOG_BYTES)
            if is_named or isinstance(data, Refused) or b":::ML" in data:
                self._add_log(file, data)
            else:
                self.other_files.append(file.name)
        else:
            self.other_files.append(file.name)

    def add_partner(self, path: Path) -> None:
        """Read the second file of a training entry given by one file alone."""
        ending = {".json": ".tsv", ".tsv": ".json"}.get(path.suffix, "")
        partner = path.with_suffix(ending)
        if self._dawnbench and ending and partner.is_file():
            for file in sources.files(partner):
                self._add_dawnbench(file, partner.stem, ending, _read(file, _LIMITS[ending]))

    def finish(self, prefix: str = "") -> None:
        """Make the entries, and put a prefix before all names."""
        for source in sorted(self._dawnbench):
            self._finish_dawnbench(source, self._dawnbench[source])
        for folder in sorted(self._logs.keys() | self._bad_logs.keys()):
            self._finish_logs(folder)
        self.other_files += self._unused.values()
        if prefix and not self.entries and not self.rejections:
            self.other_files = [prefix.rstrip("/")]
            return
        self.entries = [dataclasses.replace(e, source=prefix + e.source) for e in self.entries]
        self.other_files = [prefix + name for name in self.other_files]
        for refused in self.rejections:
            refused.file = prefix + refused.file

    def _hold(self, data: bytes | Refused) -> None:
        self._held_bytes += 0 if isinstance(data, Refused) else len(data)
        if self._held_bytes > MAX_HELD_BYTES:
            raise SourceRefused(
                f"its descriptions and tables have more than {MAX_HELD_BYTES:,} bytes"
            )

    def _reject(self, file: str, refused: Refused) -> None:
        refused.file = refused.file or file
        self.rejections.append(refused)

    def _add_dawnbench(
        self, file: SourceFile, stem: str, ending: str, data: bytes | Refused
    ) -> None:
        self._hold(data)
        source = posixpath.join(posixpath.dirname(file.name), stem)
        self._contexts[source] = file.context
        self._dawnbench.setdefault(source, {})[ending] = data

    def _add_log(self, file: SourceFile, data: bytes | Refused) -> None:
        above = posixpath.dirname(file.context)
        folder = posixpath.dirname(file.name) or posixpath.basename(above) or "."
        if file.alone:
            folder = file.name
        self._contexts[folder] = above
        try:
            if isinstance(data, Refused):
                raise data
            benchmark = posixpath.basename(above)
            trial = read_trial(data, benchmark, mlperf_rounds.round_in(above))
            self.num_evaluations += len(trial.evaluations)
            if self.num_evaluations > MAX_EVALUATIONS:
                raise SourceRefused(f"more than {MAX_EVALUATIONS:,} evaluations in its logs")
            self._logs.setdefault(folder, []).append((file.name, trial))
        except SourceRefused:
            raise
        except Refused as refused:
            self._reject(file.name, refused)
            self._bad_logs[folder] = self._bad_logs.get(folder, 0) + 1

    def _finish_dawnbench(self, source: str, files: dict[str, bytes | Refused]) -> None:
        context = self._contexts[source]
        try:
            for ending, data in files.items():
                if isinstance(data, Refused):
                    raise Refused(data.reason, data.line, source + ending)
            description = files.get(".json")
            table = files.get(".tsv")
            assert not isinstance(description, Refused) and not isinstance(table, Refused)
            if table is None and description is not None and _is_inference(context, description):
                self.entries.append(dawnbench.read_inference(source, context, description))
            else:
                entry = dawnbench.read_training(source, context, description, table)
                self.entries.append(entry)
        except Refused as refused:
            self._reject(source + (".json" if ".json" in files else ".tsv"), refused)

    def _finish_logs(self, folder: str) -> None:
        bad, logs = self._bad_logs.get(folder, 0), self._logs.get(folder, [])
        if bad:
            if logs:
                self._reject(
                    folder,
                    Refused(
                        f"{bad} of its {bad + len(logs)} logs were rejected; the others alone "
                        "would give another score, so the entry is not imported"
                    ),
                )
            return
        logs.sort(key=lambda item: mlperf.file_order(item[0]))
        context = self._contexts[folder]
        try:
            factor = self._scaling_factor(context)
            system = self._system(context)
            self.entries.append(mlperf.read_entry(folder, context, logs, system, factor))
        except Refused as refused:
            self._reject(folder, refused)

    def _scaling_factor(self, context: str) -> float:
        """Factor by which the round's review scaled the score of a folder; 1 without a file."""
        if context not in self._scalings:
            return 1.0
        file, data = self._scalings[context]
        self._unused.pop(f"{context}/{_SCALING}", None)
        try:
            if isinstance(data, Refused):
                raise data
            return mlperf.scaling_factor(data)
        except Refused as refused:
            reason = f"{refused.reason}; the score depends on it, so the entry is not imported"
            raise Refused(reason, refused.line, file) from None

    def _system(self, context: str) -> mlperf.System:
        warnings: list[str] = []
        above = posixpath.dirname(context)
        system_name, top = posixpath.basename(above), posixpath.dirname(posixpath.dirname(above))
        candidates = (f"{above}/entry.json", f"{top}/systems/{system_name}.json")
        fields = next(
            (self._object(path, warnings) for path in candidates if path in self._descriptions),
            None,
        )
        if fields is None:
            warnings.append("no description of the system was found")
        submission = self._object(f"{top}/submission.json", warnings)
        organization = text.words(submission.get("org"), 120)
        return mlperf.System(fields or {}, organization, tuple(warnings))

    def _object(self, path: str, warnings: list[str]) -> dict:
        data = self._descriptions.get(path)
        if data is None:
            return {}
        self._unused.pop(path, None)
        base = posixpath.basename(path)
        try:
            if isinstance(data, Refused):
                raise data
            fields, twice = text.load_object(data)
        except Refused as refused:
            line = "" if refused.line is None else f" line {refused.line}:"
            warnings.append(f"{base}:{line} {refused.reason}")
            return {}
        for name in dict.fromkeys(twice):
            warnings.append(f"{base}: {printable(name, 60)!r} is given twice")
        return fields


def _describes_dawnbench(data: bytes | Refused, otherwise: bool) -> bool:
    """True if a JSON file describes a DAWNBench entry; `otherwise` if it is no JSON."""
    if isinstance(data, Refused):
        return otherwise
    try:
        fields, _ = text.load_object(data)
    except Refused:
        return otherwise
    return "framework" in fields and "author" in fields and "model" in fields


def _is_table(data: bytes | Refused) -> bool:
    header = b"" if isinstance(data, Refused) else data[:400].split(b"\n")[0].lower()
    return b"epoch" in header and b"hours" in header


def _is_inference(context: str, description: bytes) -> bool:
    parent = posixpath.basename(posixpath.dirname(context)).lower()
    if parent in _DAWNBENCH_FOLDERS:
        return parent == "inference"
    try:
        return "latency" in text.load_object(description)[0]
    except Refused:
        return False


def _read(file: SourceFile, limit: int) -> bytes | Refused:
    try:
        return file.read(limit)
    except SourceRefused:
        raise
    except Refused as refused:
        return refused
