"""Figures of profiles: roofline of a run's ops, and their distributions over time.

They are made of the field `roofline` of a result.

Source of the distributions: Coleman et al. 2019, "Analysis of DAWNBench, a time-to-accuracy machine
learning performance benchmark", figures 7 to 11.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure

_NAMED_OPS = 5
"""Ops of the roofline whose names are written: those that take the longest."""


def roofline_figure(name: str, whose: str, kept: Mapping[str, Any]) -> Figure | None:
    """Draw each op at its FLOPs per byte and its FLOP/s, below the bounds of its device."""
    ops = roofline_ops(kept)
    if not ops:
        return None
    total = sum(op["seconds_per_step"] for op in ops)
    points = [
        plots.Point(
            op["flops_per_byte"],
            op["flops_per_second"],
            op["name"] if number < _NAMED_OPS else "",
            series=0 if op["has_products"] else 1,
            name=op["name"],
            size=3 + 12 * math.sqrt(op["seconds_per_step"] / total),
            more=(f"{words.duration(op['seconds_per_step'])} a step",),
        )
        for number, op in enumerate(ops)
    ]
    x = svg.Axis("FLOP a byte, as if nothing stayed in a cache", words.plain, log=True,
                 exact=words.number, name="FLOP a byte")  # fmt: skip
    y = svg.Axis("FLOP/s of one device", _flops, log=True, name="FLOP/s")
    bound = _bound(kept, [point.x for point in points])
    series = ("products and convolutions", "element-wise")
    shown = [series[index] for index in sorted({point.series for point in points})]
    if len(shown) == 1:
        points = [point._replace(series=0) for point in points]
    return Figure(
        name=name,
        title=f"Roofline of the ops{f', {whose}' if whose else ''}",
        summary="; ".join(
            f"{op['name']}: {words.duration(op['seconds_per_step'])} a step, "
            f"{words.number(op['flops_per_byte'])} FLOP a byte, {_flops(op['flops_per_second'])}"
            for op in ops[:_NAMED_OPS]
        )
        + ".",
        caption=(
            f"The {len(ops)} ops that take the longest, larger marks longer. The dashed "
            "line is the most that memory (left) and arithmetic (right) allow."
        ),
        draw=lambda width: plots.draw_points(points, x, y, width, bound=bound, series_names=shown),
        tables=("roofline",),
    )


def peak_use_figure(kept_by_name: Mapping[str, Mapping[str, Any]]) -> Figure | None:
    """Draw the time-weighted distribution of the share of the peak that products use."""
    return _distribution(
        kept_by_name,
        "peak_use_cdf",
        "Use of the peak by the op that runs, over the time of computation",
        svg.Axis("FLOP/s of products as a share of the peak", words.percent, zero=True),
    )


def throughput_figure(kept_by_name: Mapping[str, Mapping[str, Any]]) -> Figure | None:
    """Draw the time-weighted distribution of the FLOP/s of the running op."""
    return _distribution(
        kept_by_name,
        "throughput_cdf",
        "Throughput of the op that runs, over the time of computation",
        svg.Axis("FLOP/s of one device", _flops, zero=True),
    )


def _distribution(
    kept_by_name: Mapping[str, Mapping[str, Any]], field: str, title: str, x: svg.Axis
) -> Figure | None:
    lines, sentences = [], []
    for name, kept in kept_by_name.items():
        points = distribution_points(kept.get(field))
        if points and len(lines) < svg.SERIES:
            lines.append(plots.Line(name, tuple(_steps(points)), marked=False))
            half = next(value for value, share in points if share >= 0.5)
            sentences.append(f"{name}: half of the time at {x.text(half)} or less")
    if not lines:
        return None
    y = svg.Axis("share of the time of computation at or below", words.percent, zero=True,
                 name="share of the time")  # fmt: skip
    return Figure(
        name=field.removesuffix("_cdf"),
        title=title,
        summary="; ".join(sentences) + ".",
        caption="The further to the right a line rises, the more of its device a program uses.",
        tables=(field,),
        draw=lambda width: plots.draw_lines(lines, x, y, width),
    )


def _flops(value: float) -> str:
    return words.scaled(value, "FLOP/s")


def _bound(kept: Mapping[str, Any], intensities: Sequence[float]) -> plots.Line | None:
    peak, bandwidth = (
        _positive(kept.get(name)) for name in ("peak_flops_per_second", "peak_bytes_per_second")
    )
    if peak is None or bandwidth is None:
        return None
    low = min(*intensities, peak / bandwidth)
    high = max(*intensities, 2 * peak / bandwidth)
    corners = [low, peak / bandwidth, high]
    return plots.Line(
        f"peak, {kept.get('peak_source') or 'source not known'}",
        tuple((at, min(peak, at * bandwidth)) for at in corners),
    )


def roofline_ops(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Ops that a result keeps for its roofline, the longest first, without damaged ones."""
    rows = kept.get("ops")
    names = ("seconds_per_step", "flops_per_byte", "flops_per_second")
    return [
        {**{name: row[name] for name in names}, "name": str(row.get("layer") or row.get("op")),
         "has_products": row.get("has_products") is True}
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and all(_positive(row.get(name)) for name in names)
    ]  # fmt: skip


def distribution_points(points: Any) -> list[tuple[float, float]]:
    """Ascending points of a distribution; empty where a log holds anything else."""
    found = []
    for pair in points if isinstance(points, list) else []:
        if not isinstance(pair, list) or len(pair) != 2:
            return []
        value, share = pair
        if (value != 0 and not _positive(value)) or not _positive(share) or share > 1 + 1e-6:
            return []
        found.append((float(value), float(share)))
    ascends = found == sorted(found) and bool(found) and found[-1][1] >= 0.5
    return found if ascends else []


def _positive(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < math.inf else None


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Corners of a step function that rises at each value."""
    corners, below = [], 0.0
    for value, share in points:
        corners += [(value, below), (value, share)]
        below = share
    return corners
