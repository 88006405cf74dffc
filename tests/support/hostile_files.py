"""Files made to exhaust time or memory, or to end in a traceback, each of them small on disk.

A case has the command that reads it, how it is made, and what the command's line says.
"""

import contextlib
import gzip
import io
import json
import lzma
import os
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import coco_sources
import cv2
import numpy as np
from made_logs import EXPERIMENT

from dawnjax.config.config_json import identity_of
from dawnjax.runs.log import SCHEMA_VERSION, encode_line, log_path

Maker = Callable[[Path], Path]
"""Makes what is read in an empty folder, and gives its path."""

MIB = 2**20
DEEP = b"[" * 100_000 + b"]" * 100_000

# Archives.


def zeros(count: int) -> bytes:
    """Gzip members that unpack to a number of MiB of zeros: 1 KB for each."""
    return gzip.compress(bytes(64 * MIB), 6) * (count // 64)


def header(name: str, size: int, kind: bytes = b"0") -> bytes:
    """A tar header, whatever its size; sizes of 8 GiB and more are written in base 256."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def padded(content: bytes) -> bytes:
    """A content of a tar with its padding."""
    return content + bytes(-len(content) % 512)


def tar(*members: tuple[str, bytes]) -> bytes:
    """An honest tar."""
    body = b"".join(header(name, len(data)) + padded(data) for name, data in members)
    return body + bytes(1024)


def zip_of(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An honest zip."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def pax_digits(count: int, headers: int = 1) -> bytes:
    """A tar.gz with pax headers of many digits, which `tarfile` searches in quadratic time."""
    pax = header("x", count, b"x") + padded(b"1" * count)
    return gzip.compress(pax * headers + tar(("a", b"")))


def long_names(count: int) -> bytes:
    """A tar.gz of so many files, each with a name of 60 KB."""
    named = (header("x", 60_000, b"L") + padded(b"%d/" % n + b"a" * 59_990) for n in range(count))
    return gzip.compress(b"".join(name + header("y", 0) for name in named) + bytes(1024))


def sparse_map(count: int) -> bytes:
    """A tar.gz of a sparse file of pax whose map is one number of a number of MiB."""
    fields = b"".join(b"22 GNU.sparse.%s=%d\n" % it for it in ((b"major", 1), (b"minor", 0)))
    pax = header("x", len(fields), b"x") + padded(fields)
    return gzip.compress(pax + header("a", count * MIB) + b"1" * count * MIB + bytes(1024))


def large_dictionary() -> bytes:
    """An xz whose reader needs 1.5 GB."""
    plan = {"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1536 * MIB, "mf": lzma.MF_HC3}
    return lzma.compress(tar(("a", b"")), filters=[{**plan, "mode": lzma.MODE_FAST}])


def many_zipped(count: int) -> bytes:
    """A zip of empty files, of which it has no more than the list."""
    local = b"PK\3\4" + bytes(26)
    entries = b"".join(
        struct.pack("<4s6xH30xI6s", b"PK\1\2", 0, 0, b"")[:28]
        + struct.pack("<H16s", 8, bytes(16))
        + b"%08d" % number
        for number in range(count)
    )
    # The short fields cannot count so many; Python goes by the bytes of the list.
    end = struct.pack("<4s4xHHIIH", b"PK\5\6", 0xFFFF, 0xFFFF, len(entries), len(local), 0)
    return local + entries + end


# Official results.

RESULT = "v0.5.0/someone/submission/results/sys/resnet/result_0.txt"
START = b':::MLLOG {"key": "run_start", "time_ms": 1600000000000, "metadata": {}}\n'
STOP = (
    b':::MLLOG {"key": "run_stop", "time_ms": 1600000900000, "metadata": {"status": "success"}}\n'
)
EVALUATION = b':::MLLOG {"key": "eval_accuracy", "value": 0.%d, "time_ms": 16000001%05d}\n'
TABLE_HEAD = b"epoch\thours\ttop5Accuracy\n"


def log_archive(log: bytes) -> bytes:
    """A tar.gz of one log of MLPerf."""
    return gzip.compress(tar((RESULT, log)))


def evaluated(count: int) -> bytes:
    lines = (EVALUATION % (n % 90 + 10, n % 10**5) for n in range(count))
    return log_archive(START + b"".join(lines) + STOP)


def with_value(value: bytes) -> bytes:
    line = b':::MLLOG {"key": "eval_accuracy", "value":' + value + b"}\n"
    return log_archive(START + line)


def many_values(count: int) -> bytes:
    line = b':::MLPv0.5.0 resnet 1541720%03d.0 (a:1) k%d: "%d"\n'
    return log_archive(b"".join(line % (n % 1000, n, n) for n in range(count)))


# Entries and run directories.


def entry(num_evaluations: int, last_value: bytes = b"0.5") -> bytes:
    """A line of a file of entries."""
    evaluation = {"epoch": 1.5, "seconds_since_run_start": 12.25, "value": 0.5}
    trial = {"name": "a", "reached": False, "time_to_accuracy_seconds": None}
    record = {
        "schema_version": 4,
        "source": "s",
        "suite": "dawnbench",
        "benchmark": "ImageNet",
        "target": {"metric": "top5Accuracy", "value": 93.0},
        "trials": [{**trial, "evaluations": "HERE"}],
        "inference": None,
        "warnings": [],
    }
    rows = [json.dumps(evaluation).encode()] * num_evaluations
    rows.append(rows[0].replace(b"0.5", last_value))
    return json.dumps(record).encode().replace(b'"HERE"', b"[" + b",".join(rows) + b"]") + b"\n"


def warning_of(text: bytes) -> bytes:
    """A line of a log of ours, with a message of which the JSON is given."""
    start = encode_line({"event": "warning", "attempt": 1, "t": 1.0})
    return start[:-2] + b',"message":%s}\n' % text


def run_of(log: Callable[[], bytes] = bytes, experiment: str = "") -> Maker:
    """A run directory; its `experiment.json` is honest, a `pipe` or `sparse`."""

    def make(folder: Path) -> Path:
        record = {"schema_version": SCHEMA_VERSION, "run_id": "r", "seed": 0, "identity_fields": {}}
        record |= {"identity": identity_of({}), "experiment": EXPERIMENT, "overrides": {}}
        log_path(folder).write_bytes(log())
        if experiment == "pipe":
            os.mkfifo(folder / "experiment.json")
        elif experiment == "sparse":
            sparse("experiment.json")(folder)
        else:
            (folder / "experiment.json").write_text(json.dumps(record))
        return folder

    return make


# Data sets.


def black(side: int) -> bytes:
    """A tar with a black PNG of a side."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    size = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    packer = zlib.compressobj()
    rows = b"".join(packer.compress(bytes(side + 1)) for _ in range(side)) + packer.flush()
    parts = chunk(b"IHDR", size), chunk(b"IDAT", rows), chunk(b"IEND", b"")
    return tar(("train/cat/1.png", b"\x89PNG\r\n\x1a\n" + b"".join(parts)))


def npz(count: int) -> bytes:
    """Zeros for so many images of CIFAR-10."""
    shape = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 32, 32, 3), }" % count
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("train_x.npy", "w", force_zip64=True) as file,
    ):
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(shape)) + shape)
        for _ in range(count * 3072 // (10 * MIB)):
            file.write(bytes(10 * MIB))
    return stream.getvalue()


def tokenizer(text: bytes, words: int, *replaced: tuple[str, str]) -> Maker:
    """A text and a tokenizer of whole words for it, which replaces patterns first."""

    def make(folder: Path) -> Path:
        vocabulary = {"a": 0, **{f"w{n}": n for n in range(1, words)}}
        steps = [
            {"type": "Replace", "pattern": {"Regex": old}, "content": new} for old, new in replaced
        ]
        record = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"},
        }
        (folder / "text").write_bytes(text)
        (folder / "tokenizer.json").write_text(json.dumps(record))
        return folder

    return make


def many_polygons(folder: Path) -> Path:
    """An object of 20,000 outlines, each as long as an image of 67 million pixels is wide."""
    side = 8192
    train: dict[str, Any] = coco_sources.body()
    train["images"] = [{"id": 1, "file_name": "001.png", "height": side, "width": side}]
    outlines = [[0.0, 0.0, side, 8000.0, side, side]] * 20_000
    train["annotations"] = [
        {"id": 1, "image_id": 1, "category_id": 7, "bbox": [0, 0, 9, 9], "segmentation": outlines}
    ]
    return coco_sources.write_source(folder / "source", train)


def large_images(folder: Path) -> Path:
    """Images of 400 MB together, each within what its pixels may take; the last is none."""
    train = coco_sources.body(images=41)
    for image in train["images"]:
        image |= {"file_name": f"{image['id']:03}.jpg", "height": 1000, "width": 1000}
    train["annotations"] = []
    made = coco_sources.write_source(folder / "source", train)
    content = cv2.imencode(".jpg", np.zeros((1000, 1000, 3), np.uint8))[1].tobytes()
    for n in range(1, 41):
        (made / "images" / f"{n:03}.jpg").write_bytes(content + bytes(10**7))
    (made / "images" / "041.jpg").write_bytes(b"no image")
    return made


def packed_annotations(folder: Path) -> Path:
    """A text of 1 GB in a zip of a thousandth."""
    made = coco_sources.write_source(folder / "source")
    (made / "train.json").unlink()
    with (
        zipfile.ZipFile(made / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("train.json", "w") as file,
    ):
        file.write(json.dumps(coco_sources.body()).encode()[:-1] + b', "more": "')
        for _ in range(1024):
            file.write(b"a" * MIB)
        file.write(b'"}')
    return made


# Logs of other programs.


def rows(count: int, row: str) -> Callable[[], bytes]:
    return lambda: "".join(map(row.format, range(count))).encode()


def subset(number: int) -> bytes:
    """A line with those of 19 columns that a number has as bits."""
    cells = {"val_loss": 1} | {f"k{bit}": 1 for bit in range(19) if number >> bit & 1}
    return json.dumps(cells).encode() + b"\n"


def empty_values(count: int) -> bytes:
    """An event file with so many summaries of half a million values; nobody compares checksums."""
    values = b"\x0a\0" * 500_000
    data = b"\x09" + bytes(8) + b"\x2a\xc0\x84\x3d" + values  # 1,000,000 as a varint
    return (struct.pack("<Q", len(data)) + bytes(4) + data + bytes(4)) * count


def database(statements: str) -> Maker:
    """MLflow's tables, without keys and indices, with one run."""
    made = """
        CREATE TABLE experiments (experiment_id, name);
        CREATE TABLE runs (run_uuid, name, start_time, experiment_id, lifecycle_stage);
        CREATE TABLE metrics (run_uuid, key, value, is_nan, timestamp, step);
        CREATE TABLE params (run_uuid, key, value);
        INSERT INTO experiments VALUES (1, 'a');
        INSERT INTO runs VALUES ('r', 'r', 0, 1, 'active');
        CREATE TABLE c AS WITH RECURSIVE c(n) AS
          (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < 10000) SELECT n FROM c;
    """

    def make(folder: Path) -> Path:
        with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as file:
            file.executescript(made + statements)
            file.commit()
        return folder / "mlflow.db"

    return make


def deep(name: str, *files: str) -> Maker:
    """Folders 1,200 deep, with names so short that the kernel takes the path."""

    def make(folder: Path) -> Path:
        (folder / name).mkdir(parents=True)
        for file in files:
            (folder / file).write_text("{}")
        at = os.open(folder / name, os.O_RDONLY)
        for _ in range(1200):
            os.mkdir("d", dir_fd=at)
            inner = os.open("d", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = inner
        os.close(at)
        return folder

    return make


def many_logs(folder: Path) -> Path:
    for number in range(10_001):
        (folder / f"{number}.jsonl").write_bytes(b'{"step":1,"val_loss":1}\n')
    return folder


def study(arms: int) -> bytes:
    of_arm = ",".join(f'{{"name":"a{n}","flags":[],"devices":0}}' for n in range(arms))
    record = {"schema_version": 2, "study": {}, "arms": "HERE", "looks_made": [], "origins": {}}
    return json.dumps(record).replace('"HERE"', f"[{of_arm}]").encode()


# Any file.


def file_of(name: str, content: Callable[[], bytes]) -> Maker:
    """A file with a content, by its path."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content())
        return path

    return make


def folder_with(name: str, content: Callable[[], bytes]) -> Maker:
    """A folder with a file by its path in it."""

    def make(folder: Path) -> Path:
        file_of(f"given/{name}", content)(folder)
        return folder / "given"

    return make


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "a.npz")
    return folder / "a.npz"


def sparse(name: str) -> Maker:
    """A file of 3 GB that begins with a brace and takes one block."""

    def make(folder: Path) -> Path:
        with (folder / name).open("wb") as file:
            file.write(b"{")
            file.truncate(3 * 2**30)
        return folder / name

    return make


class Case(NamedTuple):
    """A hostile file.

    Attributes:
      command: Reads it, by `{path}`; it may write to `{out}`.
      make: Makes it.
      said: Part of the line that refuses it.
    """

    command: str
    make: Maker
    said: str


IMPORT = "import {path} --out={out}.jsonl"
REPORT = "report {path} --out={out}"
TEXT = (
    "prepare --dataset=parallel_text --train_source={path} --train_target={path} "
    "--eval_source={path} --eval_target={path} --vocabulary_size=300 --row_length=64 --out={out}"
)
QUESTIONS = "prepare --dataset=squad --from={path} --eval_from={path} --out={out}"
IMAGES = "prepare --dataset=images --name=mine --from={path} --out={out}"
ARCHIVE = "prepare --dataset=cifar10 --from={path} --out={out}"
WORDS = (
    "prepare --dataset=token_shards --from={path}/text --validation={path}/text "
    "--tokenizer={path}/tokenizer.json --separator=a --documents=blank_lines --out={out}"
)
OBJECTS = (
    "prepare --dataset=coco --name=mine --from={path} --train_annotations=train.json "
    "--eval_annotations=eval.json --out={out}"
)
WEIGHTS = (
    "train --experiment=wikipedia_llama_small --data=synthetic_tokens "
    "--initialize_from={path} --run_dir={out}"
)
LISTS = b"[" + b"[]," * 20_000_000 + b"[]]"
"""60 MB, of which 5 GB of lists would come."""
LINE_OF_LISTS = b"[" + b"[]," * (MIB // 3 - 20) + b"1]"
"""A line of a MiB, of which 20 MB of lists come."""


Contents = dict[str, tuple[Callable[[], bytes], str]]
"""What makes the content of a file, and part of the line that refuses it, by the case's name."""


def files(command: str, name: str, contents: Contents) -> dict[str, Case]:
    """Cases of one file each, by the same name."""
    return {
        case: Case(command, file_of(name, content), said)
        for case, (content, said) in contents.items()
    }


ARCHIVES: Contents = {
    "pax header of 60 KB of digits": (lambda: pax_digits(60_000), "digits"),
    "long name of 7 GB": (
        lambda: gzip.compress(header("x", 7168 * MIB, b"L")) + zeros(7168),
        "extended header",
    ),
    "1,000 pax headers of 60 KB of digits": (lambda: pax_digits(60_000, 1000), "digits"),
    "sparse file's map of 60 MB": (lambda: sparse_map(60), "sparse file"),
    "names of 60 KB in 2,000 files": (lambda: long_names(2000), "names"),
    "tar of 150,000 files": (
        lambda: gzip.compress(b"".join(header(str(n), 0) for n in range(150_000)), 1),
        "more than 100,000 files",
    ),
    "gzip of 7 GB of zeros": (lambda: gzip.compress(header(RESULT, 60 * MIB)) + zeros(7168), ""),
    "log with 60 MB of lists": (lambda: with_value(LISTS), "commas"),
    "log with a value 100,000 lists deep": (lambda: with_value(DEEP), ""),
    "log with a line of 60 MB": (
        lambda: with_value(b'"' + "\U0001f600".encode() * 15 * MIB + b'"'),
        "",
    ),
    "log of 800,000 evaluations": (lambda: evaluated(800_000), "marked lines"),
    "log of 150,000 evaluations": (lambda: evaluated(150_000), "eval_accuracy"),
    "log of 190,000 different values": (lambda: many_values(190_000), "run_start"),
}
ENTRIES: Contents = {
    "entry of 1,000,000 evaluations": (lambda: entry(10**6), "values"),
    "entry 100,000 lists deep": (lambda: entry(1, DEEP), "nested"),
    "entry with a number of 100,000 digits": (lambda: entry(1, b"9" * 10**5), "digits"),
}
TEXTS: Contents = {
    "text of 1 GB in a .gz of 1 MB": (lambda: zeros(1024), "unpacks to"),
    "text of one line of 10 MB": (lambda: b"a b " * 2_500_000, "split it"),
}
JSON_LINES: Contents = {
    "log of lines of lists": (
        lambda: (b'{"val_loss":' + LINE_OF_LISTS + b"}\n") * 60,
        "long lines",
    ),
    "log with a second line of 60 MB": (
        lambda: b'{}\n{"a":"' + b"a" * 60 * MIB + b'"}\n',
        "line 2 has more",
    ),
    "log of a million names": (rows(10**6, '{{"k{0}":{0}}}\n'), "has column 10,001"),
    "log of a million trials": (rows(10**6, '{{"run":"{0}","val_loss":{0}}}\n'), "10,000 trials"),
    "log of many sets of columns": (
        lambda: b"".join(map(subset, range(500_000))),
        "sets of columns",
    ),
    "log with a name of 900 KB": (
        lambda: b'{"val_loss ' + b"a b " * 225_000 + b'":1}\n',
        "letters",
    ),
    "log of 64 MB of line ends": (lambda: b"{}" + b"\n" * 64 * MIB, "lines"),
    "log of 10,000,000 small rows": (lambda: b'{"val_loss":1}\n' * 10**7, "values"),
}
CSV_TABLES: Contents = {
    "table of 400,000 columns": (
        lambda: b"val_loss" + b",a" * 400_000 + b"\n1,2\n",
        "400,001 columns",
    ),
    "table of 60,000,000 cells": (
        lambda: b"step,val_loss" + b"," * 998 + b"\n" + (b"," * 999 + b"\n") * 60_000,
        "values",
    ),
    "table with an open quote": (lambda: b'step,val_loss\n1,"' + b"a\n" * 10 * MIB, "field limit"),
}
PRINTED: Contents = {
    "printed lines of broken JSON": (lambda: b'{"NaN\n' * 3_000_000, "not complete JSON"),
    "printed amount of 1 MB": (
        lambda: b"Step 1 | a: " + b"1" * (MIB - 30) + b"x\n",
        "no column is named like a validation",
    ),
}
EVENTS: Contents = {
    "event file of 6,000,000 empty values": (lambda: empty_values(12), "values"),
    "event of 8 EB": (lambda: struct.pack("<Q", 2**63) + bytes(100), "no line in a known form"),
}

CASES: dict[str, Case] = {
    **files(IMPORT, "a.tgz", ARCHIVES),
    "tar whose file claims 8 EB": Case(
        IMPORT, file_of("a.tar", lambda: header(RESULT, 2**63)), "expands to"
    ),
    "xz with a dictionary of 1.5 GB": Case(IMPORT, file_of("a.txz", large_dictionary), "emory"),
    "zip of 1,000,000 files": Case(
        IMPORT, file_of("a.zip", lambda: many_zipped(10**6)), "more than"
    ),
    "zip packed by LZMA": Case(
        IMPORT,
        file_of("a.zip", lambda: zip_of((RESULT, START), method=zipfile.ZIP_LZMA)),
        "is not packed with Deflate",
    ),
    "zip bomb of 512 MB": Case(
        IMPORT, file_of("a.zip", lambda: zip_of((RESULT, bytes(512 * MIB)))), "expands to"
    ),
    "table of 350,000 rows": Case(
        IMPORT,
        folder_with("ImageNet/train/x.tsv", lambda: TABLE_HEAD + b"1\t1\t1\n" * 350_000),
        "lines",
    ),
    **files(REPORT, "a.jsonl", ENTRIES),
    "folders 1,200 deep, reported": Case(REPORT, deep("deep"), ""),
    "sparse file, checked": Case("check {path}", sparse("a"), "bytes"),
    "sparse experiment.json": Case("evaluate {path}", run_of(experiment="sparse"), "bytes"),
    "experiment.json that is a pipe": Case(
        "check {path}", run_of(experiment="pipe"), "not a plain file"
    ),
    "run whose log has a line 100,000 lists deep": Case(
        "check {path}", run_of(lambda: warning_of(DEEP) + b"{}\n"), "line 1 is damaged"
    ),
    "run whose log has 40 MB of lists": Case(
        "runs {path}", run_of(lambda: warning_of(LINE_OF_LISTS) * 40), "too many to read"
    ),
    "text from a pipe": Case(TEXT, pipe, "not a plain file"),
    "images from a pipe": Case(IMAGES, pipe, "not a plain file"),
    "images from a sparse file": Case(IMAGES, sparse("a.npz"), "is sparse"),
    "questions from a sparse file": Case(QUESTIONS, sparse("a"), "bytes"),
    **files(TEXT, "a", TEXTS),
    "questions of 60 MB of lists": Case(QUESTIONS, file_of("a", lambda: LISTS), "commas"),
    "questions of a name of 5,000 digits": Case(
        QUESTIONS, lambda _: Path("9" * 5000), "name too long"
    ),
    "npz of 150 MB of zeros": Case(ARCHIVE, file_of("a.npz", lambda: npz(50_000)), "expands to"),
    "photograph of 100,000,000 pixels": Case(
        ARCHIVE, file_of("a.tar", lambda: black(10_000)), "10000x10000"
    ),
    "tokenizer of a million tokens": Case(WORDS, tokenizer(b"w1", 10**6), "1,000,000 tokens"),
    "tokenizer whose normalizers lengthen": Case(
        WORDS,
        tokenizer(b"a" * 100, 2, *((old, new * 100) for old, new in ("ab", "bc", "cd", "de"))),
        "needs more than",
    ),
    "tokenizer of a pattern that takes for ever": Case(
        WORDS, tokenizer(b"a" * 5000 + b"b", 2, ("(a|aa)+c", "d")), ""
    ),
    "image files of 400 MB together": Case(
        OBJECTS, large_images, "041.jpg is neither JPEG nor PNG"
    ),
    "annotations of 1 GB in a zip of 1 MB": Case(
        OBJECTS, packed_annotations, "more than the limit of a data set"
    ),
    "object of 20,000 polygons": Case(OBJECTS, many_polygons, "needs more"),
    **files(IMPORT, "a.jsonl", JSON_LINES),
    **files(IMPORT, "a.csv", CSV_TABLES),
    **files(IMPORT, "a.log", PRINTED),
    **files(IMPORT, "a/x.tfevents.1", EVENTS),
    "database with a text of 200 MB": Case(
        IMPORT,
        database("INSERT INTO metrics SELECT 'r', hex(zeroblob(100000000)), 1, 0, 0, 1;"),
        "too big",
    ),
    "database of a join of a hundred million rows": Case(
        IMPORT,
        database(
            "INSERT INTO runs SELECT 'r', 'r', 0, 1, 'active' FROM c;"
            "INSERT INTO metrics SELECT 'r', 'val_loss', 1.0, 0, 0, n FROM c;"
        ),
        "interrupted",
    ),
    "MLflow's metrics 1,200 folders deep": Case(IMPORT, deep("metrics", "meta.yaml"), "deep"),
    "folder of 10,001 logs": Case(IMPORT, many_logs, "10,001 logs"),
    "study of 70,000 arms": Case(
        "compare {path}", folder_with("study.json", lambda: study(70_000)), "trials"
    ),
    "race whose entry's source is 1,200 folders deep": Case(
        "race board {path}", lambda folder: deep("a/source", "a/entry.json")(folder), "deep"
    ),
    "weights with a header of 8 EB": Case(
        WEIGHTS, file_of("a.safetensors", lambda: struct.pack("<Q", 2**63) + b"{}"), "header"
    ),
}
"""Hostile files by name."""

SAMPLE = (
    "pax header of 60 KB of digits",
    "tar whose file claims 8 EB",
    "log with a value 100,000 lists deep",
    "entry with a number of 100,000 digits",
    "sparse file, checked",
    "experiment.json that is a pipe",
    "run whose log has a line 100,000 lists deep",
    "images from a pipe",
    "questions from a sparse file",
    "text of one line of 10 MB",
    "questions of a name of 5,000 digits",
    "npz of 150 MB of zeros",
    "zip packed by LZMA",
    "log with a name of 900 KB",
    "printed lines of broken JSON",
    "database with a text of 200 MB",
    "MLflow's metrics 1,200 folders deep",
    "race whose entry's source is 1,200 folders deep",
)
"""Those that each change reads."""
