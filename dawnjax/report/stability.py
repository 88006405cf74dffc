"""Section on the trials of an entry: their spread, and whether epochs or their time vary more."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dawnjax.analysis.leaderboard import why_no_time
from dawnjax.page import svg, words
from dawnjax.page.rows import Row, draw_strips
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Cell, Column, Table
from dawnjax.report.tables import (
    COMPILATION,
    WHAT,
    entry_table,
    mean_compile_seconds,
    scope,
    summaries,
)
from dawnjax.statistics.interval import FEWEST_TRIALS, Interval
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES
from dawnjax.trials.figures import Figures
from dawnjax.trials.group import Entry
from dawnjax.trials.labels import by_key, key_of, label, labels_by_key

MOST_ROWS = 44
"""Rows of a figure: the entries with the largest variation."""


def stability_section(entries: Sequence[Entry]) -> Section | None:
    """Variation of the time over trials; None unless an entry has two."""
    known = [(entry, summary) for entry, summary in summaries(entries) if entry.has_target]
    several = [entry for entry, summary in known if summary.trials > 1]
    if not several:
        return None
    table = stability_table(several)
    figure = _stability_figure(table, several)
    return Section(
        name="stability",
        title="Stability over seeds",
        lead=(
            "Trials of an entry differ only in their random seed. After one trial of each system, "
            "a difference smaller than the coefficient of variation says nothing.",
            *_varying_epochs(several),
        ),
        blocks=(*([figure] if figure else []), table),
    )


def stability_table(entries: Sequence[Entry]) -> Table:
    """Table of fraction reached, times, CV and epochs of each entry, with 95 % intervals.

    Below `FEWEST_TRIALS` trials their range replaces the mean's interval, and `mean_seconds_ends`
    says so.
    """
    columns = (
        *WHAT,
        Column("trials", "trials", kind="integer"),
        Column("reached", "reached", kind="integer"),
        *_interval_columns("reached_fraction", "fraction reached", "", "fraction"),
        *_interval_columns("mean_seconds", "mean time to accuracy", "s", "number"),
        Column("cv", "coefficient of variation", kind="fraction"),
        *_interval_columns("expected_seconds", "expected time to accuracy", "s", "number"),
        COMPILATION,
        Column("epochs_mean", "epochs", kind="number"),
        Column("epochs_std", "± epochs", kind="number", filed=True),
        Column("seconds_per_epoch_mean", "time per epoch", "s", "number"),
        Column("seconds_per_epoch_std", "± time per epoch", "s", "number", filed=True),
        Column("ratio_of_cvs", "CV of epochs / of their time", kind="number"),
        Column("interrupted", "has interrupted trials", kind="flag", filed=True),
    )

    def cells_of(entry: Entry, found: Figures) -> dict[str, Cell]:
        return {
            **_ends("reached_fraction", found.reached_interval),
            **_ends("mean_seconds", found.mean_interval),
            **_ends("expected_seconds", found.expected_interval),
            "reached": found.reached + found.untimed,
            "reached_fraction": (found.reached + found.untimed) / found.trials,
            "mean_seconds": found.mean_seconds if found.reached else why_no_time(entry),
            "compile_seconds": mean_compile_seconds(entry),
            "interrupted": any(trial.interruptions > 0 for trial in entry.trials),
        }

    notes = (
        "Coefficient of variation: population standard deviation divided by mean, for the trials "
        "that reached.",
        "Expected time: time of all trials divided by the number that reached. It has an interval "
        f"from {FEWEST_WITH_FAILURES} trials on if some did not reach. If all reached, its upper "
        "end adds the misses that so many trials cannot rule out, each at the experiment's whole "
        "budget: a lot with few trials. The interval of the mean holds if all trials reach.",
        "95 % intervals: Wilson's for the fraction, t intervals of the logarithm for the others. "
        f"With fewer than {FEWEST_TRIALS} trials the ends are the range.",
        "Time per epoch is time to accuracy divided by epochs, including start-up and evaluation. "
        "The ratio of CVs is 0 if the epochs do not vary (arXiv 1806.01427, Table 4).",
    )
    title = "Stability of the time to accuracy"
    return entry_table("stability", title, columns, entries, cells_of, notes)


def _varying_epochs(entries: Sequence[Entry]) -> list[str]:
    """How often epochs vary more than their time, in a sentence; empty where no logs tell."""
    ratios = [summary.ratio_of_cvs for _, summary in summaries(entries)]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return []
    return [
        "Time to accuracy is epochs to the target times time per epoch. In "
        f"{sum(ratio > 1 for ratio in known)} of {len(known)} entries the number of epochs varies "
        "more than the time per epoch: there the times differ because of the mathematics, not the "
        "machine."
    ]


class _Strip(NamedTuple):
    """Row of the stability figure, its CV to sort by, and a sentence for readers without sight."""

    cv: float
    row: Row
    sentence: str


def _stability_figure(table: Table, entries: Sequence[Entry]) -> Figure | None:
    keyed, names = by_key(entries), labels_by_key(entries)
    strips, left_out = [], []
    for record in table.records():
        entry = keyed[(record["suite"], record["benchmark"], record["source"])]
        summary = entry.figures
        if not summary.mean_seconds or summary.reached < 2:
            left_out.append((label(entry, benchmark=True), "fewer than two times are known"))
        else:
            strips.append(_strip(entry, names[key_of(entry)], summary, record))
    if not strips:
        return None
    cut = len(strips) > MOST_ROWS
    if cut:
        strips = sorted(strips, key=lambda strip: -strip.cv)[:MOST_ROWS]
    rows = sorted((strip.row for strip in strips), key=lambda row: row.group)
    axis = svg.Axis("time to accuracy, difference from the mean (%)", _signed)
    return Figure(
        name="stability",
        title="Each trial against the mean of its entry",
        summary="; ".join(strip.sentence for strip in strips) + ".",
        caption=(
            "A dot is a trial that reached the target, the line across is the mean, and the bar "
            f"is its 95% interval, from {FEWEST_TRIALS} trials on. At the right: coefficient of "
            "variation, and how many trials reached."
            + (f" The {MOST_ROWS} entries that vary most." if cut else "")
        ),
        draw=lambda width: draw_strips(rows, axis, width),
        left_out=tuple(left_out),
        tables=("stability",),
    )


def _strip(entry: Entry, name: str, summary: Figures, record: Mapping[str, Any]) -> _Strip:
    mean = summary.mean_seconds or 0.0
    low, high = record["mean_seconds_low"], record["mean_seconds_high"]
    # A bar is an interval and no range: dots show the range.
    ends = record["mean_seconds_ends"] == "95 %"
    fraction = f"{summary.reached}/{summary.trials}"
    cv = words.percent(summary.cv or 0.0)
    times = [t.time_to_accuracy_seconds for t in entry.trials]
    differences = [(time, time / mean - 1) for time in times if time is not None]
    row = Row(
        label=name,
        group=scope(entry.suite, entry.round, entry.benchmark),
        values=tuple(difference for _, difference in differences),
        low=low / mean - 1 if ends and low else None,
        high=high / mean - 1 if ends and high else None,
        mean=0.0,
        note=f"{cv} · {fraction}",
        titles=tuple(
            f"{words.duration(time)}, {_signed(difference)} from the mean of {words.duration(mean)}"
            for time, difference in differences
        ),
    )
    said = f"{label(entry, benchmark=True)}: mean {words.duration(mean)}, CV {cv}, {fraction}"
    return _Strip(summary.cv or 0.0, row, said)


def _signed(value: float) -> str:
    text = words.percent(value)
    return f"+{text}" if value > 0 else text.replace("-", "−")


def _interval_columns(name: str, label: str, unit: str, kind: str) -> tuple[Column, ...]:
    return (
        Column(name, label, unit, kind),
        Column(f"{name}_low", f"{label}, from", unit, kind),
        Column(f"{name}_high", f"{label}, to", unit, kind),
        Column(f"{name}_ends", f"{label}, the ends are"),
    )


def _ends(name: str, interval: Interval | None) -> dict[str, Cell]:
    low, high, ends = (
        (interval.low, interval.high, interval.ends or None) if interval else (None, None, None)
    )
    return {f"{name}_low": low, f"{name}_high": high, f"{name}_ends": ends}
