"""Data files made to exhaust time or memory, or to end in a traceback, each of them small on disk.

A row has the command that reads it, `{path}` and `{out}` in it, how it is made, and what the line
says.
"""

import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import hostile_objects
import numpy as np
from hostile_makers import (
    DEEP,
    LISTS,
    MIB,
    Maker,
    file_of,
    gnu_sparse,
    in_folder,
    pax_digits,
    paxes,
    sparse,
    sparse_map,
    zeros,
    zip_of,
)

TEXT = (
    "prepare --dataset=parallel_text --train_source={path} --train_target={path} "
    "--eval_source={path} --eval_target={path} --vocabulary_size=300 --row_length=64 --out={out}"
)
RATINGS = "prepare --dataset=movielens --from={path} --out={out}"
TOKENS = "prepare --dataset=token_shards --from={path} --validation={path} --out={out}"
QUESTIONS = "prepare --dataset=squad --from={path} --eval_from={path} --out={out}"
IMAGES = "prepare --dataset=images --name=mine --from={path} --out={out}"
ARCHIVE = "prepare --dataset=cifar10 --from={path} --out={out}"
WORDS = (
    "prepare --dataset=token_shards --from={path}/text --validation={path}/text "
    "--tokenizer={path}/tokenizer.json --separator=a --documents=blank_lines --out={out}"
)
READERS = {"text": TEXT, "ratings": RATINGS, "tokens": TOKENS, "questions": QUESTIONS}


FIRST = np.zeros((9, 3, 8, 8), np.uint8)


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "a.npz")
    return folder / "a.npz"


def lines_in_gzip(line: bytes) -> Callable[[], bytes]:
    return lambda: gzip.compress(line * (16 * 2**20 // len(line)))


def npz(**changes: object) -> Callable[[], bytes]:
    def make() -> bytes:
        stream = io.BytesIO()
        images, labels = np.zeros((9, 4, 4, 1), np.uint8), np.arange(9) % 3
        arrays = {"train_x": images, "train_y": labels, "test_x": images, "test_y": labels}
        np.savez_compressed(stream, **{**arrays, **changes})  # type: ignore[arg-type]
        return stream.getvalue()

    return make


def questions(**fields: object) -> Callable[[], bytes]:
    """A file of one question, with other fields in it."""
    answer = {"answer_start": 0, "text": "a"}
    asked = {"id": "1", "question": "b", "answers": [answer], **fields}
    body = {"data": [{"title": "T", "paragraphs": [{"context": "a b", "qas": [asked]}]}]}
    return lambda: json.dumps(body).encode()


def tokenizer(text: bytes, vocab: dict[str, int], **fields: object) -> Maker:
    """A text and a tokenizer of whole words for it."""

    def make(folder: Path) -> Path:
        (folder / "text").write_bytes(text)
        model = {"type": "WordLevel", "vocab": vocab, "unk_token": next(iter(vocab))}
        record = {"version": "1.0", "added_tokens": [], "model": model, **fields}
        (folder / "tokenizer.json").write_text(json.dumps(record))
        return folder

    return make


def replaced(old: str, new: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": {"Regex": old}, "content": new}


LONGER = [replaced(old, new * 100) for old, new in ("ab", "bc", "cd", "de")]


def linked_folders(*links: tuple[str, str]) -> Maker:
    """Folders of images, in which links lead to places by their relative path."""

    def make(folder: Path) -> Path:
        for split in ("train", "val"):
            (folder / split / "cat").mkdir(parents=True)
            (folder / split / "cat" / "1.jpg").write_bytes(b"no image")
        for name, target in links:
            (folder / name).symlink_to(target)
        return folder

    return make


def folder_of_pipe(folder: Path) -> Path:
    linked_folders()(folder)
    os.mkfifo(folder / "train" / "cat" / "0.jpg")
    return folder


CASES: dict[str, tuple[str, Maker, str]] = {
    **{f"{name} from a pipe": (line, pipe, "not a plain file") for name, line in READERS.items()},
    "images from a pipe": (IMAGES, pipe, "not a plain file"),
    **{
        f"{name} from a sparse file of 3 GB": (
            line,
            lambda folder: sparse(folder / "a"),
            "bytes",
        )
        for name, line in READERS.items()
    },
    "images from a sparse file": (IMAGES, lambda folder: sparse(folder / "a.npz"), "is sparse"),
    **{
        f"{name} from a .gz of 1 GB": (line, file_of("a", lambda: zeros(1024)), "unpacks to")
        for name, line in READERS.items()
    },
    "text of blank lines in a .gz": (TEXT, file_of("a", lines_in_gzip(b"\n")), "not sentences"),
    "text of short lines in a .gz": (TEXT, file_of("a", lines_in_gzip(b"ab\n")), "not sentences"),
    "text of one line of 10 MB": (TEXT, file_of("a", lambda: b"a b " * 2_500_000), "split it"),
    "text in UTF-16": (TEXT, file_of("a", lambda: "ab\n".encode("utf-16")), "UTF-16"),
    "ratings of 5,000 digits": (
        RATINGS,
        file_of("a", lambda: b"1,2,3,4\n" + b"9" * 5000 + b",2,3,4\n"),
        "is not a rating",
    ),
    "ratings of users beyond 2**53": (
        RATINGS,
        file_of("a", lambda: b"9007199254740993,1,5,1\n9007199254740992,1,5,2\n"),
        ":1: '9007199254740993,1,5,1' is not a rating",
    ),
    **{
        f"{name} of a name of 5,000 digits": (line, lambda _: Path("9" * 5000), "name too long")
        for name, line in {**READERS, "images": IMAGES}.items()
    },
    "questions of 60 MB of lists": (QUESTIONS, file_of("a", lambda: LISTS), "commas"),
    "questions 100,000 lists deep": (QUESTIONS, file_of("a", lambda: DEEP), "nested"),
    "questions with a number of 5,000 digits": (
        QUESTIONS,
        file_of("a", lambda: b'{"data": ' + b"9" * 5000 + b"}"),
        "digits",
    ),
    "a question that is a list": (QUESTIONS, file_of("a", questions(question=[])), "Expected str"),
    "an answer that is a number": (
        QUESTIONS,
        file_of("a", questions(answers=[3])),
        "Expected object",
    ),
    "an answer beyond its context": (
        QUESTIONS,
        file_of("a", questions(answers=[{"answer_start": 10**18, "text": "a"}])),
        "is not at answer_start",
    ),
    "a question with half of a pair": (
        QUESTIONS,
        file_of("a", questions(question="\ud83d")),
        "question '1': a text has half of a surrogate pair",
    ),
    "a label of 2**62": (
        IMAGES,
        file_of("a.npz", npz(train_y=np.full(9, 2**62))),
        "label 4611686018427387904 of example 0",
    ),
    "labels without a sign, beyond 2**63": (
        IMAGES,
        file_of("a.npz", npz(train_y=np.full(9, 2**64 - 1, np.uint64))),
        "label 18446744073709551615 of example 0",
    ),
    "labels from 1": (
        IMAGES,
        file_of("a.npz", npz(train_y=np.arange(9) % 3 + 1, test_y=np.arange(9) % 3 + 1)),
        "labels begin at 1",
    ),
    "channels first": (
        IMAGES,
        file_of(
            "a.npz",
            npz(train_x=FIRST, test_x=FIRST),
        ),
        "[n, channels, height, width]",
    ),
    "a link to itself as a class": (
        IMAGES,
        linked_folders(("train/dog", "dog")),
        "train/dog: cannot be read",
    ),
    "a link to the folder above as a class": (
        IMAGES,
        linked_folders(("train/dog", "..")),
        "is not a file",
    ),
    "a link to itself as an image": (
        IMAGES,
        linked_folders(("train/cat/2.jpg", "2.jpg")),
        "train/cat/2.jpg: cannot be read",
    ),
    "a pipe as an image": (IMAGES, folder_of_pipe, "0.jpg: is not a file"),
    "a link round in folders of CIFAR-10": (
        ARCHIVE,
        linked_folders(("train/dog", "..")),
        "is a link to a folder above it",
    ),
    "a tokenizer of a million tokens": (
        WORDS,
        lambda folder: tokenizer(b"w1", {f"w{n}": n for n in range(10**6)})(folder),
        "1,000,000 tokens",
    ),
    "a tokenizer of four normalizers that lengthen": (
        WORDS,
        tokenizer(
            b"a" * 100,
            {"a": 0, "b": 1},
            normalizer={"type": "Sequence", "normalizers": LONGER},
        ),
        "needs more than",
    ),
    "a tokenizer of a pattern that takes for ever": (
        WORDS,
        tokenizer(b"a" * 5000 + b"b", {"a": 0, "b": 1}, normalizer=replaced("(a|aa)+c", "d")),
        "",
    ),
    "a tokenizer 100,000 lists deep": (
        WORDS,
        lambda folder: in_folder("tokenizer.json", lambda: DEEP)(folder),
        "text: no such file",
    ),
    "a zip bomb of images": (
        ARCHIVE,
        file_of("a.zip", lambda: zip_of(("train/cat/1.png", bytes(512 * MIB)))),
        "expands to",
    ),
    **{
        f"a tar of images with {name}": (ARCHIVE, file_of("a.tgz", content), said)
        for name, content, said in (
            ("60 KB of digits before each", lambda: pax_digits(60_000, 1000), "digits"),
            ("fields of one letter", lambda: paxes(b"6 a=b\n" * 10_000, 300), "fields"),
            ("names that overlap", lambda: paxes(b"2 " * 30_000 + b"=\n", 1), "damaged"),
            ("a global header of 60 KB", lambda: paxes(b"6 a=b\n" * 10_000, 1, b"g"), "fields"),
            ("60 MB of its own map", lambda: sparse_map(60), "sparse file"),
            ("60 MB of a sparse file's map", lambda: gnu_sparse(60), "sparse file"),
        )
    },
    **hostile_objects.CASES,
}
"""Hostile data by name."""

SAMPLE = (
    "text from a pipe",
    "images from a pipe",
    "questions from a sparse file of 3 GB",
    "text of one line of 10 MB",
    "a label of 2**62",
    "a link to itself as a class",
    *(name for name in hostile_objects.CASES if name not in hostile_objects.AS_LONG),
)
