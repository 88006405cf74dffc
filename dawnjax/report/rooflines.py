"""Rooflines of profiled runs, from the field `roofline` of a result."""

import dataclasses
import math
import os.path
from collections import Counter
from collections.abc import Mapping, Sequence

from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure
from dawnjax.page.table import Column, Table, row_of
from dawnjax.report.distributions import distributions
from dawnjax.trials.hosts import Op, Roofline, hosts_of
from dawnjax.trials.trial import Trial

_NAMED_OPS = 5
"""The ops that take longest have their names written in the figure."""

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


def _chosen(runs: Sequence[Trial]) -> tuple[dict[str, Roofline], str]:
    """Rooflines by the run's name, and the names of the runs that are left out."""
    chosen: dict[str, Roofline] = {}
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


def _kept(run: Trial) -> Roofline | None:
    kept = (host.utilization.roofline for host in hosts_of(run))
    return next((roofline for roofline in kept if roofline and _ops(roofline)), None)


def _ops_table(kept: Mapping[str, Roofline]) -> Table:
    return Table(
        name="roofline",
        title="The longest ops",
        columns=_OPS,
        rows=tuple(
            row_of(_OPS, op, run=run) for run, of_run in kept.items() for op in _ops(of_run)
        ),
        notes=("Bytes are counted as if nothing were cached.",),
    )


def _figure(name: str, whose: str, kept: Roofline) -> Figure:
    """Draw each op at its FLOPs per byte and its FLOP/s, below the bounds of its device."""
    ops = _ops(kept)
    total = sum(op.seconds_per_step for op in ops)
    points = [
        plots.Point(
            op.flops_per_byte,
            op.flops_per_second,
            op.op if number < _NAMED_OPS else "",
            series=0 if op.has_products else 1,
            name=op.op,
            size=3 + 12 * math.sqrt(op.seconds_per_step / total),
            more=(f"{words.duration(op.seconds_per_step)} a step",),
        )
        for number, op in enumerate(ops)
    ]
    x = svg.Axis("FLOP per byte, as if nothing were cached", words.plain, log=True,
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
            f"{op.op}: {words.duration(op.seconds_per_step)} a step, "
            f"{words.number(op.flops_per_byte)} FLOP a byte, {_flops(op.flops_per_second)}"
            for op in ops[:_NAMED_OPS]
        )
        + ".",
        caption=(
            f"The {len(ops)} longest ops; a larger mark is a longer op. The dashed line is the "
            "most that memory (left) and arithmetic (right) allow."
        ),
        draw=lambda width: plots.draw_points(points, x, y, width, bound=bound, series_names=shown),
        tables=("roofline",),
    )


def _flops(value: float) -> str:
    return words.scaled(value, "FLOP/s")


def _bound(kept: Roofline, intensities: Sequence[float]) -> plots.Line | None:
    peak, bandwidth = kept.peak_flops_per_second, kept.peak_bytes_per_second
    if not peak or not bandwidth:
        return None
    low = min(*intensities, peak / bandwidth)
    high = max(*intensities, 2 * peak / bandwidth)
    corners = [low, peak / bandwidth, high]
    return plots.Line(
        f"peak, {kept.peak_source or 'source not known'}",
        tuple((at, min(peak, at * bandwidth)) for at in corners),
    )


def _ops(kept: Roofline) -> list[Op]:
    """Ops that a log scale can show, longest first, each by a unique name."""
    shown = [
        op for op in kept.ops if min(op.seconds_per_step, op.flops_per_byte, op.flops_per_second)
    ]
    return [
        dataclasses.replace(op, op=name) for op, name in zip(shown, op_names(shown), strict=True)
    ]


def op_names(ops: Sequence[Op]) -> list[str]:
    """Names of ops by their layer, without the layers around all of them.

    Ops of one layer get their line of code, or their own name where that is equal too.
    """
    layers = [op.layer or op.op for op in ops]
    parts = [layer.split("/") for layer in layers if "/" in layer]
    shared = os.path.commonprefix([of[:-1] for of in parts]) if len(parts) > 1 else []
    around = "/".join(shared) + "/" if shared else ""
    names = [layer.removeprefix(around) for layer in layers]
    names = [
        f"{name} ({op.line})" if op.line and name != op.line else name
        for name, op in zip(names, ops, strict=True)
    ]
    counts = Counter(names)
    return [
        f"{name} ({op.op})" if counts[name] > 1 and op.op and name != op.op else name
        for name, op in zip(names, ops, strict=True)
    ]
