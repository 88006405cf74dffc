"""Data of a person's own: arrays in memory, and images under any name."""

import dataclasses
import pathlib
import re
from typing import ClassVar

import numpy as np
import pytest
from packed import prepare
from photographs_made import photograph

from dawnjax.__main__ import main
from dawnjax.commands.prepare import PREPARATIONS
from dawnjax.config.choices import CHOICES
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.input_pipeline.datasets import images
from dawnjax.input_pipeline.datasets.arrays import Arrays, ImageArrays
from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.input_pipeline.datasets.images import Images
from dawnjax.input_pipeline.datasets.synthetic import Synthetic, SyntheticText
from dawnjax.input_pipeline.reading import labelled_images
from dawnjax.input_pipeline.reading.dataset import (
    ArraysSpec,
    DataError,
    Overlap,
    class_names,
    num_bytes,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Houses(Arrays):
    """Seven houses to train on, three to evaluate, which lack one array."""

    TAG: ClassVar[str] = "houses"
    seed: int = 0

    def arrays(self, split):
        count = {"train": 7, "eval": 3}[split]
        random = np.random.default_rng([self.seed, count])
        houses = {
            "rooms": random.normal(size=(count, 4, 2)).astype(np.float16),
            "price": random.normal(size=count).astype(np.float32),
            "sold": random.random(count) < 0.5,
        }
        return houses if split == "train" else {"rooms": houses["rooms"], "price": houses["price"]}


def test_arrays_describe_themselves():
    data = Houses()
    spec = data.spec()
    assert spec == ArraysSpec(
        num_train_examples=7,
        num_eval_examples=3,
        train_shapes={"rooms": ((4, 2), "float16"), "price": ((), "float32"), "sold": ((), "bool")},
        eval_shapes={"rooms": ((4, 2), "float16"), "price": ((), "float32")},
        fingerprint=spec.fingerprint,
    )
    # By hand: an example to train on has 16 + 4 + 1 bytes, one to evaluate 16 + 4.
    assert num_bytes(spec) == 7 * 21 + 3 * 20
    assert spec.batch_elements(5) == 5 * 8
    np.testing.assert_array_equal(data.load("train")["rooms"], data.arrays("train")["rooms"])
    assert set(data.load("eval")) == {"rooms", "price"}
    assert re.fullmatch("[0-9a-f]{16}", spec.fingerprint)
    assert Houses().spec().fingerprint == spec.fingerprint != Houses(seed=1).spec().fingerprint


def test_arrays_that_change_between_two_reads_are_refused():
    reads = []

    class Drifting(Houses):
        def arrays(self, split):
            reads.append(0)
            return {"price": super().arrays(split)["price"] + np.float32(len(reads))}

    data = Drifting()
    data.spec()
    with pytest.raises(DataError, match="returned different values than before; .* fix the seed"):
        data.load("eval")


def test_arrays_that_a_class_loads_itself_are_taken():
    """tests/golden/own_arrays.txt has arrays that nothing calls."""

    class Loads(Digits):
        def arrays(self, split):
            return {"images": np.zeros((9, 8, 8, 1), np.uint8)}

        def load(self, split):
            return {**super().load(split), **self.arrays(split)}

    dataclasses.replace(load_experiment("digits"), data=Loads()).validate(Loads().spec())


class Stripes(ImageArrays):
    def arrays(self, split):
        label = np.arange(64) % 2
        image = np.zeros((64, 8, 8, 1), np.uint8)
        image[label == 0, ::2] = 200
        image[label == 1, :, ::2] = 200
        return {"image": image, "label": label}

    def classes(self):
        return ("across", "down")


def test_images_in_memory_have_what_a_classifier_needs():
    data = Stripes()
    spec = data.spec()
    assert (spec.image_shape, spec.num_classes) == ((8, 8, 1), 2)
    # Half of the pixels of each image are 200, the others 0.
    assert spec.mean == pytest.approx((100 / 255,), abs=1e-6)
    assert spec.std == pytest.approx((100 / 255,), abs=1e-6)
    assert data.load("train")["label"].dtype == np.int32
    assert class_names(data, spec) == data.classes() == ("across", "down")

    class Plain(ImageArrays):
        def arrays(self, split):
            return {"image": np.full((4, 2, 3, 1), 7, np.uint8), "label": np.array([0, 1, 3, 2])}

    # No names: the labels' numbers. A channel of one level is divided by 1.
    assert Plain().classes() == ("0", "1", "2", "3") and Plain().spec().std == (1.0,)


def test_examples_of_both_splits_are_counted():
    class Numbers(Arrays):
        def arrays(self, split):
            x = np.arange(4.0 if split == "train" else 2.0, dtype=np.float32)
            return {"x": x, "y": x * (1 if split == "train" else 2)}

    class Pictures(ImageArrays):
        def arrays(self, split):
            image = np.arange(4, dtype=np.uint8)[:, None, None, None].repeat(3, 3)
            return {"image": image, "label": np.arange(4) if split == "train" else np.zeros(4, int)}

    # An example is all of its arrays; a picture is the same whatever its label.
    for data, wanted in (
        (Numbers(), Overlap(shared=1, compared=2, unit="examples")),
        (Pictures(), Overlap(shared=4, compared=4, unit="images")),
    ):
        assert data.spec().declaration.overlap == wanted


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Eight photographs to train on and four to test, of two classes of pets."""
    for number in range(12):
        place = tmp_path / "pets" / ("train" if number < 8 else "test") / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.png").write_bytes(photograph(48 + number, 40, number, ".png"))
    return tmp_path / "pets"


def test_a_folder_of_images_under_any_name(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert prepare("images", folder, out, "--name=pets", "--image_side=32") == 0
    text = capsys.readouterr().out
    assert "8 train and 4 eval images 32x32x3 in 2 classes; train mean" in text
    assert "note" not in text and len(text.splitlines()) == 1
    data = Images(name="pets", data_dir=str(out))
    spec, train = data.spec(), data.load("train")
    assert (spec.image_shape, spec.num_classes) == ((32, 32, 3), 2)
    assert data.classes() == class_names(data, spec) == ("cat", "dog")
    np.testing.assert_array_equal(train["label"], [0] * 4 + [1] * 4)
    pixels = np.asarray(train["image"]) / 255
    np.testing.assert_allclose(spec.mean, pixels.mean((0, 1, 2)), atol=1e-6)
    np.testing.assert_allclose(spec.std, pixels.std((0, 1, 2)), atol=1e-6)
    assert num_bytes(spec) == 12 * (32 * 32 * 3 + 4)
    with pytest.raises(ValueError, match="was prepared with 32; give --data.image_side=32, or"):
        Images(name="pets", data_dir=str(out), image_side=64).spec()
    with pytest.raises(ValueError, match=r"data.image_side=4 must lie in \[8, 1024\]"):
        Images(name="pets", data_dir=str(out), image_side=4).spec()
    # Another folder of pets can be evaluated on.
    labelled = labelled_images.read(folder / "test", (32, 32, 3), resized=data.RESIZES)
    np.testing.assert_array_equal(np.asarray(labelled.images), data.load("eval")["image"])


def test_a_folder_without_splits_is_divided_by_content(folder, tmp_path, capsys):
    whole, out = tmp_path / "whole", tmp_path / "out"
    for split in ("train", "test"):
        for path in sorted((folder / split).rglob("*.png")):
            place = whole / path.parent.name
            place.mkdir(parents=True, exist_ok=True)
            (place / path.name).write_bytes(path.read_bytes())
    (whole / "cat" / "twin.png").write_bytes((whole / "cat" / "0.png").read_bytes())
    flags = ["--name=pets", "--image_side=16"]
    assert prepare("images", whole, out, *flags) == 1
    assert "has no known form of pets" in capsys.readouterr().err
    assert prepare("images", whole, out, *flags, "--eval_fraction=0.4") == 0
    said = capsys.readouterr().out
    spec = Images(name="pets", data_dir=str(out)).spec()
    assert spec.num_train_examples + spec.num_eval_examples == 13
    assert 2 <= spec.num_eval_examples <= 9
    # Equal files are of one split, so none is in both.
    assert spec.declaration is not None and spec.declaration.overlap is not None
    assert spec.declaration.overlap.shared == 0 and "note" not in said
    # A file that is added leaves the others where they are.
    data = Images(name="pets", data_dir=str(out))
    before = {row.tobytes() for row in np.asarray(data.load("eval")["image"])}
    (whole / "dog" / "new.png").write_bytes(photograph(48, 40, 77, ".png"))
    assert prepare("images", whole, out, *flags, "--eval_fraction=0.4", "--overwrite") == 0
    assert before <= {row.tobytes() for row in np.asarray(data.load("eval")["image"])}
    assert prepare("images", folder, out, *flags, "--eval_fraction=0.4") == 1
    assert "has folders of splits" in capsys.readouterr().err


def test_images_keep_their_name(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DAWNJAX_DATA", str(tmp_path))
    (tmp_path / "pets").rename(tmp_path / "photographs")
    source = f"--from={tmp_path / 'photographs'}"
    assert main(["prepare", "--dataset=images", source, "--name=pets", "--image_side=16"]) == 0
    assert Images(name="pets").spec().num_train_examples == 8
    with pytest.raises(DataError, match="describes pets, not birds"):
        Images(name="birds", data_dir=str(tmp_path / "pets")).spec()
    missing = "no birds there.*`dawnjax prepare --dataset=images --name=birds --from=PATH --out="
    with pytest.raises(DataError, match=missing):
        Images(name="birds").spec()
    for name in ("imagenet", "cifar10"):
        with pytest.raises(ValueError, match=f"data.name={name} is the name of another dataset"):
            Images(name=name, data_dir=str(tmp_path / "pets")).spec()


def test_no_name_of_ours_is_free():
    tags = set(CHOICES["data"]) | set(PREPARATIONS) | {ImageArrays.TAG}
    assert all("another dataset" in images.reason_against(tag) for tag in tags)
    assert not images.reason_against("cifar10.1")


GREY = np.random.default_rng(0).integers(0, 256, (9, 6, 5), np.uint8)


def test_an_npz_of_images(tmp_path, capsys):
    source, out = tmp_path / "digits.npz", tmp_path / "out"
    parts = {
        "train_x": GREY,
        "train_y": np.arange(9) % 3,
        "test_x": GREY[:4],
        "test_y": [2, 1, 0, 0],
    }
    np.savez(source, **parts, classes=np.array([b"zero", b"one", b"two"]))
    assert prepare("images", source, out, "--name=letters") == 0
    assert "9 train and 4 eval images 6x5x1 in 3 classes; train" in capsys.readouterr().out
    data = Images(name="letters", data_dir=str(out))
    assert data.spec().image_shape == (6, 5, 1) and data.classes() == ("zero", "one", "two")
    np.testing.assert_array_equal(np.asarray(data.load("train")["image"])[..., 0], GREY)
    np.testing.assert_allclose(data.spec().mean, [(GREY / 255).mean()], atol=1e-6)
    with pytest.raises(ValueError, match="was prepared with 6x5; give --data.image_side=0, or"):
        Images(name="letters", data_dir=str(out), image_side=32).spec()
    np.savez(source, **parts)  # its classes are numbers now
    assert prepare("images", source, out, "--name=letters", "--overwrite") == 0
    assert data.classes() == ("0", "1", "2")


@pytest.mark.parametrize(
    "data", [Digits(), Synthetic(), SyntheticText(), Houses()], ids=lambda data: data.TAG
)
def test_specifications_say_what_is_loaded(data):
    spec = data.spec()
    loaded = {"train": data.load("train"), "eval": data.load("eval")}
    for split, count in (("train", spec.num_train_examples), ("eval", spec.num_eval_examples)):
        shapes = {
            name: ((count, *shape), dtype)
            for name, (shape, dtype) in spec.example_shapes(split).items()
        }
        assert shapes == {name: (it.shape, it.dtype.name) for name, it in loaded[split].items()}
    assert num_bytes(spec) == sum(it.nbytes for part in loaded.values() for it in part.values())
