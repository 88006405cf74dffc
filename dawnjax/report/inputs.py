"""Sources of a report: entries, our runs and studies, read and redacted."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dawnjax.analysis.loading import load_with_runs
from dawnjax.errors import RunError
from dawnjax.other_logs.columns import BY_NAME, Columns
from dawnjax.runs import kept_pictures
from dawnjax.runs.kept_pictures import KeptPicture
from dawnjax.runs.privacy import LEFT_OUT_PATH, Redactor
from dawnjax.study.figures import StudyFigures, read_figures
from dawnjax.trials.group import Entry
from dawnjax.trials.labels import names_apart
from dawnjax.trials.trial import Trial

MOST_WITH_PICTURES = 6
"""Experiments; a page that is sent to a colleague stays small."""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Everything that a page shows.

    Attributes:
      entries: Ours and official ones, in the order read.
      runs: Our runs, each once, with the fields that an entry lacks.
      problems: Paths that were not read, and why.
      studies: Studies among the folders.
      pictures: Pictures of runs with drawn answers, one run of each experiment.
    """

    entries: tuple[Entry, ...]
    runs: tuple[Trial, ...] = ()
    problems: tuple[str, ...] = ()
    studies: tuple[StudyFigures, ...] = ()
    pictures: tuple["RunPictures", ...] = ()


class RunPictures(NamedTuple):
    run: Trial
    pictures: tuple[KeptPicture, ...]


def read(
    paths: Sequence[Path], *, include_hosts: bool = False, columns: Columns = BY_NAME
) -> Inputs:
    """Read files of entries, run directories, official results and logs of other programs.

    Args:
      include_hosts: Keep host names, absolute paths and e-mail addresses.
      columns: Columns of other programs' logs.

    Raises:
      ConfigError: A path does not exist.
      RunError: Nothing could be read, or a file is damaged.
    """
    studies, damaged = _studies(paths)
    try:
        loaded, runs = load_with_runs(*paths, columns=columns)
    except RunError as error:
        if damaged:  # a study without a run, whose own file is the reason
            raise RunError(damaged[0]) from error
        raise
    hosts = {str(host.get("hostname", "")) for run in runs for host in run.hosts}
    redactor = Redactor(hosts, keep=include_hosts)
    named = named_apart([_run_without_paths(redactor.value(run)) for run in runs])
    pictures, refused = _pictures(named)
    problems = (*loaded.problems, *damaged, *refused)
    return Inputs(
        entries=tuple(_without_paths(redactor.value(entry)) for entry in loaded),
        runs=tuple(named),
        problems=tuple(redactor.text(problem) for problem in problems),
        studies=tuple(redactor.value(study) for study in studies),
        pictures=tuple(pictures),
    )


def _pictures(runs: Sequence[Trial]) -> tuple[list[RunPictures], list[str]]:
    """Pictures of the first run of each experiment that has some, and what was refused."""
    found: dict[str, RunPictures] = {}
    problems: list[str] = []
    for run in sorted(runs, key=lambda run: (run.experiment, run.seed, run.name)):
        experiment = run.experiment
        if run.directory is None or experiment in found or len(found) == MOST_WITH_PICTURES:
            continue
        pictures, refused = kept_pictures.read(run.directory)
        problems += refused
        if pictures:
            found[experiment] = RunPictures(run, tuple(pictures))
    return list(found.values()), problems


def _without_paths(entry: Entry) -> Entry:
    """Entry whose changes name no folder: where the data lie changes no result."""
    fields = re.split(r", (?=[\w.]+=)", entry.variant)
    kept = [field for field in fields if LEFT_OUT_PATH not in field]
    return dataclasses.replace(entry, variant=", ".join(kept))


def _run_without_paths(run: Trial) -> Trial:
    changes = {n: v for n, v in run.overrides.items() if v != LEFT_OUT_PATH}
    return dataclasses.replace(run, overrides=changes)


def named_apart(runs: Sequence[Trial]) -> list[Trial]:
    """Rename runs whose directories share a name, by what differs."""
    fields = sorted({field for run in runs for field in run.overrides})

    def details(run: Trial) -> tuple[str, ...]:
        own = run.overrides
        changes = (f"{f.rpartition('.')[2]}={own[f]}" if f in own else "" for f in fields)
        return run.experiment, *changes, f"seed {run.seed}"

    names = names_apart([run.name for run in runs], list(map(details, runs)))
    return [dataclasses.replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _studies(paths: Sequence[Path]) -> tuple[list[StudyFigures], list[str]]:
    studies, damaged = [], []
    for path in paths:
        try:
            read = read_figures(path) if path.is_dir() else None
        except RunError as error:
            damaged.append(str(error))
            continue
        if read is not None:
            studies.append(read)
    return studies, damaged
