"""`dawnjax compare` on logs of other programs, and on qualities at a budget, by hand."""

import dataclasses
import json
import shlex

import pytest
from made_other_logs import normal, write_lines, write_side
from made_runs import write_run
from told import told

from dawnjax.__main__ import main
from dawnjax.analysis import load
from dawnjax.other_logs.columns import Columns
from dawnjax.report.boards import boards, why_none_is_comparable


@pytest.fixture
def sides(tmp_path):
    """Six runs each: those of B end 0.1 lower."""
    write_side(tmp_path / "a", normal(3.0, 0.02, 6))
    write_side(tmp_path / "b", normal(2.9, 0.02, 6, 1))
    return [f"{tmp_path}/a", f"{tmp_path}/b"]


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("steps=55", "at 55 steps"),
        ("seconds=5.5", "at 5.5 s"),
        ("tokens=5500", "at 5,500 tokens"),
        ("usd=0.011", "at 0.011 USD"),
    ],
)
def test_qualities_at_a_budget(sides, capsys, budget, said):
    """At step 55: (1 / 50 + 1 / 60) / 2 - 0.01 over the final loss, in each unit of it."""
    flags = [f"--at={budget}", "--tokens=100", "--price_per_hour_usd=7.2"]
    found = told(capsys, "compare", *sides, *flags)
    [quality] = found["qualities"]
    assert quality["word"] == "better" and quality["between"] == [6, 6]
    assert quality["means"] == pytest.approx([3.0 + 1 / 120 + 1 / 100 - 0.01, 2.9 + 1 / 120 + 0.0])
    assert quality["difference"] == pytest.approx(-0.1)
    assert quality["low"] < -0.1 < quality["high"] < 0
    assert found["decision"] == {
        "decision": "keep",
        "verdict": "better",
        "effect": quality["difference"],
        "effect_of": f"difference of val_loss {said}, B less A",
        "low": quality["low"],
        "high": quality["high"],
        "level": quality["level"],
        "trials_needed": None,
    }


def test_the_next_command_asks_the_same_again(tmp_path, capsys):
    a = str(write_side(tmp_path / "a", normal(3.0, 0.1, 6)))
    b = str(write_side(tmp_path / "b", normal(2.98, 0.1, 6, 1)))
    asked = ["compare", a, b, "--at=steps=50", "--fail_if_worse_by=0.01"]
    assert main([*asked, "--json"]) == 7
    assert json.loads(capsys.readouterr().out)["next"] == [shlex.join(["dawnjax", *asked])]


def test_the_decision_has_the_figures_of_the_budget_that_decided_it(tmp_path, capsys):
    """B is better early and worse at the end."""
    for name, early, late in (("a", 5.0, 3.0), ("b", 4.0, 3.5)):
        for number, noise in enumerate(normal(0.0, 0.02, 6, len(name))):
            rows = [{"step": 10, "val_loss": early + noise}, {"step": 20, "val_loss": late + noise}]
            write_lines(tmp_path / name / f"{number}.jsonl", rows)
    sides = f"{tmp_path}/a", f"{tmp_path}/b"
    asked = ["compare", *sides, "--at=steps=10", "--at=steps=20", "--fail_if_worse_by=0.01"]
    assert main([*asked, "--json"]) == 6
    answer = json.loads(capsys.readouterr().out)
    decision, worse = answer["result"]["decision"], answer["result"]["qualities"][1]
    assert decision["decision"] == "discard" and decision["verdict"] == "better, worse"
    assert decision["effect"] == worse["difference"] == pytest.approx(0.5)
    assert decision["effect_of"] == "difference of val_loss at 20 steps, B less A"
    assert answer["reasons"] == [worse["why"]]


def test_no_board_has_logs_beside_runs_of_ours(sides, tmp_path):
    """Whatever they are called: their clocks and data are another program's."""
    write_run(tmp_path / "ours" / "0", seconds=30)
    entries = load(*sides, tmp_path / "ours", columns=Columns(target=3.02))
    ours = [entry for entry in entries if entry.suite == "dawnjax"]
    named = [dataclasses.replace(it, benchmark="val_loss", target=entries[0].target) for it in ours]
    made = boards([*entries, *named])
    suites = [{row.entry.suite for row in board.rows} for board in made]
    assert {"other"} in suites and all(len(suite) == 1 for suite in suites)
    assert why_none_is_comparable([*entries, *named]) == ""
