"""Sections on the trials of an entry: stability, epochs against time per epoch, comparisons."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dawnjax.analysis.comparison import compare_table
from dawnjax.analysis.entry_tables import epochs_table, stability_table, summaries
from dawnjax.analysis.leaderboard import ranking_seconds
from dawnjax.page import svg, words
from dawnjax.page.rows import Row, draw_pairs, draw_strips
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Table
from dawnjax.page.view import CellView, HeadView, Reasons, TableView, interval, shown
from dawnjax.report.boards import scope
from dawnjax.report.labels import by_key, entry_view, key_of, label, labels_by_key
from dawnjax.statistics.interval import FEWEST_TRIALS
from dawnjax.trials.group import Entry
from dawnjax.trials.trial_summary import Summary

MOST_ROWS = 44
"""Rows of a figure: the entries with the largest variation."""

MOST_COMPARISONS = 40

NO_INTERVAL = "no interval"


def stability_section(entries: Sequence[Entry]) -> Section | None:
    """Variation of the time over trials; None unless an entry has two."""
    table = stability_table(entries)
    if not any(summary.trials > 1 for _, summary in summaries(entries)):
        return None
    figure = _stability_figure(table, entries)
    shown_table = entry_view(
        table,
        entries,
        ["trials", "reached", "reached_fraction", "mean_seconds", "cv", "expected_seconds"]
        + ["compile_seconds"],
        caption="Entries of two trials or more",
        no_interval=NO_INTERVAL,
        keep=lambda record: (record["trials"] or 0) > 1,
    )
    return Section(
        name="stability",
        title="Stability over seeds",
        lead=(
            "Trials of an entry differ in their random seed alone. A difference between two "
            "systems that is smaller than the coefficient of variation says nothing after one "
            "trial of each.",
        ),
        blocks=(*([figure] if figure else []), shown_table),
        tables=(table,),
    )


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
        summary = entry.summary
        if (record["trials"] or 0) < 2:
            continue
        if summary is None or not summary.mean_seconds or summary.reached < 2:
            left_out.append((label(entry, benchmark=True), "fewer than two trials reached"))
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
            "A dot is a trial that reached the target, the line across the mean, the bar "
            f"the 95% interval of the mean, from {FEWEST_TRIALS} trials on. At the right: "
            "coefficient of variation, and trials that reached of all."
            + (f" The {MOST_ROWS} entries that vary most." if cut else "")
        ),
        draw=lambda width: draw_strips(rows, axis, width),
        left_out=tuple(left_out),
        tables=("stability",),
    )


def _strip(entry: Entry, name: str, summary: Summary, record: Mapping[str, Any]) -> _Strip:
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


def epochs_section(entries: Sequence[Entry]) -> Section | None:
    """Variation of the epochs to the target beside that of the time per epoch; None without any."""
    table = epochs_table(entries)
    several = [
        (entry, summary)
        for entry, summary in summaries(entries)
        if summary.reached > 1 and summary.epochs_mean
    ]
    if not several:
        return None
    pairs, left_out = _pairs_of_variations(several)
    cut = len(pairs) > MOST_ROWS
    if cut:
        pairs = sorted(pairs, key=lambda pair: -pair.values[0])[:MOST_ROWS]
    pairs.sort(key=lambda pair: pair.group)
    more = sum(epochs > time for epochs, time in (pair.values for pair in pairs))
    figure = _epochs_figure(pairs, left_out, cut)
    shown_table = entry_view(
        table,
        entries,
        ["reached", "epochs_mean", "epochs_std", "seconds_per_epoch_mean"]
        + ["seconds_per_epoch_std", "ratio_of_cvs"],
        caption="Entries of which two trials or more reached",
        keep=lambda record: (record["reached"] or 0) > 1,
    )
    return Section(
        name="epochs",
        title="Epochs against time per epoch",
        lead=(
            "Time to accuracy is epochs to the target times time per epoch. In "
            f"{more} of {len(pairs)} entries shown here the number of epochs varies more than "
            "the time per epoch: there the mathematics makes times differ, not the machine.",
        ),
        blocks=(*([figure] if figure else []), shown_table),
        tables=(table,),
    )


def _pairs_of_variations(
    several: Sequence[tuple[Entry, Summary]],
) -> tuple[list[Row], list[tuple[str, str]]]:
    """Rows of (CV of the epochs, CV of the time per epoch), and (entry, reason) left out."""
    pairs, left_out = [], []
    names = labels_by_key([entry for entry, _ in several])
    for entry, summary in several:
        if not summary.seconds_per_epoch_mean:
            left_out.append((label(entry, benchmark=True), "the time per epoch is not known"))
            continue
        if summary.epochs_std is None or summary.seconds_per_epoch_std is None:
            left_out.append((label(entry, benchmark=True), "epochs of one trial alone are known"))
            continue
        epochs_cv = summary.epochs_std / (summary.epochs_mean or 1.0)
        time_cv = summary.seconds_per_epoch_std / summary.seconds_per_epoch_mean
        ratio = summary.ratio_of_cvs
        pairs.append(
            Row(
                label=names[key_of(entry)],
                group=scope(entry.suite, entry.round, entry.benchmark),
                values=(epochs_cv, time_cv),
                note="" if ratio is None else words.times(ratio),
            )
        )
    return pairs, left_out


def _epochs_figure(
    pairs: Sequence[Row], left_out: Sequence[tuple[str, str]], cut: bool
) -> Figure | None:
    if not pairs:
        return None
    sentences = "; ".join(
        f"{pair.group} {pair.label}: epochs {words.percent(pair.values[0])}, time per "
        f"epoch {words.percent(pair.values[1])}"
        for pair in pairs
    )
    names = ("epochs to the target", "time per epoch")
    axis = svg.Axis("coefficient of variation (%)", words.percent, zero=True)
    return Figure(
        name="epochs",
        title="Variation of the epochs, and of the time per epoch",
        summary=sentences + ".",
        caption=(
            "Coefficients of variation over the trials that reached. At the right: the "
            "first over the second."
            + (f" The {MOST_ROWS} entries whose epochs vary most." if cut else "")
        ),
        draw=lambda width: draw_pairs(pairs, names, axis, width),
        left_out=tuple(left_out),
        tables=("epochs",),
    )


def comparisons_section(entries: Sequence[Entry]) -> Section | None:
    """Each entry against the next faster one of its benchmark and target; None without a pair."""
    groups: dict[tuple[str, ...], list[tuple[float, Entry]]] = {}
    for entry, summary in summaries(entries):
        seconds, _ = ranking_seconds(entry)
        if seconds is not None and summary.reached > 1:
            target = repr(dataclasses.astuple(entry.target))
            key = (entry.suite, entry.round, entry.benchmark, entry.data, target)
            groups.setdefault(key, []).append((seconds, entry))
    pairs = []
    for _, group in sorted(groups.items()):
        group.sort(key=lambda timed: (timed[0], timed[1].source))
        pairs += [(slow, fast) for (_, fast), (_, slow) in zip(group, group[1:], strict=False)]
    if not pairs:
        return None
    table = compare_table(pairs[:MOST_COMPARISONS])
    if len(pairs) > MOST_COMPARISONS:
        note = f"Of {len(pairs)} pairs of neighbours the first {MOST_COMPARISONS} are compared."
        table = dataclasses.replace(table, notes=(*table.notes, note))
    return Section(
        name="comparisons",
        title="Each entry against the next faster one",
        lead=(
            "Each entry of which two trials or more reached, beside the next faster one of its "
            "benchmark and target: the expected time of the faster over that of the slower, and "
            "the verdict that dawnjax compare gives. Fewer than "
            f"{FEWEST_TRIALS} trials of either leave it undecided.",
        ),
        blocks=(*_ratios_figure(pairs, table), _comparisons_view(table, entries)),
        tables=(table,),
    )


def _ratios_figure(pairs: Sequence[tuple[Entry, Entry]], table: Table) -> tuple[Figure, ...]:
    """Ratio of each of our own entries to the next slower one; empty without any."""
    names = labels_by_key([entry for pair in pairs for entry in pair])
    rows = []
    for (slow, fast), record in zip(pairs, table.records(), strict=False):
        if fast.suite != "dawnjax" or record["ratio"] is None:
            continue
        # Of fewer trials the ends are a range, and a bar is an interval.
        is_interval = record["ratio_ends"] == "95 %"
        word = str(record["verdict"]).replace("_", " ")
        rows.append(
            Row(
                label=f"{names[key_of(fast)]} / {names[key_of(slow)]}",
                group=scope(fast.suite, fast.round, fast.benchmark),
                values=(record["ratio"],),
                low=record["ratio_low"] if is_interval else None,
                high=record["ratio_high"] if is_interval else None,
                mean=1.0,
                note=f"{words.number(record['ratio'], 2)}× · {word}",
            )
        )
    if not rows:
        return ()
    axis = svg.Axis("ratio of expected times", words.times)
    said = "; ".join(f"{row.group}, {row.label}: {row.note}" for row in rows)
    figure = Figure(
        name="ratios",
        title="Each of our entries over the next slower one",
        summary=f"{said}.",
        caption=(
            "A dot is the ratio of expected times, faster over slower, the bar its 95% interval, "
            f"from {FEWEST_TRIALS} trials on. A bar that crosses the line at 1 leaves open which "
            "is faster."
        ),
        draw=lambda width: draw_strips(rows, axis, width),
        tables=("comparisons",),
    )
    return (figure,)


def _comparisons_view(table: Table, entries: Sequence[Entry]) -> TableView:
    names = {key_of(entry)[1:]: label(entry) for entry, _ in summaries(entries)}
    columns = {column.name: column for column in table.columns}
    reasons = Reasons()
    rows = []
    for record in table.records():
        benchmark = str(record["benchmark"])
        cells = [
            CellView(
                names.get((benchmark, str(record[name])), str(record[name])),
                f"{record[f'{name}_reached']} reached",
            )
            for name in ("first", "second")
        ]
        ratio = shown(record["ratio"], columns["ratio"])
        if record["ratio"] is None:
            ratio = dataclasses.replace(ratio, mark=reasons.mark(str(record["caution"] or "")))
        else:
            small = interval(record, "ratio", columns["ratio"])
            ratio = dataclasses.replace(ratio, small=small or NO_INTERVAL)
        why = "; ".join(filter(None, (record["why"], record["caution"])))
        word = str(record["verdict"]).replace("_", " ")
        verdict = CellView(word, mark=reasons.mark(why))
        advice = str(record["advice"] or "")
        rows.append((CellView(benchmark), *cells, ratio, verdict, CellView(advice or "-")))
    return TableView(
        name=table.name,
        caption=table.title,
        heads=(
            HeadView("benchmark"),
            HeadView("slower"),
            HeadView("faster"),
            HeadView("ratio of expected times", "95% interval", number=True),
            HeadView("verdict", "on the faster"),
            HeadView("further trials"),
        ),
        rows=tuple(rows),
        reasons=reasons.listed(),
        notes=table.notes,
        total=len(table.rows),
        header=1,
    )


def _signed(value: float) -> str:
    text = words.percent(value)
    return f"+{text}" if value > 0 else text.replace("-", "−")
