"""Distributions over the time of computation: use of the peak, and throughput.

Source: Coleman et al. 2019, "Analysis of DAWNBench, a time-to-accuracy machine learning performance
benchmark", figures 7 to 11.
"""

from collections.abc import Mapping

from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure
from dawnjax.page.table import Column, Table
from dawnjax.trials.hosts import Distribution, Roofline

_FIELDS = {
    "peak_use_cdf": (
        "Fraction of the peak used by the running op",
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


def distributions(rooflines: Mapping[str, Roofline]) -> tuple[list[Figure], list[Table]]:
    """Figures and tables from the rooflines of several runs.

    One run alone has tables and no figure: a distribution says something beside another.
    """
    figures, tables = [], []
    for field, (title, x) in _FIELDS.items():
        of_runs = {run: getattr(roofline, field) for run, roofline in rooflines.items()}
        found = {run: points for run, points in of_runs.items() if is_distribution(points)}
        if len(found) > 1:
            figures.append(_figure(field, title, x, found))
        if found:
            tables.append(_table(field, title, found))
    return figures, tables


def is_distribution(points: Distribution) -> bool:
    """True if points ascend, to fractions of which some lie above a half and none above 1."""
    ascends = list(points) == sorted(points)
    return ascends and bool(points) and 0.5 <= points[-1][1] <= 1 + 1e-6


def _figure(field: str, title: str, x: svg.Axis, found: Mapping[str, Distribution]) -> Figure:
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
        caption="The further right a line rises, the more of its device a program uses.",
        draw=lambda width: plots.draw_lines(lines, x, y, width),
        tables=(field,),
    )


def _table(field: str, title: str, found: Mapping[str, Distribution]) -> Table:
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


def _steps(points: Distribution) -> list[tuple[float, float]]:
    """Corners of a step function that rises at each value."""
    corners, below = [], 0.0
    for value, fraction in points:
        corners += [(value, below), (value, fraction)]
        below = fraction
    return corners
