"""Learning curves with their spread: figures, their section, and their tables."""

import collections
import dataclasses
from collections.abc import Callable, Sequence

from dawnjax.analysis.leaderboard import ranking_seconds, targets
from dawnjax.analysis.learning_curves import learning_curve
from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Column, Table
from dawnjax.report.boards import with_target
from dawnjax.report.tables import scope
from dawnjax.trials.group import Entry
from dawnjax.trials.labels import (
    label,
    labels_apart,
    level_label,
    metric_label,
    metric_name,
    quality,
    round_quality,
    target_label,
)
from dawnjax.trials.target import Target
from dawnjax.trials.trial import Evaluation

_TABLE = "learning_curves"

MOST_NAMED = 6
"""Named lines in one figure: one for each colour."""

_FEW = 6
"""Trials with fewer evaluations than this, in the mean, are drawn without their median."""

MOST_STRANDS = 48
"""Trials of an entry are drawn one by one up to this number."""

MOST_ROWS = 60
"""Points of an entry's curve in the table."""

MOST_EVALUATIONS = 2000
"""Evaluations of an entry that a curve uses; of more, this many are taken at even steps."""


def groups_of(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    """Training entries with evaluations by benchmark, data and target, with each group's name."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        if entry.kind == "training" and any(trial.evaluations for trial in entry.trials):
            key = (entry.suite, entry.round, entry.benchmark, entry.data)
            groups.setdefault(key, []).append(entry)
    counts = collections.Counter(key[:3] for key in groups)
    named_groups = []
    for key, group in sorted(groups.items(), key=lambda item: (item[0][0] != "dawnjax", item[0])):
        parts = [scope(*key[:3])] + [key[3]] * (counts[key[:3]] > 1)
        name = " on ".join(filter(None, parts))
        of_all = targets(group)
        for target in of_all:
            ordered = sorted((entry for entry in group if entry.target == target), key=_by_speed)
            named_groups.append((with_target(name, target, of_all), ordered))
    return named_groups


def own_curves(entries: Sequence[Entry]) -> list[Figure]:
    """Quality against time of our own entries, and against cost where all have a price."""
    own = [entry for entry in entries if entry.suite == "dawnjax"]
    priced = [_in_dollars(entry) for entry in own if entry.cost_per_hour_usd is not None]
    costs = _figures(priced, ours=True, spent="cost") if len(priced) == len(own) else []
    return [*_figures(own, ours=True), *costs]


def learning_section(entries: Sequence[Entry]) -> Section | None:
    """Learning curves of official entries; None without any."""
    figures = _figures(entries, ours=False)
    if not figures:
        return None
    return Section(
        name="curves",
        title="Learning curves",
        lead=(CURVES,),
        blocks=tuple(figures),
    )


CURVES = (
    "The quality at each evaluation. An entry of several trials has a thin line for each, their "
    "median, and a band from the first to the third quartile. A line ends where its trial does; "
    "the median and the band carry a trial that reached its target or spent its budget forward at "
    "its last value. An entry with few evaluations shows only its trials."
)


def _in_dollars(entry: Entry) -> Entry:
    """The entry with dollars for the seconds of its evaluations."""
    rate = (entry.cost_per_hour_usd or 0.0) / 3600

    def priced(row: Evaluation) -> Evaluation:
        seconds = row.seconds_since_run_start
        usd = None if seconds is None else seconds * rate
        return dataclasses.replace(row, seconds_since_run_start=usd)

    trials = (
        dataclasses.replace(trial, evaluations=tuple(map(priced, trial.evaluations)))
        for trial in entry.trials
    )
    return dataclasses.replace(entry, trials=tuple(trials))


def _figures(entries: Sequence[Entry], *, ours: bool, spent: str = "time") -> list[Figure]:
    """Figures of the groups of entries; with `spent` "cost" their seconds are dollars."""
    prefix = "curves" if spent == "time" else "curves-cost"
    figures = [
        _curves_figure(f"{prefix}-{number}", title, group, spent)
        for number, (title, group) in enumerate(groups_of(entries), start=1)
        if (group[0].suite == "dawnjax") == ours
    ]
    return [figure for figure in figures if figure is not None]


def curve_tables(entries: Sequence[Entry]) -> list[Table]:
    """Table of the learning curves; none without any."""
    rows = []
    for _, group in groups_of(entries):
        for entry in group:
            points = svg.thinned(_curve(entry), MOST_ROWS)
            rows += [(entry.source, len(entry.trials), *point) for point in points]
    table = Table(
        name=_TABLE,
        title="Learning curves",
        columns=(
            Column("source", "entry"),
            Column("trials", "trials", kind="integer"),
            Column("seconds", "time", "s", "number"),
            Column("median", "median", kind="number"),
            Column("low", "first quartile", kind="number"),
            Column("high", "third quartile", kind="number"),
        ),
        rows=tuple(rows),
        notes=(
            "The metric in the entry's unit, each trial at its newest evaluation.",
            "A trial that reached its target or spent its budget keeps its last value. Points "
            "without a value for every trial are left out.",
            f"At most {MOST_ROWS} points per entry, evenly spaced by number, including the first "
            "and the last.",
        ),
    )
    return [table] if rows else []


def _curves_figure(name: str, title: str, group: Sequence[Entry], spent: str) -> Figure | None:
    """Learning curves of a group; None where no evaluation has its time."""
    in_words = words.duration if spent == "time" else words.usd
    target = group[0].target
    lines, left_out, sentences = [], [], []
    for entry, short in zip(group, labels_apart(group), strict=True):
        points, strands = _curve_and_strands(entry)
        if not points and not strands:
            left_out.append((label(entry), "its evaluations have no times"))
            continue
        if len(lines) == MOST_NAMED:
            left_out.append((label(entry), "too many lines for one figure"))
            continue
        shown = tuple(strands) if len(strands) <= MOST_STRANDS else ()
        if points or shown:
            sentences.append(_curve_in_words(entry, points, in_words))
            lines.append(plots.Line(short, tuple(points), shown))
    if not lines:
        return None
    lines, x = placed_in_time(lines)
    if spent == "cost":
        x = svg.Axis("cost since the start", words.usd, svg.ticks, x.log, x.zero)
    y = _quality_axis(target)
    reference = None if target.value is None else (target.value, level_label(target))
    return Figure(
        name=name,
        title=f"{title}: {metric_name(target)} against {spent}",
        summary=f"{target_label(target)}. " + "; ".join(sentences) + ".",
        caption=f"The {MOST_NAMED} fastest of {len(group)} entries."
        if len(group) > MOST_NAMED
        else "",
        draw=lambda width: plots.draw_lines(
            lines,
            x,
            y,
            width,
            reference=reference,
            least_y=_floor(lines, target),
            is_named=len(lines) > 1,
        ),
        left_out=tuple(left_out),
        tables=(_TABLE,) if spent == "time" else (),
    )


def _curve_and_strands(
    entry: Entry,
) -> tuple[list[tuple[float, ...]], list[tuple[tuple[float, float], ...]]]:
    """Median over an entry's trials (empty for few evaluations), and each trial's line."""
    strands, points = _strands(entry), _curve(entry)
    if len(strands) <= MOST_STRANDS and sum(map(len, strands)) < _FEW * len(strands):
        # With few evaluations, the newest ones of the trials are far apart in time, and their
        # median would not move while every trial rises.
        points = []
    return points, strands


def placed_in_time(lines: list[plots.Line]) -> tuple[list[plots.Line], svg.Axis]:
    """Lines and their axis of time, logarithmic where the lengths of runs differ much."""
    firsts = [point[0] for line in lines for point in line.every if point[0] > 0]
    lasts = [max(point[0] for point in line.every) for line in lines]
    log = min(lasts) > 0 and max(lasts) / min(lasts) > 12
    if log:
        # A first moment far before the rest would leave no room for the rest.
        start = max(min(firsts), min(lasts) / 30)
        lines = [_from(line, start) for line in lines]
    return lines, svg.Axis("time since the start", words.duration, svg.time_ticks, log, not log)


def _quality_axis(target: Target) -> svg.Axis:
    return svg.Axis(
        metric_label(target),
        lambda value: round_quality(value, target),
        exact=lambda value: quality(value, target),
        name=metric_name(target),
    )


def _curve(entry: Entry) -> list[tuple[float, ...]]:
    points = learning_curve(_thinned_entry(entry).trials)
    return [(point.seconds, point.median, point.low, point.high) for point in points]


def _strands(entry: Entry) -> list[tuple[tuple[float, float], ...]]:
    if len(entry.trials) < 2:
        return []
    strands = []
    for trial in _thinned_entry(entry).trials:
        places = [
            (row.seconds_since_run_start, row.value)
            for row in trial.evaluations
            if row.value == row.value  # a diverged trial ends in NaN
        ]
        known = [(at, value) for at, value in places if at is not None and at >= 0]
        if known:
            # By place alone, as `learning_curve`: two evaluations of one moment keep their order.
            strands.append(tuple(sorted(known, key=lambda point: point[0])))
    return strands


def _from(line: plots.Line, start: float) -> plots.Line:
    strands = (tuple(point for point in strand if point[0] >= start) for strand in line.strands)
    return line._replace(
        points=tuple(point for point in line.points if point[0] >= start),
        strands=tuple(strand for strand in strands if strand),
    )


def _curve_in_words(
    entry: Entry, points: Sequence[tuple[float, ...]], in_words: Callable[[float], str]
) -> str:
    """First and last value of the median in words, or why there is no median."""
    trials = words.count(len(entry.trials), "trial")
    if not points:
        return f"{label(entry)}: {trials}, drawn separately"
    return (
        f"{label(entry)}: from {quality(points[0][1], entry.target)} to "
        f"{quality(points[-1][1], entry.target)} after {in_words(points[-1][0])}, {trials}"
    )


def _thinned_entry(entry: Entry) -> Entry:
    total = sum(len(trial.evaluations) for trial in entry.trials)
    if total <= MOST_EVALUATIONS:
        return entry
    each = max(2, MOST_EVALUATIONS // len(entry.trials))
    trials = (
        dataclasses.replace(trial, evaluations=tuple(svg.thinned(trial.evaluations, each)))
        for trial in entry.trials
    )
    return dataclasses.replace(entry, trials=tuple(trials))


def _floor(lines: Sequence[plots.Line], target: Target) -> float | None:
    """Start of the y axis, which omits the first steps on the way to the target."""
    if target.value is None or target.direction != "at_least":
        return None
    values = sorted(point[1] for line in lines for point in line.every)
    least = values[len(values) // 7]
    return least if least < target.value else None


def _by_speed(entry: Entry) -> tuple[bool, float, str]:
    seconds, _ = ranking_seconds(entry)
    return seconds is None, seconds or 0.0, entry.source
