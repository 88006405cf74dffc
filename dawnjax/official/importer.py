"""Reads whatever holds official results into entries; nothing is dropped without a line."""

import dataclasses
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax.official import dawnbench, mlperf, sources, text
from dawnjax.official.mlperf_trial import TrialLog, read_trial
from dawnjax.official.outcome import Imported, Refused, Rejection, SourceRefused, printable
from dawnjax.official.sources import SourceFile
from dawnjax.results.entries import Entry

_DAWNBENCH_FOLDERS = ("train", "inference")
_DESCRIPTIONS = ("entry.json", "submission.json")


def import_results(paths: Sequence[Path]) -> Imported:
    """Gives the entries of folders, archives and single files.

    Args:
      paths: What to read.

    Raises:
      ConfigError: A path cannot be read at all.
    """
    found = _Sources()
    for path in paths:
        found.add(path)
    return Imported(
        entries=tuple(sorted(found.entries, key=lambda entry: entry.source)),
        rejections=tuple(sorted(found.rejections, key=lambda r: (r.file, r.line or 0))),
        copies=tuple(found.copies),
        other_files=tuple(found.others),
        num_log_bytes=found.num_log_bytes,
    )


class _Sources:
    """What all sources hold; an archive in a folder is a source of its own."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.rejections: list[Rejection] = []
        self.copies: list[str] = []
        self.others: list[str] = []
        self.num_log_bytes = 0
        self._first: dict[tuple[Any, ...], str] = {}

    def add(self, path: Path, prefix: str = "") -> None:
        """Reads a source; `prefix` is the path of an archive in its folder, with a `/`."""
        found = _Found()
        archives: list[SourceFile] = []
        try:
            for file in sources.files(path):
                if file.archive is None:
                    found.add(file)
                else:
                    archives.append(file)
            if path.is_file() and not sources.is_archive(path):
                found.add_partner(path)
        except SourceRefused as refused:
            # A source that breaks off would leave entries with some of their trials.
            file = prefix.rstrip("/") or refused.file or str(path)
            self.rejections.append(Rejection(file=file, line=refused.line, reason=refused.reason))
            return
        found.finish()
        self.num_log_bytes += found.num_log_bytes
        if prefix and not found.entries and not found.rejections:
            self.others.append(prefix.rstrip("/"))
            return
        self._add_entries(
            [dataclasses.replace(entry, source=prefix + entry.source) for entry in found.entries]
        )
        self.rejections += (
            dataclasses.replace(rejection, file=prefix + rejection.file)
            for rejection in found.rejections
        )
        self.others += (prefix + name for name in found.others)
        for file in archives:
            assert file.archive is not None
            self.add(file.archive, f"{file.name}/")

    def _add_entries(self, entries: list[Entry]) -> None:
        """Takes the entries of a source but for those that another source has."""
        new = {}
        for entry in entries:
            key = _measured(entry)
            if key in self._first:
                self.copies.append(f"{entry.source} has the trials of {self._first[key]}")
            else:
                new.setdefault(key, entry.source)
                self.entries.append(entry)
        # Not before the source is done: it may have two entries of the same logs for a reason.
        self._first |= new


def _measured(entry: Entry) -> tuple[Any, ...]:
    """Gives an entry's name and measurements, which agree to the last digit in copies alone."""
    trials = tuple(
        dataclasses.replace(trial, file=posixpath.basename(trial.file)) for trial in entry.trials
    )
    name = posixpath.basename(entry.source)
    return entry.suite, entry.kind, entry.benchmark, name, trials, entry.inference


class _Found:
    """What the files of one source are, put together to entries at its end.

    A log is reduced to its trial as it comes, so that one file at a time is in memory.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.rejections: list[Rejection] = []
        self.others: list[str] = []
        self.num_log_bytes = 0
        self._contexts: dict[str, str] = {}
        self._dawnbench: dict[str, dict[str, bytes | Refused]] = {}
        self._logs: dict[str, list[tuple[str, TrialLog]]] = {}
        self._bad_logs: dict[str, int] = {}
        self._descriptions: dict[str, bytes | Refused] = {}
        self._unused: dict[str, str] = {}

    def add(self, file: SourceFile) -> None:
        """Takes a file for what its path says it is."""
        folder, base = posixpath.split(file.context)
        stem, ending = posixpath.splitext(base)
        parent = posixpath.basename(folder).lower()
        if base in _DESCRIPTIONS or (ending == ".json" and parent == "systems"):
            data = _read(file, sources.DESCRIPTION_BYTES)
            if _describes_dawnbench(data, parent in _DAWNBENCH_FOLDERS):
                self._add_dawnbench(file, stem, ending, data)
            else:
                self._descriptions[file.context] = data
                self._unused[file.context] = file.name
        elif mlperf.RESULT_FILE.fullmatch(base):
            self._add_log(file, _read(file, sources.LOG_BYTES))
        elif ending in (".json", ".tsv"):
            limit = sources.TABLE_BYTES if ending == ".tsv" else sources.DESCRIPTION_BYTES
            data = _read(file, limit)  # once: a member of an archive gives its bytes once
            is_entry = _is_table(data) if ending == ".tsv" else _describes_dawnbench(data, False)
            if parent in _DAWNBENCH_FOLDERS or is_entry:
                self._add_dawnbench(file, stem, ending, data)
            elif file.alone:
                self._add_log(file, data)
            else:
                self.others.append(file.name)
        elif file.alone:
            self._add_log(file, _read(file, sources.LOG_BYTES))
        else:
            self.others.append(file.name)

    def add_partner(self, path: Path) -> None:
        """Takes the other file of a training entry of which one was given alone."""
        ending = {".json": ".tsv", ".tsv": ".json"}.get(path.suffix)
        if self._dawnbench and ending is not None:
            partner = path.with_suffix(ending)
            if partner.is_file():
                for file in sources.files(partner):
                    limit = sources.TABLE_BYTES if ending == ".tsv" else sources.DESCRIPTION_BYTES
                    self._add_dawnbench(file, partner.stem, ending, _read(file, limit))

    def finish(self) -> None:
        """Makes the entries."""
        for source in sorted(self._dawnbench):
            self._finish_dawnbench(source, self._dawnbench[source])
        for folder in sorted(self._logs.keys() | self._bad_logs.keys()):
            self._finish_logs(folder)
        self.others += self._unused.values()

    def _reject(self, file: str, refused: Refused) -> None:
        file = refused.file or file
        self.rejections.append(Rejection(file=file, line=refused.line, reason=refused.reason))

    def _add_dawnbench(
        self, file: SourceFile, stem: str, ending: str, data: bytes | Refused
    ) -> None:
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
            self.num_log_bytes += len(data)
            self._logs.setdefault(folder, []).append((file.name, read_trial(data)))
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
            system = self._system(context)
            self.entries.append(mlperf.read_entry(folder, context, logs, system))
        except Refused as refused:
            self._reject(folder, refused)

    def _system(self, context: str) -> mlperf.System:
        """Gives the machine of a folder of logs from the descriptions around it."""
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
    """Tells whether a JSON file describes an entry of DAWNBench; `otherwise` if it is no JSON."""
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
