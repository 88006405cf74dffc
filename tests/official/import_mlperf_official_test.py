"""The official logs of MLPerf v0.5, to the last figure."""

import pytest
from official_figures import mlperf_rows

from dawnjax.trials.group import Entry

pytestmark = pytest.mark.compiles  # to read the archive takes as long

SECONDS = 0.01
PERCENT = 0.01


ROWS = mlperf_rows()

# Accelerators of the job (TPU chips, where v0.5 counts cores), its hosts, and the batch of all
# accelerators with its unit. The first two of the last column are Table 7 of "Analysis of
# DAWNBench" (16k, and 4k, which is an error of the table: 208 x 8), then 2k and 10k (an error too:
# 5120 tokens x 8).
MACHINES = {
    "nvidia/submission/results/dgx1_multi_ngc18.11_mxnet/resnet": (640, 80, 16640, "examples"),
    "nvidia/submission/results/dgx1_ngc18.11_mxnet/resnet": (8, 1, 1664, "examples"),
    "nvidia/submission/results/dgx1_multi_ngc18.11_pytorch/ssd": (64, 8, 2048, "examples"),
    "nvidia/submission/results/dgx1_ngc18.11_pytorch/transformer": (8, 1, 40960, "tokens"),
    "nvidia/submission/results/dgx2h_multi_ngc18.11_mxnet/resnet": (512, 32, 16384, "examples"),
    # 8 servers of 16 GPUs, of which the log shows 64 ranks and 58 iterations an epoch.
    "nvidia/submission/results/dgx2h_multi_ngc18.11_pytorch/ssd": (64, 8, 2048, "examples"),
    "nvidia/submission/results/dgx2_ngc18.11_pytorch/gnmt": (16, 1, 1024, "examples"),
    "nvidia/submission/results/dgx2_ngc18.11_pytorch/ncf": (16, 1, None, "examples"),
    "google/cloud_v100x8/results/8xV100/resnet": (8, 1, 2048, "examples"),
    "google/research_v3.512/resnet-tpuv3-512/results/tpu/resnet": (256, None, 16384, "examples"),
    "google/cloud_v2.8/ssd-tpuv2-8/results/tpu/ssd": (4, 1, None, "examples"),
    "intel/intel_resnet_submission/results/skx_8180_4s_4x/resnet": (0, 4, None, "examples"),
    "intel/intel_ncf_submission/results/skx8180/ncf": (0, 1, None, "examples"),
}


@pytest.fixture(scope="module")
def official(official_entries) -> dict[str, Entry]:
    """The official entries of v0.5 by their folders."""
    entries = official_entries.where(suite="mlperf_training")
    return {entry.source.removeprefix("v0.5.0/"): entry for entry in entries}


def test_every_official_entry_is_read(official):
    assert sorted(official) == sorted(row.entry for row in ROWS)
    assert sum(len(entry.trials) for entry in official.values()) == 570


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.entry)
def test_official_entry(row, official):
    entry = official[row.entry]
    summary = entry.figures
    assert (summary.reached, summary.trials) == (row.reached, row.trials)
    if row.times:
        times = [trial.time_to_accuracy_seconds for trial in entry.trials]
        assert times == pytest.approx(row.times, abs=SECONDS)
    assert summary.mean_seconds == pytest.approx(row.mean, abs=SECONDS)
    if row.score_minutes is None:
        assert summary.score_seconds is None
    else:
        assert summary.score_seconds == pytest.approx(60 * row.score_minutes, abs=SECONDS)
    assert 100 * (summary.cv or 0) == pytest.approx(row.cv_percent, abs=PERCENT)
    # The table is rounded to four decimals.
    assert summary.epochs_mean == pytest.approx(row.epochs_mean, abs=1e-4)
    assert summary.epochs_std == pytest.approx(row.epochs_std, abs=1e-4)
    assert summary.seconds_per_epoch_mean == pytest.approx(row.per_epoch_mean, abs=SECONDS)
    assert summary.seconds_per_epoch_std == pytest.approx(row.per_epoch_std, abs=SECONDS)
    assert summary.ratio_of_cvs == pytest.approx(row.ratio, abs=0.002)
    assert entry.submitter == row.entry.split("/")[0]
    assert (entry.suite, entry.round, entry.division) == ("mlperf_training", "v0.5", "closed")
    assert entry.benchmark == row.entry.split("/")[-1]

    logged = entry.reasons.get("input_batch_size")
    shown = ", ".join(map(str, sorted(row.logged_batch)))
    assert logged == (f"logged as {shown}" if shown else None)
    rules = entry.reasons["epochs"].removeprefix("counted by rule ")
    # Logs of two TPU entries label every epoch after all; both rules count the same there.
    same = "train" if row.entry.endswith("-8/results/tpu/gnmt") else row.rule
    assert rules in (row.rule, same)


@pytest.mark.parametrize("name", MACHINES)
def test_the_machine_is_that_of_the_job(name, official):
    entry = official[name]
    machine = (
        entry.num_accelerators,
        entry.num_hosts,
        entry.global_batch_size,
        entry.global_batch_unit,
    )
    assert machine == MACHINES[name]
    for field in ("num_hosts", "global_batch_size"):
        assert (getattr(entry, field) is None) == (field in entry.reasons)


def test_quality_targets_are_those_of_the_logs(official):
    quality_targets = {(e.benchmark, e.target.value, e.target.unit) for e in official.values()}
    assert quality_targets == {
        ("resnet", 0.749, "fraction"),
        ("ssd", 0.212, "fraction"),  # the paper's Table 2 prints 21.1
        ("gnmt", 21.8, "bleu"),
        ("transformer", 25.0, "bleu"),
        ("ncf", 0.635, "fraction"),
    }


def test_a_float32_just_below_the_target_is_a_success(official):
    entry = official["nvidia/submission/results/dgx2_ngc18.11_pytorch/gnmt"]
    last = {trial.name.rsplit("/", 1)[-1]: trial.evaluations[-1].value for trial in entry.trials}
    assert last["result_0.txt"] < 21.8
    assert last["result_8.txt"] < 21.8
    assert all(trial.reached for trial in entry.trials)
    assert not any("no evaluation reaches" in warning for warning in entry.warnings)


def test_an_evaluation_with_another_clock_has_no_time(official):
    entry = official["google/research_v3.512/resnet-tpuv3-512/results/tpu/resnet"]
    untimed = [e for t in entry.trials for e in t.evaluations if e.seconds_since_run_start is None]
    assert [(e.epoch, round(e.value, 4)) for e in untimed] == [(3, 0.1032)]
    assert any("before run_start" in warning for warning in entry.warnings)
