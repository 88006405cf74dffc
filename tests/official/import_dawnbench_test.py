"""DAWNBench entries: the official leaderboards and the malformed history."""

import csv
from pathlib import Path

import pytest
from official_entries import official_archive
from official_figures import dawnbench_rows

from dawnjax.official.importer import import_results
from dawnjax.official.outcome import Imported
from dawnjax.trials.group import Entry

HOUR = 3600
SECONDS = 0.0036  # the hours are printed with six decimals or more
USD = 0.005

ROWS = dawnbench_rows()


@pytest.fixture(scope="module")
def official(official_entries) -> dict[str, Entry]:
    """The official entries by their paths."""
    return {entry.source: entry for entry in official_entries}


@pytest.fixture(scope="module")
def history() -> Imported:
    """The malformed versions of the history."""
    imported = import_results([official_archive("dawnbench_odd_history.tar.xz")])
    assert len(imported.entries) + len(imported.rejections) == 19 and not imported.other_files
    return imported


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.task}-{row.rank}")
def test_official_training_entry(row, official):
    entry = official[f"{row.task}/train/{row.name}"]
    (trial,) = entry.trials
    assert trial.time_to_accuracy_seconds == pytest.approx(HOUR * row.hours, abs=SECONDS)
    decides = next(e for e in trial.evaluations if e.value >= (entry.target.value or 0))
    assert decides.epoch == pytest.approx(row.epoch, abs=1e-3)
    assert decides.value == pytest.approx(row.metric, abs=1e-6)
    assert entry.date == row.date
    if row.cost_usd is None:
        assert entry.figures.cost_usd is None
        assert entry.reasons["cost_per_hour_usd"]
    else:
        assert entry.figures.cost_usd == pytest.approx(row.cost_usd, abs=USD)


def test_official_inference_quirks(official):
    inference = [e for e in official.values() if e.kind == "inference"]
    assert len(inference) == 49
    assert all(e.inference and (e.inference.latency_milliseconds or 0) > 0 for e in inference)
    assert (
        sum(e.inference is not None and e.inference.cost_usd is not None for e in inference) == 26
    )
    dates = {e.source.split("/", 2)[2]: e.date for e in inference}
    assert dates["HaifanData_resnet50_1GTX1080Ti_tensorflow"] == "2019-07-22"
    assert dates["IluvatarCoreX-P.S.R_resnet50_1p4_tensorflow"] == "2019-06-27"
    assert dates["Intel_resnet50_c59xlarge_intelcaffe"] == "2018-04-18"
    # 31.13 ms on a machine of 0.533 USD an hour, 10,000 times.
    known = official["CIFAR10/inference/dawn_resnet164_b_16vCPUs-gc_tensorflow"]
    assert known.inference.cost_usd == pytest.approx(0.04608969, abs=1e-6)


def test_what_is_odd_is_warned_about(official):
    for source, odd in (
        ("ImageNet/train/fastai_resnet50_p3_4_machine_pytorch", "blank lines"),
        ("CIFAR10/train/dawn_resnet164_b_1p100-dawn_pytorch", "costPerHour is null"),
    ):
        assert any(odd in warning for warning in official[source].warnings)


with Path(__file__).with_name("odd_history.csv").open(newline="") as _file:
    _, *HISTORY = csv.reader(_file)
"""Source, hours that a tolerant reading must give, and why it is refused; neither: not reached."""


@pytest.mark.parametrize(("source", "hours", "refused"), HISTORY, ids=lambda cell: cell)
def test_a_malformed_version_is_read_or_refused(source, hours, refused, history):
    if refused:
        (rejection,) = [r for r in history.rejections if r.file.rsplit(".", 1)[0] == source]
        assert refused in rejection.reason and rejection.line is not None
        return
    (entry,) = [entry for entry in history.entries if entry.source == source]
    seconds = entry.trials[0].time_to_accuracy_seconds
    if hours:
        assert seconds == pytest.approx(HOUR * float(hours), abs=SECONDS)
    else:
        assert (seconds, entry.figures.reached, entry.figures.cost_usd) == (None, 0, None)
        assert any("93.45" in warning for warning in entry.warnings)
