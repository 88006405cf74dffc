"""Sections on the trials of an entry: stability, epochs against time per epoch, comparisons."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dawnjax.analysis.comparison import compare
from dawnjax.analysis.leaderboard import ranking_seconds
from dawnjax.page import svg, words
from dawnjax.page.rows import Row, draw_strips
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Column, Missing, Table
from dawnjax.report.tables import scope, stability_table, summaries
from dawnjax.statistics.interval import FEWEST_TRIALS
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES
from dawnjax.trials.figures import Figures
from dawnjax.trials.group import Entry
from dawnjax.trials.labels import by_key, key_of, label, labels_by_key

MOST_ROWS = 44
"""Rows of a figure: the entries with the largest variation."""

MOST_COMPARISONS = 40


def stability_section(entries: Sequence[Entry]) -> Section | None:
    """Variation of the time over trials; None unless an entry has two."""
    several = [entry for entry, summary in summaries(entries) if summary.trials > 1]
    if not several:
        return None
    table = stability_table(several)
    figure = _stability_figure(table, several)
    return Section(
        name="stability",
        title="Stability over seeds",
        lead=(
            "Trials of an entry differ in their random seed alone. A difference between two "
            "systems that is smaller than the coefficient of variation says nothing after one "
            "trial of each.",
            *_varying_epochs(several),
        ),
        blocks=(*([figure] if figure else []), table),
    )


def _varying_epochs(entries: Sequence[Entry]) -> list[str]:
    """How often epochs vary more than their time, in a sentence; empty where no logs tell."""
    ratios = [summary.ratio_of_cvs for _, summary in summaries(entries)]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return []
    return [
        "Time to accuracy is epochs to the target times time per epoch. In "
        f"{sum(ratio > 1 for ratio in known)} of {len(known)} entries the number of epochs varies "
        "more than the time per epoch: there the mathematics makes times differ, not the machine."
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


def comparisons_section(entries: Sequence[Entry]) -> Section | None:
    """Each entry against the next faster one of its benchmark and target; None without a pair."""
    groups: dict[tuple[str, ...], list[tuple[float, Entry]]] = {}
    for entry, summary in summaries(entries):
        is_ranked = ranking_seconds(entry)[0] is not None
        # Not the MLPerf score, which the ratio below is not of.
        seconds = summary.expected_seconds
        if is_ranked and seconds is not None and summary.reached > 1:
            target = repr(dataclasses.astuple(entry.target))
            key = (entry.suite, entry.round, entry.benchmark, entry.data, target)
            groups.setdefault(key, []).append((seconds, entry))
    pairs = []
    for _, group in sorted(groups.items()):
        group.sort(key=lambda timed: (timed[0], timed[1].source))
        pairs += [(slow, fast) for (_, fast), (_, slow) in zip(group, group[1:], strict=False)]
    if not pairs:
        return None
    table = compare_table(pairs[:MOST_COMPARISONS], labels_by_key(entries))
    if len(pairs) > MOST_COMPARISONS:
        note = f"Of {len(pairs)} pairs of neighbours the first {MOST_COMPARISONS} are compared."
        table = dataclasses.replace(table, notes=(*table.notes, note))
    return Section(
        name="comparisons",
        title="Each entry against the next faster one",
        lead=(
            "Each entry of which two trials or more reached, beside the next faster one of its "
            "benchmark and target: the expected time of the faster over that of the slower, and "
            "the verdict that dawnjax compare gives. MLPerf entries too are ordered by their "
            "expected time here, not by their score. Fewer than "
            f"{FEWEST_TRIALS} trials of either leave it undecided.",
        ),
        blocks=(table,),
    )


def compare_table(
    pairs: Sequence[tuple[Entry, Entry]], names: Mapping[tuple[str, ...], str]
) -> Table:
    """Table of the verdicts on the second of each pair; `names` are those of `labels_by_key`."""
    rows = []
    for first, second in pairs:
        value = compare(first, second)
        verdict = value.verdict
        ratio = verdict and verdict.ratio
        rows.append(
            (
                names[key_of(first)],
                names[key_of(second)],
                first.benchmark,
                value.first,
                value.second,
                *map(_reached, (first, second)),
                ratio.value if ratio else Missing(value.caution),
                ratio and ratio.low,
                ratio and ratio.high,
                ratio and ratio.ends,
                words.of_name(verdict.word) if verdict else words.NOT_KNOWN,
                verdict and verdict.why,
                value.caution,
                verdict.advice.text() if verdict and verdict.advice else "",
            )
        )
    return Table(
        name="comparisons",
        title="Comparisons",
        columns=(
            Column("slower", "slower"),
            Column("faster", "faster"),
            Column("benchmark", "benchmark", under="slower"),
            Column("first", "source of the slower", filed=True),
            Column("second", "source of the faster", filed=True),
            Column("first_reached", "reached", under="slower"),
            Column("second_reached", "reached", under="faster"),
            Column("ratio", "ratio of expected times", "x", "number"),
            Column("ratio_low", "from", "x", "number"),
            Column("ratio_high", "to", "x", "number"),
            Column("ratio_ends", "the ends are"),
            Column("verdict", "verdict on the faster"),
            Column("why", "why", under="verdict"),
            Column("caution", "caution", under="verdict"),
            Column("advice", "further trials"),
        ),
        rows=tuple(rows),
        notes=(
            "Expected time of the faster over that of the slower.",
            f"With fewer than {FEWEST_TRIALS} trials of either ({FEWEST_WITH_FAILURES} where some "
            "did not reach) there is no interval and no verdict; the range is that of the ratios "
            "of single trials.",
            "Each verdict stands for itself: of pairs of equal systems, 5 in 100 are found to "
            "differ.",
        ),
    )


def _reached(entry: Entry) -> str:
    return f"{sum(trial.reached for trial in entry.trials)} of {len(entry.trials)} reached"


def _signed(value: float) -> str:
    text = words.percent(value)
    return f"+{text}" if value > 0 else text.replace("-", "−")
