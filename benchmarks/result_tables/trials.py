"""Whole trials: to the target, beside PyTorch's, and in record mode."""

import statistics
from collections.abc import Iterator

from benchmarks.compared import (
    TOTAL,
    beside_peer,
    charges_imports,
    recorded,
    trial_ratios_with_and_without_disturbed,
)
from benchmarks.machine_load import disturbed_words
from benchmarks.result_tables.cells import machine, present, spread, when
from benchmarks.result_tables.result_files import Record, Rows
from dawnjax.trials.figures import coefficient_of_variation


def trials(files: list[tuple[str, Record]]) -> Rows:
    """One column for each file of `benchmarks/seeds.py`."""
    rows: Rows = [
        ["experiment"],
        ["hardware"],
        ["date; versions"],
        ["trials that reached the target"],
        ["time to accuracy, s"],
        ["total from the program's start to the target, s"],
        ["epochs"],
        ["quality at the end"],
        ["training, s"],
        ["evaluations, s"],
        ["run start to the last evaluation, s"],
        ["compilation, s: first trial; median of the others"],
        ["examples a second"],
    ]
    for name, record in files:
        all_trials = record["trials"]
        times = [t["time_to_accuracy_seconds"] for t in all_trials if t["reached"]]
        cv = coefficient_of_variation(times)
        compilation = present(all_trials, "compile_seconds")
        wanted = record["trials_wanted"]
        short = "" if len(all_trials) == wanted else f"; {wanted} were wanted"
        cells = [
            f"`{record['experiment']}`",
            machine(name, record),
            when(record, "python", "jax"),
            f"{record['num_reached']} of {record['num_trials']}{short}",
            spread(times, 3) + ("" if cv is None else f", CV {cv:.2f}"),
            spread(present(all_trials, "total_seconds_to_accuracy"), 2),
            spread(present(all_trials, "epochs"), 2),
            spread(present(all_trials, "last"), 4),
            spread(present(all_trials, "train_seconds"), 3),
            spread(present(all_trials, "eval_seconds"), 3),
            spread(present(all_trials, "run_seconds"), 3),
            "; ".join(
                f"{statistics.median(part):.1f}"
                for part in (compilation[:1], compilation[1:])
                if part
            ),
            spread(present(all_trials, "examples_per_second"), 0),
        ]
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return rows


def against_pytorch(name: str, record: Record) -> Iterator[list[str]]:
    """Each ratio of means, or why there is none."""
    sides = ("dawnjax", "pytorch")
    reached = [f"{record[side]['num_reached']} of {record[side]['num_trials']}" for side in sides]
    ours, theirs = (record[side]["trials"] for side in sides)
    load = disturbed_words({"DawnJAX": ours, "PyTorch": theirs})
    where = [machine(name, record), when(record, "jax", "torch")]
    where.append(f"{' and '.join(reached)}; {load}")
    ratios = trial_ratios_with_and_without_disturbed(ours, theirs)
    if "time to accuracy, s" not in ratios:
        yield [*where, "time to accuracy, s: no ratio, a trial did not reach"]
        where = [""] * 3
    for quantity, (ours, theirs, ratio) in ratios.items():
        if quantity == TOTAL and charges_imports(record["pytorch"]["trials"]):
            quantity += "; PyTorch's holds our imports: the ratio is at least this"
        yield [
            *where,
            quantity,
            f"{ours:.3f}",
            f"{theirs:.3f}",
            f"{ratio.value:.3f}",
            ratio.ends_text(),
        ]
        where = [""] * 3


def record_mode(name: str, record: Record) -> Iterator[list[str]]:
    """Our seeds, then each peer of the same job."""
    parts = record.get("dawnjax", [record])
    failed = "".join(f"; {part['failed']}" for part in parts if "failed" in part)
    experiment = next((part["experiment"]["name"] for part in parts if "experiment" in part), name)
    where = [machine(name, record), when(record, "jax", "torch")]
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
