"""Entries of other programs' logs stand apart from official results and from runs of ours."""

import dataclasses

import pytest
from made_other_logs import normal, write_side
from made_runs import write_run

from dawnjax.__main__ import main
from dawnjax.analysis import load
from dawnjax.other_logs.columns import Columns
from dawnjax.report.boards import boards, why_none_is_comparable
from dawnjax.trials.group import read_entries


@pytest.fixture
def imported(tmp_path):
    """Two folders of logs, and the file of their entries."""
    for seed, (name, mean) in enumerate((("a", 3.0), ("b", 2.9))):
        write_side(tmp_path / name, normal(mean, 0.02, 6, seed))
    sides = [str(tmp_path / name) for name in "ab"]
    file = tmp_path / "logs.jsonl"
    assert main(["import", *sides, f"--out={file}", "--tokens=100", "--target=3.05"]) == 0
    return sides, file


def test_entries_of_logs_stay_apart(imported, tmp_path, capsys):
    _, file = imported
    entries = list(read_entries(file))
    assert [(entry.source, entry.suite) for entry in entries] == [("a", "other"), ("b", "other")]
    assert any("metric val_loss" in said for said in entries[0].warnings)
    assert main(["export", "--format=mlperf", str(file), f"--out={tmp_path}/x"]) in (1, 2)
    assert not (tmp_path / "x").exists()
    assert main(["report", str(file), f"--out={tmp_path}/page"]) == 0
    assert "other programs" in (tmp_path / "page" / "index.html").read_text()


def test_no_board_has_logs_beside_runs_of_ours(imported, tmp_path):
    """Whatever they are called: their clocks and data are another program's."""
    write_run(tmp_path / "ours" / "0", seconds=30)
    entries = load(*imported[0], tmp_path / "ours", columns=Columns(target=3.02))
    ours = [entry for entry in entries if entry.suite == "dawnjax"]
    named = [dataclasses.replace(it, benchmark="val_loss", target=entries[0].target) for it in ours]
    made = boards([*entries, *named])
    suites = [{row.entry.suite for row in board.rows} for board in made]
    assert {"other"} in suites and all(len(suite) == 1 for suite in suites)
    assert why_none_is_comparable([*entries, *named]) == ""
