"""Photographs from directories that TensorFlow Datasets itself wrote."""

import json
import pathlib
import shutil
import sys

import numpy as np
import photographs_made
import pytest
from tfds_builders import build

from dawnjax.__main__ import main
from dawnjax.input_pipeline.datasets.imagenet import ImageNet
from dawnjax.input_pipeline.datasets.images import Images
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.image_files import decode_square
from dawnjax.input_pipeline.reading.photographs import open_source

pytestmark = pytest.mark.compiles

CLASSES = ("n01440764", "n01443537", "n01484850")


def photograph(number: int) -> bytes:
    """A JPEG; the fourth is grey, and the fifth a PNG with a JPEG's name."""
    kind = ".png" if number == 4 else ".jpg"
    return photographs_made.photograph(280, 300 + number, number, kind, grey=number == 3)


@pytest.fixture(scope="module")
def imagenet_directory(tmp_path_factory) -> pathlib.Path:
    """Nine photographs to train on and five to evaluate."""
    examples = [(photograph(number), number % 3) for number in range(14)]
    splits = {"train": examples[:9], "validation": examples[9:]}
    directory = tmp_path_factory.mktemp("tensorflow_datasets")
    return build(directory, "imagenet2012", CLASSES, splits, encoding_format="jpeg")


@pytest.mark.parametrize("below", ["", "imagenet2012", "imagenet2012/5.1.0"])
def test_imagenet_is_read_as_it_is(imagenet_directory, below):
    data = ImageNet(data_dir=str(imagenet_directory / below))
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples, spec.num_classes) == (9, 5, 3)
    assert data.classes() == CLASSES
    for examples, numbers in ((data.load("train"), range(9)), (data.load("eval"), range(9, 14))):
        labels, images = np.asarray(examples["label"]), np.asarray(examples["image"])
        # TFDS shuffles what it writes; each photograph keeps its label.
        known = {decode_square(photograph(n), 256).tobytes(): n % 3 for n in numbers}
        assert len(known) == len(images)
        labels_by_image = {
            image.tobytes(): label for image, label in zip(images, labels, strict=True)
        }
        assert labels_by_image == known and labels.dtype == np.int32


def test_any_labelled_images_are_read_under_their_name(imagenet_directory, tmp_path, capsys):
    dataset = imagenet_directory / "imagenet2012"  # whose directory says what it is, not its name
    data = Images(name="fish", data_dir=str(dataset), image_side=64)
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (9, 5)
    assert spec.image_shape == (64, 64, 3) and data.classes() == CLASSES
    out = tmp_path / "fish"
    argv = ["prepare", "--dataset=images", "--name=fish", "--image_side=64", f"--out={out}"]
    assert main([*argv, f"--from={dataset}"]) == 0
    assert "5 eval images 64x64x3 in 3 classes; train" in capsys.readouterr().out
    ready = Images(name="fish", data_dir=str(out))
    for split in ("train", "eval"):
        for name, array in ready.load(split).items():
            np.testing.assert_array_equal(np.asarray(data.load(split)[name]), array)
    # Of a data directory with many datasets, the one of the name is read.
    with pytest.raises(DataError, match="no fish there, neither prepared"):
        Images(name="fish", data_dir=str(imagenet_directory), image_side=64).spec()
    assert main([*argv, f"--from={imagenet_directory}"]) == 1
    assert "has no known form of fish" in capsys.readouterr().err


def test_a_damaged_imagenet_is_refused_in_one_line(imagenet_directory, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(imagenet_directory, copy)
    version = copy / "imagenet2012/5.1.0"
    (shard,) = version.glob("*-train.array_record*")
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="damaged or cut short") as error:
        np.asarray(ImageNet(data_dir=str(copy)).load("train")["image"])
    assert "\n" not in str(error.value)
    shard.write_bytes(whole)
    info_file = version / "dataset_info.json"
    info = json.loads(info_file.read_text())
    for change, message in (
        ({"fileFormat": "tfrecord"}, "format 'tfrecord'; only array_record"),
        ({"splits": info["splits"][:1]}, "has no splits train and validation"),
        ({"splits": 3}, "damaged"),
    ):
        info_file.write_text(json.dumps(info | change))
        with pytest.raises(DataError, match=f"dataset_info.json: .*{message}"):
            open_source(copy, "ImageNet", "imagenet2012")
    info_file.write_text(json.dumps(info))
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(DataError, match=r'pip install "dawnjax\[tfds\]"'):
        open_source(copy, "ImageNet", "imagenet2012")


def test_a_photograph_that_is_none_is_named(tmp_path):
    examples = [(photograph(0), 0), (photograph(1)[:3000], 1)]
    splits = {"train": examples, "validation": examples}
    build(tmp_path, "broken_photographs", ("a", "b"), splits, encoding_format="jpeg")
    data = ImageNet(data_dir=str(tmp_path / "broken_photographs"))
    with pytest.raises(DataError, match=r"train example [01]: is cut short"):
        np.asarray(data.load("train")["image"])
