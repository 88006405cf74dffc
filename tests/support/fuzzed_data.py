"""Records of data that are read, beside those of `data_fuzz_test`."""

from pathlib import Path

import coco_sources
import cv2
import hostile_files
import numpy as np
import small_text
from fuzzed import Record, of

from dawnjax.input_pipeline.reading import archives, coco_source, npy_files, sgf
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.tokenizer_file import TokenizerFile
from dawnjax.input_pipeline.reading.vocabulary import (
    SMALLEST_SIZE,
    Vocabulary,
    train_vocabulary,
)


def encoded(kind: str) -> bytes:
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    return cv2.imencode(kind, image)[1].tobytes()


def npy(path: Path) -> bytes:
    np.save(path.with_suffix(".npy"), np.arange(12, dtype=np.int32).reshape(3, 4))
    return path.read_bytes()


GAME = b"(;GM[1]FF[4]SZ[9]KM[7.5]\nC[a \\] (b)];B[aa]C[x];W[ia] ; B[ai];W[bb])\n"
BEGIN = {"id": 0, "content": "<|begin|>", "special": True, "normalized": False}
BEGIN |= {"single_word": False, "lstrip": False, "rstrip": False}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [BEGIN],
    "pre_tokenizer": BYTE_LEVEL,
    "decoder": BYTE_LEVEL,
    "model": {
        "type": "BPE",
        "vocab": {"<|begin|>": 0, "a": 1, "b": 2, "ab": 3},
        "merges": [["a", "b"]],
    },
}


def tokens(path: Path) -> object:
    made = TokenizerFile(path.read_bytes(), str(path))
    made.separator("<|begin|>")
    return made.bytes_of_token(), made.decode(made.encode("abba")), list(made.encoded(["ab"]))


def pieces(path: Path) -> object:
    made = Vocabulary(path.read_bytes(), str(path))
    return made.decode(np.array([made.encode(["eine Frau"])[0]], np.int32))


def archive(path: Path) -> object:
    return [(member.name, len(member.read())) for member in archives.members(path)]


RECORDS: dict[str, Record] = {
    "tar of data": Record(
        "a.tar", of(hostile_files.tar(("a/1.png", b"x" * 20), ("b", b""))), archive, DataError
    ),
    "zip of data": Record(
        "a.zip", of(hostile_files.zip_of(("a/1.png", b"x" * 20), ("b", b""))), archive, DataError
    ),
    "annotations": Record(
        "a.json",
        of(coco_sources.body()),
        lambda path: coco_source.listed([(str(path), path.read_bytes())], with_masks=True),
        DataError,
    ),
    "array": Record("a.npy", npy, npy_files.map_array, DataError),
    "game": Record("a.sgf", of(GAME), lambda path: sgf.read_moves(path, 9, 162), DataError),
    "tokenizer": Record("tokenizer.json", of(TOKENIZER), tokens, DataError),
    "vocabulary": Record(
        "vocabulary.model",
        lambda _: train_vocabulary(small_text.WORDS * 9, SMALLEST_SIZE),
        pieces,
        DataError,
    ),
}
