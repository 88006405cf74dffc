"""CIFAR-10 from every form in which it is found, and every way in which such a form is wrong."""

import dataclasses
import importlib
import io
import json
import pathlib
import pickle
import struct
import sys
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from cifar10_files import (
    TEST,
    TEST_LABELS,
    TRAIN,
    TRAIN_LABELS,
    binary_files,
    check_in_order,
    encoded,
    image_tree,
    npz_file,
    planes,
    python_2_pickle,
    python_files,
    refusal,
    write_folder,
    write_tar,
    write_zip,
)

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.feed import InputShapes
from dawnjax.input_pipeline.datasets import cifar10_tfds
from dawnjax.input_pipeline.datasets.cifar10 import CLASSES, Cifar10
from dawnjax.input_pipeline.preparation import image_writer
from dawnjax.input_pipeline.preparation.cifar10_sources import read_source
from dawnjax.input_pipeline.reading import image_files, labelled_images
from dawnjax.input_pipeline.reading.dataset import DataError


@pytest.mark.parametrize("protocol", [None, 2, 3, 4, 5])
def test_python_version(tmp_path: pathlib.Path, protocol: int | None) -> None:
    """None is a pickle of Python 2; the others are what re-pickling with Python 3 gives."""
    check_in_order(
        write_tar(tmp_path / "cifar-10-python.tar.gz", python_files(protocol)),
        "original python version (tar.gz)",
    )


def test_python_version_unpacked(tmp_path: pathlib.Path) -> None:
    folder = write_folder(tmp_path, python_files())
    check_in_order(folder, "original python version (folder)")
    check_in_order(folder / "cifar-10-batches-py", "original python version (folder)")


def test_binary_version(tmp_path: pathlib.Path) -> None:
    # What a file is called does not matter.
    path = write_tar(tmp_path / "download", binary_files())
    check_in_order(path, "original binary version (tar.gz)")
    folder = write_folder(tmp_path / "folder", binary_files())
    check_in_order(folder, "original binary version (folder)")


def test_npz(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cifar10.npz"
    path.write_bytes(npz_file(classes=np.array(CLASSES)))
    check_in_order(path, "arrays (zip)")
    path.write_bytes(npz_file(train_y=TRAIN_LABELS.astype(np.uint8)[:, None]))
    check_in_order(path, "arrays (zip)")
    fortran = np.asfortranarray(TRAIN)
    path.write_bytes(npz_file(train_x=fortran))
    check_in_order(path, "arrays (zip)")


@pytest.mark.parametrize("container", ["folder", "tar", "tar.gz", "tar.xz", "tar.bz2", "zip"])
@pytest.mark.parametrize("root", ["", "./", "data/cifar10/"])
def test_image_files(tmp_path: pathlib.Path, container: str, root: str) -> None:
    files = image_tree(".png", root)
    files[f"{root}.DS_Store"] = files[f"{root}train/cat/.hidden"] = b"not looked at"
    files["__MACOSX/train/cat/._0003.png"] = files["README.txt"] = b"not looked at"
    # An archive's own order does not matter.
    files = dict(sorted(files.items(), key=lambda item: zlib.crc32(item[0].encode())))
    path = tmp_path / f"cifar10.{container}"
    if container == "folder":
        write_folder(path, files)
    elif container == "zip":
        write_zip(path, files)
    else:
        write_tar(path, files, "w:" + container.partition(".")[2])
    examples = read_source(path)
    assert examples.source["kind"] == f"image files ({container})"
    order = np.argsort(TRAIN_LABELS, kind="stable")
    # PNG keeps every pixel.
    assert (examples.images["train"] == TRAIN[order]).all()
    assert (examples.labels["train"] == TRAIN_LABELS[order]).all()
    assert (examples.images["eval"] == TEST).all()


def test_jpeg_files(tmp_path: pathlib.Path) -> None:
    """Smooth pictures in all three spellings, within what JPEG changes in them."""
    ramp = np.linspace(0, 255, 32).astype(np.uint8)
    rows, columns = np.tile(ramp[:, None], (1, 32)), np.tile(ramp, (32, 1))
    smooth = np.stack([columns, rows, np.full((32, 32), 90)], -1)
    files = {}
    for folder in ("train", "test"):
        for label in CLASSES:
            for suffix in (".jpg", ".jpeg", ".JPG"):
                files[f"{folder}/{label}/0{suffix}"] = encoded(smooth.astype(np.uint8), suffix)
    examples = read_source(write_folder(tmp_path, files))
    assert examples.images["train"].shape == (30, 32, 32, 3)
    difference = examples.images["train"].astype(int) - smooth
    # Red runs along the width and green along the height: swapped colours would differ by 255.
    assert abs(difference).max() < 16


def test_grey_and_16_bit_png(tmp_path: pathlib.Path) -> None:
    grey = np.arange(1024, dtype=np.uint8).reshape(32, 32)
    content = cv2.imencode(".png", grey)[1].tobytes()
    assert (image_files.decode_image(content, 32, 32) == grey[:, :, None]).all()
    content = cv2.imencode(".png", grey.astype(np.uint16) * 257)[1].tobytes()
    assert (image_files.decode_image(content, 32, 32) == grey[:, :, None]).all()


def test_nothing_there(tmp_path: pathlib.Path) -> None:
    assert refusal(tmp_path / "none") == f"{tmp_path / 'none'}: no such file or folder"
    (tmp_path / "text").write_text("hello")
    assert "no folder, .tar" in refusal(tmp_path / "text")
    (tmp_path / "empty").mkdir()
    assert "holds no known form of CIFAR-10" in refusal(tmp_path / "empty")


def test_mixed_forms(tmp_path: pathlib.Path) -> None:
    write_folder(tmp_path, python_files() | binary_files())
    message = refusal(tmp_path)
    assert "mixes original" in message and "data_batch_1" in message


@pytest.mark.parametrize("missing", ["data_batch_3", "test_batch"])
def test_missing_batch(tmp_path: pathlib.Path, missing: str) -> None:
    files = {name: data for name, data in python_files().items() if not name.endswith(missing)}
    assert refusal(write_folder(tmp_path, files)) == f"{tmp_path}: lacks {missing}; it is not whole"


def test_batch_in_two_places(tmp_path: pathlib.Path) -> None:
    files = python_files()
    write_folder(tmp_path, files | {"copy/data_batch_1": files["cifar-10-batches-py/data_batch_1"]})
    assert "has data_batch_1 in two places" in refusal(tmp_path)


def test_wrong_batches(tmp_path: pathlib.Path) -> None:
    name = "cifar-10-batches-py/data_batch_2"
    rows = planes(TRAIN[:2])
    for content, message in (
        (python_2_pickle(rows, [0, 10]), "has label 10 at 1, out of range 0 to 9"),
        (python_2_pickle(rows, [0, -1]), "has labels out of range"),
        (python_2_pickle(rows, [0, 1, 2]), "shape (2, 3072) for 3 labels"),
        (python_2_pickle(rows[:, :3000], [0, 1]), "shape (2, 3000) for 2 labels"),
        (python_2_pickle(rows, [0, 1])[:-2000], "is no pickled batch"),
        (pickle.dumps({"labels": [1]}), "data or labels are missing"),
        (pickle.dumps([1, 2]), "no dictionary"),
        (pickle.dumps({"data": rows.astype(np.int16), "labels": [0, 1]}), "no uint8 array"),
        (pickle.dumps({"data": rows.tolist(), "labels": [0, 1]}), "no uint8 array"),
        (pickle.dumps({"data": rows, "labels": ["0", "1"]}), "no list of integers"),
        (pickle.dumps({"data": rows, "labels": [True, False]}), "no list of integers"),
        (b"", "is no pickled batch"),
    ):
        message_found = refusal(write_folder(tmp_path, python_files() | {name: content}))
        assert message_found.startswith(f"{tmp_path}: '{name}' ") and message in message_found


def test_wrong_binary_batches(tmp_path: pathlib.Path) -> None:
    name = "cifar-10-batches-bin/data_batch_2.bin"
    whole = binary_files()[name]
    for content, message in (
        (whole[:-1], "is cut short: 12,291 bytes are no multiple of 3073"),
        (b"\x0a" + whole[1:], "has label 10 at 0, out of range 0 to 9"),
    ):
        message_found = refusal(write_folder(tmp_path, binary_files() | {name: content}))
        assert message_found == f"{tmp_path}: '{name}' {message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_y": None}, "lacks test_y.npy"),
        ({"train_x": TRAIN.astype(np.float32)}, "train_x is float32 (20, 32, 32, 3), but should"),
        ({"train_x": TRAIN.reshape(20, 3072)}, "train_x is uint8 (20, 3072), but should"),
        ({"train_y": TRAIN_LABELS[:5]}, "train_y is int64 (5,), but should be integers [20]"),
        ({"train_y": TRAIN_LABELS / 1.0}, "train_y is float64"),
        ({"test_y": TEST_LABELS + 1}, "test_y has label 10 at 9, out of range"),
        ({"test_y": TEST_LABELS - 1}, "test_y has label -1 at 0, out of range"),
        ({"train_x": np.array([{}] * 3)}, "'train_x.npy' holds Python objects"),
    ],
)
def test_wrong_arrays(tmp_path: pathlib.Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "cifar10.npz"
    path.write_bytes(npz_file(**changes))
    assert refusal(path).startswith(f"{path}: ") and message in refusal(path)


def test_array_whose_header_promises_too_much(tmp_path: pathlib.Path) -> None:
    file = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (10**9, 32, 32, 3)}
    np.lib.format.write_array_header_1_0(file, header)
    path = write_zip(tmp_path / "a.npz", {"train_x.npy": file.getvalue() + b"\0" * 100})
    assert "'train_x.npy' is cut short: 100 of 3,072,000,000,000 bytes" in refusal(path)
    path = write_zip(tmp_path / "a.npz", {"train_x.npy": b"\x93NUMPY\x01\x00nothing"})
    assert "'train_x.npy' is no .npy file" in refusal(path)


def test_wrong_image_files(tmp_path: pathlib.Path) -> None:
    image = image_tree()["train/cat/0003.png"]
    small = encoded(TRAIN[0, :16], ".png")
    jpeg = encoded(TRAIN[0], ".jpg")
    damaged = bytearray(image)
    damaged[len(image) // 2] ^= 1
    huge = bytearray(image)
    huge[16:24] = struct.pack(">II", 60_000, 60_000)
    huge[29:33] = struct.pack(">I", zlib.crc32(huge[12:29]))
    for number, (name, content, message) in enumerate(
        (
            ("train/cat/x.png", image[:-20], "is cut short"),
            ("train/cat/x.png", bytes(damaged), "the checksum of a PNG chunk does not fit"),
            ("train/cat/x.png", bytes(huge), "is 60000x60000 pixels, but should be 32x32"),
            ("train/cat/x.png", small, "is 32x16 pixels, but should be 32x32"),
            ("train/cat/x.jpg", jpeg[: len(jpeg) // 2], "is cut short"),
            ("train/cat/x.jpg", jpeg[:20] + jpeg[-40:], "no frame header"),
            ("train/cat/x.jpg", b"", "is neither JPEG nor PNG"),
            ("train/cat/x.txt", b"hello", "is neither JPEG nor PNG"),
            ("train/plane/x.png", image, "is of no class of CIFAR-10 (airplane, "),
            ("other/train/cat/x.png", image, "lies apart from the other images, in '.'"),
        )
    ):
        files = image_tree() | {name: content}
        path = write_zip(tmp_path / f"{number}.zip", files)
        refused = refusal(path)
        assert refused.startswith(f"{path}: '{name}' ") and message in refused


def test_missing_class(tmp_path: pathlib.Path) -> None:
    files = {name: data for name, data in image_tree().items() if "test/frog" not in name}
    assert refusal(write_folder(tmp_path, files)) == f"{tmp_path}: has no images in test/frog"


@pytest.fixture
def prepared_directory(tmp_path: pathlib.Path) -> pathlib.Path:
    source = write_tar(tmp_path / "source", python_files())
    image_writer.write(tmp_path / "cifar10", lambda: read_source(source), dataset="cifar10")
    return tmp_path / "cifar10"


@pytest.mark.compiles
def test_prepared_dataset(prepared_directory: pathlib.Path) -> None:
    data = Cifar10(data_dir=str(prepared_directory))
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (20, 10)
    assert (spec.image_shape, spec.num_classes) == ((32, 32, 3), 10)
    train, evaluation = data.load("train"), data.load("eval")
    assert (train["image"] == TRAIN).all() and (evaluation["image"] == TEST).all()
    assert train["label"].dtype == np.int32 and (train["label"] == TRAIN_LABELS).all()
    # The original's statistics, as published.
    assert spec.mean == (0.4914, 0.4822, 0.4465) and spec.std == (0.2470, 0.2435, 0.2616)


def test_as_another_labelled_set_it_is_verified_too(prepared_directory: pathlib.Path) -> None:
    labelled = labelled_images.read(prepared_directory, (32, 32, 3), resized=False)
    np.testing.assert_array_equal(labelled.images[:], TEST)
    np.testing.assert_array_equal(labelled.labels, TEST_LABELS)
    file = prepared_directory / "eval_images.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="eval_images.npy.* damaged"):
        labelled_images.read(prepared_directory, (32, 32, 3), resized=False)


def test_the_model_looks_at_images_of_all_classes_first(prepared_directory: pathlib.Path) -> None:
    experiment = load_experiment("cifar10_record")
    spec = Cifar10(data_dir=str(prepared_directory)).spec()
    for num_examples, expected in ((20, range(20)), (50_000, range(0, 50_000, 10))):
        shapes = InputShapes(
            experiment, dataclasses.replace(spec, num_train_examples=num_examples), "device", 10
        )
        assert list(shapes.initialization_rows) == list(expected)
        assert shapes.initialization_examples["image"].shape == (len(expected), 32, 32, 3)


def test_fingerprint_is_of_the_content(prepared_directory: pathlib.Path, tmp_path) -> None:
    fingerprint = Cifar10(data_dir=str(prepared_directory)).spec().fingerprint
    source = write_folder(tmp_path / "binary", binary_files())
    image_writer.write(tmp_path / "same", lambda: read_source(source), dataset="cifar10")
    assert Cifar10(data_dir=str(tmp_path / "same")).spec().fingerprint == fingerprint
    source = write_folder(tmp_path / "images", image_tree())
    image_writer.write(tmp_path / "other", lambda: read_source(source), dataset="cifar10")
    assert Cifar10(data_dir=str(tmp_path / "other")).spec().fingerprint != fingerprint


def test_default_directories(prepared_directory: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setenv("DAWNJAX_DATA", str(prepared_directory.parent))
    assert Cifar10().spec().num_train_examples == 20
    monkeypatch.delenv("DAWNJAX_DATA")
    data = prepared_directory.parent / "data"
    data.mkdir()
    prepared_directory.rename(data / "cifar10")
    monkeypatch.chdir(data.parent)
    assert Cifar10().spec().num_train_examples == 20


def test_damage_is_named(prepared_directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def failure(directory: pathlib.Path) -> str:
        data = Cifar10(data_dir=str(directory))
        with pytest.raises(DataError) as error:
            data.spec()
            data.load("train")
        assert "\n" not in str(error.value)
        return str(error.value)

    message = failure(tmp_path / "none")
    assert message.startswith(f"{tmp_path / 'none'}: no prepared CIFAR-10 there; `dawnjax prepare ")
    images = prepared_directory / "train_images.npy"
    whole = images.read_bytes()
    images.write_bytes(whole[:-1] + bytes([whole[-1] ^ 128]))
    assert failure(prepared_directory).startswith(f"{images}: damaged between bytes 0 and 61,568")
    images.write_bytes(whole[:-1])
    assert failure(prepared_directory).startswith(f"{images}: truncated (61,567 of 61,568 bytes)")
    (prepared_directory / "dataset.json").unlink()
    assert failure(prepared_directory).startswith(f"{prepared_directory}: half-converted")


def test_another_dataset_is_refused(tmp_path: pathlib.Path) -> None:
    examples = image_writer.Examples(
        classes=("cat", "dog"),
        images={"train": TRAIN, "eval": TEST},
        labels={"train": TRAIN_LABELS % 2, "eval": TEST_LABELS % 2},
        source={},
    )
    image_writer.write(tmp_path / "pets", lambda: examples, dataset="pets")
    with pytest.raises(DataError, match="describes pets with 2 classes .* not CIFAR-10"):
        Cifar10(data_dir=str(tmp_path / "pets")).spec()


@pytest.fixture(scope="module")
def tfds_directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data directory that TensorFlow Datasets itself wrote, in ArrayRecord form."""
    tfds = pytest.importorskip("tensorflow_datasets", reason="the extra `tfds` is not installed")
    pytest.importorskip("array_record", reason="the extra `tfds` is not installed")

    # Not registered: an order of tests may set this fixture up twice in a process.
    registered = importlib.import_module("tensorflow_datasets.core.registered")
    with registered.skip_registration():

        class TinyCifar(tfds.core.GeneratorBasedBuilder):
            name = "cifar10"
            VERSION = tfds.core.Version("3.0.2")

            def _info(self):
                features = tfds.features.FeaturesDict(
                    {
                        "id": tfds.features.Text(),
                        "image": tfds.features.Image(shape=(32, 32, 3)),
                        "label": tfds.features.ClassLabel(names=list(CLASSES)),
                    }
                )
                return tfds.core.DatasetInfo(builder=self, features=features)

            def _split_generators(self, dl_manager):
                return {
                    "train": self._generate_examples(TRAIN, TRAIN_LABELS),
                    "test": self._generate_examples(TEST, TEST_LABELS),
                }

            def _generate_examples(self, images, labels):
                for number, (image, label) in enumerate(zip(images, labels, strict=True)):
                    content = io.BytesIO(encoded(image, ".png"))
                    yield number, {"id": f"{number}", "image": content, "label": int(label)}

    directory = tmp_path_factory.mktemp("tensorflow_datasets")
    TinyCifar(data_dir=str(directory), file_format="array_record").download_and_prepare()
    return directory


def sorted_pixels(images: np.ndarray) -> list[bytes]:
    return sorted(image.tobytes() for image in images)


@pytest.mark.compiles
@pytest.mark.parametrize("below", ["", "cifar10", "cifar10/3.0.2"])
def test_tfds(tfds_directory: pathlib.Path, below: str) -> None:
    data = Cifar10(data_dir=str(tfds_directory / below))
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (20, 10)
    train, evaluation = data.load("train"), data.load("eval")
    assert train["image"].dtype == np.uint8 and train["label"].dtype == np.int32
    # TFDS shuffles what it writes; each image keeps its label.
    assert sorted_pixels(train["image"]) == sorted_pixels(TRAIN)
    assert sorted_pixels(evaluation["image"]) == sorted_pixels(TEST)
    known = {image.tobytes(): label for image, label in zip(TRAIN, TRAIN_LABELS, strict=True)}
    for image, label in zip(train["image"], train["label"], strict=True):
        assert known[image.tobytes()] == label


def test_tfds_can_be_prepared(tfds_directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    examples = read_source(tfds_directory)
    assert examples.source == {"kind": "TensorFlow Datasets (ArrayRecord)"}
    image_writer.write(tmp_path / "out", lambda: examples, dataset="cifar10")
    direct = Cifar10(data_dir=str(tfds_directory)).load("train")
    converted = Cifar10(data_dir=str(tmp_path / "out")).load("train")
    assert (direct["image"] == converted["image"]).all()
    assert (direct["label"] == converted["label"]).all()


def copy_of(tfds_directory: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    files = {
        path.relative_to(tfds_directory).as_posix(): path.read_bytes()
        for path in tfds_directory.rglob("*")
        if path.is_file()
    }
    return write_folder(tmp_path / "copy", files) / "cifar10" / "3.0.2"


def test_newest_tfds_version_is_taken(tfds_directory: pathlib.Path, tmp_path) -> None:
    version = copy_of(tfds_directory, tmp_path)
    (version.parent / "3.0.10").mkdir()
    (version.parent / "3.0.10" / "dataset_info.json").write_text("{}")
    assert cifar10_tfds.find_version(tmp_path / "copy") == version.parent / "3.0.10"


def test_damaged_tfds(tfds_directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    version = copy_of(tfds_directory, tmp_path)
    data = Cifar10(data_dir=str(tmp_path / "copy"))
    (shard,) = version.glob("cifar10-train.array_record*")
    whole = shard.read_bytes()
    for changed in (whole[: len(whole) // 2], whole[:20000] + b"????" + whole[20004:], None):
        if changed is None:
            shard.unlink()
        else:
            shard.write_bytes(changed)
        with pytest.raises(DataError, match="split train: damaged or cut short") as error:
            data.load("train")
        assert "\n" not in str(error.value)
    info = json.loads((version / "dataset_info.json").read_text())
    for change, message in (
        ({"fileFormat": "tfrecord"}, "format 'tfrecord'; only array_record"),
        ({"name": "cifar100"}, "dataset 'cifar100', not cifar10"),
        ({"splits": info["splits"][:1]}, "damaged or without train and test"),
        ({"splits": 3}, "damaged"),
    ):
        (version / "dataset_info.json").write_text(json.dumps(info | change))
        with pytest.raises(DataError, match=f"dataset_info.json: .*{message}"):
            data.spec()


def test_tfds_not_installed(tfds_directory: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(DataError, match=r"pip install -e '\.\[tfds\]'"):
        Cifar10(data_dir=str(tfds_directory)).spec()


@pytest.mark.compiles
def test_real_images(test_data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """All 60,000 JPEG files; counts and statistics as their own documentation states them."""
    source = test_data / "cifar10" / "cifar10_jpeg.tar.xz"
    if not source.exists():
        pytest.skip(f"{source} is not here")
    manifest, _ = image_writer.write(
        tmp_path / "cifar10", lambda: read_source(source), dataset="cifar10"
    )
    mean, std = manifest.facts.statistics["train"]
    np.testing.assert_allclose(mean, (0.4913, 0.4821, 0.4465), atol=5e-5)
    np.testing.assert_allclose(std, (0.2452, 0.2428, 0.2606), atol=5e-5)
    data = Cifar10(data_dir=str(tmp_path / "cifar10"))
    assert data.spec().num_train_examples == 50_000 and data.spec().num_eval_examples == 10_000
    # All counts are CIFAR-10's, and still it is none: what JPEG lost shows.
    declaration = data.spec().declaration
    assert declaration is not None and declaration.benchmark == ""
    assert "the mean of those to train on is 0.49125" in declaration.evidence
    train, evaluation = data.load("train"), data.load("eval")
    assert (np.bincount(train["label"]) == 5000).all()
    assert (np.bincount(evaluation["label"]) == 1000).all()
    pixels = evaluation["image"][::10] / 255
    # A tenth of the test images: within 0.01 of their stated mean.
    np.testing.assert_allclose(pixels.mean(axis=(0, 1, 2)), (0.4941, 0.4851, 0.4504), atol=0.01)
    # Ships and planes stand before blue, frogs and deer do not: labels fit images.
    blue = train["image"].astype(np.float32).mean(axis=(1, 2))
    bluer = blue[:, 2] > blue[:, 0]
    share = np.array([bluer[train["label"] == label].mean() for label in range(10)])
    assert set(np.argsort(share)[-2:]) == {CLASSES.index("airplane"), CLASSES.index("ship")}
