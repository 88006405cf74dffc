"""Steps of training beside PyTorch's."""

from collections.abc import Iterator

from benchmarks.harness import Rounds
from benchmarks.result_tables.cells import interval, machine, ratio_of_rounds, when
from benchmarks.result_tables.result_files import Record

STEPS_HEAD = (
    "step | PyTorch | hardware | date; versions | rounds | DawnJAX | PyTorch's | "
    "times as fast (95 %) | MFU"
)


def pytorch_settings(record: Record) -> str:
    """PyTorch's way: the fastest of those tried."""
    return record.get("pytorch_settings") or record.get("pytorch", {}).get("fastest") or "none"


def pytorch_ways(name: str, record: Record) -> Iterator[list[str]]:
    """Each way that PyTorch was run, beside the fastest before it."""
    tried = record.get("tried") or record.get("pytorch", {}).get("tried", {})
    network = record.get("network") or record.get("pytorch", {}).get("model")
    title = f"`{network or record.get('experiment', 'digits')}`"
    for way, facts in tried.items():
        cells = [title, way]
        if "failed" in facts:
            words = facts["failed"]
            words = words if isinstance(words, str) else "; ".join(words)
            cells.append(f"failed: {words[:80]}")
        elif "seconds_an_epoch" in facts:
            cells.append(f"{facts['seconds_an_epoch']:.3f} s an epoch")
        elif "against" in facts:
            cells.append(f"{ratio_of_rounds(facts)} of the time of: {facts['against']}")
        else:
            cells.append("the first")
        is_fastest = way == pytorch_settings(record)
        yield [*cells, "**compared with ours**" if is_fastest else ""]
        title = ""


def steps(name: str, record: Record) -> Iterator[list[str]]:
    """Each variant of a step, also one that failed or was not run."""
    where = [machine(name, record), when(record, "jax", "torch")]
    if "network" in record:
        times = Rounds.of(record["float32"])
        # The file holds times, and the table says how many times as fast we are.
        speed = Rounds(times.second, times.first).ratio
        yield [
            f"`{record['network']}` network, {record['batch_size']:,} images, float32, "
            f"{record.get('dawnjax', {}).get('fastest', 'memory kept where large')}",
            pytorch_settings(record),
            *where,
            str(speed.trials),
            *(f"{median:,.1f} ms" for median in times.medians),
            speed.text(),
        ]
        return
    for variant, facts in record["variants"].items():
        if "units_per_second" not in facts:
            reason = facts.get("failed") or f"not run: {facts['not_run']}"
            model = record.get("pytorch", {}).get("model", name)
            yield [f"`{model}`, {variant}", "", *where, "0", reason]
            continue
        pytorch, against = record.get("pytorch", {}), facts.get("against_pytorch", {})
        label = "" if variant == "base" else f", {variant}"
        examples = "images" if record["unit"] == "images" else "rows"
        ratio = ratio_of_rounds(against) if "first" in against else ""
        yield [
            f"`{facts['model']}`{label}, {facts['batch']} {examples}, {facts['dtype']}",
            pytorch.get("failed") or pytorch_settings(record),
            *where,
            str(len(facts["rounds"])),
            f"{facts['units_per_second']:,.0f} {record['unit']}/s "
            f"({interval(min(facts['rounds']), max(facts['rounds']), 0)})",
            f"{Rounds.of(against).medians[1]:,.0f} {record['unit']}/s" if ratio else "",
            ratio or against.get("not_the_same", ""),
            "" if facts["mfu"] is None else f"{facts['mfu']:.3f}",
        ]
