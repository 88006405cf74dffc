"""`dawnjax import` of other programs' logs: entries that compare and report read as the logs."""

import json
import math

import pytest
from made_other_logs import normal, write_lines, write_side

from dawnjax.__main__ import main
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


def test_entries_are_compared_as_their_logs(imported, capsys):
    (a, b), file = imported
    found = []
    for sides in ((a, b), (f"{file}#a", f"{file}#b")):
        for budget in ("steps=55", "seconds=5.5", "tokens=5500", "end"):
            capsys.readouterr()
            flags = [f"--at={budget}", "--tokens=100", "--target=3.05", "--json"]
            assert main(["compare", *sides, *flags]) == 0
            found.append(json.loads(capsys.readouterr().out)["result"]["qualities"])
    assert found[:4] == found[4:]


def test_entries_of_logs_stay_apart(imported, tmp_path, capsys):
    _, file = imported
    entries = list(read_entries(file))
    assert [(entry.source, entry.suite) for entry in entries] == [("a", "other"), ("b", "other")]
    assert any("metric val_loss" in said for said in entries[0].warnings)
    assert main(["export", "--format=mlperf", str(file), f"--out={tmp_path}/x"]) in (1, 2)
    assert not (tmp_path / "x").exists()
    assert main(["report", str(file), f"--out={tmp_path}/page"]) == 0
    assert "other programs" in (tmp_path / "page" / "index.html").read_text()


def test_logs_of_one_form_are_chosen(tmp_path, capsys):
    sides = [write_side(tmp_path / name, normal(3.0, 0.1, 5, ord(name))) for name in "ab"]
    (tmp_path / "a" / "x.csv").write_text("step,seconds,val_loss\n10,1,3\n100,10,2\n")
    assert main(["compare", *map(str, sides), "--files=*.jsonl"]) == 0
    assert "A  a: 5 trials" in capsys.readouterr().out


def test_a_trial_that_diverged_stays_lost(tmp_path, capsys):
    """Without its last row, it would seem as good as it was before."""
    side = write_side(tmp_path / "a", normal(3.0, 0.02, 5))
    rows = [json.loads(line) for line in (side / "run_0.jsonl").read_text().splitlines()]
    write_lines(side / "run_0.jsonl", [*rows[:-1], rows[-1] | {"val_loss": math.nan}])
    file = tmp_path / "logs.jsonl"
    assert main(["import", str(side), f"--out={file}"]) == 0
    [entry] = read_entries(file)
    last = entry.trials[0].evaluations[-1]
    assert last.step == 100 and math.isnan(last.value) and entry.trials[0].status == "diverged"
    write_side(tmp_path / "b", normal(3.0, 0.02, 5, 1))
    assert main(["compare", str(file), str(tmp_path / "b"), "--at=end"]) == 0
    assert "1 of 5 trials of A have no finite value there" in capsys.readouterr().out


def test_folders_of_one_name_are_told_apart(tmp_path, capsys):
    for seed, name in enumerate(("x", "y")):
        write_side(tmp_path / name / "runs", normal(3.0, 0.02, 5, seed))
    file = tmp_path / "logs.jsonl"
    assert main(["import", f"{tmp_path}/x/runs", f"{tmp_path}/y/runs", f"--out={file}"]) == 0
    assert [entry.source for entry in read_entries(file)] == ["runs", "runs (another)"]
