"""The section of a study: its best arm, and the fields of its arms."""

import json

import pytest
from made_runs import write_run
from made_studies import DIGITS

from dawnjax.__main__ import main
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


def test_a_grid_names_its_best_arm_and_the_fields_of_each(grid, tmp_path):
    assert main(["report", str(grid), f"--out={tmp_path / 'page'}"]) == 0
    page = (tmp_path / "page" / "index.html").read_text()
    assert "Best of 4 arms: global_batch_size=32 num_epochs=4, 10 s" in page
    assert "the same trials chose it, so expect a longer time on fresh seeds" in page
    rows = json.loads((tmp_path / "page" / "tables" / "study_1.json").read_text())["rows"]
    assert [(row["config.global_batch_size"], row["config.num_epochs"]) for row in rows] == [
        (32, 3), (32, 4), (64, 3), (64, 4),
    ]  # fmt: skip
