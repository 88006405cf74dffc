"""Files that a run reads: pipes, holes and marks end in one line, or are read right."""

import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_tokens

from dawnjax import records
from dawnjax.input_pipeline.reading import (
    image_set,
    labelled_images,
    npy_files,
    sentence_pairs,
    text_files,
    token_words,
)
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.llmc_shards import shards_in
from dawnjax.input_pipeline.reading.word_vectors import read_vectors

MARK = b"\xef\xbb\xbf"
SHAPE = (4, 4, 3)


READERS: dict[str, Callable[[Path], object]] = {
    "vocabulary.json": lambda path: token_words.read_words(path.parent),
    "a_val.bin": lambda path: shards_in(path.parent),
    "words.txt": lambda path: read_vectors(path, ["word"]),
    "dataset.json": lambda path: image_set.read(path.parent),
    "images.npz": lambda path: labelled_images.read(path, SHAPE, resized=False),
    "images_data.npy": lambda path: labelled_images.read(path, SHAPE, resized=False),
    "sentences.txt": lambda path: sentence_pairs.read_pairs(path, path),
}


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**31)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, sparse], ids=["pipe", "folder", "sparse"])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_plain_file_is_one_line(name, make, tmp_path):
    (tmp_path / "a_train.bin").write_bytes(small_tokens.shard(np.arange(9)))
    np.save(tmp_path / "images_labels.npy", np.zeros(3, int))
    make(tmp_path / name)
    with pytest.raises(DataError, match="plain file|directory|sparse|bytes") as refused:
        READERS[name](tmp_path / name)
    assert name in str(refused.value) and len(str(refused.value).splitlines()) == 1


def test_a_small_file_with_holes_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    os.truncate(tmp_path / "a", 2**20)
    assert records.read_plain(tmp_path / "a") == bytes(2**20)


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


def test_utf_16_is_named(tmp_path):
    (tmp_path / "text").write_bytes("word 1 2\n".encode("utf-16"))
    with pytest.raises(DataError, match="text: is UTF-16; save it as UTF-8"):
        read_vectors(tmp_path / "text", ["word"])


def test_a_sentence_too_long_to_translate_is_refused(tmp_path):
    (tmp_path / "text").write_bytes(b"short\n" + b"long " * 2_000_000)
    with pytest.raises(
        DataError, match=r"line 2 has 9,999,999 bytes, and a sentence at most 4,096"
    ):
        sentence_pairs.read_test_set(tmp_path / "text", tmp_path / "text", None)  # type: ignore[arg-type]


def test_vectors_of_a_million_values_are_refused(tmp_path):
    (tmp_path / "words").write_bytes(b"word" + b" 1" * 10_000 + b"\n")
    with pytest.raises(DataError, match="words:1: 10000 values; at most 4096 are read"):
        read_vectors(tmp_path / "words", ["word"])


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
