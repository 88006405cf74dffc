"""`dawnjax runs`: what it lists, in which order, and how it names what it cannot read."""

import os

from made_runs import write_run
from told import told

from dawnjax.__main__ import main
from dawnjax.runs.log import log_path


def _written_at(path, unix_seconds):
    log = log_path(path)
    os.utime(log, (unix_seconds, unix_seconds))


def test_runs_stand_with_the_newest_first_and_their_state(tmp_path, capsys):
    _written_at(write_run(tmp_path / "old", seconds=10.0, seed=4), 1_700_000_000)
    _written_at(write_run(tmp_path / "deep" / "new", seconds=None), 1_800_000_000)
    new, old = told(capsys, "runs", str(tmp_path))["runs"]
    assert (new["run"], new["figures"]["state"]) == ("deep/new", "not_reached")
    assert new["figures"]["time_to_accuracy_seconds"] is None
    why = new["figures"]["reasons"]["time_to_accuracy_seconds"]
    assert why == "no evaluation reached the target"
    figures = old["figures"]
    assert (old["run"], figures["state"], figures["seed"]) == ("old", "reached", 4)
    assert figures["time_to_accuracy_seconds"] == 10.0
    assert old["last_written_unix_seconds"] == 1_700_000_000
    assert main(["runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "2023-11-14 22:13" in shown
    assert "not reached" in shown and "not_reached" not in shown


def test_a_log_without_end_that_nobody_writes_is_stopped(tmp_path, capsys):
    write_run(tmp_path / "live", seconds=None, status=None)
    _written_at(write_run(tmp_path / "dead", seconds=None, status=None), 1_700_000_000)
    rows = told(capsys, "runs", str(tmp_path))["runs"]
    states = {row["run"]: row["figures"]["state"] for row in rows}
    assert states == {"live": "running", "dead": "stopped"}


def test_a_damaged_run_is_named_and_the_others_are_listed(tmp_path, capsys):
    write_run(tmp_path / "good")
    broken = write_run(tmp_path / "broken")
    (broken / "experiment.json").write_text("[]")
    assert main(["runs", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "good" in captured.out and "broken" not in captured.out
    assert captured.err.count("\n") == 1 and "broken" in captured.err
