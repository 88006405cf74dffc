"""An entry from run directories: their source, their logs without names of hosts and people."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.analysis import our_runs
from dawnjax.analysis.our_run import OurRun
from dawnjax.errors import ConfigError, RunError
from dawnjax.race import rules, tracks
from dawnjax.race.entry import (
    ENTRY_FILE,
    RIVAL,
    RUNS,
    SCHEMA_VERSION,
    SOURCE,
    Entry,
    files_of,
    hashes_of,
)
from dawnjax.runs.directory import RunDirectory, texts_of
from dawnjax.runs.log import encode_line, log_path, read_events
from dawnjax.runs.privacy import Redactor

_VERBATIM = ("source", "identity_fields", "identity", "run_id")
"""Parts of a record that its hashes are of."""


def submit(paths: Sequence[Path], against: Path, *, track: str, name: str, out: Path) -> Entry:
    """Write an entry folder from runs, and from those of the rival on the same machine.

    Raises:
      ConfigError: The runs are no entry of the track; names the rule. Nothing is written.
    """
    of_track = tracks.read_track(track)
    runs, rivals = _runs(paths), _runs([against])
    first, record = runs[0][1], rules.record_at(runs[0][0])
    public, texts = _public(record), texts_of(record.get("source"))
    outside = next((text for text in texts if text.startswith("..")), None)
    if outside is not None:
        raise ConfigError(
            f"the recipe imports {outside}, which lies outside of its folder: put it beside the "
            "recipe, and train again"
        )
    own, others = ([rules.trial_of(run) for _, run in side] for side in (runs, rivals))
    claim = rules.compared(own, others)
    if claim is None:
        raise ConfigError("how long a trial ran is not known, so nothing can be compared")
    baseline, made = tracks.baseline_fields(of_track), list[Entry]()

    def fill(folder: Path) -> None:
        for file, text in texts.items():
            records.write(folder / SOURCE / file, text["text"])
        for part, side in ((RUNS, runs), (RIVAL, rivals)):
            for path, run in side:
                _copy(path, folder / part / f"seed_{run.result.seed}")
        entry = Entry(
            schema_version=SCHEMA_VERSION,
            name=name,
            track=track,
            date=first.date,
            experiment=rules.without_place(public["experiment"]),
            options=rules.options_of(first),
            source=next(iter(texts), ""),
            environment={
                **first.result.versions,
                "device": first.system.hardware,
                "platform": first.result.platform,
                "devices": first.result.num_devices,
            },
            trials=tuple(own),
            rivals=tuple(others),
            rival=rules.rival_of(rules.record_at(rivals[0][0]), baseline),
            claim=claim,
            files=hashes_of(files_of(folder)),
        )
        records.write_json(folder / ENTRY_FILE, records.plain(entry))
        # Read back as the judge will read it, before the folder has its name.
        read = rules.read(folder)
        fault = rules.first_fault(folder, read, of_track, baseline)
        if fault is not None:
            raise ConfigError(f"no entry of {track}: {fault}")
        made.append(read.entry)

    records.write_folder(out, fill)
    return made[0]


def _runs(paths: Sequence[Path]) -> list[tuple[Path, OurRun]]:
    """Runs at paths, by their seeds; `ConfigError` where there are none or two have one seed."""
    found = []
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"there is no folder {path}")
        for directory in our_runs.find_run_directories(path):
            try:
                found.append((directory, our_runs.read_run(directory)))
            except RunError as error:
                raise ConfigError(str(error)) from None
    if not found:
        raise ConfigError(f"no run in {', '.join(map(str, paths))}: no folder has experiment.json")
    found.sort(key=lambda item: item[1].result.seed)
    seeds = [run.result.seed for _, run in found]
    double = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if double is not None:
        raise ConfigError(f"two runs have the seed {double}: give those of one side alone")
    return found


def _public(record: dict[str, Any]) -> dict[str, Any]:
    """A record without paths, addresses and names of hosts."""
    redactor = Redactor()
    return {
        name: value if name in _VERBATIM else redactor.value(value)
        for name, value in record.items()
    }


def _copy(path: Path, folder: Path) -> None:
    """Copy what a run says of itself, without names of hosts and people."""
    redactor = Redactor()
    records.write_json(RunDirectory(folder).experiment_file, _public(rules.record_at(path)))
    lines = [encode_line(redactor.value(event)) for event in read_events(log_path(path))]
    records.write(log_path(folder), b"".join(lines))
