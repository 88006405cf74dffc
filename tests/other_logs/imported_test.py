"""`dawnjax import` of other programs' logs: entries that compare and report read as the logs."""

import json

import pytest
from made_other_logs import normal, write_side

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
