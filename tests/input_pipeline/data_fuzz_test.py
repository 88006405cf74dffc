"""Readers of data, given honest files with edits: a result, or one line that names the file."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from fuzzed import Edits, broken, edited, fuzz_one
from small_questions import TRAIN

from dawnjax.input_pipeline.datasets.token_shards import TokenShards, shard_of
from dawnjax.input_pipeline.preparation import image_writer
from dawnjax.input_pipeline.preparation.movielens_sources import (
    in_order,
    read_negatives,
    read_ratings,
)
from dawnjax.input_pipeline.preparation.squad_sources import read_passages
from dawnjax.input_pipeline.preparation.token_sources import documents_of
from dawnjax.input_pipeline.reading import (
    image_set,
    labelled_images,
    sentence_pairs,
    tfds_directory,
    token_words,
)
from dawnjax.input_pipeline.reading.dataset import DataError, Split
from dawnjax.input_pipeline.reading.image_set import SPLITS
from dawnjax.input_pipeline.reading.photographs import open_source
from dawnjax.input_pipeline.reading.word_vectors import read_vectors

RATINGS = b"1,1,5,1\n1,2,5,2\n2,1,4,1\n2,3,5,2\n"
IMAGE = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)


def npz() -> bytes:
    stream = io.BytesIO()
    labels, classes = np.arange(4) % 2, np.array(["cat", "dog"])
    np.savez(stream, images=np.zeros((4, 2, 2, 3), np.uint8), labels=labels, classes=classes)
    return stream.getvalue()


def encoded(kind: str, *options: int) -> bytes:
    return cv2.imencode(kind, IMAGE, options)[1].tobytes()


def photograph(path: Path) -> object:
    return open_source(path.parents[2], "images").splits["train"].square(0, 8)


def prepared(folder: Path) -> bytes:
    """A manifest beside its files."""

    def examples() -> image_writer.Examples:
        images: dict[Split, np.ndarray] = {s: np.zeros((4, 2, 2, 3), np.uint8) for s in SPLITS}
        labels: dict[Split, np.ndarray] = {s: np.arange(4) % 2 for s in SPLITS}
        return image_writer.Examples(
            classes=("a", "b"), images=images, labels=labels, source={"kind": "arrays"}
        )

    image_writer.write(folder, examples, dataset="mine")
    return (folder / "dataset.json").read_bytes()


def read_prepared(path: Path) -> object:
    manifest = image_set.read(path.parent)
    return image_set.read_split(path.parent, manifest, "eval")


INFO = {
    "name": "mine",
    "fileFormat": "array_record",
    "splits": [{"name": "train", "shardLengths": ["3"]}],
}
READERS: dict[str, tuple[str, bytes, Callable[[Path], object]]] = {
    # The file's name, an honest content, and its reader.
    "questions": ("a.json", json.dumps(TRAIN).encode(), read_passages),
    "ratings": ("a.csv", RATINGS, lambda path: in_order(read_ratings(path))),
    "negatives": (
        "a.negative",
        b"(1,2)\t3\n(2,3)\t2\n",
        lambda path: read_negatives(path, in_order(read_ratings(path.parent / "ratings.csv"))),
    ),
    "vectors": ("a.txt", b"the 1 2\nof 3 -4.5\n", lambda path: read_vectors(path, ["the"])),
    "sentences": (
        "a.en",
        "ein Wort\nnoch größer\n".encode(),
        lambda path: sentence_pairs.read_pairs(path, path),
    ),
    "documents": ("a.txt", b"one\n\ntwo\n", lambda path: documents_of(path, "blank_lines")),
    "tokens": (
        "a_val.bin",
        shard_of(np.arange(40)),
        lambda path: TokenShards(data_dir=str(path.parent), sequence_length=4).spec(),
    ),
    "vocabulary": (
        "vocabulary.json",
        token_words.words_file(1, [0, 0, 1, 1]),
        lambda path: token_words.read_words(path.parent),
    ),
    "arrays": (
        "a.npz",
        npz(),
        lambda path: labelled_images.read(path, (2, 2, 3), resized=False),
    ),
    "manifest": ("dataset.json", b"", read_prepared),
    "TFDS": (
        "dataset_info.json",
        json.dumps(INFO).encode(),
        lambda path: tfds_directory.fingerprint(path.parent),
    ),
    "JPEG": ("train/cat/1.jpg", encoded(".jpg"), photograph),
    "progressive JPEG": (
        "train/cat/1.jpg",
        encoded(".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        photograph,
    ),
    "PNG": ("train/cat/1.png", encoded(".png"), photograph),
}


@pytest.mark.parametrize("count", [10, pytest.param(3000, marks=pytest.mark.long)])
def test_an_edited_file_is_read_or_refused_in_a_line(count, tmp_path, campaign):
    fuzz = campaign(
        "data_fuzz",
        f"honest data files with random edits, {len(READERS)} readers",
        "a result, or one line that names the file, within 10 s",
    )
    for name, (file, honest, read) in READERS.items():
        folder = tmp_path / name
        path = folder / file
        path.parent.mkdir(parents=True)
        if name == "manifest":
            honest = prepared(folder)
        (folder / "a_train.bin").write_bytes(shard_of(np.arange(40)))
        (folder / "ratings.csv").write_bytes(RATINGS)
        if "/" in file:
            other = folder / "val" / "cat"
            other.mkdir(parents=True)
            (other / "1.png").write_bytes(encoded(".png"))
        path.write_bytes(honest)
        read(path)  # the honest file is read

        def act(edits: Edits, path=path, honest=honest, read=read) -> str:
            path.write_bytes(edited(honest, edits))
            return broken(lambda: read(path), DataError, str(path.parent))

        fuzz_one(fuzz, count, name, act)
    fuzz.finish()
