"""Forms of log that programs write for us; tests/golden/forms.txt has those that are texts."""

import itertools
import json
import math
import re
import struct
import tarfile
from pathlib import Path

import pytest
from made_other_logs import write_lines

from dawnjax.errors import RunError
from dawnjax.other_logs.columns import Columns
from dawnjax.other_logs.log_lines import LogLines
from dawnjax.other_logs.reading import is_other_log, read_entry


def points(trial):
    """Step, seconds and value of each evaluation."""
    return [(row.step, row.seconds_since_run_start, row.value) for row in trial.evaluations]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        # The numbers of pandas' rows are no clock, epoch or seed.
        ("a.csv", ",step,val_loss\n0,10,3.0\n1,20,2.0\n", [("a.csv", None, 20, None)]),
        (
            "a.jsonl",
            '{"seed": 3, "lr": 1}\n{"step": 9, "val_loss": 2}\n',
            [("a.jsonl", 3, 9, None)],
        ),
        (
            "a.jsonl",  # seed 0 crashed, which is a trial that missed
            '{"seed": 0, "step": 1, "loss": 9}\n{"seed": 1, "step": 4, "val_loss": 2}\n',
            [("a.jsonl 0", 0, None, None), ("a.jsonl 1", 1, 4, None)],
        ),
        ("a.jsonl", '{"event": "eval", "step": 9, "val_loss": 2}\n', [("a.jsonl", None, 9, None)]),
    ],
)
def test_rows_beside_the_evaluations(tmp_path, name, text, expected):
    path = write(tmp_path / name, text)
    assert is_other_log(path)
    trials = read_entry(path, Columns()).trials
    ends = [trial.evaluations[-1] if trial.evaluations else None for trial in trials]
    assert [
        (trial.name, trial.seed, end and end.step, end and end.seconds_since_run_start)
        for trial, end in zip(trials, ends, strict=True)
    ] == expected
    assert all(trial.epochs is None for trial in trials)


def test_equal_logs_that_are_no_copies(tmp_path):
    """Two that diverged at once, and two seeds of one coarse metric, without a clock."""
    for seed in (0, 1):
        write_lines(tmp_path / "a" / f"{seed}.jsonl", [{"step": 9, "val_loss": math.nan}])
        write_lines(tmp_path / "b" / f"seed_{seed}.jsonl", [{"step": 9, "val_accuracy": 0.9}])
    assert [len(read_entry(tmp_path / side, Columns()).trials) for side in "ab"] == [2, 2]


def test_event_files_of_tensorboard(tmp_path):
    from dawnjax.runs.scalars import ScalarWriter

    writer = ScalarWriter(tmp_path / "a", pytest.fail)
    writer.write(10, {"train/loss": 5.0})
    writer.write(10, {"val/loss": 4.0})
    writer.write(20, {"val/loss": 3.0})
    writer.close()
    [trial] = read_entry(tmp_path, Columns()).trials
    assert [(row.step, row.value) for row in trial.evaluations] == [(10, 4.0), (20, 3.0)]
    moments = [row.seconds_since_run_start for row in trial.evaluations]
    assert all(moment is not None and 0 <= moment < 60 for moment in moments)
    [file] = (tmp_path / "a").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])  # it is still being written
    [trial] = read_entry(tmp_path, Columns()).trials
    assert [row.step for row in trial.evaluations] == [10]


def write_events(folder, *events):
    from tensorboardX.proto import event_pb2

    made = getattr(event_pb2, "Event")  # noqa: B009 -- made when the module is imported
    framed = b""
    for event in events:
        data = made(**event).SerializeToString()
        framed += struct.pack("<Q", len(data)) + b"0000" + data + b"0000"
    (folder / "events.out.tfevents.1.host").write_bytes(framed)


def test_a_tensor_of_tensorflow_2_is_a_scalar(tmp_path):
    """Its summaries hold a tensor, by its bytes or its list."""

    def value(**tensor):
        return {"tag": "val_loss", "tensor": {"dtype": 1, **tensor}}

    write_events(
        tmp_path,
        {"wall_time": 1.7e9, "step": 1, "summary": {"value": [value(float_val=[2.5])]}},
        {
            "wall_time": 1.7e9 + 1,
            "step": 2,
            "summary": {"value": [value(tensor_content=struct.pack("<f", 1.5))]},
        },
    )
    [trial] = read_entry(tmp_path, Columns()).trials
    assert points(trial) == [(1, 0.0, 2.5), (2, 1.0, 1.5)]


def test_a_large_image_is_passed_over_and_no_scalar_with_it(tmp_path):
    image = {"tag": "seen", "image": {"encoded_image_string": bytes(5_000_000)}}
    scalar = {"tag": "val_loss", "simple_value": 2.5}
    graph = {"wall_time": 1.7e9, "graph_def": bytes(5_000_000)}
    beside = {"wall_time": 1.7e9, "step": 300, "summary": {"value": [image]}}
    written = {"wall_time": 1.7e9, "step": 300, "summary": {"value": [scalar]}}
    write_events(tmp_path, graph, beside, written)
    [trial] = read_entry(tmp_path, Columns()).trials
    assert points(trial) == [(300, 0.0, 2.5)]
    write_events(tmp_path, written, {"step": 301, "summary": {"value": [image, scalar]}})
    with pytest.raises(RunError, match="has a record of 5,000,0.. bytes with several values"):
        read_entry(tmp_path, Columns())


def test_the_logger_writes_what_is_read(tmp_path):
    log = LogLines(str(tmp_path / "a" / "one.jsonl"), seed=3)
    for step, loss in ((1, 4.0), (2, math.nan), (3, 2.0)):
        log(step=step, val_loss=loss)
    [trial] = read_entry(tmp_path / "a", Columns()).trials
    assert trial.seed == 3 and [row.step for row in trial.evaluations] == [1, 2, 3]
    assert math.isnan(trial.evaluations[1].value)
    times = [row.seconds_since_run_start for row in trial.evaluations]
    assert all(a is not None and b is not None and a < b for a, b in itertools.pairwise(times))


def test_the_logger_needs_python_alone():
    import dawnjax.other_logs.log_lines as module

    text = Path(module.__file__).read_text()
    imported = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
    assert imported == ["json", "os", "time", "typing"]


def test_files_of_ours_and_of_benchmarks_are_none_of_another_program(tmp_path):
    write(tmp_path / "a" / "result_0.txt", ":::MLLOG {}\n")
    write(tmp_path / "a" / "notes.csv", "a,b\n1,2\n")
    write(tmp_path / "b" / "train" / "x.tsv", "epoch\thours\ttop5Accuracy\n")
    write_lines(tmp_path / "c.jsonl", [{"schema_version": 4, "suite": "dawnbench"}])
    write(tmp_path / "d" / "picture.png", "")
    assert not any(map(is_other_log, [tmp_path / name for name in ("a", "b", "c.jsonl", "d")]))


def test_printed_lines_of_a_public_race(tmp_path, test_data):
    """36 logs of two records of modded-nanogpt, as they are printed."""
    with tarfile.open(test_data / "speedruns" / "printed_lines.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    baseline = tmp_path / "printed_lines" / "2026-02-28_TransposeCopyBackward" / "baseline"
    entry = read_entry(baseline, Columns(target=3.28))
    assert len(entry.trials) == 6
    for trial in entry.trials:
        lines = (baseline / trial.name).read_text().splitlines()
        last = [line for line in lines if "val_loss" in line][-1]
        found = re.match(r"step:(\d+)/\d+ val_loss:([\d.]+) train_time:(\d+)ms", last)
        step, value, milliseconds = found.groups()
        row = trial.evaluations[-1]
        assert (row.step, row.value) == (int(step), float(value))
        assert row.seconds_since_run_start == pytest.approx(int(milliseconds) / 1000)
    assert json.dumps(entry.to_json(), allow_nan=False)
