"""Logs that cannot be judged: one line that says what is wrong and what to do."""

import json

from made_other_logs import curve, normal, write_side

from dawnjax.__main__ import main

HEADER = "step,seconds,val_loss\n"


def test_logs_of_two_forms_may_be_the_same_runs(tmp_path, capsys):
    write_side(tmp_path / "a", normal(3.0, 0.1, 5))
    (tmp_path / "a" / "x.csv").write_text(HEADER + "10,1,3\n100,10,2\n")
    write_side(tmp_path / "b", normal(3.0, 0.1, 5, 1))
    both = [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert main(["compare", *both]) == 2
    assert "logs of several forms (JSON lines, table)" in capsys.readouterr().err
    assert main(["compare", *both, "--files=*.jsonl"]) == 0
    assert "A  a: 5 trials" in capsys.readouterr().out


def test_a_copy_of_a_log_is_no_further_trial(tmp_path, capsys):
    side = write_side(tmp_path / "a", normal(3.0, 0.1, 5))
    (side / "z.jsonl").write_text((side / "run_0.jsonl").read_text())
    assert main(["compare", str(side), str(side)]) == 1
    assert "z.jsonl is a copy of run_0.jsonl" in capsys.readouterr().err
    (side / "z.jsonl").unlink()
    assert main(["compare", str(side), str(side)]) == 2
    assert "5 of the 5 trials of B are also in A" in capsys.readouterr().err


def test_a_log_of_a_million_lines_is_read(tmp_path):
    """In bounded memory: what is kept are its evaluations."""
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"step": step, "seconds": step / 10, "loss": 3.0}) for step in range(1000)]
    path.write_text("\n".join(lines) + "\n" + json.dumps(curve(3.0, steps=2000)[-1]) + "\n")
    from dawnjax.other_logs.columns import Columns
    from dawnjax.other_logs.reading import read_entry

    [trial] = read_entry(path, Columns()).trials
    assert len(trial.evaluations) == 1 and trial.steps == 2000
