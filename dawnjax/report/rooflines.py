"""Section on rooflines: the performance of our runs' ops, and its distribution over time."""

from collections.abc import Mapping, Sequence
from typing import Any

from dawnjax.analysis.our_run import OurRun
from dawnjax.page.section import Section
from dawnjax.page.svg import SERIES
from dawnjax.page.table import Column, Table
from dawnjax.page.view import view
from dawnjax.report.roofline_figures import (
    distribution_points,
    peak_use_figure,
    roofline_figure,
    roofline_ops,
    throughput_figure,
)
from dawnjax.report.steps import field_of

_RUN = Column("run", "run")

_OPS = (
    _RUN,
    Column("op", "op"),
    Column("seconds_per_step", "a step", "s", "number"),
    Column("flops_per_byte", "FLOP a byte", kind="number"),
    Column("flops_per_second", "FLOP/s", kind="number"),
    Column("has_products", "products", kind="flag"),
)


def rooflines_section(runs: Sequence[OurRun]) -> Section | None:
    """Roofline of the first profiled run of each experiment and variant, on its first host."""
    kept, left_out = _chosen(runs)
    if not kept:
        return None
    rooflines = [
        roofline_figure(f"roofline-{number}", name, of_run)
        for number, (name, of_run) in enumerate(kept.items(), 1)
    ]
    found = [*rooflines, peak_use_figure(kept), throughput_figure(kept)]
    figures = [figure for figure in found if figure is not None]
    tables = [_ops_table(kept)]
    tables += [_points_table(kept, name) for name in ("peak_use_cdf", "throughput_cdf")]
    return Section(
        name="roofline",
        title="What the ops reached",
        lead=(
            "Each op of a profiled step against what memory and arithmetic of its device allow. "
            "Over the time of computation: the FLOP/s of the op that runs, and what share of the "
            "peak its products use.",
            *([f"Shown: one run of each experiment. Not shown: {left_out}."] if left_out else []),
        ),
        blocks=tuple(figures),
        folded=(view(tables[0]),),
        tables=tuple(table for table in tables if table.rows),
    )


def _chosen(runs: Sequence[OurRun]) -> tuple[dict[str, Mapping[str, Any]], str]:
    """Rooflines by the run's name, and the names of the runs that are left out."""
    chosen: dict[str, Mapping[str, Any]] = {}
    seen, left_out = set(), []
    for run in runs:
        kept = _kept(run)
        if kept is None:
            continue
        key = run.result.experiment, repr(sorted(run.result.overrides.items()))
        if key in seen or len(chosen) == SERIES:
            left_out.append(run.name)
        else:
            seen.add(key)
            chosen[run.name] = kept
    return chosen, ", ".join(left_out)


def _kept(run: OurRun) -> Mapping[str, Any] | None:
    for host in run.result.hosts:
        kept = field_of(host, "utilization", "roofline")
        if isinstance(kept, Mapping) and roofline_ops(kept):
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
            for op in roofline_ops(of_run)
        ),
        notes=("Bytes are counted as if nothing stayed in a cache.",),
    )


def _points_table(kept: Mapping[str, Mapping[str, Any]], name: str) -> Table:
    return Table(
        name=name,
        title="Distribution over the time of computation",
        columns=(_RUN, Column("value", kind="number"), Column("fraction_of_time", kind="fraction")),
        rows=tuple(
            (run, *point)
            for run, of_run in kept.items()
            for point in distribution_points(of_run.get(name))
        ),
    )
