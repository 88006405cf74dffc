"""DawnJAX beside its peers: trials, record mode, steps, input, start-up."""

from collections.abc import Iterator

from benchmarks.compared import (
    beside_peer,
    recorded,
    trial_ratios_with_and_without_disturbed,
)
from benchmarks.harness import Rounds
from benchmarks.machine_load import disturbed_words
from benchmarks.result_tables.cells import (
    compared_row,
    hardware,
    interval,
    machine,
    present,
    spread,
    when,
)
from benchmarks.result_tables.result_files import Record


def against_pytorch(record: Record) -> Iterator[list[str]]:
    """Each ratio of means, or why there is none."""
    sides = ("dawnjax", "pytorch")
    reached = [f"{record[side]['num_reached']} of {record[side]['num_trials']}" for side in sides]
    ours, theirs = (record[side]["trials"] for side in sides)
    load = disturbed_words({"DawnJAX": ours, "PyTorch": theirs})
    # The load is known of each trial. That of older files' environments is their last trial's own.
    where = [hardware(record), when(record, "jax", "torch")]
    where.append(f"{' and '.join(reached)}; {load}")
    ratios = trial_ratios_with_and_without_disturbed(ours, theirs)
    if "time to accuracy, s" not in ratios:
        yield [*where, "time to accuracy, s: no ratio, a trial did not reach"]
        where = [""] * 3
    for quantity, (ours, theirs, ratio) in ratios.items():
        yield [
            *where,
            quantity,
            f"{ours:.3f}",
            f"{theirs:.3f}",
            f"{ratio.value:.3f}",
            ratio.ends_text(),
        ]
        where = [""] * 3


def record_mode(record: Record) -> Iterator[list[str]]:
    """Our seeds, then each peer of the same job."""
    parts = record.get("dawnjax", [record])
    failed = "".join(f"; {part['failed']}" for part in parts if "failed" in part)
    experiment = next(
        (part["experiment"]["name"] for part in parts if "experiment" in part), "ours"
    )
    where = [machine(record), when(record, "jax", "torch")]
    compilation = "; ".join(
        f"{part['compile_seconds']:.1f} ({part['compile_cache']})"
        for part in parts
        if "compile_seconds" in part
    )
    times, accuracies = recorded(parts)
    program = f"`{experiment}`{failed}"
    figures = [spread(times, 4), spread(accuracies, 4), compilation]
    yield [program, *where, str(len(times)), *figures]
    for peer in record.get("peers", {}).values():
        compared = beside_peer(parts, peer)
        ratio, difference = "", ""
        if compared:
            ratio = compared[0].text()
            difference = f"{compared[1].value:+.4f} ({compared[1].ends_text(4)})"
        failed = f": {peer['failed']}" if "failed" in peer else ""
        yield [
            f"`{peer['script']}`{failed}",
            "the same job",
            "",
            str(len(peer["runs"])),
            spread(present(peer["runs"], "time_seconds"), 4),
            spread(present(peer["runs"], "top_1_accuracy"), 4),
            "",
            ratio,
            difference,
        ]


def steps(record: Record) -> Iterator[list[str]]:
    """Our step, beside PyTorch's where it has one."""
    facts = record["variants"]["base"]
    pytorch, against = record.get("pytorch", {}), facts.get("against_pytorch", {})
    has_ratio = "first" in against
    yield [
        f"`{facts['model']}`, {facts['batch']} {'images' if record['unit'] == 'images' else 'rows'}"
        f", {facts['dtype']}",
        pytorch.get("failed") or pytorch.get("fastest", "none"),
        machine(record),
        when(record, "jax", "torch"),
        str(len(facts["rounds"])),
        f"{facts['units_per_second']:,.0f} {record['unit']}/s "
        f"({interval(min(facts['rounds']), max(facts['rounds']), 0)})",
        f"{Rounds.of(against).medians[1]:,.0f} {record['unit']}/s" if has_ratio else "",
        Rounds.of(against).ratio.text() if has_ratio else against.get("not_the_same", ""),
        "" if facts["mfu"] is None else f"{facts['mfu']:.3f}",
    ]


def image_input(record: Record) -> Iterator[list[str]]:
    """Examples that a core decodes and feeds in a second."""
    for field, what in (
        ("decode", "photograph to a square of 256"),
        ("cut", "photograph to a random part of 224, as whole photographs are trained on"),
        ("feed", "prepared square to what a training step needs"),
    ):
        if field in record:
            yield compared_row(record, f"{what}, images", record[field], 0)


def start_up(record: Record) -> Iterator[list[str]]:
    """Seconds of whole processes, and of a second run against a first."""
    for command, facts in record["commands"].items():
        yield compared_row(record, f"`{command}` against {facts['against']}", facts, 3)
    again = record["second_runs"]
    for field, what in (("compile_seconds", "compilation"), ("process_seconds", "whole process")):
        title = f"{what} of a second run of `{again['experiment']}` against the first"
        yield compared_row(record, title, again[field], 1)
