"""Sections on the way to the target: learning curves with their spread, other thresholds."""

import collections
import dataclasses
from collections.abc import Sequence

from dawnjax.analysis.entry_tables import mean_compile_seconds
from dawnjax.analysis.leaderboard import ranking_seconds, targets
from dawnjax.analysis.thresholds import (
    ThresholdTime,
    learning_curve,
    learning_curve_table,
    seconds_or_why,
    threshold_table,
    time_to_threshold,
)
from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure, Section
from dawnjax.page.view import CellView, HeadView, TableView, number_cell
from dawnjax.report.boards import scope, with_target
from dawnjax.report.labels import COMPILATION_HEAD, compilation_cell, label, labels_apart
from dawnjax.tasks.metric import KNOWN_METRICS
from dawnjax.trials.group import Entry, EntryTarget, Trial, reaches

MOST_NAMED = 6
"""Named lines in one figure: one for each colour."""

MOST_BEHIND = 40

_FEW = 6
"""Trials with fewer evaluations than this, in the mean, are drawn without their median."""

MOST_STRANDS = 48
"""Trials of an entry are drawn one by one up to this number."""

MOST_EVALUATIONS = 2000
"""Evaluations of an entry that a curve uses; of more, this many are taken at even steps."""

_STEPS_BELOW = 5


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


def learning_section(entries: Sequence[Entry]) -> Section | None:
    """Learning curves against time and, for our own runs, against epochs; None without any."""
    groups = groups_of(entries)
    if not groups:
        return None
    figures = []
    for number, (title, group) in enumerate(groups, start=1):
        ways = ("seconds", "epoch") if group[0].suite == "dawnjax" else ("seconds",)
        for against in ways:
            figure = _curves_figure(f"curves-{number}-{against}", title, group, against)
            if figure is not None:
                figures.append(figure)
    if not figures:
        return None
    all_entries = [entry for _, group in groups for entry in group]
    thin = [_thinned_entry(entry) for entry in all_entries]
    thinned = sum(new is not entry for new, entry in zip(thin, all_entries, strict=True))
    tables = [learning_curve_table(thin, against) for against in ("seconds", "epoch")]
    if thinned:
        note = (
            f"Of {thinned} entries with more than {MOST_EVALUATIONS} evaluations, as many evenly."
        )
        tables = [dataclasses.replace(table, notes=(*table.notes, note)) for table in tables]
    return Section(
        name="curves",
        title="Learning curves",
        lead=(
            "The quality at each evaluation. An entry of several trials has a thin line for each, "
            "their median, and a band from the first to the third quartile. A line ends where its "
            "trial does; in median and band a trial that reached its target or spent its budget is "
            "carried forward at its last value. An entry with few evaluations shows its trials "
            "alone.",
        ),
        blocks=tuple(figures),
        tables=tuple(tables),
    )


def thresholds_section(entries: Sequence[Entry]) -> Section | None:
    """Time to targets around the entries' own; None without evaluations."""
    blocks, tables = [], []
    for number, (title, group) in enumerate(groups_of(entries), start=1):
        target = group[0].target
        if target.value is None:
            continue
        levels = _levels(target)
        times = [[time_to_threshold(entry, level) for level in levels] for entry in group]
        tables.append(threshold_table(group, levels))
        figure = _threshold_figure(f"thresholds-{number}", title, group, times, target)
        if figure is not None:
            blocks += [figure, _threshold_view(title, group, times, target)]
    if not blocks:
        return None
    rows = tuple(row for table in tables for row in table.rows)
    return Section(
        name="thresholds",
        title="Other targets",
        lead=(
            "How the time depends on the quality that is asked for. Where lines cross, the "
            "target decides which system is faster.",
        ),
        blocks=tuple(blocks),
        tables=(dataclasses.replace(tables[0], rows=rows),),
    )


def quality(value: float, target: EntryTarget) -> str:
    """A metric's value in words; fractions in percent, others with the unit that a run declares."""
    hides = target.value is not None and not reaches(value, target.value, target.direction)
    if hides and reaches(float(f"{value:.4g}"), target.value or 0.0, target.direction):
        # Four digits would show a target as reached that was not.
        return _tick(value, target) + _unit_after(target)
    if target.unit == "fraction":
        return words.percent(value, 4)
    if target.unit == "percent":
        return f"{words.number(value, 4)}%"
    return words.number(value, 4) + _unit_after(target)


def _tick(value: float, target: EntryTarget) -> str:
    if target.unit == "fraction":
        return f"{words.plain(100 * value)}%"
    return words.plain(value) + ("%" if target.unit == "percent" else "")


def _unit_after(target: EntryTarget) -> str:
    """Unit behind a value; empty for a sign, or where it is the metric's own name."""
    unit = _UNITS.get(target.unit, target.unit)
    return "" if unit in ("", "%", target.title) or not target.title else f" {unit}"


def metric_name(target: EntryTarget) -> str:
    known = KNOWN_METRICS.get(target.metric)
    return target.title or (known.title if known else target.metric or "quality")


def metric_label(target: EntryTarget) -> str:
    """Label of a metric's axis: name, unit, and a note where lower is better."""
    name = metric_name(target)
    unit = _UNITS.get(target.unit, target.unit)
    shown = f"{name} ({unit})" if unit not in ("", name) else name
    return f"{shown}, lower is better" if target.direction == "at_most" else shown


_UNITS = {"fraction": "%", "percent": "%", "bleu": "BLEU", "1": ""}
"""Units as a page writes them, where it does not write them as they are declared."""


def target_label(target: EntryTarget) -> str:
    """A target in words: its metric's value, and what else must hold at the same evaluation."""
    return " and ".join([_level_label(target), *map(str, target.others)])


def _level_label(target: EntryTarget) -> str:
    if target.value is None:
        return "no target known"
    word = "at most " if target.direction == "at_most" else ""
    return f"target {word}{_tick(target.value, target)}{_unit_after(target)}"


def _alone(target: EntryTarget) -> str:
    """Words for a figure of one metric, where the target has several."""
    return f" of {metric_name(target)} alone" if target.others else ""


def _curves_figure(name: str, title: str, group: Sequence[Entry], against: str) -> Figure | None:
    """Learning curves of a group; None where no evaluation has its time or epoch."""
    target = group[0].target
    lines, left_out, sentences = [], [], []
    behind = 0
    for entry, short in zip(group, labels_apart(group), strict=True):
        points, strands = _curve_and_strands(entry, against)
        if not points and not strands:
            what_lacks = "epochs" if against == "epoch" else "times"
            left_out.append((label(entry), f"its evaluations have no {what_lacks}"))
            continue
        named = len(sentences) < MOST_NAMED
        if not named and behind >= MOST_BEHIND:
            left_out.append((label(entry), "too many lines for one figure"))
            continue
        if named:
            sentences.append(_curve_in_words(entry, points, against))
        behind += not named
        shown = tuple(strands) if named and len(strands) <= MOST_STRANDS else ()
        if points or shown:
            lines.append(plots.Line(short if named else "", tuple(points), shown, short))
    if not lines:
        return None
    lines, x = placed_along(lines, against)
    y = _quality_axis(target)
    reference = None if target.value is None else (target.value, _level_label(target))
    grey = f" Grey: {words.count(behind, 'other entry', 'other entries')}." if behind else ""
    how = "time" if against == "seconds" else "epochs"
    return Figure(
        name=name,
        title=f"{title}: {metric_name(target)} against {how}",
        summary=f"{target_label(target)}. " + "; ".join(sentences) + ".",
        caption=(f"Named: the {len(sentences)} fastest entries.{grey}" if behind else ""),
        draw=lambda width: plots.draw_lines(
            lines, x, y, width, reference=reference, least_y=_floor(lines, target)
        ),
        left_out=tuple(left_out),
        tables=(f"learning_curves_by_{against}",),
    )


def _curve_and_strands(
    entry: Entry, against: str
) -> tuple[list[tuple[float, ...]], list[tuple[tuple[float, float], ...]]]:
    """Median over an entry's trials (empty for few evaluations), and each trial's line."""
    strands = _strands(entry, against)
    points = _curve(entry, against)
    if len(strands) <= MOST_STRANDS and sum(map(len, strands)) < _FEW * len(strands):
        # With few evaluations, the newest ones of the trials are far apart in time, and their
        # median would not move while every trial rises.
        points = []
    return points, strands


def placed_along(lines: list[plots.Line], against: str) -> tuple[list[plots.Line], svg.Axis]:
    """Lines and their x axis, logarithmic where the lengths of runs differ much."""
    firsts = [point[0] for line in lines for point in line.every if point[0] > 0]
    lasts = [max(point[0] for point in line.every) for line in lines]
    log = against == "seconds" and min(lasts) > 0 and max(lasts) / min(lasts) > 12
    if log:
        # A first moment far before the rest would leave no room for the rest.
        start = max(min(firsts), min(lasts) / 30)
        lines = [_from(line, start) for line in lines]
    if against == "seconds":
        axis = svg.Axis("time since the start", words.duration, svg.time_ticks, log, not log)
    else:
        axis = svg.Axis("epochs", words.number, zero=True)
    return lines, axis


def _quality_axis(target: EntryTarget) -> svg.Axis:
    return svg.Axis(
        metric_label(target),
        lambda value: _tick(value, target),
        exact=lambda value: quality(value, target),
        name=metric_name(target),
    )


def _threshold_figure(
    name: str,
    title: str,
    group: Sequence[Entry],
    times: Sequence[Sequence[ThresholdTime]],
    target: EntryTarget,
) -> Figure | None:
    lines, left_out, sentences = [], [], []
    fastest = [pair for pair in zip(group, times, strict=True) if ranking_seconds(pair[0])[0]]
    shorts = labels_apart([entry for entry, _ in fastest[:MOST_NAMED]])
    for (entry, entry_times), short in zip(fastest[:MOST_NAMED], shorts, strict=True):
        points = [
            (time.threshold, time.mean_seconds)
            for time in entry_times
            if time.mean_seconds is not None and time.mean_seconds > 0
        ]
        if len(points) < 2:
            left_out.append((label(entry), "fewer than two thresholds were reached by all trials"))
            continue
        sentences.append(
            f"{label(entry)}: "
            + ", ".join(f"{quality(at, target)} in {words.duration(s)}" for at, s in points)
        )
        lines.append(plots.Line(short, tuple(points)))
    if not lines or target.value is None:
        return None
    quality_axis = _quality_axis(target)
    x = quality_axis._replace(label=f"threshold, {quality_axis.label}", name="threshold")
    y = svg.Axis("time to it", words.duration, svg.time_ticks, log=True)
    more = f"The {MOST_NAMED} fastest entries. " if len(group) > MOST_NAMED else ""
    return Figure(
        name=name,
        title=f"{title}: time to other thresholds{_alone(target)}",
        summary=f"{target_label(target)}. " + "; ".join(sentences) + ".",
        caption=(
            f"{more}The {target_label(target)}. A line ends at the last threshold that all trials "
            "reached."
        ),
        draw=lambda width: plots.draw_lines(lines, x, y, width),
        left_out=tuple(left_out),
        tables=("thresholds",),
    )


def _threshold_view(
    title: str,
    group: Sequence[Entry],
    times: Sequence[Sequence[ThresholdTime]],
    target: EntryTarget,
) -> TableView:
    rows = []
    compiled = any(mean_compile_seconds(entry) is not None for entry in group)
    for entry, entry_times in list(zip(group, times, strict=True))[: 2 * MOST_NAMED]:
        cells = [CellView(label(entry), entry.source if entry.suite == "dawnjax" else "")]
        for time in entry_times:
            mean = seconds_or_why(time)
            if isinstance(mean, str):
                cells.append(CellView(mean, kind="null"))
            else:
                cells.append(number_cell(mean, words.duration(mean)))
        if compiled:
            cells.append(compilation_cell(entry))
        rows.append(tuple(cells))
    heads = [HeadView("entry")]
    for time in times[0]:
        # A time to the first of several targets is no time to accuracy.
        is_target = time.threshold == target.value and not target.others
        small = "target" if is_target else ""
        heads.append(HeadView(_tick(time.threshold, target), small, number=True))
    if compiled:
        heads.append(COMPILATION_HEAD)
    return TableView(
        name="thresholds",
        caption=f"{title}: time to each threshold{_alone(target)}",
        heads=tuple(heads),
        rows=tuple(rows),
        total=len(group),
    )


def _levels(target: EntryTarget) -> list[float]:
    """Round thresholds around the target, one of them beyond it."""
    if target.value is None:
        return []
    step = {"fraction": 0.005, "percent": 0.5, "bleu": 0.5}.get(target.unit.lower(), 0.0)
    step = step or abs(target.value) / 100 or 0.01
    sign = -1 if target.direction == "at_most" else 1
    levels = [target.value + sign * step * number for number in range(-_STEPS_BELOW, 2)]
    # Sums of binary fractions would show as 0.7549999999999999.
    return [round(level, 9) for level in levels]


def _curve(entry: Entry, against: str) -> list[tuple[float, ...]]:
    points = learning_curve(_thinned_entry(entry).trials, against)
    return [(point.at, point.median, point.low, point.high) for point in points]


def _strands(entry: Entry, against: str) -> list[tuple[tuple[float, float], ...]]:
    if len(entry.trials) < 2:
        return []
    strands = []
    for trial in _thinned_entry(entry).trials:
        places = [
            (row.epoch if against == "epoch" else row.seconds_since_run_start, row.value)
            for row in trial.evaluations
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


def _curve_in_words(entry: Entry, points: Sequence[tuple[float, ...]], against: str) -> str:
    """First and last value of the median in words, or why there is no median."""
    trials = words.count(len(entry.trials), "trial")
    if not points:
        return f"{label(entry)}: {trials}, drawn one by one"
    place, unit = (words.duration, "") if against == "seconds" else (words.number, " epochs")
    return (
        f"{label(entry)}: from {quality(points[0][1], entry.target)} to "
        f"{quality(points[-1][1], entry.target)} after "
        f"{place(points[-1][0])}{unit}, {trials}"
    )


def _thinned_entry(entry: Entry) -> Entry:
    total = sum(len(trial.evaluations) for trial in entry.trials)
    if total <= MOST_EVALUATIONS:
        return entry
    each = max(2, MOST_EVALUATIONS // len(entry.trials))

    def thin(trial: Trial) -> Trial:
        rows = trial.evaluations
        if len(rows) <= each:
            return trial
        step = (len(rows) - 1) / (each - 1)
        chosen = tuple(rows[round(number * step)] for number in range(each))
        return dataclasses.replace(trial, evaluations=chosen)

    return dataclasses.replace(entry, trials=tuple(map(thin, entry.trials)))


def _floor(lines: Sequence[plots.Line], target: EntryTarget) -> float | None:
    """Start of the y axis, which omits the first steps on the way to the target."""
    if target.value is None or target.direction != "at_least":
        return None
    values = sorted(point[1] for line in lines if line.label for point in line.every)
    least = values[len(values) // 7]
    return least if least < target.value else None


def _by_speed(entry: Entry) -> tuple[bool, float, str]:
    seconds, _ = ranking_seconds(entry)
    return seconds is None, seconds or 0.0, entry.source
