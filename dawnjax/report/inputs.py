"""What a report is made of: entries and our runs, read and redacted."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from dawnjax.analysis.loading import load_with_runs
from dawnjax.analysis.our_runs import OurRun
from dawnjax.report.privacy import Redactor
from dawnjax.results.entries import Entry


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Everything that a page shows.

    Attributes:
      entries: Ours and official ones, in the order read.
      runs: Our runs, each once: what an entry does not hold.
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
    loaded, runs = load_with_runs(*paths)
    hosts = {str(host.get("hostname", "")) for run in runs for host in run.result.hosts if host}
    redactor = Redactor(hosts, keep=include_hosts)
    return Inputs(
        entries=tuple(redactor.value(entry) for entry in loaded),
        runs=tuple(redactor.value(run) for run in runs),
        problems=tuple(redactor.text(problem) for problem in loaded.problems),
    )
