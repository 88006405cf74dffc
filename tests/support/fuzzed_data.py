"""Records of data that are read, beside those of `data_fuzz_test`."""

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import cifar10_files
import coco_sources
import cv2
import hostile_makers
import numpy as np
import small_questions
import small_text
from fuzzed import Record, of

from dawnjax import records
from dawnjax.input_pipeline.datasets.squad import KIND as QUESTIONS
from dawnjax.input_pipeline.datasets.squad import TEXTS_FILE, Squad
from dawnjax.input_pipeline.preparation import (
    archives,
    cifar10_sources,
    coco_annotations,
    coco_writer,
    photograph_writer,
    squad_sources,
)
from dawnjax.input_pipeline.preparation.coco_sources import open_source as open_coco
from dawnjax.input_pipeline.reading import (
    manifest,
    npy_files,
    own_inputs,
    photographs,
    sgf,
)
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.questions import encode
from dawnjax.input_pipeline.reading.tokenizer_file import TokenizerFile
from dawnjax.input_pipeline.reading.vocabulary import (
    SMALLEST_SIZE,
    Vocabulary,
    train_vocabulary,
)
from dawnjax.tasks.span_scores import scores


def photograph_journal(path: Path) -> bytes:
    for split, label in (("train", "a"), ("train", "b"), ("val", "a")):
        folder = path.parents[1] / "source" / split / label
        folder.mkdir(parents=True)
        (folder / "1.png").write_bytes(encoded(".png"))
    source = photographs.open_source(path.parents[1] / "source", "images")
    photograph_writer.write(path.parent, source, dataset="mine", side=8)
    lines = [{"listing": source.listing, "side": 8}, {"split": "train", "rows": 1}]
    return in_json_lines(lines)


def resumed_photographs(path: Path) -> None:
    source = photographs.open_source(path.parents[1] / "source", "images")
    before = (path.parent / manifest.FILE).read_bytes()
    images = np.lib.format.open_memmap(path.parent / "train_images.npy", "r+")
    images[1] = 0  # a row that the journal does not vouch for
    images.flush()
    (path.parent / manifest.FILE).unlink()
    try:
        photograph_writer.write(path.parent, source, dataset="mine", side=8)
        assert (path.parent / manifest.FILE).read_bytes() == before
    finally:
        (path.parent / manifest.FILE).write_bytes(before)


def coco_source(path: Path) -> coco_writer.Source:
    annotated = {"train": ["train.json"], "eval": ["eval.json"]}
    return open_coco(path.parents[1] / "source", "cells", annotated, with_masks=True)  # type: ignore[arg-type]


def coco_journal(path: Path) -> bytes:
    coco_sources.write_source(path.parents[1] / "source")
    source = coco_source(path)
    coco_writer.write(path.parent, source)
    starts, lengths = (
        np.load(path.parent / f"train_{n}.npy").tolist() for n in ("starts", "lengths")
    )
    images = [["train", row, *span] for row, span in enumerate(zip(starts, lengths, strict=True))]
    lines = [{"listing": source.listing}, {"files": 1, "images": images[:1]}]
    return in_json_lines([*lines, {"files": 2, "images": images[1:2]}])


def resumed_coco(path: Path) -> None:
    kept = {p: p.read_bytes() for p in path.parent.iterdir() if p != path}
    (path.parent / manifest.FILE).unlink()
    try:
        coco_writer.write(path.parent, coco_source(path))
        changed = [p.name for p, content in kept.items() if p.read_bytes() != content]
        assert not changed, changed
    finally:
        for p, content in kept.items():
            p.write_bytes(content)


def in_json_lines(lines: list[Any]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def encoded(kind: str) -> bytes:
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    return cv2.imencode(kind, image)[1].tobytes()


def question_texts(path: Path) -> bytes:
    train, evaluated = small_questions.write(path.parents[1])
    squad_sources.prepare(train, evaluated, path.parent)
    return path.read_bytes()


def put_texts(path: Path, content: bytes) -> None:
    """Write the texts with a manifest that vouches for them."""
    path.write_bytes(content)
    made = json.loads((path.parent / manifest.FILE).read_bytes())
    kind = manifest.Manifest[QUESTIONS.facts]
    body = {name: value for name, value in made.items() if name != "sha256"}
    checksum = hashlib.sha256(content).hexdigest()
    body["files"][TEXTS_FILE] |= {"num_bytes": len(content), "checksums": [checksum]}
    (path.parent / manifest.FILE).write_bytes(records.convert(body, kind).to_json())


LENGTHS = itertools.count(8)


def scored(path: Path) -> object:
    # Other lengths are other texts to the cache, which a file keeps as long as it is the same.
    data = Squad(data_dir=str(path.parent), question_length=next(LENGTHS))
    texts = data.evaluated_texts()
    return scores([texts.answer(n, 0, 1) for n in range(len(texts.questions))], texts.references)


def asked(path: Path) -> None:
    _, passages = own_inputs.questions([path])
    encode(passages, passages)


def batches(path: Path) -> bytes:
    cifar10_files.write_folder(path.parents[1], cifar10_files.python_files())
    return path.read_bytes()


def npy(path: Path) -> bytes:
    np.save(path.with_suffix(".npy"), np.arange(12, dtype=np.int32).reshape(3, 4))
    return path.read_bytes()


GAME = b"(;GM[1]FF[4]SZ[9]KM[7.5]\nC[a \\] (b)];B[aa]C[x];W[ia] ; B[ai];W[bb])\n"
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
        {
            "id": 0,
            "content": "<|begin|>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                      "use_regex": True},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                "use_regex": True},
    "model": {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": {"<|begin|>": 0, "a": 1, "b": 2, "ab": 3},
        "merges": [["a", "b"]],
    },
}  # fmt: skip


def tokens(path: Path) -> object:
    made = TokenizerFile(path.read_bytes(), str(path))
    made.separator("<|begin|>")
    return made.bytes_of_token(), made.decode(made.encode("abba")), list(made.encoded(["ab"]))


def pieces(path: Path) -> object:
    made = Vocabulary(path.read_bytes(), str(path))
    return made.bytes_of_token(), made.decode(np.array([made.encode(["eine Frau"])[0]], np.int32))


def archive(path: Path) -> object:
    return [(member.name, len(member.read())) for member in archives.members(path)]


RECORDS: dict[str, Record] = {
    "tar of data": Record(
        "a.tar", of(hostile_makers.tar(("a/1.png", b"x" * 20), ("b", b""))), archive, DataError
    ),
    "zip of data": Record(
        "a.zip", of(hostile_makers.zip_of(("a/1.png", b"x" * 20), ("b", b""))), archive, DataError
    ),
    "journal of photographs": Record(
        f"out/{photograph_writer.JOURNAL_FILE}",
        photograph_journal,
        resumed_photographs,
        DataError,
        costs=5,
    ),
    "journal of COCO": Record(
        f"out/{photograph_writer.JOURNAL_FILE}", coco_journal, resumed_coco, DataError, costs=20
    ),
    "annotations": Record(
        "a.json",
        of(coco_sources.body()),
        lambda path: coco_annotations.read([(str(path), path.read_bytes())], with_masks=True),
        DataError,
    ),
    "texts of questions": Record(
        f"out/{TEXTS_FILE}", question_texts, scored, DataError, put_texts, 1
    ),
    "questions of one's own": Record(
        "a.jsonl", of({"context": "The old house.", "question": "What?"}), asked, DataError
    ),
    "pickled images": Record(
        "cifar-10-batches-py/data_batch_1",
        batches,
        lambda path: cifar10_sources.read_source(path.parents[1]).labels,
        DataError,
        above=2,
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
