"""One side of a comparison: the trials at a path, and the results of our runs."""

import contextlib
import dataclasses
from pathlib import Path

from dawnjax import records
from dawnjax.analysis import loading
from dawnjax.analysis.comparison import shared_trials
from dawnjax.errors import ConfigError, RunError
from dawnjax.statistics.sample import Sample
from dawnjax.study.reading import read_study
from dawnjax.trials import ours
from dawnjax.trials.group import Entry
from dawnjax.trials.trial import Trial

CHOICE = "#"
"""Between a path and the source of one of its entries."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """Trials of one experiment on one system, under the path that the user gave.

    Attributes:
      arm: Name of the arm of a study whose trials these are; empty for others.
      runs: Our runs with their directories, in the order of their seeds; empty for official
        entries and for files of entries.
    """

    given: str
    entry: Entry
    sample: Sample
    runs: tuple[tuple[Path, Trial], ...] = ()
    arm: str = ""

    @property
    def results(self) -> list[Trial]:
        return [result for _, result in self.runs]


def read_side(given: str) -> Side:
    """Read one side of a comparison.

    Args:
      given: A run directory, a folder of them, a `.jsonl` file of entries or official results. With
        several entries at the path, `PATH#SOURCE` chooses the one of that source.

    Raises:
      ConfigError: Nothing is at the path, or it holds several entries and none is chosen.
      RunError: Nothing could be read.
    """
    path, _, source = given.partition(CHOICE)
    entries, runs_there = loading.load_with_runs(records.path_of(path))
    if not entries and runs_there:
        raise ConfigError(
            f"{path} holds only trials by which a search chose its recipe: scored by them it would "
            "seem faster than it is; compare the winner's folder, where other seeds judged it"
        )
    training = [entry for entry in entries if entry.kind == "training"]
    chosen = [entry for entry in training if entry.source == source] if source else training
    if len(chosen) != 1:
        sources = ", ".join(repr(entry.source) for entry in training[:8])
        more = f" and {len(training) - 8} more" if len(training) > 8 else ""
        what = f"no training entry {source!r}" if source else f"{len(training)} training entries"
        raise ConfigError(
            f"{path} has {what}, and a comparison takes one; choose with "
            f"{path}{CHOICE}SOURCE, of {sources or 'none'}{more}"
        )
    [entry] = chosen
    sample = entry.figures.sample
    if sample is None:
        raise ConfigError(f"{given}: how long a trial ran is not known, so no time can be compared")
    folder = records.path_of(path)
    runs, arm = _runs_of(folder, entry), _arm_at(folder)
    return Side(given=given, entry=entry, sample=sample, runs=runs, arm=arm)


def refuse_shared_trials(first: Side, second: Side) -> None:
    """Refuse a trial on both sides: beside itself it differs by 0, which no two trials do.

    Raises:
      ConfigError: Names the trials.
    """
    shared = shared_trials(first.entry, second.entry)
    if shared:
        more = f" and {len(shared) - 5} more" if len(shared) > 5 else ""
        raise ConfigError(
            f"{len(shared)} of the {len(second.entry.trials)} trials of B are in A too, or copies "
            f"of such ({', '.join(shared[:5])}{more}): give each side trials of its own"
        )


def _arm_at(path: Path) -> str:
    """Name of the arm whose folder in a study this is; empty for any other path."""
    folder = path.resolve()
    record = None
    with contextlib.suppress(RunError):
        record = read_study(folder.parent.parent)
    arms = record["arms"] if record else ()
    return next(
        (arm.name for arm in arms if folder == folder.parent.parent / "trials" / arm.folder), ""
    )


def _runs_of(path: Path, entry: Entry) -> tuple[tuple[Path, Trial], ...]:
    """Runs among the directories at a path that are an entry's trials."""
    if not path.is_dir() or entry.suite != "dawnjax":
        return ()
    wanted = {trial.run_id for trial in entry.trials}
    runs = {}
    for directory in ours.find_run_directories(path):
        result = ours.read_run(directory)
        if result.run_id in wanted:
            runs[result.run_id] = (directory, result)
    return tuple(sorted(runs.values(), key=lambda run: run[1].seed))
