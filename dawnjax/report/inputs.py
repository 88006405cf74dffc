"""Sources of a report: entries, our runs and studies, read and redacted."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dawnjax.analysis.loading import load_with_runs
from dawnjax.analysis.our_run import OurRun
from dawnjax.errors import RunError
from dawnjax.report.privacy import Redactor
from dawnjax.results.entries import Entry
from dawnjax.study.design import Study, StudyFolder, trials_of
from dawnjax.study.figures import ArmFigures, figures
from dawnjax.study.looks import cost_of_looks
from dawnjax.study.reading import read_study, trials_over


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Everything that a page shows.

    Attributes:
      entries: Ours and official ones, in the order read.
      runs: Our runs, each once: what an entry does not hold.
      problems: What was not read, and why.
      studies: The studies among the folders, with the figures of their arms.
    """

    entries: tuple[Entry, ...]
    runs: tuple[OurRun, ...] = ()
    problems: tuple[str, ...] = ()
    studies: tuple["ReadStudy", ...] = ()


@dataclasses.dataclass(frozen=True)
class ReadStudy:
    """A study that was read.

    Attributes:
      name: Of its folder.
      study: What was asked for.
      arms: The figures of its arms.
      looks: What the looks at it cost (`looks.cost_of_looks`); None where nothing is compared or
        the study is not over.
    """

    name: str
    study: Study
    arms: tuple[ArmFigures, ...]
    looks: dict[str, Any] | None = None


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
    hosts = {
        str(host.get("hostname", ""))
        for run in runs
        for host in run.result.hosts
        if isinstance(host, dict)
    }
    redactor = Redactor(hosts, keep=include_hosts)
    studies, damaged = _studies(paths)
    return Inputs(
        entries=tuple(redactor.value(entry) for entry in loaded),
        runs=tuple(named_apart([redactor.value(run) for run in runs])),
        problems=tuple(redactor.text(problem) for problem in (*loaded.problems, *damaged)),
        studies=tuple(redactor.value(study) for study in studies),
    )


def named_apart(runs: Sequence[OurRun]) -> list[OurRun]:
    """Renames runs whose directories have one name: what differs between them is added.

    Those that do not differ, or only in what was left out, are numbered.
    """
    by_name: dict[str, list[OurRun]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    taken = set(by_name)
    renamed = []
    for run in runs:
        name, alike = run.name, by_name[run.name]
        if len(alike) > 1:
            candidates = (f"{name} ({part})" for part in _what_differs(run, alike))
            name = next(candidate for candidate in candidates if candidate not in taken)
            taken.add(name)
        renamed.append(run._replace(name=name))
    return renamed


def _what_differs(run: OurRun, alike: Sequence[OurRun]) -> Iterator[str]:
    """Short descriptions of a run that others may lack, then numbers."""
    if len({other.result.experiment for other in alike}) > 1:
        yield run.result.experiment
    changes = [other.result.overrides for other in alike]
    fields = sorted({field for of_run in changes for field in of_run})
    differing = [f for f in fields if len({repr(of_run.get(f)) for of_run in changes}) > 1]
    own = run.result.overrides
    if differing:
        given = [f"{f.rpartition('.')[2]}={own[f]}" for f in differing if f in own]
        yield ", ".join(given) or "nothing changed"
    if len({other.result.seed for other in alike}) > 1:
        yield f"seed {run.result.seed}"
    yield from map(str, itertools.count(1))


def _studies(paths: Sequence[Path]) -> tuple[list[ReadStudy], list[str]]:
    """The studies among folders, and what is wrong with those that cannot be read."""
    studies, damaged = [], []
    for path in paths:
        try:
            design = read_study(path) if path.is_dir() else None
        except RunError as error:
            damaged.append(str(error))
            continue
        if design is not None:
            study, arms = design
            told = figures(study, arms, trials_over(trials_of(study, arms), path), path)
            made = StudyFolder(path).looks_made()
            cost = cost_of_looks(made, len(arms) - 1) if made and len(arms) > 1 else None
            studies.append(ReadStudy(path.resolve().name, study, tuple(told), cost))
    return studies, damaged
