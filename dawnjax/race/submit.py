"""An entry from a recipe's file or a program's folder: its source and its experiment."""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.race import rules, tracks
from dawnjax.race.entry import (
    ENTRY_FILE,
    MOST_BYTES,
    PROGRAM,
    SOURCE,
    Entry,
    files_of,
    hashes_of,
    read_entry,
)


class _Source(NamedTuple):
    """Texts of the files by their paths; fields of the experiment; the file that is executed."""

    name: str
    texts: Mapping[str, str | bytes]
    experiment: dict[str, Any]
    main: str


def submit(given: Path, *, track: str, out: Path) -> Entry:
    """Write an entry folder from a file with a recipe, which is executed, or a program's folder.

    Raises:
      ConfigError: It is not an entry of the track; names the rule. Nothing is written.
    """
    of_track = tracks.read_track(track)
    source = _program(given) if given.is_dir() else _recipe(given, of_track)
    made = list[Entry]()

    def fill(folder: Path) -> None:
        for name, text in source.texts.items():
            records.write(folder / SOURCE / name, text)
        entry = Entry(
            name=source.name,
            track=track,
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            experiment=source.experiment,
            source=source.main,
            files=hashes_of(files_of(folder)),
        )
        records.write_json(folder / ENTRY_FILE, records.plain(entry))
        # Read back as the judge will read it, before the folder has its name.
        made.append(read_entry(folder))
        rules.check(folder, made[0], of_track)

    records.write_folder(out, fill)
    return made[0]


def _recipe(file: Path, track: tracks.Track) -> _Source:
    from dawnjax.config.config_json import from_json, to_json  # loads JAX
    from dawnjax.config.experiment import Experiment
    from dawnjax.config.experiment_flags import parse_request
    from dawnjax.config.own_files import source_of

    if not file.is_file():
        raise ConfigError(f"there is no file {file}")
    experiment = parse_request("race", [f"--experiment={file}", *track.flags])[0].experiment
    own = source_of(experiment, file)
    assert own is not None
    outside = next((name for name in own.texts if name.startswith("..")), None)
    if outside is not None:
        raise ConfigError(f"the recipe imports {outside}: move it into the recipe's folder")
    fields = to_json(experiment)
    try:  # without the file's classes: the fields then say all, and no run executes the file
        main = "" if from_json(Experiment, fields) == experiment else next(iter(own.texts))
    except ConfigError:
        main = next(iter(own.texts))
    return _Source(experiment.name, own.texts, rules.without_place(fields), main)


def _program(folder: Path) -> _Source:
    if not (folder / PROGRAM).is_file():
        raise ConfigError(f"{folder} has no program: it lacks {PROGRAM}")
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.py"))}
    texts = {name: records.read_plain(path, MOST_BYTES) for name, path in files.items()}
    return _Source(folder.resolve().name, texts, {}, PROGRAM)
