"""Makers of hostile files: archives, images, logs and run directories, byte by byte."""

import gzip
import io
import json
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from made_logs import EXPERIMENT

from dawnjax.config.config_json import identity_of
from dawnjax.runs.log import SCHEMA_VERSION, encode_line, log_path

Maker = Callable[[Path], Path]

RESULT = "v0.5.0/someone/submission/results/sys/resnet/result_0.txt"
START = b':::MLLOG {"key": "run_start", "time_ms": 1600000000000, "metadata": {}}\n'
STOP = (
    b':::MLLOG {"key": "run_stop", "time_ms": 1600000900000, "metadata": {"status": "success"}}\n'
)
EVALUATION = b':::MLLOG {"key": "eval_accuracy", "value": 0.%d, "time_ms": 16000001%05d}\n'
JSON = b'{"author": "A", "framework": "JAX", "model": "M", "hardware": "1 V100"}'
MIB = 2**20


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


def long_header(kind: bytes, count: int) -> bytes:
    """A tar.gz that begins with an extended header of a number of MiB of zeros."""
    return gzip.compress(header("././@LongLink", count * MIB, kind)) + zeros(count)


def paxes(content: bytes, count: int, kind: bytes = b"x") -> bytes:
    """A tar.gz with an extended header before each of so many members."""
    pax = header("x", len(content), kind) + padded(content)
    return gzip.compress(b"".join(pax + header(str(n), 0) for n in range(count)) + bytes(1024))


def pax_digits(count: int, headers: int = 1) -> bytes:
    """A tar.gz with pax headers of many digits, which `tarfile` searches in quadratic time."""
    pax = header("x", count, b"x") + padded(b"1" * count)
    return gzip.compress(pax * headers + tar((RESULT, START)))


def gnu_sparse(count: int) -> bytes:
    """A tar.gz of a sparse file whose map goes on for a number of MiB."""
    block = (b"00000000001\0" * 42)[:504].ljust(504, b"\0") + b"\1" + bytes(7)
    head = bytearray(header("a", 0, b"S"))
    head[386:482], head[482] = b"00000000001\0" * 8, 1
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return gzip.compress(bytes(head) + block * (2048 * count))


def sparse_map(count: int) -> bytes:
    """A tar.gz of a sparse file of pax whose map is one number of a number of MiB."""
    fields = b"".join(b"22 GNU.sparse.%s=%d\n" % it for it in ((b"major", 1), (b"minor", 0)))
    pax = header("x", len(fields), b"x") + padded(fields)
    return gzip.compress(pax + header("a", count * MIB) + b"1" * count * MIB + bytes(1024))


def log_archive(log: bytes) -> bytes:
    """A tar.gz of one log of MLPerf."""
    return gzip.compress(tar((RESULT, log)))


def zip_of(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


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


def black(side: int) -> bytes:
    """A black PNG of a side."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    size = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    packer = zlib.compressobj()
    rows = b"".join(packer.compress(bytes(side + 1)) for _ in range(side)) + packer.flush()
    parts = chunk(b"IHDR", size), chunk(b"IDAT", rows), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def entry(num_evaluations: int, **fields: object) -> bytes:
    """A line of a file of entries."""
    evaluation = {"epoch": 1.5, "seconds_since_run_start": 12.25, "value": 0.5}
    trial = {"name": "a", "reached": False, "time_to_accuracy_seconds": None}
    trial["evaluations"] = "HERE"
    record = {
        "schema_version": 4,
        "source": "s",
        "suite": "dawnbench",
        "benchmark": "ImageNet",
        "target": {"metric": "top5Accuracy", "value": 93.0},
        "trials": [trial],
        "inference": None,
        "warnings": [],
        **fields,
    }
    evaluations = b",".join([json.dumps(evaluation).encode()] * num_evaluations)
    return json.dumps(record).encode().replace(b'"HERE"', b"[" + evaluations + b"]") + b"\n"


def line_of(event: str, field: str, text: bytes) -> bytes:
    """A line of a log of ours with a field of which the JSON is given."""
    start = encode_line({"event": event, "attempt": 1, "t": 1.0})
    return start[:-2] + b',"%s":%s}\n' % (field.encode(), text)


def run_directory(path: Path, log: bytes = b"", **files: bytes | None) -> Path:
    """A run directory with a log, and its JSON files; None makes a pipe, or a sparse file of 3 GB.

    Args:
      path: The directory.
      log: Its log.
      **files: `experiment` or `result`, the content of the file; else the experiment is honest.
    """
    path.mkdir(parents=True)
    log_path(path).write_bytes(log)
    record = {"schema_version": SCHEMA_VERSION, "run_id": "r", "seed": 0, "identity_fields": {}}
    record |= {"identity": identity_of({}), "experiment": EXPERIMENT, "overrides": {}}
    for name, content in {"experiment": json.dumps(record).encode(), **files}.items():
        if content is None:
            os.mkfifo(path / f"{name}.json")
        elif content == b"sparse":
            sparse(path / f"{name}.json")
        else:
            (path / f"{name}.json").write_bytes(content)
    return path


def sparse(path: Path) -> Path:
    """A file of 3 GB that begins with a brace and takes one block."""
    with path.open("wb") as file:
        file.write(b"{")
        file.truncate(3 * 2**30)
    return path


DEEP = b"[" * 100_000 + b"]" * 100_000
LISTS = b"[" + b"[]," * 20_000_000 + b"[]]"
"""60 MB, of which 5 GB of lists would come."""


def file_of(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content())
        return path

    return make


def run_of(**files: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        made = {name: value() if callable(value) else value for name, value in files.items()}
        return run_directory(folder / "run", **made)  # type: ignore[arg-type]

    return make


def in_folder(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    make = file_of(f"given/{name}", content)

    def make_folder(folder: Path) -> Path:
        make(folder)
        return folder / "given"

    return make_folder


def many_evaluations(count: int) -> bytes:
    return START + b"".join(EVALUATION % (n % 90 + 10, n % 10**5) for n in range(count)) + STOP


def npz_of(folder: Path) -> Path:
    path = folder / "a.npz"
    shape = b"{'descr': '|u1', 'fortran_order': False, 'shape': (500000, 32, 32, 3), }"
    head = b"\x93NUMPY\1\0" + struct.pack("<H", len(shape)) + shape
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("train_x.npy", "w", force_zip64=True) as file,
    ):
        file.write(head)
        for _ in range(150):
            file.write(bytes(10 * MIB))
    return path


def log_pipe(folder: Path) -> Path:
    run = run_directory(folder / "run")
    log_path(run).unlink()
    os.mkfifo(log_path(run))
    return run


def deep_folders(folder: Path) -> Path:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    return folder
