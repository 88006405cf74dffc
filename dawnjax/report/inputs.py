"""What a report is made of: entries and our runs, read and redacted."""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path

from dawnjax import analysis
from dawnjax.analysis import our_runs
from dawnjax.analysis.entries import Entry
from dawnjax.analysis.our_runs import OurRun
from dawnjax.errors import RunError
from dawnjax.report.privacy import Redactor


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Everything that a page shows.

    Attributes:
      entries: Ours and official ones, in the order read.
      runs: Our runs by (experiment's identity, run's name): what an entry does not hold.
      problems: What was not read, and why.
    """

    entries: tuple[Entry, ...]
    runs: tuple[OurRun, ...] = ()
    problems: tuple[str, ...] = ()


def read(paths: Sequence[Path], *, include_hosts: bool = False) -> Inputs:
    """Reads files of entries, run directories and official results.

    Args:
      paths: What `analysis.load` takes.
      include_hosts: Whether host names, absolute paths and e-mail addresses stay.

    Raises:
      ConfigError: There is nothing at a path.
      RunError: Nothing could be read, or a file is damaged.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what was not read is in `problems`
        loaded = analysis.load(*paths)
    runs: list[OurRun] = []
    for path in paths:
        for directory in our_runs.find_run_directories(path) if path.is_dir() else ():
            try:
                runs.append(our_runs.read_run(directory))
            except RunError:
                continue  # `load` has said so
    runs = our_runs.distinct(runs)
    hosts = {str(host.get("hostname", "")) for run in runs for host in run.result.hosts if host}
    redactor = Redactor(hosts, keep=include_hosts)
    return Inputs(
        entries=tuple(redactor.value(entry) for entry in loaded),
        runs=tuple(redactor.value(run) for run in runs),
        problems=tuple(redactor.text(problem) for problem in loaded.problems),
    )
