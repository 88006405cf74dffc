"""Many trials of one question: studies, protocols of evaluation, fine-tuning, faults."""

import statistics
from collections.abc import Iterator

from benchmarks.harness import Rounds
from benchmarks.result_tables.cells import interval, machine, mean_with_interval, when
from benchmarks.result_tables.result_files import Record
from dawnjax.statistics.interval import ALPHA


def evaluation_negatives(name: str, record: Record) -> Iterator[list[str]]:
    """Spread of each protocol and metric over draws and over seeds."""
    titles = {"hit_rate_at_10": "HR@10", "ndcg_at_10": "NDCG@10"}
    where = f"{record['num_seeds']} seeds, {record['draws']} draws; {when(record, 'jax')}"
    for row in record["protocols"]:
        yield [
            f"{titles[row['metric']]} among {row['num_negatives']}",
            f"{row['mean']:.4f}",
            f"{row['std_over_draws']:.4f}",
            f"{row['std_over_seeds']:.4f}",
            interval(*row["least_and_most_draw_mean"], digits=4),
            where,
        ]
        where = ""
    for metric, values in record["all_items"].items():
        mean, deviation = statistics.fmean(values), statistics.pstdev(values)
        yield [f"{titles[metric]} among all items", f"{mean:.4f}", "none", f"{deviation:.4f}"]
    trials = record["trials"]
    reached = [trial["epochs"] for trial in trials if trial["reached"]]
    yield [
        "epochs to the target, seed 0",
        f"{statistics.fmean(reached):.1f}",
        f"{statistics.pstdev(reached):.1f}",
        "one seed",
        interval(min(reached), max(reached), digits=0),
        f"{len(reached)} of {len(trials)} draws reach it",
    ]


def verdicts(_: str, record: Record) -> Iterator[list[str]]:
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


def study_trials(name: str, record: Record) -> Iterator[list[str]]:
    """A step in a study and alone, and the duration of all trials."""
    where = [machine(name, record), when(record, "jax"), str(record["trials"])]
    steps = Rounds.of(record["step_milliseconds"])
    sides = [f"{median:.2f} ms" for median in steps.medians]
    yield [*where, "a step", *sides, steps.ratio.text()]
    study, loop = record["study_seconds"], record["loop_seconds"]
    yield ["", "", "", "all trials", f"{study:.1f} s", f"{loop:.1f} s", f"{study / loop:.3f}"]


def fine_tuning(name: str, record: Record) -> Iterator[list[str]]:
    """Accuracy on classes unseen by the source: from scratch, fine-tuned, the difference."""
    rows = record["rows"]
    sides = [[row[f"{side}_accuracy"] for row in rows] for side in ("source", "anew", "tuned")]
    gains = [tuned - anew for tuned, anew in zip(sides[2], sides[1], strict=True)]
    yield [
        record["experiment"],
        machine(name, record),
        when(record, "jax"),
        f"{len(rows)} seeds, epochs: {record['epochs']:g}",
        *(_changed(flags) for flags in (record["flags"], record["tuned_flags"].split())),
        *(mean_with_interval(side) for side in [*sides, gains]),
    ]


def _changed(flags: list[str]) -> str:
    return ", ".join(f"`{flag.removeprefix('--')}`" for flag in flags) or "-"


def faults(name: str, record: Record) -> Iterator[list[str]]:
    """Campaign of tests/support/campaign.py: what was tried, and how often its promise held."""
    tried, held = record["tried"], record["held"]
    count = f"{held:,} of {tried:,}" if held == tried else f"**{held:,}** of {tried:,}"
    largest = ", ".join(f"{value:,.3g} {unit}" for unit, value in record["largest"].items())
    where = [machine(name, record), when(record, "jax")]
    yield [record["what"], record["promise"], count, largest, *where]
