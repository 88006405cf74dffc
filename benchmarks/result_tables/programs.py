"""Compiled programs, and predictions made of them."""

from collections.abc import Iterator

from benchmarks.result_tables.cells import when
from benchmarks.result_tables.result_files import Record, Rows
from dawnjax.page import words

H100_BYTES_PER_SECOND = 3.35e12
"""Memory bandwidth of an H100 SXM. Source: NVIDIA H100 Tensor Core GPU data sheet."""


def compilation(_: str, record: Record) -> Iterator[list[str]]:
    """Row of each compiled step, or why there is none."""
    for row in record["rows"]:
        first = [f"`{row['experiment']}`", row["target"]]
        if "reason" in row:
            yield [*first, "", "", "", row["reason"], "", "", when(record, "jax")]
            continue
        is_text = "transformer" in row["experiment"]
        yield [
            *first,
            str(row["devices"]),
            f"{row['batch_per_device']}{' rows' if is_text else ''}",
            "" if is_text else str(row["crop_pixels"] or 32),  # CIFAR-10's images are not cropped
            f"{row['compile_seconds']:.1f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
            str(sum(row["collectives"].values())),
            when(record, "jax"),
        ]


def moved_bytes(_: str, record: Record) -> Iterator[list[str]]:
    """Bytes that a compiled step reads and writes."""
    for row in record["rows"]:
        moved, batch = row["moved_bytes"], row["batch_per_device"]
        is_h100 = row["target"] == "h100"
        seconds = moved / H100_BYTES_PER_SECOND
        yield [
            f"`{row['experiment']}`, {row['variant']}",
            f"{row['devices']} x {row['target']}",
            str(batch),
            f"{moved / 1e9:.1f}",
            f"{seconds * 1e3:.1f}" if is_h100 else "",
            f"{batch / seconds:,.0f}" if is_h100 else "",
            f"{row['peak_bytes'] / 1e9:.2f}",
            when(record, "jax"),
        ]


def plan_memory(files: list[tuple[str, Record]]) -> Rows:
    """Memory of each experiment's train step on each chip, or why it is not known."""
    chips = {name.removeprefix("plan_memory_"): record["rows"] for name, record in files}
    of_chips = [{row["experiment"]: row for row in rows} for rows in chips.values()]
    found = [["experiment", "devices", "flags", *chips]]
    for experiment in sorted(set().union(*of_chips)):
        own = [rows.get(experiment) for rows in of_chips]
        first = next(row for row in own if row)
        devices, flags = first["system"].partition(":")[2], " ".join(first["flags"])
        found.append([f"`{experiment}`", devices, flags, *map(_memory_cell, own)])
    return found


def _memory_cell(row: Record | None) -> str:
    if row is None:
        return "not tried"
    if "reason" in row:
        return row["reason"]
    again = ", XLA computes again" if row["recomputed"] else ""
    return words.scaled(row["num_bytes"], "B") + again
