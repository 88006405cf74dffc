"""What differs between two sides of a comparison, from runs that were written and not trained."""

import dataclasses
from pathlib import Path

import pytest
from made_entries import make_entry, make_trial
from made_runs import write_run

from dawnjax.errors import RunError
from dawnjax.study import changes
from dawnjax.study.sides import Side, read_side


def side_with(folder: Path, **fields) -> Side:
    """Side of one run, whose result has other fields."""
    side = read_side(str(write_run(folder)))
    [trial] = side.entry.trials
    entry = dataclasses.replace(side.entry, trials=(dataclasses.replace(trial, **fields),))
    return dataclasses.replace(side, entry=entry)


def quantities(first: Side, second: Side) -> dict[str, changes.Change]:
    return {change.name: change for change in changes.changes(first, second)}


def test_an_interrupted_run_tells_no_time_of_an_evaluation(tmp_path):
    """Its phase holds evaluations that were made again, and its rows do not."""
    whole = side_with(tmp_path / "a", phases={"eval": 4.0})
    resumed = side_with(tmp_path / "b", phases={"eval": 8.0}, interruptions=1)
    evaluation = quantities(whole, resumed)["an evaluation"]
    assert (evaluation.first, evaluation.second) == (2000.0, None)


def test_a_run_without_a_throughput_has_no_time_of_a_step(tmp_path):
    sides = [side_with(tmp_path / name, examples_per_second=rate) for name, rate in RATES.items()]
    step = quantities(*sides)["a step"]
    assert (step.first, step.second) == (100.0, None)


RATES = {"a": 100.0, "b": None}


def test_epochs_of_an_entry_to_its_target_leave_out_trials_that_missed_it():
    trials = [make_trial(10.0, epochs=4.0), make_trial(None, epochs=90.0, total=300.0)]
    entry = make_entry(trials)
    sample = entry.figures.sample
    assert sample is not None
    side = Side(given="official", entry=entry)
    [change] = changes.changes(side, side)
    assert (change.name, change.first, change.second) == ("epochs to the target", 4.0, 4.0)


def test_epochs_that_are_all_the_same_fall_on_the_grid_of_evaluations():
    def side(epochs):
        curve = [(epochs - 1, None, 0.5), (epochs, None, 0.9)]
        entry = make_entry([make_trial(10.0 + n, epochs=epochs, curve=curve) for n in range(5)])
        assert entry.figures.sample is not None
        return Side(given="official", entry=entry)

    [change] = changes.changes(side(4.0), side(5.0))
    # Two unseen steps a side: sqrt(2 x (1 / 16 + 1 / 25) / 20) is 0.101, so 4 and 5 may be equal.
    assert (change.ratio, change.level) == (1.25, 0.95)
    assert change.low is not None and change.low < 1.0


@pytest.mark.parametrize("seconds", ["nan", "soon"])
def test_an_op_of_no_time_is_one_line(seconds, tmp_path):
    side = side_with(tmp_path / "a", hosts=[{"utilization": {"window": "after"}}])
    table = tmp_path / "a" / "profile" / "process_00000" / "after" / "ops.csv"
    table.parent.mkdir(parents=True)
    table.write_text(f"name,scope,seconds\nfusion.1,stem,{seconds}\n")
    with pytest.raises(RunError, match="ops.csv is not a table of ops"):
        changes.op_changes(side, side)
