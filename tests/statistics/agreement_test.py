"""One answer to one question: the command, the page and a study agree."""

import json

import pytest
from made_runs import write_run
from told import told

from dawnjax.__main__ import main
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.study.design import Study, StudyFolder, arms_of, trials_of

FIRST = (20.0, 20.0, 25.0, 30.0, 25.0)
SECONDS = {
    "faster": (10.0, 10.0, 15.0, 10.0, 15.0),
    "few": (10.0, 10.0, 15.0),
}


@pytest.mark.parametrize("case", SECONDS)
def test_compare_report_and_study_give_one_verdict(case, tmp_path, capsys):
    second = SECONDS[case]
    first = FIRST[: len(second)]
    out = tmp_path / "study"
    study = Study(experiment="digits", kind="grid", axes=("num_epochs=3,4",), seeds=len(first))
    arms = arms_of(study, (), load_experiment("digits"))
    for trial in trials_of(study, arms):
        times = first if trial.arm == arms[0] else second
        identity = trial.arm.name
        write_run(
            trial.directory(out), seed=trial.seed, seconds=times[trial.seed], identity=identity
        )
    StudyFolder(out).write(study, arms, [])

    sides = [str(out / "trials" / arm.folder) for arm in arms]
    compared = told(capsys, "compare", *sides)["verdict"]
    few = f"range of {min(compared['trials'])}"
    compared["ends"] = few if compared["level"] is None else f"{100 * compared['level']:g} %"
    page = tmp_path / "page"
    assert main(["report", str(out), f"--out={page}"]) == 0
    [_, arm] = json.loads((page / "tables" / "study_1.json").read_text())["rows"]

    assert compared["word"] == ("faster_if_all_reach" if case == "faster" else "undecided")
    assert compared["ratio"] == pytest.approx(sum(second) / sum(first))
    names = ("ratio", "ratio_low", "ratio_high", "ratio_ends", "verdict", "why")
    answer = [compared[name] for name in ("ratio", "low", "high", "ends", "word", "why")]
    for name, value in zip(names, answer, strict=True):
        assert arm[name] == (pytest.approx(value) if isinstance(value, float) else value), name
    assert compared["ends"] == ("range of 3" if case == "few" else "95 %")
