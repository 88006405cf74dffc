"""What earlier releases wrote: this one reads it, or says what makes it anew."""

import json
from pathlib import Path

import pytest

import dawnjax
from dawnjax import analysis
from dawnjax.__main__ import main
from dawnjax.input_pipeline.datasets.images import Images

RELEASES = sorted((Path(__file__).parents[1] / "compatibility").glob("[0-9]*"))
OF_A_RELEASE = pytest.mark.parametrize("release", RELEASES, ids=lambda folder: folder.name)


def runs_of(release: Path) -> list[Path]:
    found = sorted(path.parent for path in release.glob("study/trials/*/*/log.jsonl"))
    assert len(found) == 2
    return found


@OF_A_RELEASE
def test_runs_have_the_numbers_that_they_had(release):
    for run in runs_of(release):
        written = json.loads((run / "result.json").read_text())
        trial = dawnjax.load_run(run)
        for name in ("seed", "identity", "status", "steps", "total_seconds", "first_losses"):
            assert json.loads(json.dumps(getattr(trial, name))) == written[name], name
        assert main(["check", str(run)]) == 0


@OF_A_RELEASE
def test_a_study_and_its_trials_become_an_entry(release, tmp_path):
    entries = analysis.load(str(release / "study"))
    assert not entries.problems
    (entry,) = entries
    assert [trial.seed for trial in entry.trials] == [0, 1]
    assert main(["report", str(release / "study"), f"--out={tmp_path / 'page'}"]) == 0


@OF_A_RELEASE
def test_prepared_data_are_read(release):
    data = Images(name="few", data_dir=str(release / "few"))
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (8, 8)
    assert data.load("train")["image"].shape == (8, 8, 8, 3)


def test_there_is_a_release():
    assert dawnjax.__version__ in [folder.name for folder in RELEASES]
