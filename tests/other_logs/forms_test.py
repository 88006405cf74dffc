"""Each form of log as it is written elsewhere, read as trials."""

import contextlib
import itertools
import json
import math
import re
import sqlite3
import struct
import tarfile
from pathlib import Path

import pytest
from made_other_logs import curve, write_lines

from dawnjax.errors import RunError
from dawnjax.other_logs.columns import Columns
from dawnjax.other_logs.log_lines import LogLines
from dawnjax.other_logs.reading import is_other_log, read_entry, read_logs


def points(trial):
    """Step, seconds and value of each evaluation."""
    return [(row.step, row.seconds_since_run_start, row.value) for row in trial.evaluations]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


MODDED = """import torch
step:0/20 val_loss:10.8305 train_time:0ms step_avg:0.05ms
step:1/20 train_time:107ms step_avg:106.80ms
step:10/20 val_loss:4.5000 train_time:1070ms step_avg:107.00ms
step:20/20 val_loss:3.2789 train_time:2140ms step_avg:107.00ms
peak memory allocated: 30000 MiB
"""
NANOCHAT = """Total batch size 1,000 => gradient accumulation steps: 1
Estimated FLOPs per token: 2.000000e+06
Step 00000 | Validation bpb: 3.200000
step 00000/00020 (0.00%) | loss: 11.1 | dt: 900.00ms | tok/sec: 1,111 | total time: 0.00m
step 00009/00020 (45.00%) | loss: 7.1 | lrm: 1.00 | dt: 500.00ms | total time: 0.50m | eta: 0.1m
Step 00010 | Validation bpb: 1.500000
Step 00010 | CORE metric: 0.1234
"""
SUMMARY = """step 00953 (100.0%) | loss: 2.99
---
val_bpb:          0.997900
training_seconds: 300.1
total_seconds:    325.9
num_steps:        953
"""
TABLE = "step,elapsed_ms,train/loss,val/accuracy\n10,1000,3.0,\n20,2000,2.0,0.5\n30,3500,1.0,0.75\n"


@pytest.mark.parametrize(
    ("name", "text", "expected", "metric"),
    [
        ("a.txt", MODDED, [(0, 0, 10.8305), (10, 1.07, 4.5), (20, 2.14, 3.2789)], "val_loss"),
        ("a.log", NANOCHAT, [(0, 0.0, 3.2), (10, 30.0, 1.5)], "validation_bpb"),
        ("run.log", SUMMARY, [(953, 300.1, 0.9979)], "val_bpb"),
        ("a.csv", TABLE, [(20, 2.0, 0.5), (30, 3.5, 0.75)], "val/accuracy"),
    ],
)
def test_a_log_as_it_is_printed(tmp_path, name, text, expected, metric):
    path = write(tmp_path / name, text)
    assert is_other_log(path) and is_other_log(tmp_path)
    [trial] = read_entry(path, Columns()).trials
    assert [pytest.approx(point) for point in points(trial)] == expected
    entry = read_entry(tmp_path, Columns())
    assert (entry.suite, entry.target.metric) == ("other", metric)
    assert entry.target.direction == ("at_least" if "accuracy" in metric else "at_most")


def test_tokens_and_flops_of_a_log_that_says_what_a_step_has(tmp_path):
    write(tmp_path / "a.log", NANOCHAT)
    [trial] = read_entry(tmp_path, Columns()).trials
    work = [(row.tokens, row.flops) for row in trial.evaluations]
    assert work == [(0.0, 0.0), (10_000.0, 2e10)]
    write(tmp_path / "b" / "a.txt", MODDED)
    [trial] = read_entry(tmp_path / "b", Columns(tokens="524288")).trials
    assert trial.evaluations[-1].tokens == 20 * 524288


def test_one_table_of_several_trials(tmp_path):
    rows = [f"{run},{10 * n},{n},{3.0 / n + run}" for run in (7, 8) for n in (1, 2)]
    path = write(tmp_path / "all.csv", "\n".join(["seed,step,seconds,val_loss", *rows]))
    trials = read_entry(path, Columns(target=8.5)).trials
    assert [trial.seed for trial in trials] == [7, 8]
    assert points(trials[1]) == [(10, 1.0, 11.0), (20, 2.0, 9.5)]
    assert [trial.time_to_accuracy_seconds for trial in trials] == [2.0, None]
    assert [trial.clock_seconds for trial in trials] == [2.0, 2.0]
    upward = Columns(target=11.0, trial="seed", direction="at_least")
    times = [trial.time_to_accuracy_seconds for trial in read_entry(path, upward).trials]
    assert times == [None, 1.0]


def test_columns_that_only_later_rows_have(tmp_path):
    """The metric, another clock and a column of trials, after rows of what was trained."""
    rows = [{"step": step, "time_ms": 10 * step} for step in range(1500)]
    rows += [
        {"step": 2000, "seconds": 4.0, "trial": run, "val_loss": loss, "tokens": 64}
        for run, loss in (("a", 3.0), ("b", 2.0))
    ]
    entry = read_entry(write_lines(tmp_path / "run.jsonl", rows), Columns())
    assert [trial.name for trial in entry.trials] == ["run.jsonl a", "run.jsonl b"]
    assert [points(trial) for trial in entry.trials] == [[(2000, 4.0, 3.0)], [(2000, 4.0, 2.0)]]
    assert [trial.evaluations[0].tokens for trial in entry.trials] == [64, 64]


def test_a_log_whose_values_come_late_is_read(tmp_path):
    late = [{"step": None}] * 1500 + [{"step": 10, "val_loss": 2.0}]
    write_lines(tmp_path / "late.jsonl", late)
    write_lines(tmp_path / "whole.jsonl", [{"step": 10, "val_loss": 3.0}])
    trials = read_entry(tmp_path, Columns()).trials
    assert [trial.evaluations[0].value for trial in trials] == [2.0, 3.0]


def test_exports_of_trackers(tmp_path):
    """W&B's panel, MLflow's measurements, TensorBoard's one scalar: each with its own columns."""
    panel = '"Step","r1 - val/loss","r1 - val/loss__MIN","r1 - val/loss__MAX","r2 - val/loss"\n'
    panel += '10,"4.0","4.0","4.0",""\n20,"3.0","3.0","3.0","3.5"\n'
    trials = read_entry(write(tmp_path / "panel.csv", panel), Columns()).trials
    assert [(t.name, points(t)) for t in trials] == [
        ("panel.csv r1", [(10, None, 4.0), (20, None, 3.0)]),
        ("panel.csv r2", [(20, None, 3.5)]),
    ]
    measured = "run_id,key,value,step,timestamp\n"
    for run, start in (("x", 1_700_000_000_000), ("y", 1_700_000_900_000)):
        measured += f"{run},loss,9.0,0,{start}\n{run},val_loss,3.0,10,{start + 2500}\n"
    trials = read_entry(write(tmp_path / "mlflow.csv", measured), Columns()).trials
    assert [points(trial) for trial in trials] == [[(10, 2.5, 3.0)]] * 2
    scalar = "Wall time,Step,Value\n1700000000.0,10,4.0\n1700000003.5,20,3.0\n"
    path = write(tmp_path / "run-x-tag-val_loss.csv", scalar)
    [trial] = read_entry(path, Columns()).trials
    assert points(trial) == [(10, 0.0, 4.0), (20, 3.5, 3.0)]


def test_a_store_of_mlflow(tmp_path):
    for run, loss, stage in (("aa", 3.0, "active"), ("bb", 3.5, "active"), ("cc", 1.0, "deleted")):
        folder = tmp_path / "mlruns" / "0" / run
        write(folder / "meta.yaml", f"lifecycle_stage: {stage}\nstart_time: 1700000000000\n")
        write(folder / "params" / "seed", f"{loss:.0f}")
        write(
            folder / "metrics" / "val" / "loss", f"1700000002500 {loss} 10\n1700000005000 2.5 20\n"
        )
        write(folder / "metrics" / "loss", "1700000001000 9.0 1\n")
    trials = read_entry(tmp_path / "mlruns", Columns()).trials
    assert [(trial.name, trial.seed) for trial in trials] == [("aa", 3), ("bb", 4)]
    assert [points(trial) for trial in trials] == [
        [(10, 2.5, 3.0), (20, 5.0, 2.5)],
        [(10, 2.5, 3.5), (20, 5.0, 2.5)],
    ]


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


def test_an_evaluation_without_a_time_takes_that_of_its_step(tmp_path):
    """As programs log that write what they trained and what they measured apart."""
    rows = [{"step": 10, "seconds": 1.5, "loss": 3.0}, {"step": 10, "eval": {"loss": 2.9}}]
    rows += [{"step": 20, "seconds": 3.5, "loss": 2.0}, {"step": 21, "eval": {"loss": 2.5}}]
    write_lines(tmp_path / "a.jsonl", rows)
    [trial] = read_entry(tmp_path, Columns()).trials
    assert points(trial) == [(10, 1.5, 2.9), (21, None, 2.5)]


def test_files_of_ours_and_of_benchmarks_are_none_of_another_program(tmp_path):
    write(tmp_path / "a" / "result_0.txt", ":::MLLOG {}\n")
    write(tmp_path / "a" / "notes.csv", "a,b\n1,2\n")
    write(tmp_path / "b" / "train" / "x.tsv", "epoch\thours\ttop5Accuracy\n")
    write_lines(tmp_path / "c.jsonl", [{"schema_version": 4, "suite": "dawnbench"}])
    write(tmp_path / "d" / "picture.png", "")
    assert not any(map(is_other_log, [tmp_path / name for name in ("a", "b", "c.jsonl", "d")]))


def test_a_seed_is_told_by_a_name(tmp_path):
    for seed in (3, 41):
        write_lines(tmp_path / f"seed{seed}" / "log.jsonl", curve(2.0 + seed))
    assert [trial.seed for trial in read_entry(tmp_path, Columns()).trials] == [3, 41]


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


TABLES = """
CREATE TABLE experiments (experiment_id INTEGER, name TEXT);
CREATE TABLE runs (run_uuid TEXT, name TEXT, experiment_id INTEGER, start_time INTEGER,
                   lifecycle_stage TEXT);
CREATE TABLE metrics (key TEXT, value FLOAT, timestamp INTEGER, run_uuid TEXT, step INTEGER,
                      is_nan BOOLEAN);
CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);
INSERT INTO experiments VALUES (0, 'Default'), (1, 'before'), (2, 'after');
INSERT INTO params VALUES ('seed', '7', 'bb22bb22bb');
INSERT INTO runs VALUES ('aa11aa11aa', 'calm', 1, 1700000000000, 'active'),
                        ('bb22bb22bb', 'wild', 1, 1700000100000, 'active'),
                        ('cc33cc33cc', 'gone', 1, 1700000000000, 'deleted'),
                        ('dd44dd44dd', 'late', 2, 1700000000000, 'active');
INSERT INTO metrics VALUES ('val_loss', 3.0, 1700000005000, 'aa11aa11aa', 20, 0),
                           ('val_loss', 4.0, 1700000002500, 'aa11aa11aa', 10, 0),
                           ('loss', 9.0, 1700000001000, 'aa11aa11aa', 1, 0),
                           ('val_loss', 0.0, 1700000102000, 'bb22bb22bb', 10, 1),
                           ('val_loss', 1.0, 1700000002000, 'cc33cc33cc', 10, 0),
                           ('val_loss', 2.0, 1700000002000, 'dd44dd44dd', 10, 0);
"""


def test_a_database_of_mlflow(tmp_path):
    """Each experiment is an entry; a deleted run is not a trial."""
    path = tmp_path / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(TABLES)
    assert is_other_log(path)
    after, before = read_logs(path, Columns())
    assert (after.source, before.source) == ("after", "before")
    assert [(trial.name, trial.seed) for trial in before.trials] == [
        ("calm aa11aa11", None),
        ("wild bb22bb22", 7),
    ]
    assert points(before.trials[0]) == [(10, 2.5, 4.0), (20, 5.0, 3.0)]
    assert math.isnan(before.trials[1].evaluations[0].value)
    assert [trial.name for trial in after.trials] == ["late dd44dd44"]
    (tmp_path / "other.db").write_bytes(b"no database, of any kind at all" * 9)
    with pytest.raises(RunError, match="cannot read .* as an MLflow database: file is not a"):
        is_other_log(tmp_path / "other.db")


def test_what_mlflow_stores_in_place_of_a_value(tmp_path):
    """Infinity as the greatest number, a metric named as a column, a run without a name."""
    path = tmp_path / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(TABLES)
        run = (None, 3, 1700000000000)
        database.execute("INSERT INTO experiments VALUES (3, 'diverged')")
        database.execute("INSERT INTO runs VALUES ('ee55ee55ee', ?, ?, ?, 'active')", run)
        rows = [("val_loss", 3.0, 10), ("val_loss", 1.7976931348623157e308, 20), ("step", 7.0, 20)]
        for name, value, step in rows:
            of_metric = (name, value, 1700000000000 + 250 * step, step)
            sql = "INSERT INTO metrics VALUES (?, ?, ?, 'ee55ee55ee', ?, 0)"
            database.execute(sql, of_metric)
        database.commit()
    [trial] = next(it for it in read_logs(path, Columns()) if it.source == "diverged").trials
    assert trial.name == "ee55ee55"
    first, second = trial.evaluations
    assert (first.step, first.value) == (10, 3.0)
    assert second.step == 20 and math.isnan(second.value)
