"""Distributions over the time of computation: use of the peak, and throughput.

Source: Coleman et al. 2019, "Analysis of DAWNBench, a time-to-accuracy machine learning performance
benchmark", figures 7 to 11.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure
from dawnjax.page.table import Column, Table

_FIELDS = {
    "peak_use_cdf": (
        "Use of the peak by the running op",
        svg.Axis("FLOP/s of products as a fraction of the peak", words.percent, zero=True),
    ),
    "throughput_cdf": (
        "Throughput of the running op",
        svg.Axis(
            "FLOP/s of one device", lambda value: words.scaled(value, "FLOP/s"), zero=True
        ),
    ),
}  # fmt: skip
"""Fields of a host's roofline, each with its title and axis."""


def distributions(
    kept_by_run: Mapping[str, Mapping[str, Any]],
) -> tuple[list[Figure], list[Table]]:
    """Figures and tables from the rooflines of several runs.

    One run alone has tables and no figure: a distribution says something beside another.
    """
    figures, tables = [], []
    for field, (title, x) in _FIELDS.items():
        found = {
            run: points
            for run, kept in kept_by_run.items()
            if (points := distribution_points(kept.get(field)))
        }
        if len(found) > 1:
            figures.append(_figure(field, title, x, found))
        if found:
            tables.append(_table(field, title, found))
    return figures, tables


def distribution_points(points: Any) -> list[tuple[float, float]]:
    """Ascending (value, fraction of the time); empty where a log holds anything else."""
    found = []
    for pair in points if isinstance(points, list) else []:
        is_pair = isinstance(pair, list) and len(pair) == 2
        if not is_pair or not all(type(item) in (int, float) for item in pair):
            return []
        value, fraction = map(float, pair)
        if not (0 <= value < float("inf") and 0 < fraction <= 1 + 1e-6):
            return []
        found.append((value, fraction))
    ascends = found == sorted(found) and bool(found) and found[-1][1] >= 0.5
    return found if ascends else []


def _figure(
    field: str, title: str, x: svg.Axis, found: Mapping[str, Sequence[tuple[float, float]]]
) -> Figure:
    lines, sentences = [], []
    for run, points in list(found.items())[: svg.SERIES]:
        lines.append(plots.Line(run, tuple(_steps(points)), marked=False))
        half = next(value for value, fraction in points if fraction >= 0.5)
        sentences.append(f"{run}: half of the time at {x.text(half)} or less")
    y = svg.Axis("fraction of the time at or below", words.percent, zero=True,
                 name="fraction of the time")  # fmt: skip
    return Figure(
        name=field.removesuffix("_cdf"),
        title=f"{title}, over the time of computation",
        summary="; ".join(sentences) + ".",
        caption="The further to the right a line rises, the more of its device a program uses.",
        draw=lambda width: plots.draw_lines(lines, x, y, width),
        tables=(field,),
    )


def _table(field: str, title: str, found: Mapping[str, Sequence[tuple[float, float]]]) -> Table:
    return Table(
        name=field,
        title=f"{title}, over the time of computation",
        columns=(
            Column("run", "run"),
            Column("value", "value", kind="number"),
            Column("fraction_of_time", "fraction of the time", kind="fraction"),
        ),
        rows=tuple((run, *point) for run, points in found.items() for point in points),
    )


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Corners of a step function that rises at each value."""
    corners, below = [], 0.0
    for value, fraction in points:
        corners += [(value, below), (value, fraction)]
        below = fraction
    return corners
