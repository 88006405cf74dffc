"""A DAWNBench entry to its last field; tests/golden/official.txt has every trap of the files."""

import json

import pytest
from retold_runs import only_entry

from dawnjax.official.naming import framework_family, machine_counts, processor_class
from dawnjax.trials.group import Entry

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


def test_an_entry_to_the_last_field(tmp_path):
    folder = tmp_path / "ImageNet" / "train"
    folder.mkdir(parents=True)
    (folder / "x.tsv").write_text(TABLE)
    (folder / "x.json").write_text(json.dumps(DESCRIPTION))
    entry = only_entry(tmp_path)
    # Exactly 93 is reached, after an hour, and what comes after does not matter.
    assert entry.trials[0].time_to_accuracy_seconds == 3600
    assert entry.figures.cost_usd == pytest.approx(24.0)
    assert (entry.num_accelerators, entry.num_hosts, entry.processor_class) == (8, 1, "GPU")
    assert (entry.framework_family, entry.date) == ("TensorFlow", "2018-04-01")
    assert (entry.global_batch_size, entry.target.unit) == (None, "percent")
    assert entry.trials[0].epochs == 2
    assert Entry.from_json(json.loads(json.dumps(entry.to_json(), allow_nan=False))) == entry


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
