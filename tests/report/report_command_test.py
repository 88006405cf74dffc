"""The command that writes a report: its files, and what it refuses."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from made_reports import some_entries, some_report

from dawnjax.__main__ import main, run_command
from dawnjax.errors import ConfigError
from dawnjax.page import words
from dawnjax.report import contents, inputs, writing
from dawnjax.report.tables import WARM
from dawnjax.trials.group import write_entries


@pytest.fixture(scope="module")
def report() -> contents.Report:
    return some_report()


@pytest.mark.processes
def test_the_same_inputs_give_the_same_bytes(report, tmp_path):
    again = contents.make(inputs.Inputs(tuple(some_entries())))
    assert again.html == report.html
    first, second = tmp_path / "one", tmp_path / "two"
    write_entries(tmp_path / "e.jsonl", some_entries())
    for out in (first, second):
        command = [sys.executable, "-m", "dawnjax", "report", "e.jsonl", f"--out={out.name}"]
        environment = {**os.environ, "PYTHONHASHSEED": str(len(out.name) + 5)}
        environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
        subprocess.run(command, check=True, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    names = sorted(str(file.relative_to(first)) for file in first.rglob("*") if file.is_file())
    assert "index.html" in names and "tables/stability.json" in names
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


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


def test_a_link_out_of_the_directory_is_refused(report, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tables").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="tables is a link or a file, not a directory"):
        writing.write(report, tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        b"{not json\n",
        b"[1, 2]\n",
        b"[" * 100_000,
        b"\xff\xfe\x00",
        float("nan"),
        -5.0,
        "soon",
        1e308,
    ],
)
def test_damaged_input_is_one_line(damage, tmp_path, capsys):
    """Bytes of no entries, or a time that is none: the line names the field."""
    source, out = tmp_path / "e.jsonl", tmp_path / "out"
    if isinstance(damage, bytes):
        source.write_bytes(damage)
    else:
        value = some_entries()[0].to_json()
        value["trials"][0]["time_to_accuracy_seconds"] = damage
        source.write_text(json.dumps(value) + "\n")
    assert run_command("report", [str(source), f"--out={out}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("dawnjax report: ") and error.count("\n") == 1
    named = "has NaN" if damage != damage else "trials[0].time_to_accuracy_seconds"
    assert isinstance(damage, bytes) or named in error
    assert "Traceback" not in error and not out.exists()


@pytest.mark.compiles
def test_our_runs_show_compilation_phases_and_losses(tmp_path, compile_cache, monkeypatch):
    host = "node17-of-ann"
    monkeypatch.setattr("socket.gethostname", lambda: host)
    run = tmp_path / host
    argv = ["train", "--experiment=synthetic_image", f"--run_dir={run}"]
    argv.append("--profile.after_run=false")
    argv += ["--data.num_train_examples=96", "--data.num_eval_examples=40", "--num_epochs=2"]
    argv += ["--global_batch_size=16", "--batch_norm_group_size=4", "--notensorboard"]
    argv += ["--model.stage_sizes=1", "--model.stage_widths=16", compile_cache]
    assert main(argv) in (0, 3)
    result = json.loads((run / "result.json").read_text())
    assert run_command("report", [str(tmp_path), f"--out={tmp_path / 'out'}"]) == 0
    html = (tmp_path / "out" / "index.html").read_text()
    runs = json.loads((tmp_path / "out" / "tables" / "runs.json").read_text())["rows"][0]
    for name, seconds in result["phases"].items():
        assert runs[f"phase_{name}_seconds"] == seconds
    assert runs["compile_seconds"] == result["compile_seconds"]
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
    assert runs["compile_cache"] == ("warm" if warm else "cold")
    (body,) = re.findall(r'(?s)<section id="runs".*?</section>', html)
    assert "compilation" in body
    assert result["hosts"][0]["hostname"] == host
    everything = html + "".join(
        file.read_text() for file in (tmp_path / "out" / "tables").iterdir()
    )
    assert str(tmp_path) not in everything
    assert host not in everything and "[host left out]" in everything
