"""The command that writes a report: its files, and what it refuses."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from made_reports import some_entries, some_report
from retold_runs import retold
from shared_runs import small_run

from dawnjax.__main__ import run_command
from dawnjax.page import words
from dawnjax.report import contents, inputs, writing
from dawnjax.report.tables import WARM
from dawnjax.runs.log import read_events
from dawnjax.trials.from_log import trial_of
from dawnjax.trials.group import write_entries

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report() -> contents.Report:
    return some_report()


@pytest.mark.processes
def test_the_same_inputs_give_the_same_bytes(report, tmp_path):
    write_entries(tmp_path / "e.jsonl", some_entries())
    writing.write(contents.make(inputs.Inputs(tuple(some_entries()))), tmp_path / "one")
    # In another process, whose sets have another order.
    environment = {**os.environ, "PYTHONHASHSEED": "8", "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-m", "dawnjax", "report", "e.jsonl", "--out=two"]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    files = [file for file in (tmp_path / "one").rglob("*") if file.is_file()]
    assert len(files) > 2
    for file in files:
        other = tmp_path / "two" / file.relative_to(tmp_path / "one")
        assert file.read_bytes() == other.read_bytes(), file


def test_the_command_writes_inside_out_and_deletes_nothing(tmp_path, capsys):
    source = tmp_path / "e.jsonl"
    write_entries(source, some_entries())
    out = tmp_path / "out"
    (out / "tables").mkdir(parents=True)
    (out / "mine.txt").write_text("mine")
    (out / "tables" / "old.csv").write_text("old")
    outside = tmp_path / "outside.html"
    outside.write_text("outside")
    (out / "index.html").symlink_to(outside)
    assert run_command("report", [str(source), f"--out={out}"]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1 and "10 entries" in line and str(out) in line
    assert outside.read_text() == "outside" and not (out / "index.html").is_symlink()
    assert (out / "mine.txt").read_text() == "mine"
    assert (out / "tables" / "old.csv").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.jsonl", "out", "outside.html"]
    assert not list(out.rglob("*.part"))
    document = json.loads((out / "tables" / "stability.json").read_text())
    assert document["rows"][0]["trials"] == 5
    (out / "tables").rename(tmp_path / "elsewhere")
    (out / "tables").symlink_to(tmp_path / "elsewhere")
    assert run_command("report", [str(source), f"--out={out}"]) == 2
    assert "tables is a link or a file, not a directory" in capsys.readouterr().err


@pytest.mark.compiles
def test_our_runs_show_compilation_phases_and_losses(tmp_path, tmp_path_factory, compile_cache):
    host = "node17-of-ann"

    def renamed(events):
        for event in events:
            for one in event.get("hosts", ()) if event["event"] == "host_summary" else ():
                one["hostname"] = host
        return events

    run = retold(small_run(tmp_path_factory, compile_cache), tmp_path / host, 3, renamed)
    result = trial_of(read_events(run / "log.jsonl")).to_json()
    assert run_command("report", [str(tmp_path), f"--out={tmp_path / 'out'}"]) == 0
    html = (tmp_path / "out" / "index.html").read_text()
    runs = json.loads((tmp_path / "out" / "tables" / "runs.json").read_text())["rows"][0]
    for name, seconds in result["phases"].items():
        assert runs[f"phase_{name}_seconds"] == seconds
    assert words.duration(result["compile_seconds"]) in html
    # Compilation stands beside the time to accuracy in every table that has one.
    beside = {}
    for file in (tmp_path / "out" / "tables").glob("*.json"):
        for row in json.loads(file.read_text())["rows"][:1]:
            if "compile_seconds" in row:
                beside[file.stem] = row["compile_seconds"]
    assert set(beside) >= {"runs", "entries", "leaderboards"}
    assert beside["runs"] == result["compile_seconds"]
    # The entries' is that of programs which no cache had.
    warm = set(result["compile_cache"].values()) == {"warm"}
    expected = WARM if warm else result["compile_seconds"]
    assert {beside[name] for name in ("entries", "leaderboards")} == {expected}
    (body,) = re.findall(r'(?s)<section id="runs".*?</section>', html)
    assert "compilation" in body and result["hosts"][0]["hostname"] == host
    tables = (file.read_text() for file in (tmp_path / "out" / "tables").iterdir())
    everything = "".join([html, *tables])
    assert str(tmp_path) not in everything
    assert host not in everything and "[host left out]" in everything
