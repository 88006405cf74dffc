"""Official files and run logs changed at random: entries, or one line that says why not."""

import copy
import json
import math
import os
import random
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import write_run

from dawnjax.__main__ import main
from dawnjax.errors import ConfigError, RunError
from dawnjax.official import export_dawnbench, export_mlperf
from dawnjax.official.exported_run import read_run
from dawnjax.official.importer import import_results
from dawnjax.official.outcome import without_damaged
from dawnjax.report import boards, own
from dawnjax.runs.log import encode_line, read_events
from dawnjax.trials import ours
from dawnjax.trials.checks import check
from dawnjax.trials.group import Entry, read_entries, write_entries

V05 = b"""\
:::MLPv0.5.0 resnet 1541720000.000000000 (train.py:1) run_start
:::MLPv0.5.0 resnet 1541720000.000000000 (train.py:1) input_batch_size: 208
:::MLPv0.5.0 resnet 1541720001.000000000 (train.py:2) train_epoch: 0
:::MLPv0.5.0 resnet 1541720050.000000000 (train.py:3) eval_accuracy: {"epoch": 0, "value": 0.75}
:::MLPv0.5.0 resnet 1541720050.500000000 (train.py:4) eval_target: 0.749
:::MLPv0.5.0 resnet 1541720060.000000000 (train.py:5) run_stop: {"success": true}
"""
V06 = b"""\
:::MLL 1557802062.530 submission_benchmark: {"value": "ssd", "metadata": {"lineno": 1}}
:::MLL 1557802062.530 run_start: {"value": null, "metadata": {"lineno": 141, "file": "train.py"}}
:::MLL 1557802162.530 eval_accuracy: {"value": 0.24, "metadata": {"epoch_num": 4}}
:::MLL 1557802163.000 run_stop: {"value": null, "metadata": {"status": "success"}}
"""
V07 = b"""\
:::MLLOG {"key": "submission_benchmark", "value": "bert", "time_ms": 1600000000000, "metadata": {}}
:::MLLOG {"key": "run_start", "value": null, "time_ms": 1600000000000, "metadata": {}}
:::MLLOG {"key": "global_batch_size", "value": 448, "time_ms": 1600000000100, "metadata": {}}
:::MLLOG {"key": "eval_accuracy", "value": 0.71, "time_ms": 1600000060000, "metadata": \
{"epoch_num": 2, "samples_count": 900}}
:::MLLOG {"key": "run_stop", "value": null, "time_ms": 1600000061000, "metadata": \
{"status": "success"}}
"""
MIXED = b"""\
:::MLL 1560873514.707 submission_benchmark: {"value": "mask", "metadata": {"lineno": 0}}
:::MLL 1560873710.141 run_start: {"value": null, "metadata": {'lineno': 615, 'file': 'a.py'}}
:::MLL 1560873800.000 eval_accuracy: {"value": {"accuracy": {"BBOX": 0.38, "SEGM": 0.34}}, \
"metadata": {"epoch_num": 3}}
:::MLL 1560875622.040 run_stop: {"value": null, "metadata": {'status': 'success'}}
"""
V50 = b"""\
:::MLLOG {"key": "submission_benchmark", "value": "stable_diffusion", "time_ms": 1700000000000}
:::MLLOG {"key": "run_start", "value": null, "time_ms": 1700000000000, "metadata": {}}
:::MLLOG {"key": "train_samples", "value": 6513144, "time_ms": 1700000000000, "metadata": {}}
:::MLLOG {"key": "eval_accuracy", "value": 88.1, "time_ms": 1700000060000, "metadata": \
{"samples_count": 2048000, "metric": "FID"}}
:::MLLOG {"key": "eval_accuracy", "value": 0.159, "time_ms": 1700000060000, "metadata": \
{"samples_count": 2048000, "metric": "CLIP"}}
:::MLLOG {"key": "run_stop", "value": null, "time_ms": 1700000061000, "metadata": \
{"status": "success"}}
"""
TSV = b"epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.5\t60\t80\n2\t0.9\t70\t92\n3\t1.2\t75\t93\n"
ENTRY = {
    "version": "v1.0",
    "author": "A",
    "authorEmail": "",
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

ODD_NUMBERS = (
    b"9" * 400, b"9" * 5000, b"1e308", b"1e305", b"-1", b"0", b"1600000000", b"1.6e12", b"1e-400",
    b"1541720000000", b"NaN", b"75", b"1e13",
)  # fmt: skip

SCALED = "training_results_v5.0/x/results/s/stable_diffusion"
LOG_PLACE = "v0.5.0/someone/submission/results/sys/resnet/result_0.txt"
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, -1e308, 10**400, 1e-320, math.nan, math.inf, "", "up", "9" * 400,
    "\x00\x1b[2J\u202e", "=1+1", "../../x", [], {}, [[]], [None], {"value": {}}, "x" * 5000,
    {"a": {"b": {"c": []}}}, "1e400", 2**63, ["0.75"],
)  # fmt: skip
"""Values that a field may be changed to."""
ODD_TEXT = (
    b"9" * 400, b"1e308", b"-1", b"NaN", b"Infinity", b"null", b"{", b"}", b"[" * 3000, b'"', b"\t",
    b"\n", b"\r", b"\x00", b"\xff\xfe", b":::MLLOG {", b":::MLPv0.5.0 ", b":::MLL ", b"1541720000",
    b"1600000000", b"1.6e12", b"true", b"1e-400", "\u202e".encode(), b"'",
)  # fmt: skip


def a_folder() -> dict[str, bytes]:
    """One small source of every form, by its path."""
    inference = {**ENTRY, "latency": 12.5, "top5Accuracy": 93.2, "cost": 1e-6}
    return {
        LOG_PLACE: V05,
        "training_results_v0.6/x/results/s/ssd/result_0.txt": V06,
        "training_results_v0.7/x/results/s/bert/result_0.txt": V07,
        "training_results_v0.6/x/results/s/mask/result_0.txt": MIXED,
        **{f"{SCALED}/result_{n}.txt": V50.replace(b"061000", b"06%d000" % n) for n in (2, 3, 4)},
        f"{SCALED}/scaling.json": b'{"scaling_factor": 1.1666666666666667}',
        "v0.5.0/someone/submission/results/sys/entry.json": json.dumps(SYSTEM).encode(),
        "ImageNet/train/one.json": json.dumps(ENTRY).encode(),
        "ImageNet/train/one.tsv": TSV,
        "ImageNet/inference/two.json": json.dumps(inference).encode(),
    }


def official_files(test_data: Path | None) -> list[dict[str, bytes]]:
    """Sources to change: the made ones, and small official entries where they are."""
    sources = [a_folder()]
    archive = test_data and test_data / "official" / "dawnbench_entries.tar.xz"
    if archive and archive.exists():
        with tarfile.open(archive) as members:
            files = {m.name: members.extractfile(m).read() for m in members if m.isfile()}  # pyright: ignore[reportOptionalMemberAccess]
        for name in sorted(files):
            stem, ending = os.path.splitext(name)
            if ending == ".json":
                pair = {name: files[name], f"{stem}.tsv": files.get(f"{stem}.tsv", b"")}
                sources.append({name: content for name, content in pair.items() if content})
    archive = test_data and test_data / "official" / "mlperf_v0.5_results.tar.xz"
    if archive and archive.exists():
        with tarfile.open(archive) as members:
            small = [m for m in members if m.name.endswith("ncf/result_0.txt")]
            sources += [{m.name: members.extractfile(m).read()} for m in small]  # pyright: ignore[reportOptionalMemberAccess]
    return sources


def changed_bytes(content: bytes, chance: random.Random) -> bytes:
    """Changes some bytes: a flip, a cut, a part twice, an odd text, lines swapped, a number."""
    at, end = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    end = min(end, at + chance.choice((1, 4, 20, 200)))
    kind = chance.randrange(8)
    if kind == 0 and at < len(content):
        return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
    if kind == 1:
        return content[:at] + content[end:]
    if kind == 2:
        return content[:end] + content[at:]
    if kind == 3:
        return content[:at] + chance.choice(ODD_TEXT) + content[end:]
    if kind == 4:
        lines = content.split(b"\n")
        one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
        lines[one], lines[two] = lines[two], lines[one]
        return b"\n".join(lines)
    numbers = list(re.finditer(rb"\d[\d.]*", content))
    if not numbers:
        return content[:at]
    number = chance.choice(numbers)
    return content[: number.start()] + chance.choice(ODD_NUMBERS) + content[number.end() :]


def changed_value(value: Any, chance: random.Random) -> Any:
    """Changes one value of some JSON, takes it away, or gives it another name."""
    value = copy.deepcopy(value)
    places: list[tuple[Any, Any]] = []
    queue = [value]
    for item in queue:
        keys = item.keys() if isinstance(item, dict) else range(len(item))
        places += [(item, key) for key in keys]
        queue += [item[key] for key in keys if isinstance(item[key], dict | list) and item[key]]
    if not places:
        return chance.choice(ODD)
    holder, key = chance.choice(places)
    if isinstance(holder, dict) and chance.random() < 0.2:
        moved = holder.pop(key)
        if chance.random() < 0.5:
            holder[chance.choice(("", "value", "up", key + key))] = moved
    else:
        holder[key] = copy.deepcopy(chance.choice(ODD))
    return value


def changed_file(name: str, content: bytes, chance: random.Random) -> bytes:
    """Changes a file, one to three times, by its bytes or as the JSON that it holds."""
    for _ in range(chance.randint(1, 3)):
        if name.endswith(".json") and chance.random() < 0.5:
            try:
                content = json.dumps(changed_value(json.loads(content), chance)).encode()
                continue
            except (ValueError, AttributeError, TypeError, RecursionError):
                pass  # it is no object any more, or cannot be written
        content = changed_bytes(content, chance)
    return content


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


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_changed_official_files_are_read_or_refused_in_a_line(count, campaign, tmp_path):
    test_data = os.environ.get("DAWNJAX_TEST_DATA")
    is_long = count > 1000
    sources = official_files(Path(test_data) if test_data and is_long else None)
    files = campaign(
        "official_files",
        "an official file (DAWNBench JSON and TSV, MLPerf logs of three forms) changed at random",
        "entries that hold what their fields say, or a line with the reason",
    )
    for number in range(count):
        chance = random.Random(number)
        # Half of them of the made ones, which are of every form.
        source = dict(sources[0] if chance.random() < 0.5 else chance.choice(sources))
        name = chance.choice(sorted(source))
        source[name] = changed_file(name, source[name], chance)
        folder = tmp_path / str(number)
        for path, content in source.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        why = untraced(lambda folder=folder: imported_soundly(folder))
        files.tried(f"seed {number}, {name}", held=not why, why=why)
        for path in source:
            (folder / path).unlink()
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


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_forged_logs_are_used_or_refused_in_a_line(count, campaign, tmp_path):
    told = {"name": "ImageNet", "benchmark": "ImageNet", "evidence": ""}
    run = write_run(tmp_path / "run", declared=told)
    log = run / "log.jsonl"
    events: list[dict[str, Any]] = read_events(log)
    for event in events:
        if event["event"] == "experiment":
            event["experiment"] |= {"mlperf_benchmark": "resnet", "optimizer": {}, "model": {}}
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
        forged = [e if chance.random() > 0.2 else changed_value(e, chance) for e in events]
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


def test_an_entry_whose_direction_is_up_and_a_value_out_of_all_bounds_are_one_line(
    tmp_path, capsys
):
    folder = tmp_path / "in"
    (folder / LOG_PLACE).parent.mkdir(parents=True)
    (folder / LOG_PLACE).write_bytes(V05)
    (entry,) = import_results([folder]).entries
    out = tmp_path / "entries.jsonl"
    write_entries(out, [entry])
    for before, after, why in (
        (
            '"metric": ',
            '"direction": "up", "metric": ',
            "target.direction is 'up'; choose at_least or at_most",
        ),
        ('"mlperf_training"', '"mlperf"', "suite is 'mlperf'; choose dawnbench or"),
    ):
        (tmp_path / "up.jsonl").write_text(out.read_text().replace(before, after))
        assert main(["report", str(tmp_path / "up.jsonl"), f"--out={tmp_path / 'page'}"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert why in line
    # A value that no file of entries may hold costs its entry, and the import goes on.
    second = folder / LOG_PLACE.replace("/sys/", "/other/")
    second.parent.mkdir(parents=True)
    second.write_bytes(V05.replace(b"0.75", b"1e305"))
    assert main(["import", str(folder), f"--out={out}"]) == 1
    shown = capsys.readouterr().out
    assert "evaluations[0].value is '1e+305'" in shown and "\n  1 entries" not in shown
    assert [read.source for read in read_entries(out)] == [entry.source]
