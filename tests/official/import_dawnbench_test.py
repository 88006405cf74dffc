"""DAWNBench entries: the official leaderboards and the malformed history."""

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
    percent = official["SQuAD/inference/dawn_fastfusionnet-1080ti"]
    assert percent.inference is not None
    assert percent.inference.quality == pytest.approx(0.8252085997573373)
    assert percent.inference.cost_usd is None
    assert any("percent" in warning for warning in percent.warnings)
    # 31.13 ms on a machine of 0.533 USD an hour, 10,000 times.
    known = official["CIFAR10/inference/dawn_resnet164_b_16vCPUs-gc_tensorflow"]
    assert known.inference is not None
    assert known.inference.cost_usd == pytest.approx(0.04608969, abs=1e-6)


def test_what_is_odd_is_warned_about(official):
    for source, odd in (
        ("ImageNet/train/fastai_resnet50_p3_4_machine_pytorch", "blank lines"),
        ("CIFAR10/train/dawn_resnet164_b_1p100-dawn_pytorch", "costPerHour is null"),
    ):
        assert any(odd in warning for warning in official[source].warnings)


# Folder of the history, and the hours that a tolerant reading must give; None: not reached.
ACCEPTED = {
    "15b039dd/CIFAR10/train/KRes34_p2xlarge_pytorch": 2.37703,
    "d0a82e57/CIFAR10/train/KRes34_p2xlarge_pytorch": 2.37703,
    "d4155352/CIFAR10/train/KRes34_p2xlarge_pytorch": 2.37703,
    "4c648d9c/CIFAR10/train/BAIDU-USA-GAIT_BaiduNet9P_8GV100_pytorch": 0.01234526,
    "a79d4b09/CIFAR10/train/dawn_sample_1k80-gc_keras": None,
    "8ffbae54/ImageNet/train/gehc_resnet50_1_p3_16xlarge_tensorflow111": 1.742588889,
    "57f8dcd9/SQuAD/train/dawn_drqa_1p4-gc_pytorch": 0.994389111,
    "e21d12c8/SQuAD/train/dawn_drqa_1nv1070ti-dev": 0.606706620,
}
REFUSED = {
    "07fead0b/CIFAR10/train/diux_cifar_g3": "the wrong way round",
    "3c21c8de/ImageNet/train/diux_resnet152_p3-tensorpack": "the wrong way round",
    "9b077831/ImageNet/train/Intel_Resnet50_4K_ec2_Xeon_8124M_intelcaffe": "tabs",
    "6f580cca/ImageNet/train/Intel_Resnet50_ec2_Xeon_8124M_intelcaffe": "tabs",
    "b489d987/ImageNet/train/dawn_4_machine_30min": "6 fields under 4 columns",
    "c80440ad/ImageNet/train/dawn_4_machine_30min": "6 fields under 4 columns",
    "c95890dc/ImageNet/train/fastai_pytorch": "4 fields under 3 columns",
    "c2b33224/ImageNet/train/google_amoeba_net_d_tpu_tensorflow18": "fractions",
    "c5e71b40/ImageNet/train/google_amoeba_net_d_tpu_tensorflow17": "tabs",
    "7d086b00/ImageNet/train/google_amoeba_net_d_sixteenth_tpupod_tensorflow18": "not JSON",
    "1dacb4fd/SQuAD/train/dawn_fastfusionnet-1080ti": "scale",
}


@pytest.mark.parametrize("source", ACCEPTED)
def test_a_malformed_version_that_can_be_read(source, history):
    (entry,) = [entry for entry in history.entries if entry.source == source]
    hours, seconds = ACCEPTED[source], entry.trials[0].time_to_accuracy_seconds
    if hours is None:
        assert seconds is None
        assert (entry.figures.reached, entry.figures.cost_usd) == (0, None)
        assert any("93.45" in warning for warning in entry.warnings)
    else:
        assert seconds == pytest.approx(HOUR * hours, abs=SECONDS)


@pytest.mark.parametrize("source", REFUSED)
def test_a_malformed_version_that_is_refused(source, history):
    (rejection,) = [r for r in history.rejections if r.file.rsplit(".", 1)[0] == source]
    assert REFUSED[source] in rejection.reason
    assert rejection.line is not None
