"""Cells of the tables: hardware, versions, means and intervals."""

import statistics

from benchmarks.harness import Rounds
from benchmarks.result_tables.result_files import Record
from dawnjax.page import words


def machine(record: Record) -> str:
    """Hardware of a result, and the load before the first figure, where it is known."""
    load = record["environment"].get("load_before")
    return hardware(record) + ("" if load is None else f", load {load:g} before")


def hardware(record: Record) -> str:
    """Accelerators of a result, or else cores and processor."""
    facts = record["environment"]
    accelerators = facts.get("accelerators", [])
    if accelerators:
        return f"{len(accelerators)} x {accelerators[0].split(',')[0]}"
    processor = facts["processor"].replace("(R)", "").removesuffix(" Processor")
    return f"{words.count(facts['cores'], 'core')} of {processor}"


def when(record: Record, *names: str) -> str:
    """Day of a result, and versions of the named packages."""
    facts = record["environment"]
    installed = [(name, facts["versions"].get(name)) for name in names]
    versions = ", ".join(
        f"{name} {version.split('+')[0]}" for name, version in installed if version
    )
    return facts["date"][:10] + (f"; {versions}" if versions else "")


def interval(low: float, high: float, digits: int = 3) -> str:
    return f"{low:,.{digits}f} to {high:,.{digits}f}"


def spread(values: list[float], digits: int) -> str:
    """Mean, population standard deviation and extremes; one value alone has no spread."""
    if not values:
        return "none"
    if len(values) == 1:
        return f"{values[0]:,.{digits}f}"
    mean, deviation = statistics.fmean(values), statistics.pstdev(values)
    return (
        f"{mean:,.{digits}f} (sd {deviation:.{digits}f}; "
        f"{interval(min(values), max(values), digits)})"
    )


def present(rows: list[Record], field: str) -> list[float]:
    return [row[field] for row in rows if row.get(field) is not None]


def compared_row(record: Record, what: str, facts: Record, digits: int) -> list[str]:
    """Row of a comparison: both medians and their ratio."""
    rounds = Rounds.of(facts)
    medians = [f"{median:,.{digits}f}" for median in rounds.medians]
    ratio = rounds.ratio.text(0 if rounds.ratio.value >= 100 else 3)
    where = [machine(record), when(record, "jax")]
    return [what, *where, str(len(rounds.first)), *medians, ratio]
