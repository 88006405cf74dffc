"""Section on the parts of our runs' steps, on every host, from their profiles."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dawnjax.analysis.our_run import OurRun
from dawnjax.page import svg, words
from dawnjax.page.rows import Row, bars_in_words, draw_bars
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Cell, Column, Table
from dawnjax.page.view import view

MOST_BARS = 24
MOST_LOSSES = 10
MOST_LOSSES_DRAWN = 5
"""Ops of each host in the table, and of the slowest host of each run in the figure."""

MOST_LOSING_RUNS = 6
"""Runs whose ops have a figure."""

PARTS = {
    "compute": "computing",
    "exposed_wire": "communication, on the wire",
    "exposed_skew": "communication, waiting for the slowest",
    "input_wait": "waiting for input",
    "host": "host",
    "shared_core": "core shared with another device",
    "idle": "idle, cause not known",
}
"""The parts of a step, as `result.json` and the page name them."""

_HOST = (Column("run", "run"), Column("host", "host", kind="integer"))

_SHARES = (
    Column("mfu", "model FLOP utilization", kind="fraction"),
    Column("hfu", "executed FLOP utilization", kind="fraction"),
    Column("memory_bandwidth_fraction", "memory bandwidth", kind="fraction"),
    Column("tensor_core_fraction", "tensor-core time", kind="fraction"),
    Column("busy_fraction", "busy", kind="fraction"),
)
_COMMUNICATION = (
    Column("communication_fraction", "communication", kind="fraction"),
    Column("exposed_fraction", "exposed", kind="fraction"),
    Column("exposed_skew_fraction", "of it waiting for the slowest", kind="fraction"),
    Column("bytes_per_step", "communicated", "bytes", "number"),
)

_STEP = svg.Axis("a step", words.duration, svg.time_ticks, zero=True)

Host = Mapping[str, Any]


def steps_section(runs: Sequence[OurRun]) -> Section | None:
    """Parts of a step, resources of each host, ops that lose most; None without profiles."""
    hosts = [(run, host) for run in runs for host in run.result.hosts if _parts_of(host)]
    if not hosts:
        return None
    used, losses = _used_table(hosts), _losses_table(hosts)
    stragglers = [
        f"{run.name}: {message}"
        for run in runs
        if isinstance(message := field_of(run.result.straggler, "message"), str)
    ]
    blocks = [
        _parts_figure(hosts),
        view(used, [c.name for c in used.columns if _is_known(used, c)]),
    ]
    if losses.rows:
        blocks += _losses_figures(hosts)
    return Section(
        name="steps",
        title="Where the time of a step went",
        lead=(
            "Means over each host's own devices, from their profile. The parts sum to the step. "
            "A share whose cause is not known has a part of its own.",
            *stragglers,
        ),
        blocks=tuple(blocks),
        folded=(view(losses),) if losses.rows else (),
        tables=(used, losses) if losses.rows else (used,),
    )


def _number(fields: Any, name: str) -> float | None:
    """A log's number; None for anything else that the field may hold."""
    value = field_of(fields, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def field_of(host: Any, *path: str) -> Any:
    """A log's value in objects inside each other; None where one is none, or has no such field."""
    for name in path:
        host = host.get(name) if isinstance(host, Mapping) else None
    return host


def _parts_of(host: Any) -> tuple[float, ...]:
    parts = field_of(host, "utilization", "parts_seconds")
    seconds = [_number(parts, name) or 0.0 for name in PARTS]
    return tuple(max(0.0, value) for value in seconds) if any(s > 0 for s in seconds) else ()


def _index(host: Host) -> int:
    value = host.get("process_index")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _label(run: OurRun, host: Host) -> str:
    return f"{run.name} host {_index(host)}" if len(run.result.hosts) > 1 else run.name


def _used_table(hosts: Sequence[tuple[OurRun, Host]]) -> Table:
    columns = (
        *_HOST,
        Column("step_seconds", "step", "s", "number"),
        *_SHARES,
        *_COMMUNICATION,
        Column("input_wait_fraction", "waiting for input", kind="fraction"),
        Column("cpu_fraction", "host's CPU", kind="fraction"),
        Column("memory_bytes", "host's memory", "bytes", "number"),
        Column("device_memory_peak_bytes", "device memory, peak", "bytes", "number"),
        Column("why", "why not known"),
    )
    rows = []
    for run, host in hosts:
        used, sent = host.get("utilization"), host.get("communication")
        cells: dict[str, Cell] = {"run": run.name, "host": _index(host), "why": _reasons(host)}
        cells["step_seconds"] = _number(used, "traced_step_seconds")
        cells |= {column.name: _number(used, column.name) for column in _SHARES}
        for column in _COMMUNICATION:
            cells[column.name] = _number(sent, column.name.removeprefix("communication_"))
        for name in ("input_wait_fraction", "cpu_fraction", "memory_bytes"):
            cells[name] = _number(host, name)
        cells["device_memory_peak_bytes"] = _number(host, "device_memory_peak_bytes")
        rows.append(tuple(cells[column.name] for column in columns))
    return Table(
        name="hosts",
        title="What each host used",
        columns=columns,
        rows=tuple(rows),
        notes=(
            "Utilization is of the profiled steps, against the peak that the run's result names.",
            "Simulated devices share the cores of one machine: no wire lies between them.",
        ),
    )


def _reasons(host: Host) -> str:
    found = []
    for part in ("utilization", "communication"):
        reasons = field_of(host, part, "reasons")
        if isinstance(reasons, Mapping):
            found += [f"{name}: {why}" for name, why in sorted(reasons.items())]
    return "; ".join(found)


def _is_known(table: Table, column: Column) -> bool:
    return column.name in ("run", "host") or (
        column.kind != "text" and any(cell is not None for cell in table.column(column.name))
    )


def _parts_figure(hosts: Sequence[tuple[OurRun, Host]]) -> Figure:
    rows = [
        Row(_label(run, host), "", parts, words.duration(sum(parts)))
        for run, host in hosts
        if (parts := _parts_of(host))
    ]
    shown = rows[:MOST_BARS]
    names = tuple(PARTS.values())
    return Figure(
        name="step_parts",
        title="A step of each host, in parts",
        summary=bars_in_words(shown, names, lambda row, v: f"{100 * v / sum(row.values):.1f} %"),
        caption="Steps traced after the target was reached; they count in no time to accuracy.",
        draw=lambda width: draw_bars(shown, names, _STEP, width),
        left_out=tuple((row.label, "too many bars for one figure") for row in rows[MOST_BARS:]),
        tables=("hosts",),
    )


def _losses(host: Host) -> list[tuple[str, float, float]]:
    """(op, seconds a step, seconds lost against the roofline), the largest loss first."""
    rows = field_of(host, "utilization", "largest_losses")
    found = []
    for row in rows if isinstance(rows, list) else []:
        seconds, lost = (_number(row, f"{name}seconds_per_step") for name in ("", "lost_"))
        if seconds is None or lost is None or not 0 <= lost <= seconds:
            continue
        name = str(row.get("layer") or row.get("op") or "")
        line = str(row.get("line") or "")
        found.append((f"{name} ({line})" if line else name, seconds, lost))
    return sorted(found, key=lambda row: -row[2])[:MOST_LOSSES]


def _losses_table(hosts: Sequence[tuple[OurRun, Host]]) -> Table:
    return Table(
        name="losses_of_ops",
        title="The ops that lose most against their roofline, on each host",
        columns=(
            *_HOST,
            Column("op", "op"),
            Column("seconds_per_step", "a step", "s", "number"),
            Column("lost_seconds_per_step", "lost", "s", "number"),
        ),
        rows=tuple(
            (run.name, _index(host), *loss) for run, host in hosts for loss in _losses(host)
        ),
        notes=(
            "Lost: the op's time beyond the least one, which is the longer of its FLOPs at the "
            "peak and its bytes at the memory's bandwidth.",
        ),
    )


def _losses_figures(hosts: Sequence[tuple[OurRun, Host]]) -> list[Figure]:
    """Figure of each run, on an axis of its own: steps of runs differ by orders of magnitude."""
    slowest: dict[str, tuple[OurRun, Host]] = {}
    for run, host in hosts:
        before = slowest.get(run.name)
        if before is None or sum(_parts_of(host)) > sum(_parts_of(before[1])):
            slowest[run.name] = (run, host)
    losing = [(run, host) for run, host in slowest.values() if _losses(host)]
    return [
        _losses_figure(number, run, host, len(losing))
        for number, (run, host) in enumerate(losing[:MOST_LOSING_RUNS], 1)
    ]


def _losses_figure(number: int, run: OurRun, host: Host, runs: int) -> Figure:
    shown = [
        Row(name, _label(run, host), (seconds - lost, lost), words.duration(seconds))
        for name, seconds, lost in _losses(host)[:MOST_LOSSES_DRAWN]
    ]
    cut = runs > MOST_LOSING_RUNS and number == MOST_LOSING_RUNS
    return Figure(
        name=f"op_losses-{number}",
        title="The ops that lose most against their roofline",
        summary="; ".join(
            f"{row.group}, {row.label}: {words.duration(row.values[1])} of {row.note} lost"
            for row in shown
        )
        + ".",
        caption=(
            "The host with the longest step. The least time of an op is the longer of two: its "
            "FLOPs at the peak, and its bytes at the memory's bandwidth."
            + (f" Of {runs} runs the first {number} have a figure." if cut else "")
        ),
        draw=lambda width: draw_bars(shown, ("least time", "lost"), _STEP, width),
        tables=("losses_of_ops",),
    )
