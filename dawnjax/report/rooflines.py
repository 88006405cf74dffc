"""Rooflines of profiled runs, from the field `roofline` of a result."""

import math
import os.path
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure
from dawnjax.page.table import Column, Table
from dawnjax.report.distributions import distributions
from dawnjax.trials.trial import Trial

_NAMED_OPS = 5
"""Ops of the roofline whose names are written: those that take the longest."""

_OPS = (
    Column("run", "run"),
    Column("op", "op"),
    Column("seconds_per_step", "a step", "s", "number"),
    Column("flops_per_byte", "FLOP a byte", kind="number"),
    Column("flops_per_second", "FLOP/s", kind="number"),
    Column("has_products", "products", kind="flag"),
)


def rooflines(runs: Sequence[Trial]) -> tuple[list[Figure], list[Table], list[Table], str]:
    """Figures and tables of the first profiled run of each experiment.

    Returns:
      Figures, tables of the page, tables that only files have, and the names of runs left out.
    """
    kept, left_out = _chosen(runs)
    figures = [
        _figure(f"roofline-{number}", name, of_run)
        for number, (name, of_run) in enumerate(kept.items(), 1)
    ]
    more, filed = distributions(kept)
    return figures + more, [_ops_table(kept)] if kept else [], filed, left_out


def _chosen(runs: Sequence[Trial]) -> tuple[dict[str, Mapping[str, Any]], str]:
    """Rooflines by the run's name, and the names of the runs that are left out."""
    chosen: dict[str, Mapping[str, Any]] = {}
    seen, left_out = set(), []
    for run in runs:
        kept = _kept(run)
        if kept is None:
            continue
        key = run.experiment, repr(sorted(run.overrides.items()))
        if key in seen or len(chosen) == svg.SERIES:
            left_out.append(run.name)
        else:
            seen.add(key)
            chosen[run.name] = kept
    return chosen, ", ".join(left_out)


def _kept(run: Trial) -> Mapping[str, Any] | None:
    for host in run.hosts:
        kept = field_of(host, "utilization", "roofline")
        if isinstance(kept, Mapping) and _ops(kept):
            return kept
    return None


def _ops_table(kept: Mapping[str, Mapping[str, Any]]) -> Table:
    return Table(
        name="roofline",
        title="The ops that take the longest",
        columns=_OPS,
        rows=tuple(
            (run, op["name"], *(op[column.name] for column in _OPS[2:]))
            for run, of_run in kept.items()
            for op in _ops(of_run)
        ),
        notes=("Bytes are counted as if nothing stayed in a cache.",),
    )


def _figure(name: str, whose: str, kept: Mapping[str, Any]) -> Figure:
    """Draw each op at its FLOPs per byte and its FLOP/s, below the bounds of its device."""
    ops = _ops(kept)
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


def _ops(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Ops that a result keeps for its roofline, the longest first, without damaged ones."""
    rows = kept.get("ops")
    fields = ("seconds_per_step", "flops_per_byte", "flops_per_second")
    sound = [
        row
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and all(_positive(row.get(field)) for field in fields)
    ]
    return [
        {**{field: row[field] for field in fields}, "name": name,
         "has_products": row.get("has_products") is True}
        for row, name in zip(sound, op_names(sound), strict=True)
    ]  # fmt: skip


def field_of(host: Any, *path: str) -> Any:
    """A log's value in objects inside each other; None where one is none, or has no such field."""
    for name in path:
        host = host.get(name) if isinstance(host, Mapping) else None
    return host


def op_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of ops by their layer, without the layers around all of them.

    Ops of one layer get their line of code, or their own name where that is equal too.
    """
    layers = [str(row.get("layer") or row.get("op") or "") for row in rows]
    parts = [layer.split("/") for layer in layers if "/" in layer]
    shared = os.path.commonprefix([of[:-1] for of in parts]) if len(parts) > 1 else []
    around = "/".join(shared) + "/" if shared else ""
    names = [layer.removeprefix(around) for layer in layers]
    for field in ("line", "op"):
        counts = Counter(names)
        names = [
            f"{name} ({row[field]})"
            if row.get(field) and name != row[field] and (field == "line" or counts[name] > 1)
            else name
            for name, row in zip(names, rows, strict=True)
        ]
    return names


def _positive(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < math.inf else None
