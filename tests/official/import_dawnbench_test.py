"""DAWNBench entries: the official leaderboards and the malformed history."""

import os
from pathlib import Path

import pytest
from dawnbench_hours import hours_of
from official_figures import dawnbench_rows

from dawnjax.official.importer import import_results
from dawnjax.official.outcome import Imported
from dawnjax.trials.group import Entry

HOURS = 1e-6
USD = 0.005

ROWS = dawnbench_rows()


def official_archive(name: str) -> Imported:
    """Imports an archive of real entries; skips where it is not here."""
    data = os.environ.get("DAWNJAX_TEST_DATA")
    if not data:
        pytest.skip("DAWNJAX_TEST_DATA is not set")
    archive = Path(data) / "official" / name
    if not archive.exists():
        pytest.skip(f"there is no {archive}")
    return import_results([archive])


@pytest.fixture(scope="module")
def official() -> dict[str, Entry]:
    """The official entries by their paths."""
    imported = official_archive("dawnbench_entries.tar.xz")
    assert not imported.rejections
    assert not imported.other_files
    return {entry.source: entry for entry in imported.entries}


@pytest.fixture(scope="module")
def history() -> Imported:
    """The malformed versions of the history."""
    return official_archive("dawnbench_odd_history.tar.xz")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.task}-{row.rank}")
def test_official_training_entry(row, official):
    entry = official[f"{row.task}/train/{row.name}"]
    (trial,) = entry.trials
    assert hours_of(entry) == pytest.approx(row.hours, abs=HOURS)
    decides = next(e for e in trial.evaluations if e.value >= (entry.target.value or 0))
    assert decides.epoch == pytest.approx(row.epoch, abs=1e-3)
    assert decides.value == pytest.approx(row.metric, abs=1e-6)
    assert entry.date == row.date
    if row.cost_usd is None:
        assert entry.figures.cost_usd is None
        assert entry.reasons["cost_per_hour_usd"]
    else:
        assert entry.figures.cost_usd == pytest.approx(row.cost_usd, abs=USD)


@pytest.mark.compiles
@pytest.mark.parametrize("task", ["ImageNet", "CIFAR10", "SQuAD"])
def test_leaderboards_by_time(task, official):
    training = [e for e in official.values() if e.kind == "training" and e.benchmark == task]
    reached = [e for e in training if hours_of(e) is not None]
    reached.sort(key=lambda e: hours_of(e) or 0)
    assert [e.source.rsplit("/", 1)[-1] for e in reached] == [
        row.name for row in ROWS if row.task == task
    ]
    assert len(reached) == len(training)


@pytest.mark.parametrize(
    "source,seconds",
    [
        ("ImageNet/train/fastai_resnet50_p3_16_machine_pytorch", 1085.18),
        ("ImageNet/train/google_resnet50_tpupod_tensorflow18", 1843.0),
        ("ImageNet/train/Intel_Resnet50_4K_ec2_Xeon_8124M_intelcaffe", 12354.2),
        ("CIFAR10/train/fastai_pytorch", 173.96),
        ("ImageNet/train/huaweicloud_resnet50_modelarts_16_machine_tensorflow18", 162.34),
    ],
)
def test_headline_times(source, seconds, official):
    imported_seconds = official[source].trials[0].time_to_accuracy_seconds
    # Printed to a tenth or a hundredth of a second.
    assert imported_seconds == pytest.approx(seconds, abs=0.05)


THRESHOLDS = (90, 90.5, 91, 91.5, 92, 92.5, 93)
SWEEP = {
    "fastai_pytorch": (1.726484, 2.308436, 2.308436, 2.308436, 2.308436, 2.787048, 2.957533),
    "fastai_resnet50_p3_4_machine_pytorch": (
        *(0.363770, 0.383380, 0.383380, 0.460900, 0.460900, 0.460900, 0.495090),
    ),
    "fastai_resnet50_p3_8_machine_pytorch": (
        *(0.235410, 0.257600, 0.268670, 0.314720, 0.314720, 0.314720, 0.314720),
    ),
    "fastai_resnet50_p3_16_machine_pytorch": (
        *(0.239022, 0.239022, 0.239022, 0.301439, 0.301439, 0.301439, 0.301439),
    ),
    "Intel_Resnet50_4K_ec2_Xeon_8124M_intelcaffe": (
        *(2.474718, 2.474718, 2.474718, 2.474718, 2.555904, 2.871577, 3.431735),
    ),
    "Intel_Resnet50_ec2_Xeon_8124M_intelcaffe": (
        *(4.659305, 4.659305, 4.659305, 4.659305, 4.659305, 5.105728, 6.163689),
    ),
    "Intel_Resnet56_ec2_Xeon_8124M_intercaffe": (
        *(2.644943, 2.644943, 2.644943, 2.644943, 2.644943, 2.824646, 3.529587),
    ),
}


@pytest.mark.parametrize("name", SWEEP)
def test_the_evaluations_give_the_threshold_sweep(name, official):
    (trial,) = official[f"ImageNet/train/{name}"].trials

    def hours_to(threshold: float) -> float | None:
        return next(
            (
                (e.seconds_since_run_start or 0) / 3600
                for e in trial.evaluations
                if e.value >= threshold
            ),
            None,
        )

    hours = [hours_to(threshold) for threshold in THRESHOLDS]
    assert hours == pytest.approx(list(SWEEP[name]), abs=HOURS)
    assert hours_to(93.5) is None


NOT_BY_DAWN = {"GPU": 6, "TPU": 6, "CPU": 3}
FRAMEWORKS = {"TensorFlow": 8, "PyTorch": 4, "Caffe": 3}


def test_entries_count_as_the_paper_counts_them(official):
    """Table 1 of the version of September 2018, without the benchmark's own entries."""
    counted = [
        e
        for e in official.values()
        if e.kind == "training"
        and e.benchmark == "ImageNet"
        and e.date <= "2018-09-28"
        and e.submitter != "Stanford DAWN"
    ]
    by_processor = {k: sum(e.processor_class == k for e in counted) for k in NOT_BY_DAWN}
    by_framework = {k: sum(e.framework_family == k for e in counted) for k in FRAMEWORKS}
    assert (by_processor, by_framework) == (NOT_BY_DAWN, FRAMEWORKS)
    cifar = [
        e
        for e in official.values()
        if e.kind == "training"
        and e.benchmark == "CIFAR10"
        and e.date <= "2018-09-28"
        and e.submitter != "Stanford DAWN"
    ]
    assert [e.processor_class for e in cifar] == ["GPU"] * 5
    families = sorted(e.framework_family for e in cifar)
    assert families == ["PyTorch"] * 3 + ["TensorFlow"] * 2


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


def test_one_name_in_two_tasks_is_two_entries(official):
    assert "ImageNet/train/fastai_pytorch" in official
    assert "CIFAR10/train/fastai_pytorch" in official


QUIRKS = {
    "ImageNet/train/huaweicloud_resnet50_modelarts_16_machine_tensorflow18": "at 0 hours",
    "ImageNet/train/alibabacloud_resnet50_gn6e_1_machine_tensorflow": "line 22 took 6.3 times",
    "ImageNet/train/fastai_resnet50_p3_4_machine_pytorch": "blank lines",
    "ImageNet/train/gehc_resnet50_1_p3_16xlarge_tensorflow111": "epochs are fractional",
    "ImageNet/train/google_resnet50_tpu_tensorflow111_fastai": "line 21, 45",
    "ImageNet/train/ppwwyyxx_resnet152_8P100-DGX1_tensorpack": "misc is a str",
    "ImageNet/train/dawn_resnet152_b_8k80_ec2_mxnet": "columns in another order",
    "CIFAR10/train/dawn_resnet164_b_1p100-dawn_pytorch": "costPerHour is null",
    "SQuAD/train/dawn_drqa_1t4-gc_pytorch": "columns in another order",
}


@pytest.mark.parametrize("source", QUIRKS)
def test_what_is_odd_is_warned_about(source, official):
    assert any(QUIRKS[source] in warning for warning in official[source].warnings)


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
    "7d086b00/ImageNet/train/google_amoeba_net_d_sixteenth_tpupod_tensorflow18": "no JSON",
    "1dacb4fd/SQuAD/train/dawn_fastfusionnet-1080ti": "scale",
}


@pytest.mark.parametrize("source", ACCEPTED)
def test_a_malformed_version_that_can_be_read(source, history):
    (entry,) = [entry for entry in history.entries if entry.source == source]
    hours = ACCEPTED[source]
    assert entry.warnings
    if hours is None:
        assert hours_of(entry) is None
        assert (entry.figures.reached, entry.figures.cost_usd) == (0, None)
        assert any("93.45" in warning for warning in entry.warnings)
    else:
        assert hours_of(entry) == pytest.approx(hours, abs=HOURS)


@pytest.mark.parametrize("source", REFUSED)
def test_a_malformed_version_that_is_refused(source, history):
    (rejection,) = [r for r in history.rejections if r.file.rsplit(".", 1)[0] == source]
    assert REFUSED[source] in rejection.reason
    assert rejection.line is not None


def test_nothing_of_the_history_is_dropped(history):
    assert len(history.entries) + len(history.rejections) == 19
    assert not history.other_files
