"""A run's log told anew: what an export reads."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

from dawnjax.__main__ import main
from dawnjax.official.importer import import_results
from dawnjax.runs.log import Event, encode_line, log_path, read_events
from dawnjax.trials.from_log import trial_of
from dawnjax.trials.group import Entry


def retold(
    run: Path, target: Path, seed: int, change: Callable[[list[Event]], list[Event]] = list
) -> Path:
    """Writes a run's directory anew with another seed and other events."""
    events = change(read_events(log_path(run)))
    record = json.loads((run / "experiment.json").read_text())
    record |= {"seed": seed, "run_id": f"run-{seed}"}
    for event in events:
        if event["event"] == "experiment":
            event["seed"] = seed
        if event["event"] == "attempt_start":
            event["run_id"] = record["run_id"]
    target.mkdir(parents=True)
    log_path(target).write_bytes(b"".join(map(encode_line, events)))
    (target / "experiment.json").write_text(json.dumps(record))
    return target


def on_data(**declared: str) -> Callable[[list[Event]], list[Event]]:
    """Makes a run one of MLPerf's ResNet whose log declares its data."""

    def change(events: list[Event]) -> list[Event]:
        for event in events:
            if event["event"] == "experiment":
                event["experiment"]["mlperf_benchmark"] = "resnet"
                event["experiment"]["targets"][0]["value"] = 0.759
                event["data"] |= declared
            if event["event"] == "evaluation" and event["reached"]:
                event["metrics"]["top_1_accuracy"] = 0.76
        return events

    return change


def result_of(run: Path):
    return trial_of(read_events(log_path(run)))


def export(*argv: str) -> int:
    return main(["export", *argv])


def error_of(capsys, *argv: str) -> str:
    assert export(*argv) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def only_entry(folder: Path) -> Entry:
    imported = import_results([folder])
    assert not imported.rejections
    (entry,) = imported.entries
    return entry


# ---------------------------------------------------------------------------------------------


def cifar10(values: list[float]) -> Callable[[list[Event]], list[Event]]:
    """Makes a run one of CIFAR-10 whose evaluations give these accuracies."""

    def change(events: list[Event]) -> list[Event]:
        evaluations = [event for event in events if event["event"] == "evaluation"]
        kept = [e for e in events if e["event"] not in ("evaluation", "attempt_end")]
        last, end = evaluations[-1], events[-1]
        rows = []
        for number, value in enumerate(values, start=1):
            row = copy.deepcopy(last)
            row["t"] += number
            row["unix_seconds"] += number
            row["boot_seconds"] = row["boot_seconds"] and row["boot_seconds"] + number
            row |= {"epoch": number / 2, "step": number, "reached": value > 0.939995}
            row["metrics"] = {"top_1_accuracy": value, "loss": 0.1}
            rows.append(row)
        end["t"] += len(values) + 1
        end["boot_seconds"] = end["boot_seconds"] and end["boot_seconds"] + len(values) + 1
        for event in kept:
            if event["event"] == "experiment":
                event["data"] |= {"name": "CIFAR-10", "benchmark": "CIFAR-10"}
        before = [e for e in kept if e["t"] <= rows[0]["t"]]
        return [*before, *rows, end]

    return change
