"""Tables for the terminal, CSV, and figures of hosts' profiles. Needs no JAX.

Figures are SVG and the same for the same profile: no date, no random names.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.profile.communication import device_time
from dawnjax.profile.host_profile import HostProfile
from dawnjax.profile.roofline import OpTime, largest_losses, peak_use_cdf, throughput_cdf
from dawnjax.profile.trace import subtract
from dawnjax.profile.utilization import PARTS
from dawnjax.text import spreadsheet_cell

TIMELINE_STEPS = 3
"""Steps that the timeline shows: more are too thin to see."""

_COLORS = {
    "compute": "#4477aa",
    "exposed_wire": "#ee6677",
    "exposed_skew": "#ccbb44",
    "input_wait": "#228833",
    "host": "#66ccee",
    "shared_core": "#aa3377",
    "idle": "#bbbbbb",
}


def tables(profiles: Sequence[HostProfile]) -> str:
    """The first figures that a person asks for, as aligned text."""
    parts = (_host_table(profiles), _kind_table(profiles), _loss_table(profiles))
    return "\n\n".join(_aligned(rows) for rows in parts if len(rows) > 1)


def _host_table(profiles: Sequence[HostProfile]) -> list[list[str]]:
    head = ["host", "step ms", "traced ms", *PARTS, "attributed", "mfu", "hfu", "ablation exposed"]
    rows = [[name.replace("_", " ") for name in head]]
    for profile in profiles:
        used = profile.utilization_json()
        parts = used.get("parts_fraction", {})
        times = (used["step_seconds"], used.get("traced_step_seconds"))
        shares = [*(parts.get(name) for name in PARTS), used["attributed_fraction"], used["mfu"]]
        shares += [used["hfu"], profile.ablation_exposed_fraction]
        host = str(profile.capture["process_index"])
        rows.append([host, *map(_milliseconds, times), *map(_percent, shares)])
    return rows


def _kind_table(profiles: Sequence[HostProfile]) -> list[list[str]]:
    rest = "wire ms" if all(profile.has_wire for profile in profiles) else "without skew ms"
    rows = [["host", "collective", "ms a step", "skew ms", rest, "MB", "runs", "MB/s on wire"]]
    times = [f"{name}_per_step" for name in ("seconds", "skew_seconds", "wire_seconds")]
    for profile in profiles:
        for kind, row in ({} if profile.measured is None else profile.measured.by_kind).items():
            num_bytes = row["bytes_per_step"]
            speed = row["algorithm_bytes_per_second"] if profile.has_wire else None
            rows.append(
                [
                    *(str(profile.capture["process_index"]), kind),
                    *(_milliseconds(row[name]) for name in times),
                    "-" if num_bytes is None else f"{num_bytes / 1e6:.3g}",
                    f"{row['runs_per_step']:.3g}",
                    "-" if speed is None else f"{speed / 1e6:.4g}",
                ]
            )
    return rows


def _loss_table(profiles: Sequence[HostProfile]) -> list[list[str]]:
    losses = ((profile, largest_losses(profile.ops)) for profile in profiles)
    profile, ops = next(((profile, ops) for profile, ops in losses if ops), (profiles[0], []))
    head = f"op that loses most, host {profile.capture['process_index']}"
    rows = [[head, "ms a step", "lost ms", "FLOP/byte", "line"]]
    for op in ops:
        times = (_milliseconds(op.seconds), _milliseconds(op.lost_seconds))
        intensity = "-" if op.intensity is None else f"{op.intensity:.3g}"
        rows.append([op.name, *times, intensity, _short_line(op.source_line)])
    return rows


def write_csv(profile: HostProfile, folder: Path) -> list[Path]:
    """Writes parts, communication by layer, ops and distributions as CSV; returns the files."""
    written = []

    def write(name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(head)
        writer.writerows([[_cell(value) for value in row] for row in rows])
        records.write(folder / name, text.getvalue())
        written.append(folder / name)

    if profile.attribution is not None:
        devices = profile.attribution.devices
        write(
            "parts.csv",
            ["device", *(f"{name}_seconds" for name in PARTS)],
            [[number, *(parts[name] for name in PARTS)] for number, parts in devices.items()],
        )
    if profile.measured is not None:
        layers = profile.measured.by_layer
        names = list(next(iter(layers.values()), {}))
        write("layers.csv", ["layer", *names], [[n, *row.values()] for n, row in layers.items()])
    names = ["name", "kind", "seconds", "product_flops", "flops", "num_bytes", "roofline_seconds"]
    names += ["lost_seconds", "peak_fraction", "scope", "source_line"]
    write("ops.csv", names, [[getattr(op, name) for name in names] for op in profile.ops])
    for name, points in (
        ("peak_use_cdf.csv", peak_use_cdf(profile.ops)),
        ("throughput_cdf.csv", throughput_cdf(profile.ops)),
    ):
        write(name, ["value", "fraction_of_time"], points)
    return written


def write_figures(profile: HostProfile, folder: Path) -> list[Path]:
    """Writes timeline, layers, roofline and distributions as SVG; returns the files.

    Raises:
      ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure

    written = []
    with matplotlib.rc_context({"svg.hashsalt": "dawnjax", "font.size": 9}):
        for name, draw in (
            ("timeline", _draw_timeline),
            ("layers", _draw_layers),
            ("roofline", _draw_roofline),
            ("distributions", _draw_distributions),
        ):
            figure = Figure(figsize=(8, 3.5), layout="constrained")
            if draw(figure, profile):
                path = folder / f"{name}.svg"
                drawn = io.BytesIO()
                figure.savefig(drawn, format="svg", metadata={"Date": None})
                records.write(path, drawn.getvalue())
                written.append(path)
    return written


def _draw_timeline(figure: Any, profile: HostProfile) -> bool:
    if profile.trace is None:
        return False
    axes = figure.subplots()
    start, end = profile.window
    shown = start + (end - start) * min(1.0, TIMELINE_STEPS / profile.num_steps)
    shortest = profile.capture["shortest_runs"]
    for row, events in enumerate(profile.trace.devices.values()):
        time = device_time(events, profile.window, shortest)
        for name, intervals in (
            ("compute", time.compute),
            ("exposed_skew", time.exposed_skew),
            ("exposed_wire", subtract(time.exposed, time.exposed_skew)),
        ):
            # Picoseconds to milliseconds.
            bars = [((a - start) / 1e9, (b - a) / 1e9) for a, b in intervals if a < shown]
            axes.broken_barh(bars, (row - 0.4, 0.8), color=_COLORS[name], linewidth=0)
    axes.set_xlim(0, (shown - start) / 1e9)
    axes.set_yticks(
        range(len(profile.trace.devices)), [f"device {n}" for n in profile.trace.devices]
    )
    axes.set_xlabel("ms; white: nothing runs on the device")
    axes.set_title(f"host {profile.capture['process_index']}, the first steps of the trace")
    _legend(axes, ("compute", "exposed_wire", "exposed_skew"))
    return True


def _draw_layers(figure: Any, profile: HostProfile) -> bool:
    layers = {} if profile.measured is None else profile.measured.by_layer
    if not layers:
        return False
    rows = list(layers.items())[:20][::-1]
    axes = figure.subplots()
    wire = [1000 * (row["wire_seconds_per_step"] or 0.0) for _, row in rows]
    skew = [1000 * (row["skew_seconds_per_step"] or 0.0) for _, row in rows]
    names = [name or "(no scope)" for name, _ in rows]
    axes.barh(names, wire, color=_COLORS["exposed_wire"])
    axes.barh(names, skew, left=wire, color=_COLORS["exposed_skew"])
    axes.set_xlabel("ms of communication a step, shared out by bytes")
    _legend(axes, ("exposed_wire", "exposed_skew"), ("wire", "skew"))
    return True


def _draw_roofline(figure: Any, profile: HostProfile) -> bool:
    ops = [op for op in profile.ops if op.intensity and op.seconds and not op.kind]
    if not ops:
        return False
    axes = figure.subplots()
    total = sum(op.seconds for op in ops)
    for has_products, label in ((True, "with products"), (False, "element-wise")):
        shown = [op for op in ops if bool(op.product_flops) == has_products]
        axes.scatter(
            [op.intensity for op in shown],
            [op.flops / op.seconds for op in shown],
            s=[4 + 400 * op.seconds / total for op in shown],
            alpha=0.6,
            label=label,
            color=_COLORS["compute" if has_products else "host"],
        )
    peak, bandwidth, source = profile.op_peaks
    if peak and bandwidth:
        low = min(op.intensity or 1.0 for op in ops)
        high = max(max(op.intensity or 1.0 for op in ops), 2 * peak / bandwidth)
        points = [low, peak / bandwidth, high]
        axes.plot(points, [min(peak, x * bandwidth) for x in points], color="black", label=source)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP a byte, as if nothing stayed in a cache")
    axes.set_ylabel("FLOP/s of one device")
    axes.legend(fontsize=7)
    return True


def _draw_distributions(figure: Any, profile: HostProfile) -> bool:
    curves = (
        (peak_use_cdf(profile.ops), "fraction of the peak used by products"),
        (throughput_cdf(profile.ops), "FLOP/s of the op that runs"),
    )
    curves = [(points, label) for points, label in curves if points]
    if not curves:
        return False
    for axes, (points, label) in zip(
        figure.subplots(1, len(curves), squeeze=False)[0], curves, strict=True
    ):
        values = [value for value, _ in points]
        axes.step(values, [share for _, share in points], where="post", color=_COLORS["compute"])
        axes.set_xlabel(label)
        axes.set_ylabel("fraction of computing time")
        axes.set_ylim(0, 1.02)
    return True


def _legend(axes: Any, names: Sequence[str], labels: Sequence[str] = ()) -> None:
    from matplotlib.patches import Patch

    texts = labels or [name.replace("_", " ") for name in names]
    handles = [Patch(color=_COLORS[n], label=t) for n, t in zip(names, texts, strict=True)]
    axes.legend(handles=handles, fontsize=7, loc="upper right")


def loss_json(ops: Sequence[OpTime]) -> list[dict[str, Any]]:
    """The ten ops that lose most time, as a result keeps them."""
    return [
        {
            "op": op.name,
            "layer": op.scope,
            "line": _short_line(op.source_line),
            "seconds_per_step": round(op.seconds, 9),
            "lost_seconds_per_step": round(op.lost_seconds or 0.0, 9),
        }
        for op in largest_losses(ops)
    ]


def _short_line(line: str) -> str:
    """A source line without the folders above its package: they name a machine."""
    return "/".join(line.split("/")[-2:])


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return spreadsheet_cell(value) if isinstance(value, str) else value


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.3g}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
