"""CIFAR-10 from every form in which it is found."""

import dataclasses
import pathlib
import pickle

import cv2
import numpy as np
import pytest
from packed import Files, prepare, write_folder, write_tar, write_zip
from tfds_builders import build

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.feed import InputShapes
from dawnjax.input_pipeline.datasets import cifar10
from dawnjax.input_pipeline.datasets.cifar10 import CLASSES, Cifar10
from dawnjax.input_pipeline.reading import archives, labelled_images

RANDOM = np.random.default_rng(0)
TRAIN = RANDOM.integers(0, 256, (20, 32, 32, 3), np.uint8)
TEST = RANDOM.integers(0, 256, (10, 32, 32, 3), np.uint8)
TRAIN_LABELS = np.arange(20) % 10
TEST_LABELS = np.arange(10)


def planes(images: np.ndarray) -> np.ndarray:
    """Lays out rows as the original does: all red, then all green, then all blue values."""
    return np.stack(
        [np.concatenate([image[:, :, c].reshape(-1) for c in range(3)]) for image in images]
    )


def batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Five batches of four images and a test batch of ten."""
    parts = {f"data_batch_{n + 1}": slice(4 * n, 4 * n + 4) for n in range(5)}
    return {
        **{name: (TRAIN[part], TRAIN_LABELS[part]) for name, part in parts.items()},
        "test_batch": (TEST, TEST_LABELS),
    }


def python_files() -> Files:
    def batch(images: np.ndarray, labels: np.ndarray) -> bytes:
        return pickle.dumps({b"data": planes(images), b"labels": labels.tolist()}, 2)

    files = {f"cifar-10-batches-py/{name}": batch(*both) for name, both in batches().items()}
    return {**files, "cifar-10-batches-py/batches.meta": b"not looked at"}


def binary_files() -> Files:
    def batch(images: np.ndarray, labels: np.ndarray) -> bytes:
        rows = zip(labels.tolist(), planes(images), strict=True)
        return b"".join(bytes([label]) + row.tobytes() for label, row in rows)

    return {f"cifar-10-batches-bin/{name}.bin": batch(*both) for name, both in batches().items()}


def encoded(image: np.ndarray, suffix: str) -> bytes:
    return cv2.imencode(suffix, np.ascontiguousarray(image[:, :, ::-1]))[1].tobytes()


def image_tree(suffix: str = ".png", root: str = "") -> Files:
    """Named so that the order by class and name is the order of the labels' own examples."""
    files = {}
    for folder, images, labels in (("train", TRAIN, TRAIN_LABELS), ("test", TEST, TEST_LABELS)):
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            name = f"{root}{folder}/{CLASSES[label]}/{number:04}{suffix}"
            files[name] = encoded(image, suffix)
    return files


def arrays(out: pathlib.Path) -> list[np.ndarray]:
    data = Cifar10(data_dir=str(out))
    splits = data.load("train"), data.load("eval")
    return [np.asarray(split[name]) for name in ("image", "label") for split in splits]


@pytest.mark.parametrize(("name", "files"), [("python", python_files), ("binary", binary_files)])
def test_the_published_archives_are_known_by_their_hash(name, files, tmp_path, capsys, monkeypatch):
    source = write_tar(tmp_path / "download", files())  # what a file is called does not matter
    assert prepare("cifar10", source, tmp_path / "out") == 1
    refusal = "is not a published archive of CIFAR-10 (cifar-10-python.tar.gz, "
    assert refusal in capsys.readouterr().err
    known = {archives.sha256(source): f"cifar-10-{name}.tar.gz"}
    monkeypatch.setattr(cifar10, "ARCHIVES", known)
    assert prepare("cifar10", source, tmp_path / "out") == 0
    assert "note: these are" not in capsys.readouterr().out
    for found, wanted in zip(
        arrays(tmp_path / "out"), (TRAIN, TEST, TRAIN_LABELS, TEST_LABELS), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
    spec = Cifar10(data_dir=str(tmp_path / "out")).spec()
    assert spec.declaration is not None and spec.declaration.benchmark == "CIFAR-10"
    # The original's statistics, as published.
    assert spec.mean == (0.4914, 0.4822, 0.4465) and spec.std == (0.2470, 0.2435, 0.2616)


def test_the_hashes_are_the_published_ones():
    """By another program that read both archives."""
    tfds = pytest.importorskip("tensorflow_datasets")
    sums = pathlib.Path(tfds.__file__).parent / "url_checksums" / "cifar10.txt"
    assert [digest for digest in cifar10.ARCHIVES if digest in sums.read_text()] == [
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
    ]


@pytest.mark.parametrize("write", [write_folder, write_zip])
def test_image_files(write, tmp_path, capsys):
    files = image_tree(".png", "data/cifar10/")
    files["data/cifar10/.DS_Store"] = files["data/cifar10/train/cat/.hidden"] = b"not looked at"
    files["__MACOSX/train/cat/._0003.png"] = files["README.txt"] = b"not looked at"
    files = dict(sorted(files.items(), key=lambda item: item[0][::-1]))  # their order has no say
    assert prepare("cifar10", write(tmp_path / "cifar10", files), tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "20 train and 10 eval images 32x32x3 in 10 classes" in said
    note = "note: these are 20 + 10 images in 10 classes, not CIFAR-10: not made from a published"
    assert said.splitlines()[1].startswith(note)
    order = np.argsort(TRAIN_LABELS, kind="stable")
    images, evaluated, labels, _ = arrays(tmp_path / "out")
    assert (images == TRAIN[order]).all() and (evaluated == TEST).all()
    assert (labels == TRAIN_LABELS[order]).all()


@pytest.fixture
def prepared_directory(tmp_path: pathlib.Path) -> pathlib.Path:
    assert (
        prepare("cifar10", write_folder(tmp_path / "source", image_tree()), tmp_path / "cifar10")
        == 0
    )
    return tmp_path / "cifar10"


def test_it_is_read_as_another_labelled_set(prepared_directory):
    labelled = labelled_images.read(prepared_directory, (32, 32, 3), resized=False)
    np.testing.assert_array_equal(labelled.images[:], TEST)
    np.testing.assert_array_equal(labelled.labels, TEST_LABELS)


def test_the_model_looks_at_images_of_all_classes_first(prepared_directory: pathlib.Path) -> None:
    experiment = load_experiment("cifar10_record")
    spec = Cifar10(data_dir=str(prepared_directory)).spec()
    for num_examples, expected in ((20, range(20)), (50_000, range(0, 50_000, 10))):
        shapes = InputShapes(
            experiment, dataclasses.replace(spec, num_train_examples=num_examples), "device", 10
        )
        assert list(shapes.initialization_rows) == list(expected)
        assert shapes.initialization_examples["image"].shape == (len(expected), 32, 32, 3)


@pytest.fixture(scope="module")
def tfds_directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data directory that TensorFlow Datasets itself wrote."""
    splits = {
        name: [(encoded(image, ".png"), int(label)) for image, label in zip(*arrays, strict=True)]
        for name, arrays in (("train", (TRAIN, TRAIN_LABELS)), ("test", (TEST, TEST_LABELS)))
    }
    directory = tmp_path_factory.mktemp("tensorflow_datasets")
    shape = {"shape": (32, 32, 3)}
    return build(directory, "cifar10", CLASSES, splits, version="3.0.2", text="id", **shape)


def sorted_pixels(images: np.ndarray) -> list[bytes]:
    return sorted(image.tobytes() for image in images)


def test_tfds_is_read_as_it_is_and_prepared(tfds_directory, tmp_path):
    spec = Cifar10(data_dir=str(tfds_directory)).spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (20, 10)
    train, evaluated, labels, _ = arrays(tfds_directory)
    # TFDS shuffles what it writes; each image keeps its label.
    assert sorted_pixels(train) == sorted_pixels(TRAIN)
    assert sorted_pixels(evaluated) == sorted_pixels(TEST)
    known = {image.tobytes(): label for image, label in zip(TRAIN, TRAIN_LABELS, strict=True)}
    assert [known[image.tobytes()] for image in train] == labels.tolist()
    assert prepare("cifar10", tfds_directory, tmp_path / "out") == 0
    for direct, converted in zip(arrays(tfds_directory), arrays(tmp_path / "out"), strict=True):
        np.testing.assert_array_equal(direct, converted)
