"""Section on the parts of our runs' steps, on every host, from their profiles."""

from collections.abc import Sequence

from dawnjax.page import svg, words
from dawnjax.page.rows import Row, bars_in_words, draw_bars
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Cell, Column, Table, row_of
from dawnjax.report.rooflines import op_names, rooflines
from dawnjax.trials.hosts import Host, hosts_of
from dawnjax.trials.trial import Trial

MOST_BARS = 24
MOST_LOSSES = 10
"""Ops of each host in the table."""

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
    # Executed first: an algorithm that saves products would make the model's look like more use.
    Column("hfu", "executed FLOP utilization", kind="fraction"),
    Column("mfu", "model FLOP utilization", kind="fraction"),
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


def steps_section(runs: Sequence[Trial]) -> Section | None:
    """Parts of a step, resources of each host, ops that lose most; None without profiles."""
    hosts = [(run, host) for run in runs for host in hosts_of(run) if any(_parts_of(host))]
    if not hosts:
        return None
    used, losses = _used_table(hosts), _losses_table(hosts)
    stragglers = [f"{run.name}: {run.straggler.get('message')}" for run in runs if run.straggler]
    roofs, of_ops, filed, left_out = rooflines(runs)
    return Section(
        name="steps",
        title="Where the time of a step went",
        lead=(
            "Means over each host's own devices, from a profile of a few steps after the "
            "training, outside the time to accuracy. The parts sum to the step.",
            *stragglers,
            *([f"No roofline is shown for {left_out}."] if left_out else []),
        ),
        blocks=(_parts_figure(hosts), *roofs, used),
        folded=(*((losses,) if losses.rows else ()), *of_ops),
        tables=tuple(filed),
    )


def _parts_of(host: Host) -> tuple[float, ...]:
    return tuple(host.parts.get(name, 0.0) for name in PARTS)


def _label(run: Trial, host: Host) -> str:
    return f"{run.name} host {host.process_index}" if len(run.hosts) > 1 else run.name


def _used_table(hosts: Sequence[tuple[Trial, Host]]) -> Table:
    columns = (
        *_HOST,
        Column("step_seconds", "profiled step", "s", "number"),
        *_SHARES,
        *_COMMUNICATION,
        Column("input_wait_fraction", "waiting for input", kind="fraction"),
        Column("cpu_fraction", "host's CPU", kind="fraction"),
        Column("memory_bytes", "host's memory", "bytes", "number"),
        Column("device_memory_peak_bytes", "device memory, peak", "bytes", "number"),
        Column("why", "why not known", filed=True),
    )
    is_alone = all(run.num_devices == 1 for run, _ in hosts)
    none = dict.fromkeys(column.name for column in _COMMUNICATION) if is_alone else {}
    rows = []
    for run, host in hosts:
        used, sent = host.utilization, host.communication
        cells: dict[str, Cell] = {
            "run": run.name,
            "host": host.process_index,
            "step_seconds": used.traced_step_seconds,
            "communication_fraction": sent.fraction,
            "why": "; ".join(
                f"{name}: {why}"
                for part in (used, sent)
                for name, why in sorted(part.reasons.items())
            ),
        }
        rows.append(row_of(columns, host, used, sent, **{**cells, **none}))
    return Table(
        name="hosts",
        title="What each host used in the profiled steps",
        columns=columns,
        rows=tuple(rows),
        notes=(
            "Utilization is relative to the peak in the run's result. Executed FLOPs come from "
            "the compiled program; if an algorithm such as Winograd's saves products, the model "
            "has more FLOPs.",
            "Simulated devices share the cores of one machine, without a network.",
        ),
    )


def _parts_figure(hosts: Sequence[tuple[Trial, Host]]) -> Figure:
    rows = [
        Row(_label(run, host), "", _parts_of(host), words.duration(sum(_parts_of(host))))
        for run, host in hosts
    ]
    shown = rows[:MOST_BARS]
    names = tuple(PARTS.values())
    return Figure(
        name="step_parts",
        title="A step of each host, in parts",
        summary=bars_in_words(shown, names, lambda row, v: f"{100 * v / sum(row.values):.1f} %"),
        caption="",
        draw=lambda width: draw_bars(shown, names, _STEP, width),
        left_out=tuple((row.label, "too many bars for one figure") for row in rows[MOST_BARS:]),
        tables=("hosts",),
    )


def _losses(host: Host) -> list[tuple[str, float, float]]:
    """(op, seconds a step, seconds lost against the roofline), the largest loss first."""
    ops = sorted(host.utilization.largest_losses, key=lambda op: -op.lost_seconds_per_step)
    ops = ops[:MOST_LOSSES]
    return [
        (name, op.seconds_per_step, op.lost_seconds_per_step)
        for name, op in zip(op_names(ops), ops, strict=True)
    ]


def _losses_table(hosts: Sequence[tuple[Trial, Host]]) -> Table:
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
            (run.name, host.process_index, *loss) for run, host in hosts for loss in _losses(host)
        ),
        notes=(
            "Lost: the op's time beyond its least time, the longer of its FLOPs at the peak and "
            "its bytes at the memory's bandwidth.",
        ),
    )
