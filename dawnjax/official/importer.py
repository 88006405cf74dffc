"""Import of official results of any form as entries; a line names every file left out."""

import posixpath
from collections.abc import Sequence
from pathlib import Path

from dawnjax.official import dawnbench, mlperf, mlperf_rounds, sources, text
from dawnjax.official.mlperf_trial import TrialLog, read_trial
from dawnjax.official.outcome import Imported, Refused, SourceRefused
from dawnjax.official.sources import SourceFile
from dawnjax.trials.group import Entry

_DAWNBENCH_FOLDERS = ("train", "inference")
_DESCRIPTIONS = ("entry.json", "submission.json", "scaling.json")
MAX_EVALUATIONS = 400_000
"""Limit of a source; MLPerf v0.5 has some 20,000."""

MAX_HELD_BYTES = 64 * 2**20
"""Limit of a source's descriptions and tables that wait for their other files."""

_LIMITS = {".json": sources.DESCRIPTION_BYTES, ".tsv": sources.TABLE_BYTES}


def import_results(paths: Sequence[Path]) -> Imported:
    """Read the entries of folders, archives and single files.

    A single bad file becomes a rejection; only an unreadable path raises.
    """
    read = [_read_source(path) for path in paths]
    entries = (entry for source in read for entry in source.entries)
    rejections = (refused for source in read for refused in source.rejections)
    return Imported(
        entries=tuple(sorted(entries, key=lambda entry: entry.source)),
        rejections=tuple(sorted(rejections, key=lambda r: (r.file, r.line or 0))),
        other_files=tuple(name for source in read for name in source.other_files),
    )


def _read_source(path: Path) -> Imported:
    source = Source()
    try:
        for file in sources.files(path):
            source.add(file)
    except SourceRefused as refused:
        # A source that breaks off would leave entries that lack some of their trials.
        refused.file = refused.file or str(path)
        return Imported(entries=(), rejections=(refused,))
    return source.finish()


class Source:
    """Files of one source; each log becomes a trial at once, so that one file is in memory."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._rejections: list[Refused] = []
        self._other_files: list[str] = []
        self._num_evaluations = 0
        self._held_bytes = 0
        self._contexts: dict[str, str] = {}
        self._dawnbench: dict[str, dict[str, bytes | Refused]] = {}
        self._logs: dict[str, list[tuple[str, TrialLog]]] = {}
        self._bad_logs: dict[str, int] = {}
        self._descriptions: dict[str, bytes | Refused] = {}
        self._unused: dict[str, str] = {}

    def add(self, file: SourceFile) -> None:
        """File a source's file under the kind that its path shows."""
        folder, base = posixpath.split(file.context)
        stem, ending = posixpath.splitext(base)
        parent = posixpath.basename(folder).lower()
        is_named = file.alone or mlperf.RESULT_FILE.fullmatch(base)
        if file.alone and ending in _LIMITS:
            raise SourceRefused("is one file of an entry; give the folder above it")
        if ending in _LIMITS and parent in _DAWNBENCH_FOLDERS:
            entry = posixpath.join(posixpath.dirname(file.name), stem)
            self._contexts[entry] = file.context
            self._dawnbench.setdefault(entry, {})[ending] = self._hold(file, ending)
        elif base in _DESCRIPTIONS or (ending == ".json" and parent == "systems"):
            self._descriptions[file.context] = self._hold(file, ending)
            self._unused[file.context] = file.name
        elif is_named or mlperf.PERHAPS_RESULT_FILE.fullmatch(base):
            data = _read(file, sources.LOG_BYTES)
            if is_named or isinstance(data, Refused) or b":::ML" in data:
                self._add_log(file, data)
            else:
                self._other_files.append(file.name)
        else:
            self._other_files.append(file.name)

    def finish(self) -> Imported:
        """Make the entries, once every file was added."""
        for entry in sorted(self._dawnbench):
            self._finish_dawnbench(entry, self._dawnbench[entry])
        for folder in sorted(self._logs.keys() | self._bad_logs.keys()):
            self._finish_logs(folder)
        return Imported(
            entries=tuple(self._entries),
            rejections=tuple(self._rejections),
            other_files=(*self._other_files, *self._unused.values()),
        )

    def _hold(self, file: SourceFile, ending: str) -> bytes | Refused:
        data = _read(file, _LIMITS[ending])
        self._held_bytes += 0 if isinstance(data, Refused) else len(data)
        if self._held_bytes > MAX_HELD_BYTES:
            raise SourceRefused(
                f"its descriptions and tables have more than {MAX_HELD_BYTES:,} bytes"
            )
        return data

    def _reject(self, file: str, refused: Refused) -> None:
        refused.file = refused.file or file
        self._rejections.append(refused)

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
            self._num_evaluations += len(trial.evaluations)
            if self._num_evaluations > MAX_EVALUATIONS:
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
            parent = posixpath.basename(posixpath.dirname(context)).lower()
            if table is None and description is not None and parent == "inference":
                self._entries.append(dawnbench.read_inference(source, context, description))
            else:
                entry = dawnbench.read_training(source, context, description, table)
                self._entries.append(entry)
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
            self._entries.append(mlperf.read_entry(folder, context, logs, system, factor))
        except Refused as refused:
            self._reject(folder, refused)

    def _scaling_factor(self, context: str) -> float:
        """Factor by which the round's review scaled the score of a folder; 1 without a file."""
        path = f"{context}/scaling.json"
        if path not in self._descriptions:
            return 1.0
        data, file = self._descriptions[path], self._unused.pop(path)
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
            return text.load_object(data)
        except Refused as refused:
            line = "" if refused.line is None else f" line {refused.line}:"
            warnings.append(f"{base}:{line} {refused.reason}")
            return {}


def _read(file: SourceFile, limit: int) -> bytes | Refused:
    try:
        return file.read(limit)
    except SourceRefused:
        raise
    except Refused as refused:
        return refused
