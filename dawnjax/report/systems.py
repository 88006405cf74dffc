"""Sections on systems: throughput against time to accuracy, scaling, and counts."""

from collections.abc import Callable, Mapping, Sequence

from dawnjax.analysis.comparison import speedup, speedup_table
from dawnjax.analysis.counts import counts_table
from dawnjax.analysis.scaling import scaling, scaling_table, seconds_of, series
from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Table
from dawnjax.page.view import CellView, HeadView, Record, TableView, number_cell, view
from dawnjax.report.boards import scope
from dawnjax.report.labels import key_of, label
from dawnjax.trials.group import Entry

MOST_NUMBERED = 30


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


def speedups_section(entries: Sequence[Entry]) -> Section | None:
    """Speedup in throughput against that in time to accuracy (arXiv 1806.01427, Table 7)."""
    pairs = pairs_of(entries)
    if not pairs:
        return None
    table = speedup_table(pairs)
    figure = _speedups_figure(pairs)
    names = {key_of(entry)[1:]: label(entry) for pair in pairs for entry in pair}
    shown = ["benchmark", "small", "large", "throughput_speedup", "tta_speedup"]
    shown += ["small_epochs", "large_epochs", "small_batch_size", "large_batch_size"]
    sides = {side: _side_cell(side, names) for side in ("small", "large")}
    shown_table = view(table, shown, why=_why_no_speedup, cells=sides)
    return Section(
        name="speedups",
        title="Throughput against time to accuracy",
        lead=(
            "Throughput counts examples a second; time to accuracy also counts how many are "
            "needed.",
        ),
        blocks=(*([figure] if figure else []), shown_table),
        tables=(table,),
    )


def _side_cell(side: str, names: Mapping[tuple[str, ...], str]) -> Callable[[Record], CellView]:
    return lambda row: CellView(names.get((row["benchmark"], row[side]), row[side]))


def _speedups_figure(pairs: Sequence[tuple[Entry, Entry]]) -> Figure | None:
    points, left_out, sentences = [], [], []
    benchmarks = sorted({_benchmark(small) for small, _ in pairs})[: svg.SERIES]
    for small, large in pairs:
        value = speedup(small, large)
        name = f"{small.benchmark}: {_short(small)} to {_short(large)}"
        if value.throughput is None or value.tta is None:
            left_out.append((name, "no score" if value.tta is None else "epochs not known"))
        elif _benchmark(small) not in benchmarks or len(points) >= MOST_NUMBERED:
            left_out.append((name, "too many points for one figure"))
        else:
            series_of, number = benchmarks.index(_benchmark(small)), len(points) + 1
            points.append(plots.Point(value.throughput, value.tta, name, series_of, number))
            sentences.append(
                f"{name}: throughput {words.times(value.throughput)}, time to accuracy "
                f"{words.times(value.tta)}"
            )
    if not points:
        return None
    shown_names = [benchmarks[index] for index in sorted({point.series for point in points})]
    points = [
        point._replace(series=shown_names.index(benchmarks[point.series])) for point in points
    ]
    return Figure(
        name="speedups",
        title="Speedup of throughput against speedup of time to accuracy",
        summary="; ".join(sentences) + ".",
        caption=(
            "Each number is a larger system against the smallest of its series. Below the "
            "line, throughput gained more than the time to accuracy."
        ),
        draw=lambda width: plots.draw_points(
            points,
            svg.Axis("throughput speedup", _factor, log=True, exact=words.times),
            svg.Axis("time-to-accuracy speedup", _factor, log=True, exact=words.times),
            width,
            diagonal="equal",
            key=True,
            series_names=shown_names,
            floors=(1.0, 1.0),
        ),
        left_out=tuple(left_out),
        tables=("speedups",),
    )


def scaling_section(entries: Sequence[Entry]) -> Section | None:
    """Speedup and efficiency over the number of accelerators; None without a series."""
    groups = series(entries)
    if not groups:
        return None
    table = scaling_table(groups)
    return Section(
        name="scaling",
        title="Scaling",
        lead=(
            "Efficiency is speedup over ratio of accelerators. What is lost to slower epochs "
            "(efficiency of throughput) and to more epochs (ratio of epochs) stands apart.",
        ),
        blocks=(
            _scaling_figure(sorted(groups, key=lambda group: -len(group))),
            view(
                table,
                ["series", "system", "num_accelerators", "global_batch_size", "seconds"]
                + ["compile_seconds", "speedup", "efficiency", "gap_from_linear"]
                + ["throughput_efficiency", "epochs_ratio"],
                why=_why_not_scaled,
                hide_empty=("compile_seconds",),
            ),
        ),
        tables=(table,),
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


def counts_section(entries: Sequence[Entry]) -> Section | None:
    """Number of entries of each processor class and framework."""
    if not entries:
        return None
    table = counts_table(entries)
    return Section(
        name="counts",
        title="Number of entries",
        lead=("Entries by processor class and by framework.",),
        blocks=(
            _pivot(table, "processor_class", "by processor"),
            _pivot(table, "framework_family", "by framework"),
        ),
        tables=(table,),
    )


def _pivot(table: Table, field: str, caption: str) -> TableView:
    sums: dict[tuple[str, str], dict[str, int]] = {}
    totals: dict[str, int] = {}
    for record in table.records():
        key = (str(record["suite"]), f"{record['benchmark']}, {record['kind']}")
        value, number = str(record[field]), int(record["entries"] or 0)
        of_key = sums.setdefault(key, {})
        of_key[value] = of_key.get(value, 0) + number
        totals[value] = totals.get(value, 0) + number
    columns = sorted(totals, key=lambda value: (-totals[value], value))
    rows = []
    for (suite, benchmark), of_key in sums.items():
        name, _, round_name = suite.partition(" ")
        cells = [CellView(benchmark, scope(name, round_name, ""))]
        numbers = [*(of_key.get(value, 0) for value in columns), sum(of_key.values())]
        cells += [number_cell(number, words.grouped(number)) for number in numbers]
        rows.append(tuple(cells))
    heads = [HeadView("benchmark"), *(HeadView(value, number=True) for value in columns)]
    return TableView(
        name=table.name,
        caption=f"Entries {caption}",
        heads=(*heads, HeadView("all", number=True)),
        rows=tuple(rows),
        notes=table.notes if field == "framework_family" else (),
        total=len(rows),
    )


def _benchmark(entry: Entry) -> str:
    return scope(entry.suite, entry.round, entry.benchmark)


def _factor(value: float) -> str:
    return f"{words.plain(value)}×"


def _series_name(group: Sequence[Entry]) -> str:
    first = min(group, key=lambda entry: entry.num_accelerators or 0)
    what = first.model if first.suite == "dawnbench" else first.system or first.hardware
    who = words.shortened(first.submitter, 24)
    return f"{f'{who} {first.benchmark}'.strip()}, {words.shortened(what, 24)}"


def _short(entry: Entry) -> str:
    system = entry.system or entry.hardware
    return f"{words.shortened(system, 24)} ({entry.num_accelerators})"


def _why_not_scaled(name: str, record) -> str:
    if name in ("throughput_efficiency", "epochs_ratio"):
        return "epochs are not known"
    if name == "global_batch_size":
        return "the results tell no one batch size of the whole job"
    return ""


def _why_no_speedup(name: str, record) -> str:
    if name.endswith("batch_size"):
        return "the results tell no one batch size of the whole job"
    if name == "tta_speedup":
        return "one of the two has no score: fewer than 3 trials, or too many did not reach"
    if name == "throughput_speedup" or name.endswith("epochs"):
        return "epochs are not known"
    return ""
