"""Time to qualities around the target: another target may make another system the faster one."""

from collections.abc import Mapping, Sequence

from dawnjax.page.section import Section
from dawnjax.page.table import Column, Table
from dawnjax.report.curves import groups_of
from dawnjax.trials.figures import figures
from dawnjax.trials.group import Entry
from dawnjax.trials.labels import label, metric_name
from dawnjax.trials.target import Target

_BELOW = 3
"""Levels below the target. One lies beyond it."""

_NAME = "thresholds"

_LONG = (
    Column("source", "entry"),
    Column("metric", "metric"),
    Column("threshold", "threshold", kind="number"),
    Column("trials", "trials", kind="integer"),
    Column("reached", "reached", kind="integer"),
    Column("mean_seconds", "mean time", "s", "number"),
)

_STEPS = {"fraction": 0.005, "percent": 0.5}
"""From one level to the next, by the unit of the metric; a hundredth of the target in others."""


def thresholds_section(entries: Sequence[Entry]) -> Section | None:
    """Times to qualities around each target; the page shows groups of entries to compare."""
    shown, rows = [], []
    for title, group in groups_of(entries):
        target = group[0].target
        times = [(entry, _times(entry, target)) for entry in group]
        rows += [(entry.source, target.metric, *row) for entry, found in times for row in found]
        reached = {label(e): found for e, found in times if any(row[2] for row in found)}
        if len(reached) > 1:
            shown.append(_wide(title, target, reached))
    if not rows:
        return None
    return Section(
        name="thresholds",
        title="Other targets",
        lead=(
            "The time to a lower or higher quality. Where the order changes, the target decides "
            "which system is faster.",
        )
        if shown
        else (),
        folded=tuple(shown),
        tables=(Table(name=_NAME, title="Time to other targets", columns=_LONG, rows=tuple(rows)),),
    )


def levels(target: Target) -> list[float]:
    """Qualities around the target, the target among them; empty where it is not known."""
    if target.value is None:
        return []
    step = _STEPS.get(target.unit.lower(), abs(target.value) / 100 or 0.01)
    sign = -1 if target.direction == "at_most" else 1
    # Sums of binary fractions would show as 0.7549999999999999.
    return [round(target.value + sign * step * n, 9) for n in range(-_BELOW, 2)]


def _times(entry: Entry, target: Target) -> list[tuple[float, int, int, float | None]]:
    """Level, trials, those that reached it, and their mean time; none where some did not."""
    times = []
    for level in levels(target):
        found = figures(entry.trials, level, target.direction)
        # A mean of some trials would be that of the fast ones.
        mean = found.mean_seconds if found.reached == found.trials else None
        times.append((level, found.trials, found.reached + found.untimed, mean))
    return times


def _wide(title: str, target: Target, times: Mapping[str, Sequence[tuple]]) -> Table:
    word = "at most " if target.direction == "at_most" else ""
    return Table(
        name=_NAME,
        title=f"{title}: time to other values of {metric_name(target)}",
        columns=(
            Column("entry", "entry"),
            *(
                Column(f"seconds_to_{level:g}", f"{word}{level:g}", "s", "number")
                for level in levels(target)
            ),
        ),
        rows=tuple((entry, *(row[3] for row in found)) for entry, found in times.items()),
        notes=(
            "The end of the first evaluation that reaches the value, mean over the trials; empty "
            "where a trial did not reach it. Of a target with several metrics, the first.",
        ),
    )
