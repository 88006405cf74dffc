"""Tables of hosts' profiles for the terminal, and as CSV. Needs no JAX."""

from collections.abc import Iterator, Sequence
from typing import Any

from dawnjax import records
from dawnjax.page.table import Column, Table, of_words
from dawnjax.profile.host_profile import HostProfile
from dawnjax.profile.roofline import OpTime, largest_losses
from dawnjax.profile.utilization import PARTS


def text(profiles: Sequence[HostProfile]) -> str:
    """Aligned text: utilization of each host, its collectives, and the ops that lose most."""
    parts = (
        _host_table(profiles),
        _kind_table(profiles),
        _axis_table(profiles),
        _loss_table(profiles),
    )
    return "\n\n".join(table.to_text() for table in parts if table.rows)


def _host_table(profiles: Sequence[HostProfile]) -> Table:
    head = ["host", "step ms", "traced ms", *PARTS, "attributed", "mfu", "hfu"]
    rows = []
    for profile in profiles:
        used = profile.utilization_json()
        parts = used.get("parts_fraction", {})
        times = (used["step_seconds"], used.get("traced_step_seconds"))
        shares = [*(parts.get(name) for name in PARTS), used["attributed_fraction"]]
        shares += [used["mfu"], used["hfu"]]
        host = str(profile.capture.process_index)
        rows.append([host, *map(_milliseconds, times), *map(_percent, shares)])
    return of_words([name.replace("_", " ") for name in head], _alike_once(rows))


def _kind_table(profiles: Sequence[HostProfile]) -> Table:
    head = ["host", "collective", "ms a step", "skew ms", "wire ms", "MB", "runs", "MB/s on wire"]
    rows = []
    for row, cells in _collectives(profiles, "by_kind", ("", "skew_", "wire_")):
        speed = row["algorithm_bytes_per_second"]
        rows.append([*cells, "-" if speed is None else f"{speed / 1e6:.4g}"])
    return of_words(head, _alike_once(rows), texts=(0, 1))


def _axis_table(profiles: Sequence[HostProfile]) -> Table:
    head = ["host", "mesh axis", "ms a step", "exposed ms", "skew ms", "MB", "runs"]
    rows = [cells for _, cells in _collectives(profiles, "by_axis", ("", "exposed_", "skew_"))]
    return of_words(head, _alike_once(rows), texts=(0, 1))


def _alike_once(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows of hosts, the host first: hosts whose figures agree are one row."""
    hosts: dict[tuple[str, ...], list[int]] = {}
    for host, *cells in rows:
        hosts.setdefault(tuple(cells), []).append(int(host))
    return [[in_one_cell(numbers), *cells] for cells, numbers in hosts.items()]


def in_one_cell(hosts: Sequence[int]) -> str:
    """Numbers of hosts in ascending order: `0`, `0, 2`, `0 to 7`."""
    first, last = hosts[0], hosts[-1]
    if len(hosts) > 2 and last - first + 1 == len(hosts):
        return f"{first} to {last}"
    return ", ".join(map(str, hosts))


def _collectives(
    profiles: Sequence[HostProfile], group: str, times: Sequence[str]
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Groups of each host's collectives, with the cells that both tables have."""
    for profile in profiles:
        groups = {} if profile.measured is None else getattr(profile.measured, group)
        for name, row in groups.items():
            num_bytes = row["bytes_per_step"]
            cells = [str(profile.capture.process_index), name or "none"]
            cells += [_milliseconds(row[f"{time}seconds_per_step"]) for time in times]
            cells.append("-" if num_bytes is None else f"{num_bytes / 1e6:.3g}")
            yield row, [*cells, f"{row['runs_per_step']:.3g}"]


def _loss_table(profiles: Sequence[HostProfile]) -> Table:
    losses = ((profile, largest_losses(profile.ops)) for profile in profiles)
    profile, ops = next(((profile, ops) for profile, ops in losses if ops), (profiles[0], []))
    head = f"op that loses most, host {profile.capture.process_index}"
    rows = []
    for op in ops:
        times = (_milliseconds(op.seconds), _milliseconds(op.lost_seconds))
        intensity = "-" if op.intensity is None else f"{op.intensity:.3g}"
        rows.append([op.name, *times, intensity, _short_line(op.source_line)])
    heads = [head, "ms a step", "lost ms", "FLOP/byte", "line"]
    return of_words(heads, rows, texts=(0, 4))


def write_csv(profile: HostProfile) -> None:
    """Write the ops as `ops.csv` beside the profile."""
    texts = ("name", "kind", "scope", "source_line")
    names = ["name", "kind", "seconds", "product_flops", "flops", "num_bytes", "roofline_seconds"]
    names += ["lost_seconds", "peak_fraction", "scope", "source_line"]
    columns = (Column(name, kind="text" if name in texts else "number") for name in names)
    rows = (tuple(getattr(op, name) for name in names) for op in profile.ops)
    table = Table(name="ops", title="", columns=tuple(columns), rows=tuple(rows))
    records.write(profile.folder / "ops.csv", table.to_csv())


def loss_json(ops: Sequence[OpTime]) -> list[dict[str, Any]]:
    """The ten ops that lose most time, for the result."""
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
    """Source line without the folders above its package, which would identify a machine."""
    return "/".join(line.split("/")[-2:])


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.3g}"
