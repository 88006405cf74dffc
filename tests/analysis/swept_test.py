"""Columns `config.FIELD`, names of entries by what changed, and one meaning of each name."""

import csv

import pytest
from made_runs import write_run
from told import told

from dawnjax import analysis
from dawnjax.__main__ import main


@pytest.fixture
def swept(tmp_path):
    """Three runs: one as the experiment has it, with a batch of 10, and two that change fields."""
    write_run(tmp_path / "plain", identity="a")
    write_run(tmp_path / "larger", identity="b", overrides={"global_batch_size": 20})
    write_run(tmp_path / "both", identity="c", overrides={"global_batch_size": 20, "x.rate": 0.5})
    return tmp_path


@pytest.mark.parametrize("rows", ["entry", "trial", "evaluation"])
def test_every_row_has_the_fields_that_a_flag_changed(swept, rows):
    found = {
        (row["config.global_batch_size"], row["config.x.rate"])
        for row in analysis.load(swept).records(rows)
    }
    # The made log has the batch of its experiment in all three.
    assert found == {(10, None), (10, 0.5)}
    assert not [
        name for name in analysis.load(swept / "plain").records(rows)[0] if "config" in name
    ]


def test_each_file_of_a_report_has_them(swept, tmp_path, capsys):
    assert main(["report", str(swept), f"--out={tmp_path / 'page'}"]) == 0
    for name in ("runs", "phases", "wall_time", "stability", "learning"):
        file = tmp_path / "page" / "tables" / f"{name}.csv"
        if file.exists():
            [*rows] = csv.DictReader(file.open())
            assert {row["config.x.rate"] for row in rows} <= {"", "0.5"}, name
            assert "0.5" in {row["config.x.rate"] for row in rows}, name
    rows = told(capsys, "runs", str(swept))["runs"]
    assert {row["run"]: row["swept"]["x.rate"] for row in rows}["both"] == 0.5


def test_a_saved_entry_is_the_run_s_own_whatever_was_swept_beside_it(swept):
    file = swept / "one.jsonl"
    analysis.load(swept / "plain").save(file)
    with pytest.warns(UserWarning, match="left out"):
        entries = analysis.load(file, swept)
    assert len(entries) == 3
