"""Records of a public race beside their predecessors."""

from collections.abc import Iterator

from benchmarks.result_tables.result_files import Record
from dawnjax.statistics.interval import FEWEST_TRIALS


def paired(record: Record) -> Iterator[list[str]]:
    """Records that measured both sides on one machine."""
    yield from (_row(row) for row in record["rows"] if row["is_one_machine"])


def unpaired(record: Record) -> Iterator[list[str]]:
    """Records beside the one before, of another machine, with enough runs of both."""
    for row in record["rows"]:
        if not row["is_one_machine"] and min(row["runs"]) >= FEWEST_TRIALS:
            yield _row(row)


def machines(record: Record) -> Iterator[list[str]]:
    """One code on two machines."""
    for row in record["machines"]:
        seconds = [f"{mean:.2f}" for mean in row["seconds"]]
        where = [_name(row["record"]), _name(row["again_in"])]
        yield [*where, " and ".join(map(str, row["runs"])), *seconds, _ratio(row)]


def counts(record: Record) -> Iterator[list[str]]:
    """How many records could be judged, and how many were told apart."""
    for is_one, what in (
        (True, "both sides on one machine"),
        (False, "the record before, on another machine"),
    ):
        rows = [row for row in record["rows"] if row["is_one_machine"] == is_one]
        enough = [row for row in rows if min(row["runs"]) >= FEWEST_TRIALS]
        faster = [row for row in enough if row["is_told_apart"] and row["ratio"] < 1]
        slower = [row for row in enough if row["is_told_apart"] and row["ratio"] > 1]
        losses = [row for row in enough if row["loss_ends"][0] > 0 or row["loss_ends"][1] < 0]
        yield [what, *(str(len(it)) for it in (rows, enough, faster, slower, losses))]
    yield ["left out", str(len(record["left_out"]))]


def left_out(record: Record) -> Iterator[list[str]]:
    for name, why in record["left_out"]:
        yield [_name(name), why]


def _name(record: str) -> str:
    return record.replace("_", " ", 1)


def _row(row: Record) -> list[str]:
    needed = row["runs_needed"]
    p = row["p_not_below_target"]
    return [
        _name(row["record"]),
        f"{row['folder'] or 'its logs'} / {_name(row['beside'])}",
        " and ".join(map(str, row["runs"])),
        _ratio(row),
        _told(row),
        "-" if needed is None else str(needed),
        _loss(row),
        "-" if p is None else f"{p:.2g}",
    ]


def _told(row: Record) -> str:
    if min(row["runs"]) < FEWEST_TRIALS:
        return "too few runs"
    if not row["is_told_apart"]:
        return "no"
    return "faster" if row["ratio"] < 1 else "**slower**"


def _ratio(row: Record) -> str:
    return f"{row['ratio']:.4f}{_ends(row['ratio_ends'], row['ratio_kind'])}"


def _loss(row: Record) -> str:
    return f"{row['loss_difference']:+.4f}{_ends(row['loss_ends'], row['loss_kind'])}"


def _ends(ends: list[float | None], kind: str) -> str:
    if ends[0] is None or ends[1] is None:
        return ""
    label = "" if kind == "95 %" else f"{kind}: "
    return f" ({label}{ends[0]:.4f} to {ends[1]:.4f})"
