"""Epochs of later rounds: the unit and origin of labels belong to the benchmark.

Values are those of logs of mlcommons/training_results_<round>, whose folder each case names.
"""

import dataclasses
import json

import pytest
from later_logs import evaluations, log_of, record, write_round

from dawnjax.analysis.loading import Entries
from dawnjax.official.importer import import_results
from dawnjax.official.mlperf import target_of
from dawnjax.official.mlperf_trial import TrialLog, read_trial
from dawnjax.report.boards import boards
from dawnjax.trials.target import Target

NONE = None


def starts(key: str, *firsts: float, count: float = 1) -> list[str]:
    """Records of blocks or epochs that begin before the evaluations of the same order."""
    name = {"block_start": "first_epoch_num", "epoch_start": "epoch_num"}[key]
    fields = [{name: first} for first in firsts]
    if key == "block_start":
        fields = [{**values, "epoch_count": count} for values in fields]
    return [record(key, n + 0.5, **values) for n, values in enumerate(fields)]


def epochs(*firsts: float) -> list[str]:
    return starts("epoch_start", *firsts)


def blocks(*firsts: float, count: float = 1) -> list[str]:
    return starts("block_start", *firsts, count=count)


# Source of the values, benchmark, round, labels of the evaluations, what has begun, epochs.
LABELLED = [
    ("NVIDIA/tyche_ngpu256_ngc25.03_dgl", "rgat", "v5.0", [0.05, 0.1, 2.25], epochs(1, 2, 3), 2.25),
    ("NVIDIA/eos_n64_ngc24.04_dgl", "gnn", "v4.0", [0.05, 0.1, 2.3], epochs(1, 2, 3), 2.3),
    ("ASUSTeK/ESC_N8_E11", "retinanet", "v5.0", [1, 2, 3, 4], epochs(0, 1, 2, 3, 4), 4),
    ("Google/cloud-tpu-v4-4096-TF", "ssd", "v2.0", [1, 2, 9], blocks(0, 1, 8), 9),
    ("ASUSTeK/ESC8000A-E11-8xA100", "maskrcnn", "v2.1", [1, 2, 3], epochs(1, 2, 3, 4), 3),
    ("Google/tpu-v3-128", "mask", "v0.6", [0, 1, 2], blocks(0, 1, 2, 3), 3),
    ("Google/tpu-v3-1024", "gnmt", "v0.6", [1, 2, 3], epochs(1, 2, 3, 4, 5, 6), 3),
    ("Google/tpu-v3-32-TF2.0", "resnet", "v0.7", [2, 6, 10], blocks(0, 3, 7, count=4), 11),
    ("Google/tpu-v3-8192-TF", "resnet", "v0.7", [4, 8], blocks(0, 4, count=4), 8),
    # Its blocks claim 4 epochs, and begin every 3.
    ("Google/tpu-v4-128-TF", "resnet", "v1.0", [3, 6, 9], blocks(0, 3, 6, count=4), 9),
    # It evaluates once before training.
    ("Graphcore/ipu-pod64-TF1", "resnet", "v1.0", [0, 1, 5], epochs(1, 2, 3, 4, 5), 5),
    ("GIGABYTE/G492-ZD2_hugectr", "dlrm", "v2.1", [1.0499947, 1.0999895, 1.899905], epochs(1), 0.9),
    ("ASUSTeK/ESC_NB8_E11", "dlrm_dcnv2", "v5.1", [0.04998, 0.09997, 0.6999], epochs(0), 0.7),
    ("Google/tpu-v4-128-TF", "dlrm", "v0.7", [1, 2, 18], blocks(1, 2, 18), NONE),
    ("ASUSTeK/ESC8000A-E11-8xA100", "unet3d", "v2.1", [1000, 1020, 2200], blocks(1, 20), 2200),
    ("ASUSTeK/ESC-N8-E11", "unet3d", "v3.1", [168_000, 171_360, 420_000], blocks(168), 2500),
    ("ASUSTeK/ESC8000A-E11-8xA100", "bert", "v2.1", [150_080, 2_700_096], epochs(0), NONE),
    ("NVIDIA/dgx2h_ngc20.06_pytorch", "bert", "v0.7", [1, 1], epochs(1), NONE),
    ("NVIDIA/dgxa100_ngc22.04", "minigo", "v2.0", [1, 2, 43], epochs(18, 19, 66), NONE),
    ("Intel-HabanaLabs/Gaudi2-N32", "gpt3", "v3.0", [50_331_648, 100_663_296], blocks(0), NONE),
]


def trial(benchmark: str, round_name: str, records: list[str]) -> TrialLog:
    return read_trial(log_of(benchmark, *records), "", round_name)


@pytest.mark.parametrize("source,benchmark,round_name,labels,begun,expected", LABELLED)
def test_epochs_by_the_benchmarks_rule(source, benchmark, round_name, labels, begun, expected):
    # A benchmark of two metrics has no number without a name.
    value = {"maskrcnn": {"BBOX": 0.4, "SEGM": 0.3}, "mask": [0.4, 0.3]}.get(benchmark, 0.5)
    read = trial(benchmark, round_name, [*begun, *evaluations(labels, value)])
    if expected is NONE:
        assert read.epochs is None and read.epoch_reason, source
        assert all(e.epoch is None for e in read.evaluations)
    else:
        assert read.epochs == pytest.approx(expected, abs=2e-4), source
        assert read.evaluations[-1].epoch == pytest.approx(expected, abs=2e-4)


# Source of the values, benchmark, round, `samples_count`, `train_samples`, epochs.
SAMPLED = [
    ("AMD/MI300X_EPYC_9575F", "llama2_70b_lora", "v5.0", 3072, 3901, 0.78749),
    ("NVIDIA/hsg_ngpu1152_ngc25.09", "flux1", "v5.1", 11_819_520, 1_099_776, 10.74721),
    ("ASUSTeK/ESC_N8_E11", "stable_diffusion", "v5.0", 2_048_000, 6_513_144, 0.31444),
    ("Intel-HabanaLabs/HLS-Gaudi2-N8", "stable_diffusion", "v3.1", 512_000, 1, NONE),
    ("NVIDIA/tyche_ngpu256_ngc25.04", "llama31_405b", "v5.0", 276_864, 1_574_207_408, NONE),
    ("AMD/MI350X_EPYC_9575F", "llama31_8b", "v5.1", 172_000, 172_032, NONE),
]


@pytest.mark.parametrize("source,benchmark,round_name,samples,train,expected", SAMPLED)
def test_epochs_by_samples(source, benchmark, round_name, samples, train, expected):
    evaluated = record("eval_accuracy", 9, 3.0, samples_count=samples, metric="FID")
    read = trial(benchmark, round_name, [record("train_samples", 1, train), evaluated])
    assert read.epochs == (expected if expected is NONE else pytest.approx(expected, abs=1e-5))
    assert bool(read.epoch_reason) == (expected is NONE), source


def test_a_label_after_the_end_and_a_rule_that_needs_a_round():
    late = record("eval_accuracy", 101, 0.5, epoch_num=5)
    assert trial("resnet", "v1.0", [*evaluations([4]), late]).epochs == 4
    read = trial("unet3d", "", evaluations([168_000]))
    assert read.epochs is None and "no folder names a round" in read.epoch_reason
    read = trial("weather_2031", "v9.0", evaluations([3]))
    assert read.epochs is None and "no rule" in read.epoch_reason
    # Labels that may begin at 0 or at 1 are not guessed.
    assert trial("dlrm", "v1.0", evaluations([1.5])).epochs is None
    assert trial("dlrm", "v1.0", evaluations([0.5])).epochs == 0.5


def test_the_folder_names_the_benchmark_of_a_log_that_does_not(tmp_path):
    log = log_of("bert", *evaluations([150_080]))
    unnamed = b"\n".join(log.split(b"\n")[1:])
    write_round(tmp_path, "v2.1", "bert", [unnamed])
    (entry,) = import_results([tmp_path]).entries
    assert entry.trials[0].epochs is None
    assert "number of samples" in entry.reasons["epochs"]
    assert entry.figures.seconds_per_epoch_mean is None


# Of v5.0, ASUSTeK/ESC_N8_E11/stable_diffusion/result_1.txt, rounded.
FID_AND_CLIP = [(1_024_000, 154.94, 0.0991), (1_536_000, 104.1, 0.1391), (2_048_000, 88.13, 0.1592)]


def test_two_metrics_of_one_key_are_two_series():
    records = [record("train_samples", 0.5, 6_513_144)]
    for second, (samples, fid, clip) in enumerate(FID_AND_CLIP, start=1):
        for metric, value in (("FID", fid), ("CLIP", clip)):
            fields = {"samples_count": samples, "metric": metric}
            records.append(record("eval_accuracy", second, value, **fields))
    read = trial("stable_diffusion", "v5.0", records)
    assert [e.value for e in read.evaluations] == [154.94, 104.1, 88.13]
    assert read.epochs == pytest.approx(0.31444, abs=1e-5)
    assert any("3 evaluations of CLIP are left out" in warning for warning in read.warnings)
    # The other one first, an object of both, and numbers without a name.
    assert trial("stable_diffusion", "v5.0", records[::-1]).evaluations == read.evaluations
    both = record("eval_accuracy", 1, {"FID": 154.94, "CLIP": 0.0991}, samples_count=1_024_000)
    assert [e.value for e in trial("stable_diffusion", "v5.0", [both]).evaluations] == [154.94]
    bare = [record("eval_accuracy", 1, value, samples_count=9) for value in (154.94, 0.0991)]
    assert trial("stable_diffusion", "v5.0", bare).evaluations == ()


def test_a_target_of_two_metrics_has_both(tmp_path):
    evaluated = record("eval_accuracy", 9, 80.0, samples_count=2_048_000, metric="FID")
    write_round(tmp_path, "v5.0", "stable_diffusion", [log_of("stable_diffusion", evaluated)])
    (entry,) = import_results([tmp_path]).entries
    target = entry.target
    assert (target.metric, target.value, target.direction) == ("FID", 90.0, "at_most")
    assert target.others == (Target(metric="CLIP", value=0.15),)
    assert target.words() == "FID at most 90 and CLIP at least 0.15"
    [row] = Entries([entry]).records()
    assert row["target_others"] == "CLIP at least 0.15"


def test_metrics_of_another_benchmark_are_not_mixed_either():
    pairs = [("wer", 0.3), ("loss", 2.0), ("wer", 0.2)]
    records = [
        record("eval_accuracy", n, value, epoch_num=n, metric=metric)
        for n, (metric, value) in enumerate(pairs, start=1)
    ]
    read = trial("rnnt", "v2.0", records)
    assert [e.value for e in read.evaluations] == [0.3, 0.2]


# Of v0.6: NVIDIA/dgx1_n24_ngc19.05_pytorch/maskrcnn and Google/tpu-v3-128/mask.
NVIDIA_VALUE = {"accuracy": {"BBOX": 0.3783183609834513, "SEGM": 0.34322868041279486}}
GOOGLE_VALUE = [0.37832552194595337, 0.3422221839427948]


def v06(benchmark: str, value: object, label: int) -> bytes:
    rows = [
        ("submission_benchmark", 0, benchmark, {}),
        ("run_start", 0, None, {}),
        ("block_start", 1, None, {"first_epoch_num": 0, "epoch_count": 1}),
        ("eval_accuracy", 50, value, {"epoch_num": label}),
        ("run_stop", 51, None, {"status": "success"}),
    ]
    lines = [
        f":::MLL {1_560_000_000 + seconds:.6f} {key}: "
        + json.dumps({"value": content, "metadata": metadata})
        for key, seconds, content, metadata in rows
    ]
    return "\n".join(lines).encode()


def test_googles_mask_is_maskrcnn_and_both_forms_of_its_accuracy_are_read(tmp_path):
    for name, value, folder in (
        ("maskrcnn", NVIDIA_VALUE, "nvidia"),
        ("mask", GOOGLE_VALUE, "google"),
    ):
        write_round(tmp_path / folder, "v0.6", name, [v06(name, value, 1)])
    entries = import_results([tmp_path]).entries
    assert {entry.benchmark for entry in entries} == {"maskrcnn"}
    assert {entry.trials[0].clock_seconds for entry in entries} == {51.0}
    assert {entry.model for entry in entries} <= {"", "Mask R-CNN"}
    values = {entry.trials[0].evaluations[0].value for entry in entries}
    assert values == {NVIDIA_VALUE["accuracy"]["BBOX"], GOOGLE_VALUE[0]}
    assert not any("unknown" in w for entry in entries for w in entry.warnings)
    assert {entry.target.words() for entry in entries} == {BOTH}
    (board,) = boards(entries)
    assert len(board.rows) == 2 and "maskrcnn" in board.title


BOTH = "BBOX at least 0.377 and SEGM at least 0.339"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"BBOX": 0.377, "SEGM": 0.339}, BOTH),
        (0.377, "BBOX at least a value not known"),
        ({"BBOX": 0.377}, "BBOX at least a value not known"),
    ],
)
def test_half_of_a_logged_target_is_never_taken_for_the_whole(asked, words):
    """In v0.5 and in the open division the log tells the target."""
    open_log = trial("maskrcnn", "v3.1", [record("target_accuracy", -1, asked)])
    open_log.descriptions["submission_division"] = "open"
    v05 = dataclasses.replace(open_log, version="v0.5", descriptions={})
    for log in (open_log, v05):
        reasons: dict[str, str] = {}
        target = target_of("maskrcnn", "v3.1", [log], [], reasons)
        assert target.words() == words
        assert ("target.value" in reasons) == (target.value is None)


def test_names_of_results_that_mlperfs_summarizer_reads(tmp_path):
    # Of v0.7: Intel/1-node-4s-cpx-pytorch/dlrm and Intel/8-nodes-32s-cpx-tensorflow/minigo.
    folder = write_round(tmp_path, "v0.7", "dlrm", [])
    names = "result_1_1n4r_32k_1592751389.txt", "result_run10.txt", "result_0.txt"
    for number, name in enumerate(names):
        (folder / name).write_bytes(log_of("dlrm", *evaluations([1.05, 1.1], 0.5 + number / 10)))
    (folder / "result_notes.txt").write_text("words\n")
    imported = import_results([tmp_path])
    (entry,) = imported.entries
    assert len(entry.trials) == 3 and not imported.rejections
    assert [name.rsplit("/", 1)[-1] for name in imported.other_files] == ["result_notes.txt"]
