"""Only data with a benchmark's counts and fingerprint are called the benchmark's."""

import dataclasses
import pathlib
from typing import ClassVar

import pytest
from made_runs import write_run

from dawnjax.config.experiment_modules import experiment_names, load_experiment
from dawnjax.input_pipeline.datasets import imagenet, parallel_text
from dawnjax.input_pipeline.datasets.synthetic import Synthetic
from dawnjax.input_pipeline.reading.dataset import Declaration, declared
from dawnjax.input_pipeline.reading.image_set import ImageFacts
from dawnjax.plan.compiling.compiled import spec_of
from dawnjax.report.boards import boards
from dawnjax.trials.ours import entries_of, read_run


def test_imagenet_is_told_by_its_ids_and_the_counts_of_its_classes():
    # The ids of the classes are in TensorFlow Datasets, a list that this program did not make.
    tfds = pytest.importorskip("tensorflow_datasets")
    labels = pathlib.Path(tfds.__file__).parent / "datasets" / "imagenet2012" / "labels.txt"
    ids = labels.read_text().split()
    counts = (732, *[1_300] * 999)
    facts = ImageFacts(
        num_examples={"train": 1_281_167, "eval": 50_000},
        classes=tuple(ids),
        class_counts={"train": counts, "eval": (50,) * 1_000},
    )
    assert imagenet.declare(facts, "").benchmark == "ImageNet"
    for change, why in (
        ({"num_examples": {"train": 50_000, "eval": 10_000}}, "1,281,167 + 50,000 images, and"),
        ({"classes": (*ids[1:], "lorry")}, "class names are not ImageNet"),
        ({"class_counts": {}}, "labels were not counted"),
        ({"class_counts": {**facts.class_counts, "train": (731, *counts[1:])}}, "732 to 1,300"),
    ):
        declaration = imagenet.declare(dataclasses.replace(facts, **change), "")
        assert declaration.benchmark == "" and why in declaration.evidence
        assert declaration.name.endswith("not ImageNet")


def test_text_is_wmt_by_its_pairs_and_newstest2014():
    declaration = parallel_text.declare(4_508_785, parallel_text.NEWSTEST2014_MD5)
    assert declaration.benchmark == "WMT English-German"
    for pairs, md5, why in (
        (29_000, parallel_text.NEWSTEST2014_MD5, "have 4,508,785, 4,548,885, 5,906,184 pairs"),
        (4_508_785, parallel_text.NEWSTEST2014_MD5[::-1], "is not newstest2014"),
        (4_508_785, (), "is not newstest2014"),
    ):
        declaration = parallel_text.declare(pairs, md5)
        assert declaration.benchmark == "" and why in declaration.evidence


def test_a_class_of_a_person_s_own_names_no_benchmark():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(Synthetic):
        TAG: ClassVar[str] = "mine"

        def spec(self):
            declaration = Declaration(name="CIFAR-10", benchmark="CIFAR-10")
            return dataclasses.replace(super().spec(), declaration=declaration)

    assert declared(Mine(), Mine().spec())["benchmark"] == ""
    assert declared(Synthetic(), Synthetic().spec())["name"] == "images made from a seed"


def test_runs_on_other_data_stand_on_another_board(tmp_path):
    for number, name in enumerate(["CIFAR-10", "CIFAR-10", "12 + 12 images, not CIFAR-10", ""]):
        told = {"name": name, "benchmark": "", "evidence": ""}
        write_run(
            tmp_path / str(number), seed=number, seconds=10.0, identity=name or "i", declared=told
        )
    entries = entries_of(read_run(tmp_path / str(number)) for number in range(4))
    assert [board.title for board in boards(entries)] == [
        "DawnJAX x on 12 + 12 images, not CIFAR-10",
        "DawnJAX x on CIFAR-10",
        "DawnJAX x on data that the log does not name",
    ]


def test_an_epoch_of_short_rows_leaves_long_pairs_out():
    """MLPerf's GNMT trains on the 3,498,161 pairs that have at most 50 tokens a side."""
    assert load_experiment("wmt_gnmt").data.published_spec().num_train_pairs == 3_498_161
    whole = load_experiment("wmt_transformer_big").data.published_spec()
    assert whole.num_train_pairs == 4_508_785


@pytest.mark.parametrize("name", experiment_names())
def test_a_shipped_experiment_is_valid_on_counts_that_are_known_without_its_data(
    name, tmp_path, monkeypatch
):
    monkeypatch.setenv("DAWNJAX_DATA", str(tmp_path))
    experiment = load_experiment(name)
    spec, _ = spec_of(experiment.data)
    assert spec.num_train_examples > 0 and spec.num_eval_examples > 0
    experiment.validate(spec)


@pytest.mark.parametrize(
    ("name", "counts"),
    [  # as they were prepared
        ("cells_ssd_small", (292, 72)),
        ("nuclei_mask_rcnn_small", (250, 84)),
        ("squad_small", (41_699, 1_341)),
        ("tatoeba_transformer", (26_334, 2_569)),
        ("wikipedia_bytes_small", (54_494, 256)),
    ],
)
def test_small_sets_have_the_counts_of_prepared_ones(name, counts):
    spec = load_experiment(name).data.published_spec()
    assert spec.num_train_examples == pytest.approx(counts[0], rel=1e-3)
    assert spec.num_eval_examples == counts[1]
