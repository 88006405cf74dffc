"""DAWNBench entries made by hand: every trap of a description and a table."""

import json
from pathlib import Path
from typing import Any

import pytest
from retold_runs import only_entry

from dawnjax.official.naming import framework_family, machine_counts, processor_class
from dawnjax.trials.group import Entry

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


def hours_of(entry: Entry) -> float | None:
    seconds = entry.trials[0].time_to_accuracy_seconds
    return None if seconds is None else seconds / 3600


def test_an_entry_to_the_last_field(tmp_path):
    entry = only_entry(write_entry(tmp_path))
    assert hours_of(entry) == 1.0  # exactly 93 is reached, and what comes after does not matter
    assert entry.figures.cost_usd == pytest.approx(24.0)
    assert (entry.num_accelerators, entry.num_hosts, entry.processor_class) == (8, 1, "GPU")
    assert (entry.framework_family, entry.date) == ("TensorFlow", "2018-04-01")
    assert (entry.global_batch_size, entry.target.unit) == (None, "percent")
    assert entry.trials[0].epochs == 2
    assert Entry.from_json(json.loads(json.dumps(entry.to_json(), allow_nan=False))) == entry


@pytest.mark.parametrize(("mark", "end"), [("\ufeff", "\r\n"), ("", "\r")])
def test_line_ends_and_a_byte_order_mark(tmp_path, mark, end):
    table = mark + TABLE.strip().replace("\n", end).replace("\t", " \t")
    raw = (mark + json.dumps(DESCRIPTION, indent=1).replace("\n", end)).encode()
    assert hours_of(only_entry(write_entry(tmp_path, table, raw=raw))) == 1.0


@pytest.mark.parametrize(
    "change,warning,cost",
    [
        ({"costPerHour": None}, "costPerHour is null", None),
        ({"costPerHour": "0.9"}, "'0.9', no number", None),
        ({"version": "v2.0"}, "'v2.0', not v1.0", 24.0),
        ({"timestamp": "soon"}, "'soon' is not a date", 24.0),
        ({"author": 7}, "no author", 24.0),
    ],
)
def test_descriptions_that_are_odd(tmp_path, change, warning, cost):
    entry = only_entry(write_entry(tmp_path, description={**DESCRIPTION, **change}))
    assert any(warning in text for text in entry.warnings)
    assert entry.figures.cost_usd == cost


def test_epochs_labelled_from_zero_are_counted_from_one(tmp_path):
    table = "epoch\thours\ttop5Accuracy\n0\t0.5\t80\n1\t1\t93\n"
    assert only_entry(write_entry(tmp_path, table)).trials[0].epochs == 2
    before = "epoch\thours\ttop5Accuracy\n0\t0.01\t1.1\n1\t0.5\t80\n2\t1\t93\n"
    assert only_entry(write_entry(tmp_path, before)).trials[0].epochs == 2


@pytest.mark.parametrize(
    "hardware,kind,counts",
    [
        ("16 p3.16xlarge (AWS)", "GPU", (128, 16)),
        ("16 nodes with InfiniBand (8*V100 with NVLink for each node)", "GPU", (128, 16)),
        ("16 * 8 * Tesla-V100(ModelArts Service)", "GPU", (128, 16)),
        ("1 K80 / 61 GB / 4 CPU (Amazon EC2 [p2.xlarge])", "GPU", (1, 1)),
        ("128 nodes with Xeon Platinum 8124M (Amazon EC2 [c5.18xlarge])", "CPU", (0, 128)),
        ("64 * V100 (8 machines - AWS p3.16xlarge)", "GPU", (64, 8)),
        ("1 TPUv2", "TPU", (4, 1)),
        ("1/4 of a TPUv2 Pod", "TPU", (None, None)),
        ("GCP n1-standard-2, Cloud TPU", "TPU", (4, 1)),
        # As an export of ours has them.
        ("16 x TPU v4 on 2 hosts", "TPU", (16, 2)),
        ("8 x cpu (2 cores a host) on 2 hosts", "CPU", (0, 2)),
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
    assert (entry.kind, entry.inference.latency_milliseconds) == ("inference", 2.5)
    assert entry.inference.cost_usd == pytest.approx(0.002)  # of 10,000 examples
    assert (entry.date, entry.trials) == ("2019-07-22", ())


def test_an_f1_in_percent_is_read_and_said(tmp_path):
    entry = only_entry(write_inference(tmp_path, "SQuAD", f1Score=82.52, cost=None))
    assert entry.inference.quality == pytest.approx(0.8252)
    assert entry.inference.cost_usd is None
    assert any("is read as percent" in warning for warning in entry.warnings)
