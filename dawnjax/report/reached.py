"""The trials that reached their target by each moment: figures and their table."""

import dataclasses
from collections.abc import Sequence

from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure
from dawnjax.page.table import Column, Table
from dawnjax.report.curves import MOST_NAMED, groups_of, placed_along
from dawnjax.runs.logged_run import FINAL_STATUSES
from dawnjax.trials.group import Entry
from dawnjax.trials.labels import label, labels_apart

LEAD = (
    "The fraction of all trials that had reached the target by each moment; a trial that never "
    "reached counts among all. A line ends with the entry's last trial."
)


def reached_figures(entries: Sequence[Entry], *, ours: bool) -> list[Figure]:
    """Fraction of an entry's trials that reached, against time; none without two trials."""
    figures, _ = _figures(entries)
    return [
        dataclasses.replace(figure, caption=f"{LEAD} {figure.caption}".strip())
        for is_own, figure in figures
        if is_own == ours
    ]


def reached_tables(entries: Sequence[Entry]) -> list[Table]:
    """Table of all entries drawn; none without any."""
    _, drawn = _figures(entries)
    return [_table(drawn)] if drawn else []


def _figures(entries: Sequence[Entry]) -> tuple[list[tuple[bool, Figure]], list[Entry]]:
    """Figure of each group, with True for our own, and the entries in them."""
    figures, drawn = [], []
    for number, (title, group) in enumerate(groups_of(entries), start=1):
        known = [entry for entry in group if _steps(entry)]
        over = [entry for entry in known if not _unfinished(entry)]
        named = over[:MOST_NAMED]
        if named:
            left_out = [(label(entry), why) for entry in known if (why := _unfinished(entry))]
            figure = _figure(f"reached-{number}", title, named, len(over), left_out)
            figures.append((named[0].suite == "dawnjax", figure))
            drawn += named
    return figures, drawn


def _unfinished(entry: Entry) -> str:
    """Reason for no line where a trial may still reach; empty if all are over."""
    over = (*FINAL_STATUSES, "failed")
    ours = entry.suite == "dawnjax"  # other trials have ended, in words of their own
    count = sum(ours and not t.reached and t.status not in over for t in entry.trials)
    return f"{count} of {len(entry.trials)} trials not finished" if count else ""


def _figure(
    name: str,
    title: str,
    group: Sequence[Entry],
    number_over: int,
    left_out: Sequence[tuple[str, str]],
) -> Figure:
    shorts = labels_apart(group)
    lines = [
        plots.Line(short, tuple(_corners(_steps(entry))), marked=False)
        for entry, short in zip(group, shorts, strict=True)
    ]
    lines, x = placed_along(lines, "seconds")
    y = svg.Axis("trials that reached", words.percent, zero=True)
    said = [
        f"{label(entry)}: {entry.figures.reached} of {len(entry.trials)}, the first after "
        f"{words.duration(_steps(entry)[1][0])}"
        for entry in group
    ]
    return Figure(
        name=name,
        title=f"{title}: trials that reached against time",
        summary="; ".join(said) + ".",
        caption=(
            f"The {len(group)} fastest of {number_over} entries with several trials."
            if number_over > len(group)
            else ""
        ),
        draw=lambda width: plots.draw_lines(lines, x, y, width),
        left_out=tuple(left_out),
        tables=("reached_by_time",),
    )


def _steps(entry: Entry) -> list[tuple[float, float]]:
    """Moments in seconds, from 0 to the end of the last trial, each with the fraction by then.

    Empty for fewer than two trials, and where none reached at a known moment.
    """
    known = [trial.time_to_accuracy_seconds for trial in entry.trials if trial.reached]
    times = sorted(seconds for seconds in known if seconds is not None)
    if len(entry.trials) < 2 or not times or len(times) < len(known):
        return []
    total = len(entry.trials)
    steps = [(seconds, count / total) for count, seconds in enumerate(times, 1)]
    ends = [trial.clock_seconds or 0.0 for trial in entry.trials]
    return [(0.0, 0.0), *steps, (max(*ends, times[-1]), len(times) / total)]


def _corners(steps: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points of a staircase: the fraction holds until the next moment."""
    points = [steps[0]]
    for at, fraction in steps[1:]:
        points += [(at, points[-1][1]), (at, fraction)]
    return points


def _table(entries: Sequence[Entry]) -> Table:
    return Table(
        name="reached_by_time",
        title="Trials that reached, against time",
        columns=(
            Column("source", "entry"),
            Column("seconds", "time", "s", "number"),
            Column("reached_fraction", "reached by then", kind="fraction"),
            Column("trials", "trials", kind="integer"),
        ),
        rows=tuple(
            (entry.source, at, fraction, len(entry.trials))
            for entry in entries
            for at, fraction in _steps(entry)
        ),
        notes=("All trials count, those that never reached too.",),
    )
