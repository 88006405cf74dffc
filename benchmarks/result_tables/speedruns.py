"""Records of a public race beside their predecessors."""

from collections.abc import Iterator

from benchmarks.result_tables.result_files import Record
from dawnjax.statistics.interval import FEWEST_TRIALS


def speedruns(record: Record) -> Iterator[list[str]]:
    """Each record: its time and its loss over those of its predecessor."""
    for row in record["rows"]:
        needed, p = row["runs_needed"], row["p_not_below_target"]
        ratio = f"{row['ratio']:.4f}{_ends(row['ratio_ends'], row['ratio_kind'])}"
        loss = f"{row['loss_difference']:+.4f}{_ends(row['loss_ends'], row['loss_kind'])}"
        yield [
            row["record"].replace("_", " ", 1),
            f"{row['folder']} / {row['beside']}",
            " and ".join(map(str, row["runs"])),
            ratio,
            _told(row),
            "-" if needed is None else str(needed),
            loss,
            "-" if p is None else f"{p:.2g}",
        ]


def _told(row: Record) -> str:
    if min(row["runs"]) < FEWEST_TRIALS:
        return "too few runs"
    if not row["is_told_apart"]:
        return "no"
    return "faster" if row["ratio"] < 1 else "**slower**"


def _ends(ends: list[float | None], kind: str) -> str:
    if ends[0] is None or ends[1] is None:
        return ""
    label = "" if kind == "95 %" else f"{kind}: "
    return f" ({label}{ends[0]:.4f} to {ends[1]:.4f})"
