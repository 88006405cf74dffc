"""Section on scaling: systems of several sizes, by throughput and by time to accuracy."""

from collections.abc import Sequence

from dawnjax.analysis.scaling import scaling, seconds_of, series
from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Column, Missing, Table, row_of
from dawnjax.report.tables import COMPILATION, mean_compile_seconds
from dawnjax.trials.group import Entry


def pairs_of(entries: Sequence[Entry]) -> list[tuple[Entry, Entry]]:
    """Pairs of the smallest system of each series with each larger one."""
    pairs = []
    for group in series(entries):
        ordered = sorted(
            group,
            key=lambda entry: (entry.num_accelerators or 0, seconds_of(entry) or 0.0, entry.source),
        )
        small = ordered[0]
        pairs += [
            (small, large)
            for large in ordered[1:]
            if (large.num_accelerators or 0) > (small.num_accelerators or 0)
        ]
    return pairs


def scaling_section(entries: Sequence[Entry]) -> Section | None:
    """Speedup and efficiency over the number of accelerators; None without a series."""
    groups = series(entries)
    if not groups:
        return None
    return Section(
        name="scaling",
        title="Scaling",
        lead=(
            "Efficiency is the speedup of the time to accuracy divided by the ratio of "
            "accelerators. Throughput counts only examples a second, so losses to slower epochs "
            "(efficiency of throughput) and to more epochs (ratio of epochs) are separate.",
        ),
        blocks=(
            _scaling_figure(sorted(groups, key=lambda group: -len(group))),
            scaling_table(groups),
        ),
    )


def scaling_table(groups: Sequence[Sequence[Entry]]) -> Table:
    columns = (
        Column("series", "series"),
        Column("system", "system"),
        Column("source", "source", filed=True),
        Column("num_accelerators", "accelerators", kind="integer"),
        Column("global_batch_size", "batch size", kind="integer"),
        Column("seconds", "time to accuracy", "s", "number"),
        COMPILATION,
        Column("speedup", "speedup", "x", "number"),
        Column("efficiency", "efficiency", "", "fraction"),
        Column("gap_from_linear", "gap from linear", "x", "number", filed=True),
        Column("throughput_efficiency", "efficiency of throughput", "", "fraction"),
        Column("epochs_ratio", "ratio of epochs", "x", "number"),
    )
    no_epochs = Missing("epochs are not known")
    no_batch = Missing("the results have no single batch size for the whole job")
    rows, recipes = [], []
    for number, group in enumerate(groups, start=1):
        points = scaling(group)
        variants = sorted({point.entry.variant or "as it is" for point in points})
        if len(variants) > 1:
            recipes.append(f"Series {number} combines several recipes: {'; '.join(variants)}.")
        for point in points:
            entry, share, epochs = point.entry, point.throughput_efficiency, point.epochs_ratio
            rows.append(
                row_of(
                    columns,
                    point,
                    entry,
                    series=f"{number}: {entry.submitter} {entry.benchmark}".strip(),
                    system=entry.system or entry.hardware,
                    global_batch_size=entry.global_batch_size or no_batch,
                    compile_seconds=mean_compile_seconds(entry),
                    throughput_efficiency=no_epochs if share is None else share,
                    epochs_ratio=no_epochs if epochs is None else epochs,
                )
            )
    return Table(
        name="scaling",
        title="Scaling",
        columns=columns,
        rows=tuple(rows),
        notes=(
            "Against the smallest system of the series. Efficiency: speedup divided by ratio of "
            "accelerators.",
            "Time: the unscaled MLPerf score of the trials, without the fastest and the slowest; "
            "the mean for fewer than three trials.",
            "Recipes may differ between sizes, as the ratio of epochs and the batch size show.",
            *recipes,
        ),
    )


def _scaling_figure(groups: Sequence[Sequence[Entry]]) -> Figure:
    points, sentences, names = [], [], []
    for group in groups[: svg.SERIES]:
        series_points = scaling(group)
        names.append(_series_name(group))
        base, last = series_points[0].num_accelerators, series_points[-1]
        for point in series_points:
            many = point.num_accelerators
            points.append(
                plots.Point(
                    many / base,
                    point.speedup,
                    f"{many}" if point is last else "",
                    len(names) - 1,
                    name=f"{names[-1]}: {words.count(many, 'accelerator')}",
                )
            )
        sentences.append(
            f"{names[-1]}: {base} to {last.num_accelerators} accelerators, speedup "
            f"{words.times(last.speedup)}, efficiency {words.percent(last.efficiency)}"
        )
    why_left_out = "too many series for one figure; it is in the table"
    return Figure(
        name="scaling",
        title="Speedup of the time to accuracy over accelerators",
        summary="; ".join(sentences) + ".",
        caption=(
            "Both axes are ratios to the smallest system of the series. The number at the end of "
            "a line counts accelerators. A line joins the fastest system of each size."
        ),
        draw=lambda width: plots.draw_points(
            points,
            svg.Axis("ratio of accelerators", _factor, log=True, exact=words.times),
            svg.Axis("speedup", _factor, log=True, exact=words.times),
            width,
            diagonal="linear",
            series_names=names,
            joined=True,
        ),
        left_out=tuple((_series_name(group), why_left_out) for group in groups[svg.SERIES :]),
        tables=("scaling",),
    )


def _factor(value: float) -> str:
    return f"{words.plain(value)}×"


def _series_name(group: Sequence[Entry]) -> str:
    first = min(group, key=lambda entry: entry.num_accelerators or 0)
    what = first.model if first.suite == "dawnbench" else first.system or first.hardware
    who = words.shortened(first.submitter, 24)
    return f"{f'{who} {first.benchmark}'.strip()}, {words.shortened(what, 24)}"
