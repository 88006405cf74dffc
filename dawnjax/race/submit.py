"""An entry from a recipe's file: its source, and the experiment that it describes."""

import datetime
from pathlib import Path

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.race import rules, tracks
from dawnjax.race.entry import ENTRY_FILE, SOURCE, Entry, files_of, hashes_of, read_entry


def submit(file: Path, *, track: str, out: Path) -> Entry:
    """Write an entry folder from a file with a recipe, which is executed.

    Raises:
      ConfigError: It is no entry of the track; names the rule. Nothing is written.
    """
    from dawnjax.config.config_json import to_json  # loads JAX
    from dawnjax.config.experiment_flags import parse_request
    from dawnjax.config.own_files import source_of

    of_track = tracks.read_track(track)
    if not file.is_file():
        raise ConfigError(f"there is no file {file}")
    experiment = parse_request("race", [f"--experiment={file}", *of_track.flags])[0].experiment
    source = source_of(experiment, file)
    assert source is not None
    outside = next((name for name in source.texts if name.startswith("..")), None)
    if outside is not None:
        raise ConfigError(f"the recipe imports {outside}: put it into the recipe's folder")
    made = list[Entry]()

    def fill(folder: Path) -> None:
        for name, text in source.texts.items():
            records.write(folder / SOURCE / name, text)
        entry = Entry(
            name=experiment.name,
            track=track,
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            experiment=rules.without_place(to_json(experiment)),
            source=next(iter(source.texts)),
            files=hashes_of(files_of(folder)),
        )
        records.write_json(folder / ENTRY_FILE, records.plain(entry))
        # Read back as the judge will read it, before the folder has its name.
        made.append(read_entry(folder))
        rules.check(folder, made[0], of_track)

    records.write_folder(out, fill)
    return made[0]
