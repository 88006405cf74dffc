"""Readers of data: files with edits, pipes, holes and marks end in a line, or are read right."""

import io
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import small_tokens
from fuzzed import Record, fuzz_record
from small_questions import TRAIN

from dawnjax.input_pipeline.datasets.images import made
from dawnjax.input_pipeline.datasets.movielens import in_order, read_ratings
from dawnjax.input_pipeline.datasets.squad import read_passages
from dawnjax.input_pipeline.reading import (
    bounded,
    image_set,
    labelled_images,
    npy_files,
    sentence_pairs,
    text_files,
    tfds_directory,
    token_words,
)
from dawnjax.input_pipeline.reading.bounded import Bounded, BoundedError
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


def prepared(path: Path) -> bytes:
    """A description beside its files."""
    images: dict[Split, np.ndarray] = {split: np.zeros((4, 2, 2, 3), np.uint8) for split in SPLITS}
    labels: dict[Split, np.ndarray] = {split: np.arange(4) % 2 for split in SPLITS}
    path.parent.rmdir()
    made(path.parent, "mine", ("a", "b"), images, labels, source="arrays").write()
    return path.read_bytes()


def record(
    file: str, content: bytes, read: Callable[[Path], object], *beside: tuple[str, bytes]
) -> Record:
    """A file, and others by their paths from its folder."""

    def make(path: Path) -> bytes:
        for name, other in beside:
            (path.parent / name).parent.mkdir(parents=True, exist_ok=True)
            (path.parent / name).write_bytes(other)
        return content

    return Record(file, make, read, DataError, above=1)


INFO = {
    "name": "mine",
    "fileFormat": "array_record",
    "splits": [{"name": "train", "shardLengths": ["3"]}],
}
SENTENCES, SHARD = "ein Wort\nnoch größer\n".encode(), small_tokens.shard(np.arange(40))
EVALUATED = ("../../val/cat/1.png", encoded(".png"))
PROGRESSIVE = encoded(".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
WORDS = token_words.words_file(1, [0, 0, 1, 1])
READERS: dict[str, Record] = {
    "questions": record("a.json", json.dumps(TRAIN).encode(), read_passages),
    "ratings": record("a.csv", RATINGS, lambda path: in_order(read_ratings(path))),
    "vectors": record("a.txt", b"the 1 2\nof 3 -4.5\n", lambda path: read_vectors(path, ["the"])),
    "sentences": record("a.en", SENTENCES, lambda path: sentence_pairs.read_pairs(path, path)),
    "documents": record("a.txt", b"one\n\ntwo\n", lambda path: documents_of(path, "blank_lines")),
    "tokens": record(
        "a_val.bin", SHARD, lambda path: shards_in(path.parent), ("a_train.bin", SHARD)
    ),
    "vocabulary": record(
        "vocabulary.json", WORDS, lambda path: token_words.read_words(path.parent)
    ),
    "arrays": record(
        "a.npz", npz(), lambda path: labelled_images.read(path, (2, 2, 3), resized=False)
    ),
    "description": Record(
        "out/dataset.json",
        prepared,
        lambda path: image_set.read_split(image_set.read(path.parent), "eval"),
        DataError,
        above=1,
    ),
    "TFDS": record(
        "dataset_info.json",
        json.dumps(INFO).encode(),
        lambda path: tfds_directory.fingerprint(path.parent),
    ),
    "JPEG": record("train/cat/1.jpg", encoded(".jpg"), photograph, EVALUATED),
    "progressive JPEG": record("train/cat/1.jpg", PROGRESSIVE, photograph, EVALUATED),
    "PNG": record("train/cat/1.png", encoded(".png"), photograph, EVALUATED),
}


@pytest.mark.parametrize("count", [10, pytest.param(3000, marks=pytest.mark.long)])
def test_an_edited_file_is_read_or_refused_in_a_line(count, tmp_path, campaign):
    fuzz = campaign(
        "data_fuzz",
        f"honest data files with random edits, {len(READERS)} readers",
        "a result, or one line that names the file, within 10 s",
    )
    for name, reader in READERS.items():
        fuzz_record(fuzz, count, name, reader, tmp_path / name)
    fuzz.finish()


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**31)


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, sparse], ids=["pipe", "folder", "sparse"])
@pytest.mark.parametrize("name", [*READERS][:9])
def test_what_is_no_plain_file_is_one_line(name, put, tmp_path):
    path = tmp_path / READERS[name].file
    path.parent.mkdir(exist_ok=True)
    READERS[name].make(path)
    path.unlink(missing_ok=True)
    put(path)
    with pytest.raises(DataError, match="plain file|directory|sparse|bytes") as refused:
        READERS[name].read(path)
    assert path.name in str(refused.value) and len(str(refused.value).splitlines()) == 1


MARK = b"\xef\xbb\xbf"


def test_a_byte_order_mark_is_no_part_of_any_text(tmp_path):
    (tmp_path / "vocabulary.json").write_bytes(MARK + token_words.words_file(0, [0, 1, 1]))
    assert token_words.read_words(tmp_path).size == 3
    (tmp_path / "words.txt").write_bytes(MARK + b"the 1 2 \nof 3 4\n")
    vectors, known = read_vectors(tmp_path / "words.txt", ["the", "of"])
    assert known == 2 and vectors.tolist() == [[1, 2], [3, 4]]
    (tmp_path / "text").write_bytes(MARK + "größer\n".encode())
    assert sentence_pairs.read_pairs(tmp_path / "text", tmp_path / "text")[0] == ["größer"]
    assert text_files.read(tmp_path / "text", 2**20) == "größer\n"
    assert b"".join(text_files.lines(tmp_path / "text", 2**20, 2**10)) == "größer\n".encode()


def test_a_sentence_too_long_to_translate_is_refused(tmp_path):
    (tmp_path / "text").write_bytes(b"short\n" + b"long " * 2_000_000)
    with pytest.raises(
        DataError, match=r"line 2 has 9,999,999 bytes, and a sentence at most 4,096"
    ):
        sentence_pairs.read_test_set(tmp_path / "text", tmp_path / "text", None)  # type: ignore[arg-type]


def test_an_xz_of_several_streams_is_read_whole(tmp_path):
    file, streams = tmp_path / "a.xz", [lzma.compress(b"one\n" * 9_999), lzma.compress(b"two\n")]
    for between in (b"", bytes(4), bytes(20_000)):
        file.write_bytes(between.join(streams) + between)
        assert text_files.read_content(file, 2**20) == b"one\n" * 9_999 + b"two\n"
    file.write_bytes(b"".join(streams))
    with pytest.raises(DataError, match="unpacks to more than 39,998 bytes"):
        text_files.read_content(file, 39_998)
    for wrong in (b"junk", streams[1][:-1], streams[1][:3]):
        file.write_bytes(streams[0] + wrong)
        with pytest.raises(DataError, match="damaged or incomplete"):
            text_files.read_content(file, 2**20)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("|S0", (2**62,)), ("<f4", (0, 2**62, 4)), ("<f4", (0, -1)), ("|V0", (1,))]
)
def test_an_array_that_numpy_cannot_make_is_refused(dtype, shape, tmp_path):
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    for read in (npy_files.map_array, lambda path: npy_files.array_of(path.read_bytes())):
        with pytest.raises(DataError, match="states the shape"):
            read(tmp_path / "a.npy")


def test_what_takes_more_memory_or_time_than_is_given_ends(monkeypatch):
    with pytest.raises(BoundedError, match="it needs more than 768 MiB of memory"):
        Bounded(bytearray, 2**31, bytes_a_second=1)
    three = Bounded(int, 3, bytes_a_second=1)
    assert three.ask("__add__", 4) == 7
    monkeypatch.setattr(bounded, "SECONDS", 1.0)
    with pytest.raises(BoundedError, match="it needs more than 1 s"):
        three.ask("__pow__", 10**9)
