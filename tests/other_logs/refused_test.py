"""Logs that cannot be judged: one line that says what is wrong and what to do."""

import json

import pytest
from made_other_logs import curve, normal, write_lines, write_side

from dawnjax.__main__ import main

HEADER = "step,seconds,val_loss\n"


def rows(count, offset=0):
    return [
        {"step": 10 * n + offset, "seconds": float(n + offset), "val_loss": 4.0 / (n + 1)}
        for n in range(count)
    ]


CASES = {
    "a step that goes back": (
        "a.jsonl",
        [*rows(3), *rows(2)],
        (),
        "a.jsonl:4: step 0 after step 20: two runs in one file? write a file for each trial, or "
        "name the column that tells them with --trial",
    ),
    "two runs after each other": (
        "a.jsonl",
        [{"seconds": 5.0, "val_loss": 3.0}, {"seconds": 1.0, "val_loss": 3.0}],
        (),
        "a.jsonl:2: the clock seconds goes back from 5 s to 1 s: two runs in one file",
    ),
    "two values of one step": (
        "a.jsonl",
        [{"step": 1, "val_loss": 3.0}, {"step": 1, "val_loss": 2.0}],
        (),
        "a.jsonl:2: step 1 has val_loss 2 after 3 at step 1: two runs in one log?",
    ),
    "a clock without a unit": (
        "a.csv",
        "step,elapsed,val_loss\n1,3,2\n",
        (),
        "in which unit is the clock elapsed? give --time=elapsed:ms or --time=elapsed:s",
    ),
    "a unit that is none": (
        "a.csv",
        HEADER + "1,3,2\n",
        ("--time=seconds:days",),
        "--time=seconds:days: a clock is in ms, s, min, h, unix, unix_ms",
    ),
    "a metric that is not there": (
        "a.csv",
        HEADER + "1,3,2\n",
        ("--metric=val_los",),
        "--metric=val_los is no column of seconds, step, val_loss; did you mean val_loss?",
    ),
    "several metrics": (
        "a.csv",
        "step,val_loss,val_bpb\n1,3,2\n",
        (),
        "which metric is compared? give --metric, of val_bpb, val_loss",
    ),
    "no metric of a validation": (
        "a.csv",
        "step,loss\n1,3\n",
        (),
        "no column is by its name a metric of a validation, among loss, step; give --metric=COLUMN",
    ),
    "a metric that no evaluation has": (
        "a.jsonl",
        [{"step": 1, "seconds": 1.0, "val_loss": None}],
        ("--metric=val_loss",),
        "--metric=val_loss is no column of seconds, step",
    ),
    "a direction that is not known": (
        "a.csv",
        "step,val_thing\n1,3\n",
        ("--metric=val_thing",),
        "are greater values of val_thing better, or less? give --direction=at_least or at_most",
    ),
    "no step and no time": (
        "a.csv",
        "val_loss\n3\n",
        (),
        "the trials do not end at one step or time: give --target=VALUE for the times to it",
    ),
    "a step that is no number": (
        "a.csv",
        HEADER + "one,1,3\n",
        (),
        "a.csv:2: step is 'one', no number",
    ),
    "a negative step": ("a.csv", HEADER + "-1,1,3\n", (), "a.csv:2: step is '-1', no whole number"),
    "a value that is no number": (
        "a.csv",
        HEADER + "1,1,good\n",
        (),
        "a.csv:2: val_loss is 'good', no number",
    ),
    "a table without a header": ("a.csv", "1,2,3\n", (), "a.csv has no header"),
    "a row with too many cells": (
        "a.csv",
        HEADER + "1,2,3,4\n",
        (),
        "a.csv:2 has 4 cells, and the header 3",
    ),
    "a damaged line": (
        "a.jsonl",
        '{"step": 1, "val_loss": 2}\n{"step": \n{"step": 2, "val_loss": 1}\n',
        (),
        "a.jsonl:2 is no JSON object",
    ),
    "a table that is no text": (
        "a.csv",
        b"step,val_loss\n1,\xff\n",
        (),
        "is no table of UTF-8 text",
    ),
    "a damaged event file": (
        "events.out.tfevents.1.x",
        b"\x08\0\0\0\0\0\0\0abcd\xff\xff\xff\xff\xff\xff\xff\xffabcd",
        (),
        "is damaged, or no event file of TensorBoard",
    ),
    "nothing of a known form": (
        "a.txt",
        "hello\n",
        (),
        "a has no line of a known form: JSON lines, CSV, TSV",
    ),
    "a target that is no number": ("a.csv", HEADER + "1,1,3\n", ("--target=nan",), "--target=nan"),
    "an unknown flag": ("a.csv", HEADER, ("--metrics=x",), "unknown flag --metrics"),
    "a budget of no unit": (
        "a.csv",
        HEADER + "1,1,3\n",
        ("--at=epochs=3",),
        "--at=epochs=3 must be seconds=AMOUNT, steps=AMOUNT, tokens=AMOUNT",
    ),
    "a budget below zero": ("a.csv", HEADER + "1,1,3\n", ("--at=steps=-3",), "an amount above 0"),
    "a budget twice": (
        "a.csv",
        HEADER + "1,1,3\n",
        ("--at=steps=3", "--at=steps=3"),
        "--at=steps=3 is given twice",
    ),
    "a budget that the log does not tell": (
        "a.csv",
        HEADER + "1,1,3\n",
        ("--at=tokens=5",),
        "does not tell its tokens: runs of language models do; for other programs' logs give",
    ),
    "dollars without a price": (
        "a.csv",
        HEADER + "1,1,3\n",
        ("--at=usd=5",),
        "no price given (--price_per_hour_usd)",
    ),
    "a margin of nothing": (
        "a.csv",
        HEADER + "1,1,3\n",
        ("--at=end", "--margin=0"),
        "--margin=0 must be above 0, in the metric's unit",
    ),
    "a gate of times without a target": (
        "a.csv",
        HEADER + "1,1,3\n",
        ("--fail_if_slower_by=0.1",),
        "--fail_if_slower_by is of the times to a target: give --target",
    ),
    "two gates": (
        "a.csv",
        HEADER + "1,1,3\n",
        ("--fail_if_slower_by=0.1", "--fail_if_worse_by=0.1"),
        "--fail_if_slower_by is of times; --at and --fail_if_worse_by are not",
    ),
}


@pytest.mark.parametrize(("name", "content", "flags", "said"), CASES.values(), ids=CASES)
def test_one_line_says_what_is_wrong(tmp_path, capsys, name, content, flags, said):
    path = tmp_path / "a" / name
    path.parent.mkdir()
    if isinstance(content, list):
        write_lines(path, content)
    elif isinstance(content, str):
        path.write_text(content)
    else:
        path.write_bytes(content)
    write_side(tmp_path / "b", normal(3.0, 0.1, 2))
    assert main(["compare", str(path.parent), str(tmp_path / "b"), *flags]) in (1, 2)
    shown = capsys.readouterr()
    assert said in shown.err and shown.err.count("\n") == 1 and not shown.out


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
    assert "z.jsonl has the evaluations of run_0.jsonl" in capsys.readouterr().err
    (side / "z.jsonl").unlink()
    assert main(["compare", str(side), str(side)]) == 2
    assert "5 of the 5 trials of B are also in A" in capsys.readouterr().err


def test_trials_that_end_at_several_places_need_a_budget(tmp_path, capsys):
    write_side(tmp_path / "a", normal(3.0, 0.1, 5))
    write_side(tmp_path / "b", normal(3.0, 0.1, 5, 1), steps=80)
    assert main(["compare", f"{tmp_path}/a", f"{tmp_path}/b"]) == 2
    line = capsys.readouterr().err
    assert (
        "give --target=VALUE" in line and "every trial has --at=steps=80 or --at=seconds=8" in line
    )


def test_logs_are_no_runs_of_ours(tmp_path, capsys):
    """No benchmark's result is made of them."""
    side = write_side(tmp_path / "a", normal(3.0, 0.1, 5))
    assert main(["export", "--format=mlperf", str(side), f"--out={tmp_path}/x"]) in (1, 2)
    assert "no run" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_a_log_of_a_million_lines_is_read(tmp_path):
    """In bounded memory: what is kept are its evaluations."""
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"step": step, "seconds": step / 10, "loss": 3.0}) for step in range(1000)]
    path.write_text("\n".join(lines) + "\n" + json.dumps(curve(3.0, steps=2000)[-1]) + "\n")
    from dawnjax.other_logs.columns import Columns
    from dawnjax.other_logs.reading import read_entry

    [trial] = read_entry(path, Columns()).trials
    assert len(trial.evaluations) == 1 and trial.steps == 2000
