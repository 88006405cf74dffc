"""Official files and run logs changed at random: entries, or one line that says why not."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzzed import VALUES, Edits, edited, forge, fuzz_one
from later_logs import START, log_of, record
from made_runs import write_run
from official_sources import LATER, LOG, RESULT, TSV

from dawnjax.errors import ConfigError, RunError
from dawnjax.official import export_dawnbench, export_mlperf
from dawnjax.official.exported_run import read_run
from dawnjax.official.importer import import_results
from dawnjax.official.outcome import without_damaged
from dawnjax.report import boards, own
from dawnjax.runs.log import encode_line, read_events
from dawnjax.trials import ours
from dawnjax.trials.checks import check
from dawnjax.trials.group import Entry

V06 = f"""\
:::MLL {START}.530 submission_benchmark: {{"value": "ssd", "metadata": {{"lineno": 1}}}}
:::MLL {START}.530 run_start: {{"value": null, "metadata": {{"lineno": 141, "file": "train.py"}}}}
:::MLL {START + 9}.530 eval_accuracy: {{"value": 0.24, "metadata": {{"epoch_num": 4}}}}
:::MLL {START + 9}.000 run_stop: {{"value": null, "metadata": {{"status": "success"}}}}
""".encode()
ENTRY = {
    "version": "v1.0",
    "author": "A",
    "framework": "TensorFlow 1.8",
    "model": "ResNet-50",
    "hardware": "8 * V100 (AWS p3.16xlarge)",
    "timestamp": "2018-04-20",
    "costPerHour": 24.48,
    "misc": {"batchSize": 512},
}
SYSTEM = {
    "framework": "MXNet NGC18.11",
    "nodes": [{"cpu": "2x Xeon", "accelerator": "V100", "num_accelerators": 8, "num_nodes": 1}],
}
SCALED = "training_results_v5.0/x/results/s/stable_diffusion"


def a_folder() -> dict[str, bytes]:
    """One small source of every form, by its path."""
    inference = {**ENTRY, "latency": 12.5, "top5Accuracy": 93.2, "cost": 1e-6}
    evaluated = [
        record("eval_accuracy", 9, value, samples_count=2_048_000, metric=metric)
        for metric, value in (("FID", 88.1), ("CLIP", 0.159))
    ]
    diffusion = log_of("stable_diffusion", record("train_samples", 0, 6_513_144), *evaluated)
    return {
        RESULT: LOG,
        "v0.5.0/someone/submission/results/sys/entry.json": json.dumps(SYSTEM).encode(),
        "training_results_v0.6/x/results/s/ssd/result_0.txt": V06,
        "training_results_v0.7/x/results/s/bert/result_0.txt": LATER,
        f"{SCALED}/result_2.txt": diffusion,
        f"{SCALED}/scaling.json": b'{"scaling_factor": 1.1666666666666667}',
        "ImageNet/train/one.json": json.dumps(ENTRY).encode(),
        "ImageNet/train/one.tsv": TSV,
        "ImageNet/inference/two.json": json.dumps(inference).encode(),
    }


def imported_soundly(folder: Path) -> str:
    """Imports a folder; says what is wrong with how that went, or nothing."""
    try:
        imported = without_damaged(import_results([folder]))
    except (ConfigError, RunError) as error:
        return "" if "\n" not in str(error) else f"several lines: {error}"
    for rejection in imported.rejections:
        if "\n" in str(rejection) or not str(rejection).isprintable():
            return f"no printable line: {rejection!r}"
    for entry in imported.entries:
        check(entry)
        score = entry.figures and entry.figures.score_seconds
        if score and score < (entry.figures and entry.figures.unscaled_score_seconds or 0):
            return f"{entry.source} has a score below the one of its logs"
        if Entry.from_json(json.loads(json.dumps(entry.to_json(), allow_nan=False))) != entry:
            return f"{entry.source} is another entry when it is read back"
    return ""


def untraced(act: Callable[[], str]) -> str:
    """Acts; says what went wrong, an exception included."""
    try:
        return act()
    except Exception as error:  # any of them would be a traceback at a user
        return f"{type(error).__name__}: {str(error)[:200]}"


@pytest.mark.parametrize("count", [6, pytest.param(1_000, marks=pytest.mark.long)])
def test_changed_official_files_are_read_or_refused_in_a_line(count, campaign, tmp_path):
    files = campaign(
        "official_files",
        "an official file (DAWNBench JSON and TSV, MLPerf logs of three forms) changed at random",
        "entries that hold what their fields say, or a line with the reason",
    )
    source = a_folder()
    for name, content in source.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert len(import_results([tmp_path]).entries) == 6
    for name, content in source.items():

        def act(edits: Edits, name: str = name, content: bytes = content) -> str:
            (tmp_path / name).write_bytes(edited(content, edits))
            return untraced(lambda: imported_soundly(tmp_path))

        fuzz_one(files, count, name, act, VALUES)
        (tmp_path / name).write_bytes(content)
    files.finish()


def reported(run: Path) -> list[Path]:
    """Makes of a run what a report shows of it."""
    read = ours.read_run(run)
    boards.boards(ours.entries_of([read]))
    own.runs_section([read])
    return []


def used_or_refused(run: Path, out: Path) -> str:
    """Reports a run and exports it in both forms; says what is wrong with that, or nothing."""
    for write in (
        lambda: reported(run),
        lambda: export_dawnbench.export([read_run(run)], out / "d", author="A"),
        lambda: export_mlperf.export([read_run(run)], out / "m", submitter="A"),
    ):
        try:
            for path in write():
                path.read_text()
        except (ConfigError, RunError) as error:
            if "\n" in str(error):
                return f"several lines: {error}"
    return ""


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.long)])
def test_forged_logs_are_used_or_refused_in_a_line(count, campaign, tmp_path):
    told = {"name": "ImageNet", "benchmark": "ImageNet", "evidence": ""}
    run = write_run(tmp_path / "run", declared=told)
    log = run / "log.jsonl"
    events: list[dict[str, Any]] = read_events(log)
    for event in events:
        if event["event"] == "experiment":
            event["experiment"] |= {"mlperf_benchmark": "resnet", "optimizer": {}, "model": {}}
            event["experiment"]["targets"][0]["value"] = 0.759
            event["metrics"] = [
                {"name": name, "title": name, "unit": "fraction", "least": 0.0, "most": 1.0,
                 "direction": "at_least", "is_proportion": True}
                for name in ("top_1_accuracy", "top_5_accuracy")
            ]  # fmt: skip
        if event["event"] == "evaluation":
            measured: Any = event["metrics"]
            measured["top_5_accuracy"] = measured["top_1_accuracy"]
    logs = campaign(
        "forged_run_logs",
        "values of a run's log changed, then `report`, `export`",
        "a report and an export, or a line with the reason",
    )
    for number in range(count + 1):
        chance = random.Random(number)
        # The first is unchanged: it must be exported, or nothing here is tried.
        forged = [e if chance.random() > 0.2 else forge(e, chance) for e in events]
        forged = events if number == 0 else forged
        lines = [untraced_line(event) for event in forged]
        log.write_bytes(b"".join(lines))
        out = tmp_path / f"out_{number}"
        why = untraced(lambda out=out: used_or_refused(run, out))
        if number:
            logs.tried(f"seed {number}", held=not why, why=why)
        else:
            assert not why and {path.name for path in out.iterdir()} == {"d", "m"}
    logs.finish()


def untraced_line(event: Any) -> bytes:
    """A line of a log; a value that JSON cannot say becomes text."""
    try:
        return encode_line(event)
    except (ValueError, TypeError, AttributeError):
        return encode_line(json.loads(json.dumps(event), parse_constant=str))
