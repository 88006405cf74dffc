"""Only data with a benchmark's counts and fingerprint are called the benchmark's."""

import dataclasses
import pathlib
from typing import Any, ClassVar

import numpy as np
import pytest
from made_runs import write_run

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.input_pipeline.datasets import published
from dawnjax.input_pipeline.datasets.cifar10 import CLASSES
from dawnjax.input_pipeline.datasets.imagenet import ImageNet
from dawnjax.input_pipeline.datasets.synthetic import Synthetic
from dawnjax.input_pipeline.preparation import image_writer
from dawnjax.input_pipeline.reading.dataset import declared
from dawnjax.input_pipeline.reading.image_set import ImageFacts
from dawnjax.report.boards import boards
from dawnjax.trials.ours import entries_of, read_run

CIFAR10 = ImageFacts(
    num_examples={"train": 50_000, "eval": 10_000},
    classes=CLASSES,
    class_counts={"train": (5_000,) * 10, "eval": (1_000,) * 10},
    # As a description has them: six digits.
    statistics={
        "train": ((0.4914, 0.482158, 0.446531), (0.247032, 0.243485, 0.261588)),
        "eval": ((0.494214, 0.485131, 0.450409), (0.246653, 0.242892, 0.261592)),
    },
)


def changed(**fields: Any) -> ImageFacts:
    """Facts that differ from CIFAR-10's."""
    return dataclasses.replace(CIFAR10, **fields)


def test_the_images_of_the_benchmark_are_told():
    declaration = published.declare_images(published.CIFAR10, CIFAR10)
    assert (declaration.name, declaration.benchmark) == ("CIFAR-10", "CIFAR-10")
    assert declaration.evidence.startswith("equal: counts of both splits")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (changed(num_examples={"train": 50_000, "eval": 2_000}), "10,000 images to evaluate"),
        (changed(classes=CLASSES[:9]), "10 classes, and these are 9"),
        (changed(classes=(*CLASSES[:9], "lorry")), "do not have the names"),
        (changed(class_counts={}), "labels were not counted"),
        (
            changed(class_counts={**CIFAR10.class_counts, "eval": (500, 1_500, *[1_000] * 8)}),
            "1,000 images of a class to evaluate, and here are 500 to 1,500",
        ),
        (changed(statistics={}), "pixels were not measured"),
        (
            changed(statistics={**CIFAR10.statistics, "eval": CIFAR10.statistics["train"]}),
            "the mean of those to evaluate is 0.491400 0.482158 0.446531, not 0.494214",
        ),
        (
            changed(
                statistics={
                    **CIFAR10.statistics,
                    "train": (CIFAR10.statistics["train"][0], (0.247035, 0.243485, 0.261588)),
                }
            ),
            "the deviation of those to train on is 0.247035",
        ),
    ],
)
def test_one_difference_is_enough(facts, why):
    declaration = published.declare_images(published.CIFAR10, facts)
    assert declaration.benchmark == "" and declaration.name.endswith("not CIFAR-10")
    assert why in declaration.evidence


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
    assert published.declare_images(published.IMAGENET, facts).benchmark == "ImageNet"
    fewer = {**facts.class_counts, "train": (731, *counts[1:])}
    other = dataclasses.replace(facts, class_counts=fewer)
    assert "732 to 1,300" in published.declare_images(published.IMAGENET, other).evidence


def examples(classes: tuple[str, ...]) -> image_writer.Examples:
    labels = np.arange(2 * len(classes)) % len(classes)
    images = np.full((len(labels), 32, 32, 3), 7, np.uint8)
    return image_writer.Examples(
        classes=classes,
        images={"train": images, "eval": images},
        labels={"train": labels, "eval": labels},
        source={"kind": "arrays"},
    )


def test_photographs_that_were_prepared_as_imagenet_are_named_for_what_they_are(tmp_path):
    classes = ("a", "b", "c", "d", "e", "f")
    image_writer.write(tmp_path, lambda: examples(classes), dataset="imagenet")
    data = ImageNet(data_dir=str(tmp_path), image_side=32)
    told = declared(data, data.spec())
    assert told["name"] == "12 + 12 images in 6 classes, not ImageNet"
    assert told["benchmark"] == ""
    assert told["evidence"] == "ImageNet has 1,281,167 images to train on, and these are 12"
    assert told["num_train_examples"] == 12 and len(told["fingerprint"]) == 16


def test_text_is_wmt_by_its_pairs_and_newstest2014():
    declaration = published.declare_text(4_508_785, published.NEWSTEST2014_MD5)
    assert declaration.benchmark == "WMT English-German"
    for pairs, md5, why in (
        (29_000, published.NEWSTEST2014_MD5, "have 4,508,785, 4,548,885, 5,906,184 pairs"),
        (4_508_785, published.NEWSTEST2014_MD5[::-1], "is not that of newstest2014"),
        (4_508_785, (), "is not that of newstest2014"),
    ):
        declaration = published.declare_text(pairs, md5)
        assert declaration.benchmark == "" and why in declaration.evidence


def test_a_class_of_a_person_s_own_names_no_benchmark():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(Synthetic):
        TAG: ClassVar[str] = "mine"

        def spec(self):
            declaration = published.declare_images(published.CIFAR10, CIFAR10)
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
