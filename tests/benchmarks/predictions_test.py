"""Predictions of MLPerf v6.1: what is committed, and their score by a folder of results."""

import dataclasses
import json
import re

import pytest
from later_logs import log_of, record, write_round

from benchmarks import predictions


def test_the_committed_predictions_are_dated_and_name_the_code():
    kept = json.loads(predictions.FILE.read_text())
    assert re.fullmatch(r"2026-\d\d-\d\d", kept["date"]) and re.fullmatch(
        r"[0-9a-f]{40}", kept["commit"]
    )
    rows = predictions.kept()
    assert {row.benchmark for row in rows} == {"llama31_8b", "llama2_70b_lora", "gpt_oss_20b"}
    assert {row.system.partition(":")[0] for row in rows} == set(predictions.CHIPS)
    assert len({(row.benchmark, row.system) for row in rows}) == len(rows) > 50
    for row in rows:
        assert 0 < row.low < row.minutes < row.high and row.published is None


def test_results_of_the_last_round_lie_inside_what_was_made_of_the_one_before():
    before = json.loads(predictions.FILE.read_text())["before"]
    assert len(before) == 9 and all(row["published"] for row in before)
    moved = {(row.benchmark, row.system): row for row in predictions.kept()}
    inside = [
        one.low <= row["published"] <= one.high
        for row in before
        if (one := moved.get((row["benchmark"], row["system"])))
    ]
    assert sum(inside) >= 0.9 * len(inside) and len(inside) >= 8


def made_result(top, name, minutes, accelerator, nodes, per_node, benchmark="llama31_8b"):
    logs = [
        log_of(
            benchmark,
            record("global_batch_size", -0.5, 16),
            record("seed", -0.4, number),
            record("eval_accuracy", 60 * minutes - 1, 3.29, samples_count=170_000 + number),
            seconds=60 * minutes + number,
        )
        for number in range(10)
    ]
    folder = write_round(top / name, "v6.1", benchmark, logs)
    systems = folder.parents[2] / "systems"
    systems.mkdir()
    fields = {
        "system_name": name,
        "submitter": "Lab",
        "division": "closed",
        "accelerator_model_name": accelerator,
        "accelerators_per_node": per_node,
        "number_of_nodes": nodes,
    }
    (systems / "sys.json").write_text(json.dumps(fields))


def test_a_folder_of_results_is_scored(tmp_path, capsys, monkeypatch):
    made_result(tmp_path, "near", 80, "NVIDIA Blackwell GPU (B200-SXM-180GB)", 1, 8)
    made_result(tmp_path, "slow", 800, "NVIDIA GB200", 2, 4)
    made_result(tmp_path, "other", 80, "NVIDIA B200-SXM-180GB", 3, 8)
    rows = [dataclasses.replace(row, minutes=100, low=50, high=200) for row in predictions.kept()]
    text = predictions.score(rows, tmp_path)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    near = next(line for line in lines if line.startswith("Lab near"))
    assert "b200:8" in near and "100 50 to 200 80.1 +25 % yes" in near
    assert any(line.startswith("Lab slow") and line.endswith("no") for line in lines)
    assert not any(line.startswith("Lab other") for line in lines)
    assert "1 of 2 inside their 90 % interval" in text and "1 other results" in text
    monkeypatch.setattr("sys.argv", ["predictions", f"--score={tmp_path}"])
    assert predictions.main() == 0
    assert "of 2 inside" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["predictions", "--score=no/such/folder"])
    with pytest.raises(SystemExit):
        predictions.main()
    assert "there is no such folder" in capsys.readouterr().err
