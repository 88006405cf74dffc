"""Sections of studies: the heat map of a grid of two axes, and its best arm."""

import json

import pytest
from made_runs import write_run
from made_studies import DIGITS

from dawnjax.__main__ import main
from dawnjax.page.heat import Cell, draw_heat
from dawnjax.study.design import Study, StudyFolder, arms_of, trials_of

SECONDS = {"32 3": 20.0, "32 4": 10.0, "64 3": 40.0, "64 4": None}


@pytest.fixture
def grid(tmp_path):
    axes = ("global_batch_size=32,64", "num_epochs=3,4")
    study = Study(experiment="digits", kind="grid", axes=axes, seeds=2)
    arms = arms_of(study, (), DIGITS)
    out = tmp_path / "grid"
    for trial in trials_of(study, arms):
        values = " ".join(flag.partition("=")[2] for flag in trial.arm.flags)
        write_run(
            trial.directory(out), seed=trial.seed, seconds=SECONDS[values], identity=trial.arm.name
        )
    StudyFolder(out).write(study, arms)
    return out


def test_a_grid_of_two_axes_has_a_heat_map_and_its_best_arm(grid, tmp_path):
    assert main(["report", str(grid), f"--out={tmp_path / 'page'}"]) == 0
    page = (tmp_path / "page" / "index.html").read_text()
    assert "Expected time of each pair of values, grid" in page
    assert "Best of 4 arms: global_batch_size=32 num_epochs=4, 10 s" in page
    assert "the same trials chose it, so expect more on fresh seeds" in page
    rows = json.loads((tmp_path / "page" / "tables" / "study_1.json").read_text())["rows"]
    assert [(row["config.global_batch_size"], row["config.num_epochs"]) for row in rows] == [
        (32, 3), (32, 4), (64, 3), (64, 4),
    ]  # fmt: skip


def test_a_study_whose_arms_are_not_those_of_its_axes_is_shown(grid, tmp_path):
    """A `study.json` from elsewhere: its map has empty cells, and no traceback comes."""
    file = grid / "study.json"
    record = json.loads(file.read_text())
    record["study"]["axes"] = ["global_batch_size=32,128", "num_epochs=3,4"]
    file.write_text(json.dumps(record))
    assert main(["report", str(grid), f"--out={tmp_path / 'page'}"]) == 0


@pytest.mark.parametrize("width", [350.0, 880.0])
def test_the_least_value_is_darkest_and_framed(width):
    cells = [
        [Cell(8.0, "2 of 2", ("a",)), Cell(1.0, "2 of 2", ("b",))],
        [Cell(2.0, "1 of 2", ("c",)), Cell(None, "0 of 2", ("d",))],
    ]
    drawn = draw_heat(cells, ("x", "y"), ("1", "2"), ("n", "m"), str, width).body()
    rectangles = [part.partition('"')[0] for part in drawn.split('<rect class="')[1:]]
    assert rectangles == ["heat h5", "heat h0", "heat h2", "heat none", "mean"]
    assert ">1.0<" in drawn and ">-<" in drawn


def test_a_map_without_a_time_or_of_one_value_is_drawn():
    none = [[Cell(None, "0 of 2", ("a",)), Cell(None, "0 of 2", ("b",))]]
    assert '"mean"' not in draw_heat(none, ("x",), ("1", "2"), ("n", "m"), str, 880.0).body()
    same = [[Cell(3.0, "", ("a",)), Cell(3.0, "", ("b",))]]
    assert draw_heat(same, ("x",), ("1", "2"), ("n", "m"), str, 880.0).body().count("h0") == 2
