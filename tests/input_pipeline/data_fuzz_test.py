"""Readers of data, given honest files with edits: a result, or one line that names the file."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import small_tokens
from fuzzed import Edits, broken, edited, fuzz_one
from small_questions import TRAIN

from dawnjax.input_pipeline.datasets.images import made
from dawnjax.input_pipeline.datasets.movielens import in_order, read_ratings
from dawnjax.input_pipeline.datasets.squad import read_passages
from dawnjax.input_pipeline.reading import (
    image_set,
    labelled_images,
    sentence_pairs,
    tfds_directory,
    token_words,
)
from dawnjax.input_pipeline.reading.dataset import DataError, Split
from dawnjax.input_pipeline.reading.image_files import decode_square
from dawnjax.input_pipeline.reading.image_set import SPLITS
from dawnjax.input_pipeline.reading.llmc_shards import shards_in
from dawnjax.input_pipeline.reading.photographs import open_source
from dawnjax.input_pipeline.reading.token_sources import documents_of
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
    photographs = open_source(path.parents[2], "images").splits["train"]
    return photographs.decoded(0, lambda content: decode_square(content, 8))


def prepared(folder: Path) -> bytes:
    """A description beside its files."""
    images: dict[Split, np.ndarray] = {split: np.zeros((4, 2, 2, 3), np.uint8) for split in SPLITS}
    labels: dict[Split, np.ndarray] = {split: np.arange(4) % 2 for split in SPLITS}
    made(folder / "out", "mine", ("a", "b"), images, labels, source="arrays").write()
    return (folder / "out" / "dataset.json").read_bytes()


def read_prepared(path: Path) -> object:
    return image_set.read_split(image_set.read(path.parent), "eval")


INFO = {
    "name": "mine",
    "fileFormat": "array_record",
    "splits": [{"name": "train", "shardLengths": ["3"]}],
}
READERS: dict[str, tuple[str, bytes, Callable[[Path], object]]] = {
    # The file's name, an honest content, and its reader.
    "questions": ("a.json", json.dumps(TRAIN).encode(), read_passages),
    "ratings": ("a.csv", RATINGS, lambda path: in_order(read_ratings(path))),
    "vectors": ("a.txt", b"the 1 2\nof 3 -4.5\n", lambda path: read_vectors(path, ["the"])),
    "sentences": (
        "a.en",
        "ein Wort\nnoch größer\n".encode(),
        lambda path: sentence_pairs.read_pairs(path, path),
    ),
    "documents": ("a.txt", b"one\n\ntwo\n", lambda path: documents_of(path, "blank_lines")),
    "tokens": (
        "a_val.bin",
        small_tokens.shard(np.arange(40)),
        lambda path: shards_in(path.parent),
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
    "description": ("out/dataset.json", b"", read_prepared),
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
        folder.mkdir()
        if name == "description":
            honest = prepared(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        (folder / "a_train.bin").write_bytes(small_tokens.shard(np.arange(40)))
        if file.startswith("train/"):
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
