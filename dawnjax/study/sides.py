"""One side of a comparison: the trials at a path, and the results of DawnJAX's runs."""

import dataclasses
import itertools
from pathlib import Path

from dawnjax import records
from dawnjax.analysis import loading
from dawnjax.errors import ConfigError
from dawnjax.other_logs.columns import BY_NAME, Columns
from dawnjax.statistics.sample import Sample
from dawnjax.study.reading import arm_at
from dawnjax.trials.group import Entry
from dawnjax.trials.hosts import hosts_of
from dawnjax.trials.trial import Trial, minute_of

CHOICE = "#"
"""Separates a path from the source of one of its entries."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """Trials of one experiment on one system, under the path that the user gave.

    Attributes:
      arm: Name of the study's arm, if these are an arm's trials; else empty.
    """

    given: str
    entry: Entry
    arm: str = ""

    @property
    def sample(self) -> Sample:
        """Times of the trials; `ConfigError` if a duration is not known."""
        sample = self.entry.figures.sample
        if sample is None:
            raise ConfigError(
                f"{self.given}: the length of a trial is not known, so no time can be compared"
            )
        return sample

    @property
    def runs(self) -> list[Trial]:
        """Trials read from run directories, the only sources that record where time went."""
        return [trial for trial in self.entry.trials if trial.directory]


def place_of(given: str) -> Path:
    """Path of a side: a study's arm has its folder."""
    return arm_at(records.path_of(given.partition(CHOICE)[0]))[0]


def read_side(given: str, columns: Columns = BY_NAME) -> Side:
    """Read one side of a comparison.

    Args:
      given: A run directory, a folder of them, an arm of a study as `STUDY/ARM`, a `.jsonl` file of
        entries, official results, or another program's logs. With several entries at the path,
        `PATH#SOURCE` chooses the entry of that source.
      columns: Column flags for another program's logs.

    Raises:
      ConfigError: Nothing is at the path, or it holds several entries and none is chosen.
      RunError: Nothing could be read.
    """
    path, _, source = given.partition(CHOICE)
    folder, arm = arm_at(records.path_of(path))
    entries, runs_there = loading.load_with_runs(folder, columns=columns)
    if not entries and runs_there:
        raise ConfigError(
            f"{path} has only the trials that chose a search's recipe, and they make it look "
            "faster than it is; compare the winner's folder, with fresh seeds"
        )
    training = [entry for entry in entries if entry.kind == "training"]
    chosen = [entry for entry in training if entry.source == source] if source else training
    if len(chosen) != 1:
        sources = ", ".join(repr(entry.source) for entry in training[:8])
        more = f" and {len(training) - 8} more" if len(training) > 8 else ""
        what = f"no training entry {source!r}" if source else f"{len(training)} training entries"
        raise ConfigError(
            f"{path} has {what}; choose one with {path}{CHOICE}SOURCE, of {sources or 'none'}{more}"
        )
    [entry] = chosen
    return Side(given=given, entry=entry, arm=arm)


def refuse_shared_trials(first: Side, second: Side) -> None:
    """Refuse a trial on both sides: it differs from itself by 0, unlike two real trials.

    Raises:
      ConfigError: Names the trials.
    """
    run_ids = {trial.run_id for trial in first.entry.trials} - {""}
    shared = [trial.name for trial in second.entry.trials if trial.run_id in run_ids]
    if shared:
        more = f" and {len(shared) - 5} more" if len(shared) > 5 else ""
        raise ConfigError(
            f"{len(shared)} of the {len(second.entry.trials)} trials of B are also in A "
            f"({', '.join(shared[:5])}{more}): give each side its own trials"
        )


def apart(first: Entry, second: Entry) -> list[str]:
    """A caution if the trials of two entries on one system did not take turns on its hosts."""
    sides = [[trial for trial in entry.trials if trial.directory] for entry in (first, second)]
    if not all(sides) or sides[0][0].system != sides[1][0].system:
        return []  # nothing is known, or the systems are what is compared
    hosts = [{host.hostname for trial in side for host in hosts_of(trial)} - {""} for side in sides]
    why = ""
    if all(hosts) and not hosts[0] & hosts[1]:
        why = f"A ran on {_some(hosts[0])} and B on {_some(hosts[1])}"
    else:
        begins = [[trial.began_unix_seconds or 0.0 for trial in side] for side in sides]
        order = sorted((began, side) for side, of_side in enumerate(begins) for began in of_side)
        changes = sum(before[1] != after[1] for before, after in itertools.pairwise(order))
        # Sides in turn change once a round or more; half allows for trials that were made again.
        if order[0][0] > 0 and 2 * changes <= min(map(len, sides)):
            spans = [f"{minute_of(min(side))} to {minute_of(max(side))}" for side in begins]
            why = f"A's trials began from {spans[0]} and B's from {spans[1]} (UTC), not in turn"
    if not why:
        return []
    return [
        f"{why}: the ratio also includes differences between those times or machines, such as "
        "other load; `dawnjax study` with both as arms runs them in turn"
    ]


def _some(names: set[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
