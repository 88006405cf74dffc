"""What other entries need to reach what the first of a group reached, along its curve."""

from collections.abc import Sequence

from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Column, Table
from dawnjax.report.curves import MOST_NAMED, groups_of
from dawnjax.statistics.interval import CONFIDENCE
from dawnjax.study.at_budget import Iso, iso
from dawnjax.trials.group import OTHER, Entry
from dawnjax.trials.labels import label, labels_apart, metric_name

_TABLE = "iso_quality"
_COLUMNS = (
    Column("source", "entry"),
    Column("beside", "beside"),
    Column("unit", "unit"),
    Column("place", "reached at", kind="number"),
    Column("quality", "quality", kind="number"),
    Column("other", "needed", kind="number"),
    Column("low", "at least", kind="number"),
    Column("high", "at most", kind="number"),
    Column("speedup", "speedup", kind="number"),
)

_LEAD = (
    "How much sooner an entry reaches each quality on the curve of its benchmark's slowest entry: "
    "above 1 it needs less. Curves are means over all trials. The band has the points where the "
    "two means do not differ at 5 %, by Welch's test. It holds at each point, not along the whole "
    "curve, and needs 5 trials of each."
)


def iso_quality_section(entries: Sequence[Entry]) -> Section | None:
    """Speedups to equal quality in each benchmark of several entries; None without any."""
    figures: list[Figure] = []
    rows: list[tuple] = []
    for number, (title, group) in enumerate(groups_of(entries), start=1):
        if group[0].suite not in ("dawnjax", OTHER):
            continue  # clocks of official entries are each submitter's own
        first, others = group[-1], group[:-1][:MOST_NAMED]
        found = [(entry, curve) for entry in others if (curve := iso(first, entry)) is not None]
        for entry, curve in found:
            rows += [_row(entry, first, curve, point) for point in curve.points]
        if figure := _figure(f"iso-quality-{number}", title, first, found):
            figures.append(figure)
    if not rows:
        return None
    table = Table(name=_TABLE, title="Speedup to equal quality", columns=_COLUMNS, rows=tuple(rows))
    return Section(
        name="iso_quality",
        title="Speedup to equal quality",
        lead=(_LEAD,),
        blocks=tuple(figures),
        tables=(table,),
    )


def _row(entry: Entry, first: Entry, curve: Iso, point) -> tuple:
    found = point.speedup
    return (
        entry.source,
        first.source,
        curve.unit,
        point.place,
        point.quality,
        point.other,
        point.low,
        point.high,
        found and found.value,
    )


def _figure(
    name: str, title: str, first: Entry, found: Sequence[tuple[Entry, Iso]]
) -> Figure | None:
    lines, left_out, sentences = [], [], []
    names = labels_apart([entry for entry, _ in found])
    units = {curve.unit for _, curve in found}
    for (entry, curve), short in zip(found, names, strict=True):
        points = []
        for point in curve.points:
            ratio = point.speedup
            if ratio is not None:
                ends = (ratio.low, ratio.high)
                spread = ends if None not in ends else (ratio.value, ratio.value)
                points.append((point.place, ratio.value, *spread))
        if len(points) == 1:
            left_out.append((label(entry), "the two share only one quality"))
        elif points and len(units) == 1:
            band = f"{100 * CONFIDENCE:g} %"
            lines.append(plots.Line(short, tuple(points), band=band))
            place, ratio = points[-1][:2]
            sentences.append(f"{short}: {words.times(ratio)} at {_place(curve.unit, place)}")
        else:
            left_out.append((label(entry), "the two share no quality"))
    if not lines:
        return None
    [unit] = units
    beside = label(first)
    text = words.duration if unit == "seconds" else words.plain
    spaced = svg.time_ticks if unit == "seconds" else svg.ticks
    x = svg.Axis("time since the start" if unit == "seconds" else unit, text, spaced)
    y = svg.Axis("speedup to equal quality", words.times)
    return Figure(
        name=name,
        title=f"{title}: speedup to the {metric_name(first.target)} of {beside}",
        summary="; ".join(sentences) + ".",
        caption=f"Horizontal: where {beside} reaches the quality.",
        draw=lambda width: plots.draw_lines(lines, x, y, width, reference=(1.0, "equally fast")),
        left_out=tuple(left_out),
        tables=(_TABLE,),
    )


def _place(unit: str, place: float) -> str:
    return words.duration(place) if unit == "seconds" else f"{words.plain(place)} {unit}"
