"""Data of a person's own: arrays in memory, and images under any name."""

import dataclasses
import pathlib
import re
from typing import Any, ClassVar

import numpy as np
import pytest
from photographs_made import photograph

from dawnjax.__main__ import main
from dawnjax.commands import prepare
from dawnjax.config.choices import CHOICES
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.datasets import images
from dawnjax.input_pipeline.datasets.arrays import Arrays, ImageArrays
from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.input_pipeline.datasets.images import Images
from dawnjax.input_pipeline.datasets.synthetic import Synthetic
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


def houses_with(change) -> Houses:
    """A dataset whose arrays are changed by a function."""

    class Changed(Houses):
        def arrays(self, split):
            return change(dict(super().arrays(split)))

    return Changed()


def fail(houses):
    return houses["cellar"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda it: {**it, "price": it["price"].astype(float)}, "'price' is float64, but devices"),
        (lambda it: {**it, "name": np.array(["a"] * len(it["price"]))}, "'name' is <U1"),
        (
            lambda it: {**it, "price": it["price"][1:]},
            r"examples: rooms 7, price 6.*the same number",
        ),
        (lambda it: {"price": it["price"][:0]}, "examples: price 0; wanted the same number, 1 or"),
        (lambda it: it["price"], "returned ndarray; wanted arrays by name"),
        (fail, r"failed at .*own_data_test.py:\d+: KeyError: 'cellar'"),
    ],
)
def test_arrays_that_do_not_fit_are_one_line(change, message):
    with pytest.raises(DataError, match=r"^Changed.arrays\('train'\).*" + message) as error:
        houses_with(change).spec()
    assert "\n" not in str(error.value)


def test_arrays_that_change_between_two_reads_are_refused():
    reads = []

    def drift(houses):
        reads.append(0)
        return {"price": houses["price"] + np.float32(len(reads))}

    data = houses_with(drift)
    data.spec()
    with pytest.raises(DataError, match="returned different values than before; .* fix the seed"):
        data.load("eval")


def test_arrays_that_nothing_calls_are_refused():
    """A class that extended `Digits` was trained on the digits, whatever its arrays."""

    class Mine(Digits):
        def arrays(self, split):
            return {"images": np.zeros((9, 8, 8, 1), np.uint8)}

    digits = load_experiment("digits")
    with pytest.raises(ConfigError, match=r"Mine.arrays\(\) is never called, for Digits defines"):
        dataclasses.replace(digits, data=Mine()).validate(Mine().spec())

    class Loads(Mine):
        def load(self, split):
            return {**super().load(split), **self.arrays(split)}

    dataclasses.replace(digits, data=Loads()).validate(Loads().spec())
    houses = houses_with(lambda it: it)
    with pytest.raises(ConfigError, match="needs arrays image, label"):  # called, and no images
        dataclasses.replace(digits, data=houses, global_batch_size=2).validate(houses.spec())


def test_a_class_without_arrays_is_told_what_is_missing():
    class Nothing(Arrays):
        TAG = "nothing"

    with pytest.raises(
        DataError, match=r"Nothing has no method arrays\(self, split\).*docs/extending"
    ):
        Nothing().spec()


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": np.zeros((4, 2, 3), np.uint8)}, r"'image' is uint8 \(4, 2, 3\); wanted uint8"),
        ({"label": np.zeros(4)}, "'label' is float64"),
        (
            {"weight": np.ones(4, bool)},
            "'image', 'label', 'weight' given; wanted 'image' and 'label'",
        ),
    ],
)
def test_images_in_memory_that_do_not_fit(change, message):
    class Wrong(ImageArrays):
        def arrays(self, split):
            image = np.zeros((4, 2, 3, 1), np.uint8)
            return {"image": image, "label": np.arange(4), **change}

    with pytest.raises(DataError, match=r"Wrong.arrays\('train'\): " + message):
        Wrong().spec()


@pytest.mark.parametrize(
    ("train", "evaluated", "message"),
    [
        ([0, 1, -1, 0], [0], "train label -1 of example 2 is out of range"),
        ([1, 2, 3, 4], [1], "labels begin at 1; they must count from 0"),
        ([0, 10, 20, 30], [0], "has label 1, but some have 30"),
        ([0, 1, 2, 2**30], [0], "label 1073741824 of example 3 is out of range"),
        ([0, 0, 1, 1], [2], "the evaluation has label 2, but no training image has it"),
    ],
)
def test_labels_that_are_no_classes_are_refused(train, evaluated, message):
    class Wrong(ImageArrays):
        def arrays(self, split):
            label = np.array(train if split == "train" else evaluated)
            return {"image": np.zeros((len(label), 2, 3, 1), np.uint8), "label": label}

    with pytest.raises(DataError, match=message):
        Wrong().spec()


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


def prepare_images(source: pathlib.Path, out: pathlib.Path, *flags: str) -> int:
    return main(["prepare", "--dataset=images", f"--from={source}", f"--out={out}", *flags])


def test_a_folder_of_images_under_any_name(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert prepare_images(folder, out, "--name=pets", "--image_side=32") == 0
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
    assert prepare_images(whole, out, *flags) == 1
    assert "has no known form of pets" in capsys.readouterr().err
    assert prepare_images(whole, out, *flags, "--eval_fraction=0.4") == 0
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
    assert prepare_images(whole, out, *flags, "--eval_fraction=0.4", "--overwrite") == 0
    assert before <= {row.tobytes() for row in np.asarray(data.load("eval")["image"])}
    assert prepare_images(folder, out, *flags, "--eval_fraction=0.4") == 1
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
    tags = set(CHOICES["data"]) | set(prepare.PREPARATIONS) | {ImageArrays.TAG}
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
    assert prepare_images(source, out, "--name=letters") == 0
    assert "9 train and 4 eval images 6x5x1 in 3 classes; train" in capsys.readouterr().out
    data = Images(name="letters", data_dir=str(out))
    assert data.spec().image_shape == (6, 5, 1) and data.classes() == ("zero", "one", "two")
    np.testing.assert_array_equal(np.asarray(data.load("train")["image"])[..., 0], GREY)
    np.testing.assert_allclose(data.spec().mean, [(GREY / 255).mean()], atol=1e-6)
    with pytest.raises(ValueError, match="was prepared with 6x5; give --data.image_side=0, or"):
        Images(name="letters", data_dir=str(out), image_side=32).spec()
    np.savez(source, **parts)  # its classes are numbers now
    assert prepare_images(source, out, "--name=letters", "--overwrite") == 0
    assert data.classes() == ("0", "1", "2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_y": None}, "has no array 'test_y', only train_x, train_y, test_x"),
        ({"train_y": np.zeros(9)}, "train_y is float64; wanted integers"),
        ({"train_y": np.arange(8)}, "train: 9 images with labels (8,)"),
        ({"test_x": GREY[:4, :5]}, "train_x has images (6, 5, 1), test_x (5, 5, 1)"),
        ({"classes": np.array(["zero"])}, "label 1 of example 1 is out of range 0 to 0"),
        ({"train_x": GREY / 255}, "images float64"),
        ({"classes": np.array(list("abcd"))}, "no training image is in class 'd' (label 3)"),
        ({"classes": np.array(list("aab"))}, "the class name 'a' is empty or repeated"),
        ({"classes": np.arange(3)}, "classes are int64 (3,); wanted texts [n]"),
    ],
)
def test_an_npz_that_does_not_fit_is_one_line(tmp_path, capsys, change, message):
    parts: dict[str, Any] = {"train_x": GREY, "train_y": np.arange(9) % 3}
    parts |= {"test_x": GREY[:4], "test_y": np.arange(4) % 3, **change}
    np.savez(tmp_path / "x.npz", **{name: it for name, it in parts.items() if it is not None})
    assert prepare_images(tmp_path / "x.npz", tmp_path / "out", "--name=letters") == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [Digits(), Synthetic(), Houses()], ids=lambda data: data.TAG)
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
