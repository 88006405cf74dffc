"""CIFAR-10 as small files in each of the forms that are read, for the tests of its readers."""

import io
import pathlib
import pickle
import struct
import tarfile
import zipfile
from typing import Any

import cv2
import numpy as np
import pytest

from dawnjax.input_pipeline.datasets.cifar10 import CLASSES
from dawnjax.input_pipeline.preparation.cifar10_sources import read_source
from dawnjax.input_pipeline.reading.dataset import DataError

RANDOM = np.random.default_rng(0)
TRAIN = RANDOM.integers(0, 256, (20, 32, 32, 3), np.uint8)
TEST = RANDOM.integers(0, 256, (10, 32, 32, 3), np.uint8)
TRAIN_LABELS = np.arange(20) % 10
TEST_LABELS = np.arange(10)

Files = dict[str, bytes]


def planes(images: np.ndarray) -> np.ndarray:
    """Lays out rows as the original does: all red, then all green, then all blue values."""
    return np.stack(
        [np.concatenate([image[:, :, c].reshape(-1) for c in range(3)]) for image in images]
    )


def python_2_pickle(pixels: np.ndarray, labels: list[int]) -> bytes:
    """Writes a batch opcode by opcode as Python 2 and NumPy 1 did, whose files the original are."""

    def string(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n"
    array += integer(0) + b"\x85" + string(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + string(b"u1") + integer(0) + integer(1) + b"\x87R"
    dtype += b"(" + integer(3) + string(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0)
    dtype += b"tb"
    shape = integer(pixels.shape[0]) + integer(pixels.shape[1]) + b"\x86"
    array += b"(" + integer(1) + shape + dtype + b"\x89" + string(pixels.tobytes()) + b"tb"
    listed = b"](" + b"".join(integer(label) for label in labels) + b"e"
    return (
        b"\x80\x02}("
        + string(b"batch_label") + string(b"training batch 1 of 5")
        + string(b"labels") + listed
        + string(b"data") + array
        + b"u."
    )  # fmt: skip


def python_files(protocol: int | None = None) -> Files:
    """The original python version: five batches of four and a test batch of ten."""

    def batch(images: np.ndarray, labels: np.ndarray) -> bytes:
        if protocol is None:
            return python_2_pickle(planes(images), labels.tolist())
        content = {"data": planes(images), "labels": labels.tolist(), "filenames": ["a.png"]}
        return pickle.dumps(content, protocol)

    files = {
        f"cifar-10-batches-py/data_batch_{n + 1}": batch(
            TRAIN[4 * n : 4 * n + 4], TRAIN_LABELS[4 * n : 4 * n + 4]
        )
        for n in range(5)
    }
    files["cifar-10-batches-py/test_batch"] = batch(TEST, TEST_LABELS)
    files["cifar-10-batches-py/batches.meta"] = b"not looked at"
    files["cifar-10-batches-py/readme.html"] = b"<html>"
    return files


def binary_files() -> Files:
    def batch(images: np.ndarray, labels: np.ndarray) -> bytes:
        return b"".join(
            bytes([label]) + row.tobytes()
            for label, row in zip(labels.tolist(), planes(images), strict=True)
        )

    files = {
        f"cifar-10-batches-bin/data_batch_{n + 1}.bin": batch(
            TRAIN[4 * n : 4 * n + 4], TRAIN_LABELS[4 * n : 4 * n + 4]
        )
        for n in range(5)
    }
    files["cifar-10-batches-bin/test_batch.bin"] = batch(TEST, TEST_LABELS)
    return files


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


def npz_file(**changes: Any) -> bytes:
    arrays = {"train_x": TRAIN, "train_y": TRAIN_LABELS, "test_x": TEST, "test_y": TEST_LABELS}
    file = io.BytesIO()
    kept = {name: array for name, array in (arrays | changes).items() if array is not None}
    np.savez(file, **kept)
    return file.getvalue()


def write_folder(path: pathlib.Path, files: Files) -> pathlib.Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def write_tar(path: pathlib.Path, files: Files, mode: str = "w:gz") -> pathlib.Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write_zip(path: pathlib.Path, files: Files) -> pathlib.Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def check_in_order(path: pathlib.Path, kind: str) -> None:
    """The original order is kept by all forms but image files."""
    examples = read_source(path)
    assert examples.source["kind"] == kind
    assert (examples.images["train"] == TRAIN).all() and (examples.images["eval"] == TEST).all()
    assert (examples.labels["train"] == TRAIN_LABELS).all()
    assert (examples.labels["eval"] == TEST_LABELS).all()


def refusal(path: pathlib.Path) -> str:
    with pytest.raises(DataError) as error:
        read_source(path)
    assert "\n" not in str(error.value)
    return str(error.value)
