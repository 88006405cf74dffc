"""The digits are scikit-learn's, and so is their split."""

import pathlib
import zlib

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from dawnjax.input_pipeline.datasets import digits
from dawnjax.input_pipeline.datasets.digits import Digits, stratified_split


@pytest.mark.compiles
def test_split_is_scikit_learns() -> None:
    levels, labels = load_digits(return_X_y=True)
    first = second = np.zeros(0, int)
    for seed in range(20):
        first, second = train_test_split(
            np.arange(1797), train_size=900, test_size=897, stratify=labels, random_state=seed
        )
        ours = stratified_split(np.asarray(labels), 900, seed)
        assert (ours[0] == first).all() and (ours[1] == second).all()
    train, evaluation = Digits(split_seed=19).load("train"), Digits(split_seed=19).load("eval")
    # 255 / 16 = 15.9375 a level, rounded half up; only level 8 (127.5) lies half way.
    pixels = np.array([0, 16, 32, 48, 64, 80, 96, 112, 128, 143, 159, 175, 191, 207, 223, 239, 255])
    assert (train["image"].reshape(900, 64) == pixels[levels[first].astype(int)]).all()
    assert (evaluation["image"].reshape(897, 64) == pixels[levels[second].astype(int)]).all()
    assert (train["label"] == labels[first]).all() and (evaluation["label"] == labels[second]).all()


@pytest.mark.parametrize("sizes", [(7, 7, 7), (2, 5, 11), (4, 4, 3, 3)])
def test_ties_between_classes_are_split_as_scikit_learn_does(sizes: tuple[int, ...]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    for seed in range(10):
        expected = train_test_split(
            np.arange(len(labels)), train_size=8, stratify=labels, random_state=seed
        )
        assert (stratified_split(labels, 8, seed)[0] == expected[0]).all()


@pytest.mark.compiles
def test_shapes_and_neighbours() -> None:
    spec = Digits().spec()
    train, evaluation = Digits().load("train"), Digits().load("eval")
    assert train["image"].shape == (900, 8, 8, 1)
    # 886 of 897 is known for one nearest neighbour on this split.
    neighbours = KNeighborsClassifier(1).fit(train["image"].reshape(900, -1), train["label"])
    predicted = neighbours.predict(evaluation["image"].reshape(897, -1))
    assert (predicted == evaluation["label"]).sum() == 886
    # Rounding levels to pixels moves a mean by up to half a pixel in 255: 0.002.
    normalized = (train["image"] / 255 - spec.mean) / spec.std
    assert abs(normalized.mean()) < 2e-3 and abs(normalized.std() - 1) < 2e-3


def test_the_table_is_scikit_learns() -> None:
    levels, labels = load_digits(return_X_y=True)
    table = np.column_stack([levels, labels]).astype(np.uint8)
    assert zlib.crc32(table.data) == digits.TABLE_CRC32
    arrays = np.load(digits.FILE)
    assert (arrays["levels"].reshape(-1, 64) == levels).all() and (arrays["labels"] == labels).all()
    assert "CC BY 4.0" in digits.FILE.with_name("NOTICE.md").read_text()


def test_each_run_of_a_process_reads_the_file_on_its_own_clock(monkeypatch) -> None:
    reads, read_npz = [], digits.read_npz

    def counted(path: pathlib.Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        reads.append(path)
        return read_npz(path, names)

    monkeypatch.setattr(digits, "read_npz", counted)
    for run in (1, 2):
        Digits().spec()
        assert len(reads) == run - 1
        Digits().load("train")
        Digits().load("eval")
        assert len(reads) == run


def test_no_two_digits_are_equal():
    images = np.concatenate([Digits().load(split)["image"] for split in ("train", "eval")])
    assert len({image.tobytes() for image in images}) == 1797
