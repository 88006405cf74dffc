"""Logs of other programs, runs, studies and races, made to exhaust time or memory, or to end in a
traceback; rows as in `hostile_data`."""

import contextlib
import json
import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

from hostile_makers import DEEP, MIB, Maker, file_of, in_folder, line_of, run_of, sparse

LOG = "import {path} --out={out}.jsonl"
RUNS, CHECK = "runs {path}", "check {path}"
SIDES = "compare {path} {path}/b"
STUDY = "compare {path}"
BOARD = "race board {path}"
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


def rows(count: int, row: Callable[[int], str], head: str = "") -> Callable[[], bytes]:
    return lambda: head.encode() + "".join(map(row, range(count))).encode()


def log(name: str, content: Callable[[], bytes]) -> Maker:
    return file_of(f"a.{name}", content)


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


def events(content: Callable[[], bytes]) -> Maker:
    return file_of("a/events.out.tfevents.1.x", content)


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


def beside(name: str, pipe: bool = False, **files: bytes) -> Maker:
    """A folder with files by their paths, `__` for `/` and `_` for `.`, and perhaps a pipe."""

    def make(folder: Path) -> Path:
        for key, content in files.items():
            path = folder / "given" / key.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        path = folder / "given" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if pipe:
            os.mkfifo(path)
        return folder / "given"

    return make


def study(arms: int) -> bytes:
    of_arm = ",".join(f'{{"name":"a{n}","flags":[],"devices":0}}' for n in range(arms))
    record = {"schema_version": 2, "study": {}, "arms": "HERE", "looks_made": [], "origins": {}}
    return json.dumps(record).replace('"HERE"', f"[{of_arm}]").encode()


def many_logs(folder: Path) -> Path:
    for number in range(10_001):
        (folder / f"{number}.jsonl").write_bytes(b'{"step":1,"val_loss":1}\n')
    return folder


INDEX = "model.safetensors.index.json"
LISTS = b"[" + b"[]," * (MIB // 3 - 20) + b"1]"
"""A line of a MiB, of which 20 MB of lists come."""

CASES: dict[str, tuple[str, Maker, str]] = {
    "JSON lines of 60 MB of lists": (
        LOG,
        log("jsonl", lambda: (b'{"val_loss":' + LISTS + b"}\n") * 60),
        "no number",
    ),
    "a JSON line of 60 MB": (
        LOG,
        log("jsonl", lambda: b'{"a":1}\n{"val_loss":"' + b"a" * 60 * MIB + b'"}\n'),
        "line 2 has more than",
    ),
    "a JSON line 100,000 lists deep": (
        LOG,
        log("jsonl", lambda: b'{"a":1}\n{"val_loss":' + DEEP + b'}\n{"a":1}\n'),
        "a.jsonl:2 is no JSON object",
    ),
    "JSON lines of a million names": (
        LOG,
        log("jsonl", rows(1_000_000, lambda n: f'{{"k{n}":{n}}}\n')),
        "has column 10,001",
    ),
    "JSON lines of a million trials": (
        LOG,
        log("jsonl", rows(1_000_000, lambda n: f'{{"run":"{n}","step":1,"val_loss":{n}}}\n')),
        "more than 10,000 trials",
    ),
    "JSON lines of many sets of columns": (
        LOG,
        log(
            "jsonl",
            rows(
                500_000,
                lambda n: (
                    json.dumps({"val_loss": 1} | {f"k{b}": 1 for b in range(19) if n >> b & 1})
                    + "\n"
                ),
            ),
        ),
        "different sets of columns",
    ),
    "a name of 900 KB": (
        LOG,
        log("jsonl", lambda: b'{"val_loss ' + b"a b " * 225_000 + b'":1}\n'),
        "of 900,009 letters",
    ),
    "names that steer a terminal": (
        LOG,
        log("jsonl", lambda: json.dumps({f"val_loss{n}\n\x1b[2J" * 40: 1 for n in "ab"}).encode()),
        "no column is by its name a metric",
    ),
    "steps that are NaN": (
        LOG,
        log("jsonl", lambda: b'{"step":NaN,"val_loss":-Infinity}\n' * 100_000),
        "step is 'nan', no finite number",
    ),
    "a step of 5,000 digits": (
        LOG,
        log("jsonl", lambda: b'{"a":1}\n{"step":' + b"9" * 5000 + b',"val_loss":1}\n{"a":1}\n'),
        "a.jsonl:2 is no JSON object",
    ),
    "64 MB of line ends as JSON": (LOG, log("jsonl", lambda: b"{}" + b"\n" * 64 * MIB), "lines"),
    "64 MB of line ends as text": (LOG, log("log", lambda: b"\n" * 64 * MIB), "lines"),
    "64 MB of line ends as a table": (
        LOG,
        log("csv", lambda: b"step,val_loss\n" + b"\n" * 64 * MIB),
        "lines",
    ),
    "3,000,000 lines of broken JSON in a text": (
        LOG,
        log("log", lambda: b"{NaN\n" * 3_000_000),
        "lines",
    ),
    "10,000,000 small rows": (
        LOG,
        log("jsonl", lambda: b'{"val_loss":1}\n' * 10_000_000),
        "values",
    ),
    "a table of 400,000 columns": (
        LOG,
        log("csv", lambda: b"val_loss" + b",a" * 400_000 + b"\n1,2\n"),
        "has 400,001 columns",
    ),
    "a table of 60,000,000 cells": (
        LOG,
        log("csv", lambda: b"step,val_loss" + b",a" * 998 + b"\n" + (b"," * 999 + b"\n") * 60_000),
        "values",
    ),
    "a quote that no table closes": (
        LOG,
        log("csv", lambda: b'step,val_loss\n1,"' + b"a\n" * 10 * MIB),
        "field limit",
    ),
    "a printed amount of 1 MB": (
        LOG,
        log("log", lambda: b"Step 1 | val loss: " + b"1" * (MIB - 30) + b"x\n"),
        "no column is by its name a metric",
    ),
    "a printed step of 5,000 digits": (
        LOG,
        log("log", lambda: b"step " + b"9" * 5000 + b" | val loss: 1\n"),
        "no line of a known form",
    ),
    "counts that are none, printed": (
        LOG,
        log("log", lambda: b"Total batch size ,,,\nEstimated FLOPs per token: 1.2.3e+\n"),
        "no line of a known form",
    ),
    "a printed summary of a million names": (
        LOG,
        log("log", rows(1_000_000, lambda n: f"k{n}: {n}\n", "---\n")),
        "no column is by its name a metric",
    ),
    "an event of 2,000,000 empty values": (
        LOG,
        events(lambda: summary(b"\x0a\0" * 2_000_000) * 3),
        "values",
    ),
    "an event of 32,000,000 empty values": (
        LOG,
        events(lambda: summary(b"\x0a\0" * 32_000_000)),
        "bytes with several values",
    ),
    "an event file of 4,000,000 events": (LOG, events(lambda: event(b"") * 4_000_000), "values"),
    "an event of 8 EB": (
        LOG,
        events(lambda: struct.pack("<Q", 2**63) + bytes(100)),
        "no line of a known form",
    ),
    "a database with a text of 200 MB": (
        LOG,
        database(
            ONE + "INSERT INTO metrics SELECT 'r', replace(hex(zeroblob(100000000)), '0', 'a'), "
            "1, 0, 0, 1;"
        ),
        "too big",
    ),
    "a database that joins a thousand million rows": (
        LOG,
        database(
            "INSERT INTO experiments VALUES (1, 'a');"
            + COUNTED.format(100_000)
            + "INSERT INTO runs SELECT 'r', 'r', 0, 1, 'active' FROM c;"
            + COUNTED.format(10_000)
            + "INSERT INTO metrics SELECT 'r', 'val_loss', 1.0, 0, 0, n FROM c;"
        ),
        "interrupted",
    ),
    "a database of 2,000 experiments": (
        LOG,
        database(
            COUNTED.format(2000)
            + "INSERT INTO experiments SELECT n, 'a' || n FROM c;"
            + COUNTED.format(2000)
            + "INSERT INTO runs SELECT 'r' || n, 'r', 0, n, 'active' FROM c;"
        ),
        "experiments",
    ),
    "a database of blobs for names": (
        LOG,
        database(ONE + "INSERT INTO metrics VALUES ('r', x'00ff', 1.0, 0, 0, 1);"),
        "is called",
    ),
    "a database of texts for numbers": (
        LOG,
        database(ONE + "INSERT INTO metrics VALUES ('r', 'val_loss', 'a', 0, 'b', 'c');"),
        "cannot read",
    ),
    "a database of 2,000,000 seeds": (
        LOG,
        database(
            ONE + COUNTED.format(2_000_000) + "INSERT INTO params SELECT n, 'seed', n FROM c;"
        ),
        "no line of a known form",
    ),
    "MLflow's run with a pipe": (
        LOG,
        beside("meta.yaml", pipe=True, metrics__a=b"1 1 1\n"),
        "cannot read",
    ),
    "MLflow's seed that is no text": (
        LOG,
        beside("", meta_yaml=b"", metrics__a=b"1 1 1\n", params__seed=b"\xff"),
        "cannot read",
    ),
    "MLflow's metrics 1,200 folders deep": (LOG, deep("metrics", "meta.yaml"), "deep"),
    "folders 1,200 deep, of short names": (LOG, deep("a"), "deep"),
    "10,001 logs": (LOG, many_logs, "10,001 logs"),
    "sides that are pipes": (SIDES, beside("a.jsonl", pipe=True), "no results in"),
    "a log of 40 MB of lists": (
        CHECK,
        run_of(log=lambda: line_of("warning", "message", LISTS) * 40),
        "too many to read",
    ),
    "runs of a log of 40 MB of lists": (
        RUNS,
        run_of(log=lambda: line_of("warning", "message", LISTS) * 40),
        "too many to read",
    ),
    "a result of 16 MB of lists": (CHECK, run_of(result=lambda: b"[]," * 5 * MIB), ""),
    "a study of 300,000 arms": (STUDY, in_folder("study.json", lambda: study(300_000)), "read"),
    "a study of 70,000 arms": (STUDY, in_folder("study.json", lambda: study(70_000)), "trials"),
    "a study 100,000 lists deep": (STUDY, in_folder("study.json", lambda: DEEP), "nested"),
    "a study that is a pipe": (STUDY, beside("study.json", pipe=True), "no plain file"),
    "a study in a sparse file": (
        STUDY,
        lambda folder: sparse(folder / "study.json").parent,
        "bytes",
    ),
    "an entry of a race that is a pipe": (
        BOARD,
        beside("a/entry.json", pipe=True),
        "is no file of an entry",
    ),
    "an entry of a race with folders 1,200 deep": (
        BOARD,
        lambda folder: deep("source", "entry.json")(folder).parent,
        "deep",
    ),
    "an entry of a race of 300,000 lists": (
        BOARD,
        beside("", a__entry_json=b'{"files": [' + b"[]," * 300_000 + b"1]}"),
        "is no description of an entry",
    ),
    "an entry of a race of a name that steers a terminal": (
        BOARD,
        beside(
            "",
            a__entry_json=json.dumps(
                {
                    "name": "\x1b[2J\n" * 100,
                    "track": "digits",
                    "date": "",
                    "source": "",
                    "schema_version": 3,
                    "experiment": {},
                    "files": {},
                }
            ).encode(),
        ),
        "names no file",
    ),
    "a verdict that is a pipe": (BOARD, beside("verdicts/a.json", pipe=True), "no entry"),
    "an index of weights with line breaks": (
        WEIGHTS,
        in_folder(INDEX, lambda: b'{"weight_map": {"a": "a\\n\\u001b[2Jb"}}'),
        "a \\u001b[2Jb: No such file",
    ),
    "an index of weights with a million tensors": (
        WEIGHTS,
        in_folder(
            INDEX,
            lambda: b'{"weight_map": {%s}}' % b",".join(b'"%d":"a"' % n for n in range(10**6)),
        ),
        "commas",
    ),
    "an index of weights 100,000 lists deep": (WEIGHTS, in_folder(INDEX, lambda: DEEP), "nested"),
    "weights with a header of 8 EB": (
        WEIGHTS,
        file_of("a.safetensors", lambda: struct.pack("<Q", 2**63) + b"{}"),
        "header",
    ),
}
"""Hostile logs and records by name."""

SAMPLE = (
    "a name of 900 KB",
    "names that steer a terminal",
    "a printed amount of 1 MB",
    "a printed step of 5,000 digits",
    "counts that are none, printed",
    "a database with a text of 200 MB",
    "MLflow's seed that is no text",
    "MLflow's run with a pipe",
    "folders 1,200 deep, of short names",
    "an entry of a race with folders 1,200 deep",
)
