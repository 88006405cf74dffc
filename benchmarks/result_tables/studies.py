"""Simulated claims, and campaigns of faults."""

from collections.abc import Iterator

from benchmarks.result_tables.cells import machine, when
from benchmarks.result_tables.result_files import Record
from dawnjax.statistics.interval import ALPHA


def verdicts(record: Record) -> Iterator[list[str]]:
    """Each simulated claim and kind of times: how often, by the trials of each side."""
    cases: dict[tuple[str, str], list[str]] = {}
    for row in record["rows"]:
        cases.setdefault((row["claim"], row["times"]), []).append(_share(row))
    yield from ([*case, ", ".join(shares)] for case, shares in cases.items())


def _share(row: Record) -> str:
    """Share of a row's repetitions, bold where it is wrong more often than it may be by chance."""
    share = 100 * row["found"] / row["of"]
    most = 100 * (ALPHA + 3 * (ALPHA * (1 - ALPHA) / row["of"]) ** 0.5)
    is_bold = share > most and row["group"] != "power" and "found" not in row["claim"]
    return f"{row['trials']}: " + (f"**{share:.1f} %**" if is_bold else f"{share:.1f} %")


def faults(record: Record) -> Iterator[list[str]]:
    """Campaign of tests/support/campaign.py: what was tried, and how often its promise held."""
    tried, held = record["tried"], record["held"]
    count = f"{held:,} of {tried:,}" if held == tried else f"**{held:,}** of {tried:,}"
    largest = ", ".join(f"{value:,.3g} {unit}" for unit, value in record["largest"].items())
    where = [machine(record), when(record, "jax")]
    yield [record["what"], record["promise"], count, largest, *where]
