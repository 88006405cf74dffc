"""Logs of other programs, runs, studies and races, made to exhaust time or memory, or to end in a
traceback; rows as in `hostile_data`."""

import contextlib
import functools
import json
import os
import sqlite3
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hostile_makers import DEEP, MIB, Maker, file_of, in_folder, line_of, run_of, sparse

LOG = "import {path} --out={out}.jsonl"
WEIGHTS = "train --experiment=wikipedia_llama_small --data=synthetic_tokens "
WEIGHTS += "--initialize_from={path} --run_dir={out}"

TABLES = """
    CREATE TABLE experiments (experiment_id, name);
    CREATE TABLE runs (run_uuid, name, start_time, experiment_id, lifecycle_stage);
    CREATE TABLE metrics (run_uuid, key, value, is_nan, timestamp, step);
    CREATE TABLE params (run_uuid, key, value);
"""
"""As MLflow has them, but without keys and indices."""

ONE = """
    INSERT INTO experiments VALUES (1, 'a');
    INSERT INTO runs VALUES ('r', 'r', 0, 1, 'active');
"""
COUNTED = "WITH RECURSIVE c(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < {}) "


def rows(count: int, row: str, head: str = "", end: str = "") -> Callable[[], bytes]:
    return lambda: (head + "".join(map(row.format, range(count))) + end).encode()


def subset(number: int) -> bytes:
    """A line with those of 19 columns that a number has as bits."""
    cells = {"val_loss": 1} | {f"k{bit}": 1 for bit in range(19) if number >> bit & 1}
    return json.dumps(cells).encode() + b"\n"


def database(statements: str) -> Maker:
    def make(folder: Path) -> Path:
        with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as made:
            made.executescript(TABLES + statements)
            made.commit()
        return folder / "mlflow.db"

    return make


def event(data: bytes) -> bytes:
    """A record of an event file; nobody compares the checksums."""
    return struct.pack("<Q", len(data)) + bytes(4) + data + bytes(4)


def varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def summary(values: bytes) -> bytes:
    return event(b"\x09" + bytes(8) + b"\x2a" + varint(len(values)) + values)


def deep(name: str, *files: str) -> Maker:
    """Folders a thousand deep, with names so short that the kernel takes the path."""

    def make(folder: Path) -> Path:
        here = folder / "given" / name
        here.mkdir(parents=True)
        for file in files:
            (folder / "given" / file).write_text("{}")
        at = os.open(here, os.O_RDONLY)
        for _ in range(1200):
            os.mkdir("d", dir_fd=at)
            inner = os.open("d", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = inner
        os.close(at)
        return folder / "given"

    return make


def beside(pipe: str, files: Mapping[str, bytes] = MappingProxyType({})) -> Maker:
    """A folder of files by their paths, and of a pipe."""

    def make(folder: Path) -> Path:
        for name, content in files.items():
            file_of(f"given/{name}", lambda content=content: content)(folder)
        if pipe:
            place = folder / "given" / pipe
            place.parent.mkdir(parents=True, exist_ok=True)
            os.mkfifo(place)
        return folder / "given"

    return make


def study(arms: int) -> bytes:
    of_arm = ",".join(f'{{"name":"a{n}","flags":[],"devices":0}}' for n in range(arms))
    record = {"schema_version": 2, "study": {}, "arms": "HERE", "looks_made": [], "origins": {}}
    return json.dumps(record).replace('"HERE"', f"[{of_arm}]").encode()


def raced(**fields: object) -> bytes:
    """An entry of a race."""
    entry = {"schema_version": 3, "name": "a", "track": "digits", "date": "", "source": ""}
    return json.dumps({**entry, "experiment": {}, "files": {}, **fields}).encode()


def many_logs(folder: Path) -> Path:
    for number in range(10_001):
        (folder / f"{number}.jsonl").write_bytes(b'{"step":1,"val_loss":1}\n')
    return folder


INDEX = "model.safetensors.index.json"
LISTS = b"[" + b"[]," * (MIB // 3 - 20) + b"1]"
"""A line of a MiB, of which 20 MB of lists come."""

LIST_LOG = run_of(log=lambda: line_of("warning", "message", LISTS) * 40)
NO_METRIC, NO_LINE = "no column is named like a validation", "no line in a known form"

JSON_LINES: dict[str, tuple[Callable[[], bytes], str]] = {
    "60 MB of lists": (lambda: (b'{"val_loss":' + LISTS + b"}\n") * 60, "long lines"),
    "a line of 60 MB": (lambda: b'{}\n{"a":"' + b"a" * 60 * MIB + b'"}\n', "line 2 has more"),
    "100,000 lists deep": (lambda: b'{}\n{"a":' + DEEP + b"}\n{}\n", ":2 is not a JSON object"),
    "a million names": (rows(10**6, '{{"k{0}":{0}}}\n'), "has column 10,001"),
    "a million trials": (rows(10**6, '{{"run":"{0}","val_loss":{0}}}\n'), "10,000 trials"),
    "many sets of columns": (lambda: b"".join(map(subset, range(500_000))), "sets of columns"),
    "a name of 900 KB": (lambda: b'{"val_loss ' + b"a b " * 225_000 + b'":1}\n', "letters"),
    "names that steer a terminal": (
        lambda: json.dumps({f"val_loss{n}\n\x1b[2J" * 40: 1 for n in "ab"}).encode(),
        NO_METRIC,
    ),
    "NaN": (lambda: b'{"step":NaN,"val_loss":-Infinity}\n' * 100_000, "not a finite number"),
    "5,000 digits": (lambda: b'{}\n{"step":' + b"9" * 5000 + b"}\n{}\n", ":2 is not a JSON object"),
    "64 MB of line ends": (lambda: b"{}" + b"\n" * 64 * MIB, "lines"),
    "10,000,000 small rows": (lambda: b'{"val_loss":1}\n' * 10**7, "values"),
}
TABLES_OF_TEXT: dict[str, tuple[Callable[[], bytes], str]] = {
    "64 MB of line ends": (lambda: b"step,val_loss\n" + b"\n" * 64 * MIB, "lines"),
    "two columns of one name": (lambda: b"step,val_loss,val_loss\n1,2,3\n", "two columns called"),
    "400,000 columns": (lambda: b"val_loss" + b",a" * 400_000 + b"\n1,2\n", "400,001 columns"),
    "60,000,000 cells": (
        lambda: b"step,val_loss" + b"," * 998 + b"\n" + (b"," * 999 + b"\n") * 60_000,
        "values",
    ),
    "an open quote": (lambda: b'step,val_loss\n1,"' + b"a\n" * 10 * MIB, "field limit"),
}
PRINTED: dict[str, tuple[Callable[[], bytes], str]] = {
    "64 MB of line ends": (lambda: b"\n" * 64 * MIB, "lines"),
    "broken JSON": (lambda: b'{"NaN\n' * 3_000_000, "not complete JSON"),
    "an amount of 1 MB": (lambda: b"Step 1 | a: " + b"1" * (MIB - 30) + b"x\n", NO_METRIC),
    "a step of 5,000 digits": (lambda: b"step " + b"9" * 5000 + b" | val loss: 1\n", NO_LINE),
    "counts that are none": (
        lambda: b"Total batch size ,,,\nEstimated FLOPs per token: 1.2.3e+\n",
        NO_LINE,
    ),
    "a summary of a million names": (rows(10**6, "k{0}: {0}\n", "---\n"), NO_METRIC),
}
EVENTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "6,000,000 empty values": (lambda: summary(b"\x0a\0" * 500_000) * 12, "values"),
    "a summary of 64 MB": (lambda: summary(b"\x0a\0" * 32 * MIB), "bytes with several values"),
    "4,000,000 events": (lambda: event(b"") * 4_000_000, "values"),
    "an event of 8 EB": (lambda: struct.pack("<Q", 2**63) + bytes(100), NO_LINE),
}
DATABASES = {
    "a text of 200 MB": (
        ONE + "INSERT INTO metrics SELECT 'r', hex(zeroblob(100000000)), 1, 0, 0, 1;",
        "too big",
    ),
    "a join of a thousand million rows": (
        "INSERT INTO experiments VALUES (1, 'a');"
        + COUNTED.format(100_000)
        + "INSERT INTO runs SELECT 'r', 'r', 0, 1, 'active' FROM c;"
        + COUNTED.format(10_000)
        + "INSERT INTO metrics SELECT 'r', 'val_loss', 1.0, 0, 0, n FROM c;",
        "interrupted",
    ),
    "2,000 experiments": (
        COUNTED.format(2000)
        + "INSERT INTO experiments SELECT n, 'a' || n FROM c;"
        + COUNTED.format(2000)
        + "INSERT INTO runs SELECT 'r' || n, 'r', 0, n, 'active' FROM c;",
        "experiments",
    ),
    "blobs for names": (
        ONE + "INSERT INTO metrics VALUES ('r', x'00ff', 1, 0, 0, 1);",
        "not a number",
    ),
    "texts for numbers": (
        ONE + "INSERT INTO metrics VALUES ('r', 'val_loss', 'a', 0, 'b', 'c');",
        "not a number",
    ),
    "2,000,000 seeds": (
        ONE + COUNTED.format(2 * 10**6) + "INSERT INTO params SELECT n, 'seed', n FROM c;",
        NO_LINE,
    ),
}
FOLDERS: dict[str, tuple[Maker, str]] = {
    "MLflow's run with a pipe": (beside("meta.yaml", {"metrics/a": b"1 1 1\n"}), "cannot read"),
    "MLflow's seed that is not text": (
        beside("", {"meta.yaml": b"", "metrics/a": b"1 1 1\n", "params/seed": b"\xff"}),
        "cannot read",
    ),
    "MLflow's metrics 1,200 folders deep": (deep("metrics", "meta.yaml"), "deep"),
    "folders 1,200 deep, of short names": (deep("a"), "deep"),
    "10,001 logs": (many_logs, "10,001 logs"),
}
STUDIES: dict[str, tuple[Maker, str]] = {
    "300,000 arms": (in_folder("study.json", lambda: study(300_000)), "read"),
    "70,000 arms": (in_folder("study.json", lambda: study(70_000)), "trials"),
    "100,000 lists deep": (in_folder("study.json", lambda: DEEP), "nested"),
    "a pipe": (beside("study.json"), "not a plain file"),
    "a sparse file": (lambda folder: sparse(folder / "study.json").parent, "bytes"),
}
RACES: dict[str, tuple[Maker, str]] = {
    "a pipe": (beside("a/entry.json"), "does not belong to an entry"),
    "folders 1,200 deep": (lambda folder: deep("source", "entry.json")(folder).parent, "deep"),
    "300,000 lists": (
        beside("", {"a/entry.json": b'{"files": [' + b"[]," * 300_000 + b"1]}"}),
        "is not a description of an entry",
    ),
    "a name that steers a terminal": (
        beside("", {"a/entry.json": raced(name="\x1b[2J\n" * 100)}),
        "cannot name a file",
    ),
}
WEIGHTS_FILES: dict[str, tuple[Maker, str]] = {
    "an index with line breaks": (
        in_folder(INDEX, lambda: b'{"weight_map": {"a": "a\\n\\u001b[2Jb"}}'),
        "a \\u001b[2Jb: No such file",
    ),
    "an index of a million tensors": (
        in_folder(INDEX, rows(10**6, '"{0}":"a",', '{"weight_map": {', '"a":"a"}}')),
        "commas",
    ),
    "an index 100,000 lists deep": (in_folder(INDEX, lambda: DEEP), "nested"),
    "a header of 8 EB": (
        file_of("a.safetensors", lambda: struct.pack("<Q", 2**63) + b"{}"),
        "header",
    ),
}


def _rows(
    kind: str, command: str, of: dict[str, tuple[Any, str]], make: Callable[[Any], Maker]
) -> dict[str, tuple[str, Maker, str]]:
    return {f"{kind}: {name}": (command, make(it), said) for name, (it, said) in of.items()}


def _as_is(make: Maker) -> Maker:
    return make


CASES: dict[str, tuple[str, Maker, str]] = {
    **_rows("JSON lines", LOG, JSON_LINES, functools.partial(file_of, "a.jsonl")),
    **_rows("a table", LOG, TABLES_OF_TEXT, functools.partial(file_of, "a.csv")),
    **_rows("printed text", LOG, PRINTED, functools.partial(file_of, "a.log")),
    **_rows("an event file", LOG, EVENTS, functools.partial(file_of, "a/x.tfevents.1")),
    **_rows("a database", LOG, DATABASES, database),
    **_rows("a folder", LOG, FOLDERS, _as_is),
    **_rows("a study", "compare {path}", STUDIES, _as_is),
    **_rows("an entry of a race", "race board {path}", RACES, _as_is),
    **_rows("weights", WEIGHTS, WEIGHTS_FILES, _as_is),
    "a log of 40 MB of lists": ("check {path}", LIST_LOG, "too many to read"),
    "runs of a log of 40 MB of lists": ("runs {path}", LIST_LOG, "too many to read"),
    "a result of 16 MB of lists": ("check {path}", run_of(result=lambda: b"[]," * 5 * MIB), ""),
}
"""Hostile logs and records by name."""

SAMPLE = (
    "JSON lines: a name of 900 KB",
    "JSON lines: names that steer a terminal",
    *(f"printed text: {name}" for name in list(PRINTED)[2:5]),
    "a database: a text of 200 MB",
    *(f"a folder: {name}" for name in list(FOLDERS)[:4]),
    "an entry of a race: folders 1,200 deep",
)
