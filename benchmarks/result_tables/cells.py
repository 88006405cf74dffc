"""Cells of the tables: hardware, versions, means and intervals."""

import math
import statistics
from collections.abc import Callable, Iterator

from benchmarks.result_tables.result_files import Record


def machine(name: str, record: Record) -> str:
    """The hardware of a result: its accelerators, or else cores and processor.

    The cell names a load above the number of cores. A file whose name ends in `_zen5` was measured
    on an EPYC of family 26, which the processor's own name does not say.
    """
    facts = record.get("environment")
    if facts is None:
        return f"{record['num_devices']} x {record['device_kind']}"
    accelerators = facts.get("accelerators", [])
    if accelerators:
        return f"{len(accelerators)} x {accelerators[0].split(',')[0]}"
    processor = facts["processor"].replace("(R)", "").removesuffix(" Processor")
    processor += " (Zen 5)" if name.endswith("_zen5") else ""
    load = facts.get("load_before", 0)
    is_busy = f", load {load:g} before" if load > facts["cores"] else ""
    return f"{facts['cores']} cores of {processor}{is_busy}"


def when(record: Record, *names: str) -> str:
    """The day of a result, and the versions of the named packages."""
    facts = record.get("environment") or record
    installed = [(name, facts["versions"].get(name)) for name in names]
    versions = ", ".join(
        f"{name} {version.split('+')[0]}" for name, version in installed if version
    )
    return facts["date"][:10] + (f"; {versions}" if versions else "")


def interval(low: float, high: float, digits: int = 3) -> str:
    """Both ends of an interval."""
    return f"{low:,.{digits}f} to {high:,.{digits}f}"


def earlier(name: str) -> str:
    """A remark on results whose file name says that they are from before a change."""
    return ", earlier code" if name.endswith("_before") else ""


def spread(values: list[float], digits: int) -> str:
    """Mean, population standard deviation and extremes; `none` of no values."""
    if not values:
        return "none"
    mean, deviation = statistics.fmean(values), statistics.pstdev(values)
    return (
        f"{mean:,.{digits}f} (sd {deviation:.{digits}f}; "
        f"{interval(min(values), max(values), digits)})"
    )


def present(rows: list[Record], field: str) -> list[float]:
    """The values of a field where it has one."""
    return [row[field] for row in rows if row.get(field) is not None]


def mean_with_interval(values: list[float]) -> str:
    """A mean with the 95 % t interval of it, in percent."""
    if len(values) < 3:
        return f"{100 * statistics.fmean(values):.1f} %"
    from scipy.stats import t

    error = statistics.stdev(values) / math.sqrt(len(values))
    half = float(t.ppf(0.975, len(values) - 1)) * error
    return f"{100 * statistics.fmean(values):.1f} % (± {100 * half:.1f})"


def compared_row(name: str, record: Record, what: str, facts: Record, digits: int) -> list[str]:
    """The row of a comparison: both medians and their ratio."""
    places = 0 if facts["ratio_median"] >= 100 else 3
    medians = [f"{facts[field]:,.{digits}f}" for field in ("first_median", "second_median")]
    ends = interval(*facts["ratio_interval_95"], digits=places)
    ratio = f"{facts['ratio_median']:.{places}f} ({ends})"
    where = [machine(name, record), when(record, "jax")]
    return [what, *where, str(len(facts["first"])), *medians, ratio]


def notes(kind: str) -> Callable[[str, Record], Iterator[list[str]]]:
    """Rows of one kind of `notes.json`, which is written by hand."""

    def rows(_: str, record: Record) -> Iterator[list[str]]:
        for note in record[kind]:
            yield [note["what"], note["figure"], note["hardware"], note["date"]]

    return rows
