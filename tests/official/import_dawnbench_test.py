"""DAWNBench entries: the official leaderboards, the malformed history, and every trap by hand."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from official_figures import dawnbench_rows

from dawnjax.__main__ import main
from dawnjax.official.importer import import_results
from dawnjax.official.naming import framework_family, machine_counts, processor_class
from dawnjax.official.outcome import Imported
from dawnjax.results.entries import Entry, read_entries

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


def hours_of(entry: Entry) -> float | None:
    seconds = entry.trials[0].time_to_accuracy_seconds
    return None if seconds is None else seconds / 3600


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.task}-{row.rank}")
def test_official_training_entry(row, official):
    entry = official[f"{row.task}/train/{row.name}"]
    (trial,) = entry.trials
    assert hours_of(entry) == pytest.approx(row.hours, abs=HOURS)
    decides = next(e for e in trial.evaluations if e.value >= (entry.target.value or 0))
    assert decides.epoch == pytest.approx(row.epoch, abs=1e-3)
    assert decides.value == pytest.approx(row.metric, abs=1e-6)
    assert entry.date == row.date
    assert entry.summary is not None
    if row.cost_usd is None:
        assert entry.summary.cost_usd is None
        assert entry.reasons["cost_per_hour_usd"]
    else:
        assert entry.summary.cost_usd == pytest.approx(row.cost_usd, abs=USD)


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
        assert entry.summary is not None
        assert (entry.summary.reached, entry.summary.cost_usd) == (0, None)
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


# ---------------------------------------------------------------------------------------------
# Entries made here.

DESCRIPTION = {
    "version": "v1.0",
    "author": "A. Person",
    "framework": "TensorFlow v1.8",
    "model": "ResNet-50",
    "hardware": "8 * V100 (AWS p3.16xlarge)",
    "costPerHour": 24.0,
    "timestamp": "2018-4-1",
    "misc": {"batchSize": 1024},
}
TABLE = "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.5\t60\t80\n2\t1\t75\t93\n3\t1.5\t74\t92\n"


def write_entry(
    folder: Path,
    table: str | bytes = TABLE,
    task: str = "ImageNet",
    description: dict[str, Any] | None = None,
    raw: bytes | None = None,
) -> Path:
    target = folder / task / "train"
    target.mkdir(parents=True, exist_ok=True)
    (target / "x.tsv").write_bytes(table if isinstance(table, bytes) else table.encode())
    text = json.dumps(DESCRIPTION if description is None else description).encode()
    (target / "x.json").write_bytes(text if raw is None else raw)
    return folder


def only_entry(folder: Path) -> Entry:
    imported = import_results([folder])
    assert not imported.rejections
    (entry,) = imported.entries
    return entry


def only_rejection(folder: Path):
    imported = import_results([folder])
    assert not imported.entries
    (rejection,) = imported.rejections
    return rejection


def test_an_entry_to_the_last_field(tmp_path):
    entry = only_entry(write_entry(tmp_path))
    assert hours_of(entry) == 1.0  # exactly 93 is reached, and what comes after does not matter
    assert entry.summary is not None
    assert entry.summary.cost_usd == pytest.approx(24.0)
    assert (entry.num_accelerators, entry.num_hosts, entry.processor_class) == (8, 1, "GPU")
    assert (entry.framework_family, entry.date) == ("TensorFlow", "2018-04-01")
    assert (entry.global_batch_size, entry.target.unit) == (None, "percent")
    assert "1024" in entry.reasons["global_batch_size"]
    assert entry.trials[0].epochs == 2
    assert Entry.from_json(json.loads(json.dumps(entry.to_json(), allow_nan=False))) == entry


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark(tmp_path, end, mark):
    table = mark + TABLE.strip().replace("\n", end).replace("\t", " \t")
    raw = (mark + json.dumps(DESCRIPTION, indent=1).replace("\n", end)).encode()
    assert hours_of(only_entry(write_entry(tmp_path, table, raw=raw))) == 1.0


def test_columns_are_read_by_name(tmp_path):
    table = "hours\ttop5Accuracy\tepoch\n0.5\t80\t1\n1\t93.5\t2\n"
    assert hours_of(only_entry(write_entry(tmp_path, table))) == 1.0


@pytest.mark.parametrize(
    "table,line,reason",
    [
        ("", None, "is empty"),
        ("epoch\thours\ttop5Accuracy\n", 1, "no rows"),
        ("epoch hours top5Accuracy\n1 2 93\n", 1, "tabs"),
        ("epoch\thours\ttop5\n1\t2\t93\n", 1, "no column 'top5Accuracy'"),
        ("epoch\thours\thours\ttop5Accuracy\n1\t1\t2\t93\n", 1, "'hours' twice"),
        ("epoch\thours\ttop5Accuracy\n1\t2\n", 2, "2 fields under 3"),
        ("epoch\thours\ttop5Accuracy\n1\t2\t93\t9\n", 2, "4 fields under 3"),
        ("epoch\thours\ttop5Accuracy\n1\t\t2\t\t93\n", 2, "5 fields under 3"),
        ("epoch\thours\ttop5Accuracy\n\n1\t2\tnan\n", 3, "'nan': a finite number"),
        ("epoch\thours\ttop5Accuracy\n1\t1e999\t93\n", 2, "'1e999': a finite number"),
        ("epoch\thours\ttop5Accuracy\n1\t1_0\t93\n", 2, "'1_0': a finite number"),
        ("epoch\thours\ttop5Accuracy\n1\t2\t80\n2\t1\t93\n", 3, "hours decrease"),
        ("epoch\thours\ttop5Accuracy\n1\t-2\t93\n", 2, "below 0"),
        ("epoch\thours\ttop5Accuracy\n1\t1\t.80\n2\t2\t0.93\n", 3, "fractions"),
        ("epoch\thours\ttop5Accuracy\n1\t1\t93\n2\t2\t930\n", 3, "scale"),
        ("hours\tepoch\ttop5Accuracy\n1\t.1\t80\n2\t.2\t90\n3\t.3\t93\n", 1, "wrong way round"),
    ],
)
def test_a_table_that_would_give_a_wrong_number(tmp_path, table, line, reason):
    rejection = only_rejection(write_entry(tmp_path, table))
    assert rejection.file == "ImageNet/train/x.tsv"
    assert rejection.line == line
    assert reason in rejection.reason


def test_an_f1_in_percent_would_pass_at_once(tmp_path):
    table = "epoch\thours\tf1Score\n1\t1\t67.6\n2\t2\t75.3\n"
    rejection = only_rejection(write_entry(tmp_path, table, "SQuAD"))
    assert "percent where a fraction is meant" in rejection.reason


def test_either_file_alone_is_no_training_entry(tmp_path):
    write_entry(tmp_path)
    (tmp_path / "ImageNet/train/x.json").unlink()
    assert "nothing describes" in only_rejection(tmp_path).reason
    write_entry(tmp_path)
    (tmp_path / "ImageNet/train/x.tsv").unlink()
    assert only_rejection(tmp_path).file == "ImageNet/train/x.tsv"


@pytest.mark.parametrize(
    "change,warning,cost",
    [
        ({"costPerHour": None}, "costPerHour is null", None),
        ({"costPerHour": "0.9"}, "'0.9', no number", None),
        ({"costPerHour": True}, "no number", None),
        ({"version": "v2.0"}, "'v2.0', not v1.0", 24.0),
        ({"timestamp": "soon"}, "'soon' is no date", 24.0),
        ({"misc": "text"}, "misc is a str", 24.0),
        ({"author": 7}, "no author", 24.0),
    ],
)
def test_descriptions_that_are_odd(tmp_path, change, warning, cost):
    entry = only_entry(write_entry(tmp_path, description={**DESCRIPTION, **change}))
    assert any(warning in text for text in entry.warnings)
    assert entry.summary is not None
    assert entry.summary.cost_usd == cost


def test_json_faults_name_the_line(tmp_path):
    raw = b'{\n "version": "v1.0"\n "author": "A"\n}'
    rejection = only_rejection(write_entry(tmp_path, raw=raw))
    assert (rejection.file, rejection.line) == ("ImageNet/train/x.json", 3)


def test_epochs_labelled_from_zero_are_counted_from_one(tmp_path):
    table = "epoch\thours\ttop5Accuracy\n0\t0.5\t80\n1\t1\t93\n"
    assert only_entry(write_entry(tmp_path, table)).trials[0].epochs == 2
    before = "epoch\thours\ttop5Accuracy\n0\t0.01\t1.1\n1\t0.5\t80\n2\t1\t93\n"
    assert only_entry(write_entry(tmp_path, before)).trials[0].epochs == 2


def test_a_single_file_finds_its_partner_and_its_folder(tmp_path, capsys):
    write_entry(tmp_path)
    out = tmp_path / "out.jsonl"
    for name in ("x.tsv", "x.json"):
        assert main(["import", str(tmp_path / "ImageNet/train" / name), f"--out={out}"]) == 0
        (entry,) = read_entries(out)
        assert hours_of(entry) == 1.0
        assert entry.benchmark == "ImageNet"
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows.count(["read", "1", "1", "1"]) == 2


def test_the_command_says_what_it_did_not_take(tmp_path, capsys):
    write_entry(tmp_path / "good")
    write_entry(tmp_path / "bad", TABLE.replace("\t1\t", "\tnan\t"))
    out = tmp_path / "out.jsonl"
    argv = ["import", str(tmp_path / "good"), f"--source={tmp_path / 'bad'}", f"--out={out}"]
    assert main(argv) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("rejected: ImageNet/train/x.tsv:3: hours is 'nan'")
    assert [line.split() for line in lines if line.startswith("rejected ")] == [["rejected", "1"]]
    assert len(list(read_entries(out))) == 1


@pytest.mark.parametrize(
    "argv,message",
    [
        (["--out=x.jsonl"], "no path given"),
        (["."], "--out is missing"),
        ([".", "--out=."], "is a folder"),
        ([".", "--source=.", "--out=x.jsonl"], "given twice"),
        (["no/such/place", "--out=x.jsonl"], "cannot read"),
        ([".", "--outt=x"], "did you mean --out?"),
    ],
)
def test_wrong_use_is_one_line(tmp_path, monkeypatch, capsys, argv, message):
    monkeypatch.chdir(tmp_path)
    assert main(["import", *argv]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "x.jsonl").exists()


@pytest.mark.parametrize(
    "hardware,kind,counts",
    [
        ("16 p3.16xlarge (AWS)", "GPU", (128, 16)),
        ("64 * V100 (8 machines - AWS p3.16xlarge)", "GPU", (64, 8)),
        ("16 nodes with InfiniBand (8*V100 with NVLink for each node)", "GPU", (128, 16)),
        ("16 * 8 * Tesla-V100(ModelArts Service)", "GPU", (128, 16)),
        ("1 K80 / 61 GB / 4 CPU (Amazon EC2 [p2.xlarge])", "GPU", (1, 1)),
        ("60 GB / 16 CPU (Google Cloud [n1-standard-16])", "CPU", (0, 1)),
        ("128 nodes with Xeon Platinum 8124M (Amazon EC2 [c5.18xlarge])", "CPU", (0, 128)),
        ("1/4 of a TPUv2 Pod", "TPU", (None, None)),
        ("GCP n1-standard-2, Cloud TPU", "TPU", (1, 1)),
        ("Alibaba Cloud Npu", "", (None, None)),
        ("a big machine", "", (None, None)),
    ],
)
def test_what_a_text_about_a_machine_says(hardware, kind, counts):
    assert processor_class(hardware) == kind
    assert machine_counts(hardware) == counts


@pytest.mark.parametrize(
    "framework,family",
    [
        ("tensorpack 0.8.0", "TensorFlow"),
        ("fastai / pytorch", "PyTorch"),
        ("Intel(R) Optimized Caffe", "Caffe"),
        ("Pytorch NGC 18.11", "PyTorch"),
        ("BigDL 0.7.0", "BigDL"),
        ("PyTorch v1.0.1 and PaddlePaddle", "PyTorch"),
        ("HIE", ""),
    ],
)
def test_what_a_framework_counts_as(framework, family):
    assert framework_family(framework) == family


def write_inference(folder: Path, task: str, **fields: Any) -> Path:
    target = folder / task / "inference"
    target.mkdir(parents=True)
    common = {name: DESCRIPTION[name] for name in ("version", "author", "framework", "hardware")}
    record = {**common, "model": "M", "timestamp": "2019-7-22", "latency": 2.5, **fields}
    (target / "x.json").write_text(json.dumps(record))
    return folder


def test_an_inference_entry(tmp_path):
    entry = only_entry(write_inference(tmp_path, "CIFAR10", top1Accuracy=94.5, cost=2e-7))
    assert entry.inference is not None
    assert (entry.kind, entry.inference.latency_milliseconds) == ("inference", 2.5)
    assert entry.inference.cost_usd == pytest.approx(0.002)  # of 10,000 examples
    assert (entry.date, entry.trials, entry.summary) == ("2019-07-22", (), None)


def test_an_f1_in_percent_is_read_and_said(tmp_path):
    entry = only_entry(write_inference(tmp_path, "SQuAD", f1Score=82.52, cost=None))
    assert entry.inference is not None
    assert entry.inference.quality == pytest.approx(0.8252)
    assert entry.inference.cost_usd is None
    assert any("is read as percent" in warning for warning in entry.warnings)


def test_the_same_name_in_two_tasks(tmp_path):
    write_entry(tmp_path)
    write_entry(tmp_path, "epoch\thours\ttop1Accuracy\n1\t2\t94\n", "CIFAR10")
    entries = import_results([tmp_path]).entries
    assert [(e.source, hours_of(e)) for e in entries] == [
        ("CIFAR10/train/x", 2.0),
        ("ImageNet/train/x", 1.0),
    ]
