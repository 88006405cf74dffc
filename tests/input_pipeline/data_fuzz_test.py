"""Readers of data, given honest files with edits: a result, or one line that names the file."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from campaign import Campaign
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
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

SEED = 38
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

SIGNS = [b"\0", b"\xff", b"\xef\xbb\xbf", b"-", b"9" * 30, b"1e999", b"NaN", b"null", b"[]", b"{}"]
SIGNS += [
    b'"',
    b"\\ud83d",
    b",",
    b"\t",
    b"\n",
    b"\r",
    b" ",
    "é".encode(),
    b"true",
    b"18446744073709551616",
]
EDITS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 12),
        st.one_of(st.sampled_from(SIGNS), st.binary(max_size=6)),
    ),
    min_size=1,
    max_size=4,
)


def edited(content: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    """Content in which each edit replaces some bytes at a part of the length."""
    for part, count, new in edits:
        place = int(part * (len(content) + 1))
        content = content[:place] + new + content[place + count :]
    return content


def fuzz_one(
    fuzz: Campaign,
    count: int,
    name: str,
    path: Path,
    honest: bytes,
    read: Callable[[Path], object],
) -> None:
    @seed(SEED)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(EDITS)
    def try_one(edits: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(edited(honest, edits))
        started, why = time.perf_counter(), ""
        try:
            read(path)
        except DataError as error:
            is_line = len(str(error).splitlines()) == 1 and str(path.parent) in str(error)
            why = "" if is_line else f"the line is {str(error)!r}"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - started
        why = why or ("too slow" if seconds > 10 else "")
        fuzz.tried(f"{name} {edits}", held=not why, why=why, seconds=seconds)

    try_one()


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

        fuzz_one(fuzz, count, name, path, honest, read)
    fuzz.finish()
