"""Counts of entries by processor class and framework (arXiv 1806.01427, Table 1)."""

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.official.naming import framework_family
from dawnjax.trials.group import Entry

UNKNOWN = "not known"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedEntry:
    """One row of a list of MLPerf entries: its machine and framework, even without logs at hand."""

    path: str
    submitter: str
    benchmark: str
    processor: str
    framework: str
    hardware: str
    status: str
    num_nodes: str


@dataclasses.dataclass(frozen=True)
class Counts:
    """Numbers of entries by processor class and by framework family, and of all."""

    processors: dict[str, int]
    frameworks: dict[str, int]
    total: int


def count(entries: Iterable[Entry]) -> Counts:
    return _counts((entry.processor_class, entry.framework_family) for entry in entries)


def read_entry_list(path: Path) -> list[ListedEntry]:
    """Read a list of MLPerf entries: tab-separated, the fields of `ListedEntry` by name."""
    names = [field.name for field in dataclasses.fields(ListedEntry)]
    try:
        text = io.StringIO(records.read_plain(path).decode("utf-8-sig"), newline="")
        reader = csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
        missing = [name for name in names if name not in (reader.fieldnames or ())]
        if missing:
            raise RunError(f"{path} lacks the column {missing[0]!r}")
        return [ListedEntry(**{name: row[name] or "" for name in names}) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error, records.BoundError) as error:
        raise RunError(f"cannot read {path}: {error}") from None


def count_listed(entries: Iterable[ListedEntry]) -> Counts:
    """Count MLPerf entries as the paper does: without research systems, each system once.

    Two folders that agree in submitter, hardware, nodes, framework and benchmark are one entry,
    such as Intel's two submissions of Minigo.
    """
    distinct = {
        (e.submitter, e.hardware, e.num_nodes, e.framework, e.benchmark): e
        for e in entries
        if e.status != "research"
    }
    return _counts((e.processor, framework_family(e.framework)) for e in distinct.values())


def _counts(pairs: Iterable[tuple[str, str]]) -> Counts:
    rows = list(pairs)
    return Counts(
        processors=dict(Counter(processor or UNKNOWN for processor, _ in rows)),
        frameworks=dict(Counter(framework or UNKNOWN for _, framework in rows)),
        total=len(rows),
    )
