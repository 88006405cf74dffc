"""Files made to exhaust time or memory, each of them small on disk."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from made_logs import EXPERIMENT

from dawnjax.config.config_json import identity_of
from dawnjax.runs.log import encode_line

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


def pax_digits(count: int) -> bytes:
    """A tar.gz with a pax header of many digits, which `tarfile` reads in quadratic time."""
    return gzip.compress(header("x", count, b"x") + padded(b"1" * count) + tar((RESULT, START)))


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


def pickle_of(body: bytes) -> bytes:
    """A tar of CIFAR-10's first batch, of protocol 5."""
    return tar(("cifar-10-batches-py/data_batch_1", b"\x80\x05" + body))


def doubled(times: int) -> bytes:
    """A pickle that puts a tuple of tuples, 2**times in all, where its hash is asked for."""
    return b"}" + b")" + b"2\x86" * times + b"K\x01s."


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
    trial = {"file": "a", "reached": False, "time_to_accuracy_seconds": None}
    trial["evaluations"] = "HERE"
    record = {
        "schema_version": 1,
        "source": "s",
        "suite": "dawnbench",
        "benchmark": "ImageNet",
        "target": {"metric": "top5Accuracy", "value": 93.0},
        "trials": [trial],
        "summary": None,
        "inference": None,
        "warnings": [],
        **fields,
    }
    evaluations = b",".join([json.dumps(evaluation).encode()] * num_evaluations)
    return json.dumps(record).encode().replace(b'"HERE"', b"[" + evaluations + b"]") + b"\n"


def line(event: str, **fields: object) -> bytes:
    """A line of a log of ours, its checksum right."""
    return encode_line({"event": event, "attempt": 1, "t": 1.0, **fields})


def line_of(event: str, field: str, text: bytes) -> bytes:
    """The same with a field of which the JSON is given."""
    body = line(event, **{field: 0}).replace(
        b'"%s":0' % field.encode(), b'"%s":' % field.encode() + text
    )
    body = body[: body.rindex(b',"crc32"')]
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)


def run_directory(path: Path, log: bytes = b"", **files: bytes | None) -> Path:
    """A run directory with a log, and its JSON files; None makes a pipe, or a sparse file of 3 GB.

    Args:
      path: The directory.
      log: Of process 0.
      **files: `experiment` or `result`, the content of the file; else the experiment is honest.
    """
    (path / "log").mkdir(parents=True)
    (path / "log" / "process_00000.jsonl").write_bytes(log)
    record = {"schema_version": 1, "run_id": "r", "seed": 0, "identity_fields": {}}
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


def _file(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content())
        return path

    return make


def _run(**files: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        made = {name: value() if callable(value) else value for name, value in files.items()}
        return run_directory(folder / "run", **made)  # type: ignore[arg-type]

    return make


def _in_folder(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    make = _file(f"given/{name}", content)

    def make_folder(folder: Path) -> Path:
        make(folder)
        return folder / "given"

    return make_folder


def _many_evaluations(count: int) -> bytes:
    return START + b"".join(EVALUATION % (n % 90 + 10, n % 10**5) for n in range(count)) + STOP


def _npz(folder: Path) -> Path:
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


def _log_pipe(folder: Path) -> Path:
    run = run_directory(folder / "run")
    (run / "log" / "process_00000.jsonl").unlink()
    os.mkfifo(run / "log" / "process_00000.jsonl")
    return run


def _log_sparse(folder: Path) -> Path:
    run = run_directory(folder / "run")
    sparse(run / "log" / "process_00000.jsonl")
    return run


def _deep_folders(folder: Path) -> Path:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    return folder


Maker = Callable[[Path], Path]

CASES: dict[str, tuple[str, Maker, str]] = {
    # What it is: the command that reads it, how it is made, and what the command's line says.
    "pax header of 200 KB of digits": (
        "import",
        _file("a.tgz", lambda: pax_digits(200_000)),
        "extended header",
    ),
    "pax header of 60 KB of digits": (
        "import",
        _file("a.tgz", lambda: pax_digits(60_000)),
        "extended header",
    ),
    "GNU long name of 7 GB": (
        "import",
        _file("a.tgz", lambda: long_header(b"L", 7168)),
        "extended header",
    ),
    "GNU long link of 1 GB": (
        "import",
        _file("a.tgz", lambda: long_header(b"K", 1024)),
        "extended header",
    ),
    "pax header of 1 GB": (
        "import",
        _file("a.tgz", lambda: long_header(b"x", 1024)),
        "extended header",
    ),
    "global pax header of 1 GB": (
        "import",
        _file("a.tgz", lambda: long_header(b"g", 1024)),
        "extended header",
    ),
    "names of 60 KB in 2,000 files": (
        "import",
        _file(
            "a.tgz",
            lambda: gzip.compress(
                b"".join(
                    header("x", 60_000, b"L") + padded(b"%d/" % n + b"a" * 59_990) + header("y", 0)
                    for n in range(2000)
                )
                + bytes(1024)
            ),
        ),
        "names",
    ),
    "tar of 150,000 files": (
        "import",
        _file(
            "a.tgz", lambda: gzip.compress(b"".join(header(str(n), 0) for n in range(150_000)), 1)
        ),
        "more than 100,000 files",
    ),
    "tar whose file claims 8 EB": (
        "import",
        _file("a.tar", lambda: header(RESULT, 2**63)),
        "expands to",
    ),
    "tar with a negative size": (
        "import",
        _file("a.tar", lambda: tar((RESULT, START)).replace(b"0000000", b"-000001", 1)),
        "",
    ),
    "gzip of 7 GB of zeros": (
        "import",
        _file("a.tgz", lambda: gzip.compress(header(RESULT, 60 * MIB)) + zeros(7168)),
        "",
    ),
    "bzip2 of 2 GB of zeros": (
        "import",
        _file("a.tbz", lambda: bz2.compress(header("a", 0) + bytes(64 * MIB)) * 32),
        "",
    ),
    "xz with a dictionary of 1.5 GB": (
        "import",
        _file(
            "a.txz",
            lambda: lzma.compress(
                tar((RESULT, START)),
                filters=[
                    {
                        "id": lzma.FILTER_LZMA2,
                        "preset": 0,
                        "dict_size": 1536 * MIB,
                        "mf": lzma.MF_HC3,
                        "mode": lzma.MODE_FAST,
                    }
                ],
            ),
        ),
        "emory",
    ),
    "zip of 1,000,000 files": ("import", _file("a.zip", lambda: many_zipped(10**6)), "more than"),
    "zip bomb of 512 MB": (
        "import",
        _file("a.zip", lambda: zip_of((RESULT, bytes(512 * MIB)))),
        "expands to",
    ),
    "zip packed by LZMA": (
        "import",
        _file("a.zip", lambda: zip_of((RESULT, START), method=zipfile.ZIP_LZMA)),
        "another method",
    ),
    "60 MB of [],[] in a log of 255 KB": (
        "import",
        _file(
            "a.tgz",
            lambda: log_archive(
                START + b':::MLLOG {"key": "eval_accuracy", "value":' + LISTS + b"}\n" + STOP
            ),
        ),
        "commas",
    ),
    "log of 1,000,000 evaluations": (
        "import",
        _file("a.tgz", lambda: log_archive(_many_evaluations(800_000))),
        "marked lines",
    ),
    "log of 150,000 evaluations": (
        "import",
        _file("a.tgz", lambda: log_archive(_many_evaluations(150_000))),
        "eval_accuracy",
    ),
    "log of 3,000,000 records": (
        "import",
        _file("a.tgz", lambda: log_archive(START + b':::MLLOG {"key":"a"}\n' * 3_000_000 + STOP)),
        "marked lines",
    ),
    "value 100,000 lists deep": (
        "import",
        _file(
            "a.tgz",
            lambda: log_archive(
                START + b':::MLLOG {"key":"eval_accuracy","value":' + DEEP + b"}\n"
            ),
        ),
        "",
    ),
    "number of 100,000 digits": (
        "import",
        _file(
            "a.tgz",
            lambda: log_archive(
                START + b':::MLLOG {"key":"run_stop","time_ms":' + b"9" * 10**5 + b"}\n"
            ),
        ),
        "",
    ),
    "line of 60 MB": (
        "import",
        _file(
            "a.tgz",
            lambda: log_archive(
                START
                + b':::MLLOG {"key":"eval_accuracy","value":"'
                + "\U0001f600".encode() * 15 * MIB
                + b'"}\n'
            ),
        ),
        "",
    ),
    "v0.5 with 190,000 different values": (
        "import",
        _file(
            "a.tgz",
            lambda: log_archive(
                b"".join(
                    b':::MLPv0.5.0 resnet 1541720%03d.0 (a:1) k%d: "%d"\n' % (n % 1000, n, n)
                    for n in range(190_000)
                )
            ),
        ),
        "run_start",
    ),
    "descriptions of 200 MB": (
        "import",
        _file(
            "a.tgz",
            lambda: gzip.compress(
                tar(*((f"A/systems/{n}.json", JSON + bytes(2 * MIB - 100)) for n in range(40)))
            ),
        ),
        "",
    ),
    "description of a million lists": (
        "import",
        _in_folder("ImageNet/inference/x.json", lambda: b'{"a":[' + b"[]," * 600_000 + b"1]}"),
        "commas",
    ),
    "table of 700,000 rows": (
        "import",
        _in_folder(
            "ImageNet/train/x.tsv", lambda: b"epoch\thours\ttop5Accuracy\n" + b"1\t1\t1\n" * 690_000
        ),
        "",
    ),
    "table of 350,000 rows": (
        "import",
        _in_folder(
            "ImageNet/train/x.tsv", lambda: b"epoch\thours\ttop5Accuracy\n" + b"1\t1\t1\n" * 350_000
        ),
        "lines",
    ),
    "table of tabs": (
        "import",
        _in_folder(
            "ImageNet/train/x.tsv", lambda: b"epoch\thours\ttop5Accuracy\n" + b"\t" * 4_000_000
        ),
        "",
    ),
    "entry of 1,000,000 evaluations": ("report", _file("a.jsonl", lambda: entry(10**6)), "values"),
    "20 entries of 25,000 evaluations": (
        "report",
        _file("a.jsonl", lambda: entry(25_000) * 20),
        "",
    ),
    "entry 100,000 lists deep": (
        "report",
        _file("a.jsonl", lambda: entry(0).replace(b'"warnings": []', b'"warnings": ' + DEEP)),
        "nested",
    ),
    "entry with a number of 100,000 digits": (
        "report",
        _file("a.jsonl", lambda: entry(0).replace(b"93.0", b"9" * 10**5)),
        "digits",
    ),
    "entries in a sparse file of 3 GB": (
        "report",
        lambda folder: sparse(folder / "a.jsonl"),
        "bytes",
    ),
    "sparse file of 3 GB, checked": ("check", lambda folder: sparse(folder / "a"), "no directory"),
    "sparse file of 3 GB, reported": ("report", lambda folder: sparse(folder / "a"), "bytes"),
    "sparse file of 3 GB, evaluated": (
        "evaluate",
        lambda folder: sparse(folder / "a"),
        "no directory",
    ),
    "experiment.json of 3 GB, checked": ("check", _run(experiment=b"sparse"), "bytes"),
    "experiment.json of 3 GB, reported": ("report", _run(experiment=b"sparse"), "bytes"),
    "experiment.json of 3 GB, evaluated": ("evaluate", _run(experiment=b"sparse"), "bytes"),
    "experiment.json that is a pipe": ("check", _run(experiment=None), "no plain file"),
    "result.json that is a pipe": ("check", _run(result=None), ""),
    "log that is a pipe": ("check", _log_pipe, "no plain file"),
    "log of 3 GB without a line": ("check", _log_sparse, "bytes"),
    "log line of 60 MB of [],[]": (
        "check",
        _run(log=lambda: line_of("warning", "message", LISTS)),
        "",
    ),
    "log line 100,000 lists deep": (
        "check",
        _run(log=lambda: line_of("warning", "message", DEEP)),
        "",
    ),
    "log of 100,000 evaluations of ours": (
        "report",
        _run(
            log=lambda: (
                line("evaluation", step=1, epoch=1.0, metrics={"a": 1.0}, reached=False) * 150_000
            )
        ),
        "",
    ),
    "log of 250,000 heartbeats": (
        "check",
        _run(log=lambda: line("host_sample", cpu_seconds=1.0, memory_bytes=1) * 250_000),
        "",
    ),
    "log of 500,000 damaged lines": ("check", _run(log=lambda: b"damaged\n" * 500_000), "damaged"),
    "folders 1,200 deep, reported": ("report", _deep_folders, ""),
    "folders 1,200 deep, imported": ("import", _deep_folders, ""),
    "pickle of 139 bytes that asks for 16 GB": (
        "prepare",
        _file("a.tar", lambda: pickle_of(b"\x96" + struct.pack("<Q", 16 * 2**30) + bytes(128))),
        "no pickled batch",
    ),
    "pickle of 30 MB of empty lists": (
        "prepare",
        _file("a.tar", lambda: pickle_of(b"(" + b"]" * 30_000_000 + b"l.")),
        "no pickled batch",
    ),
    "pickle with a hash of 2**60 steps": (
        "prepare",
        _file("a.tar", lambda: pickle_of(doubled(60))),
        "no pickled batch",
    ),
    "npz of 1.5 GB of zeros": ("prepare", _npz, "expands to"),
    "photograph of 100,000,000 pixels": (
        "prepare",
        _file("a.tar", lambda: tar(("train/cat/1.png", black(10_000)))),
        "10000x10000",
    ),
    "text of 1 GB in a .gz of 1 MB": ("text", _file("a.gz", lambda: zeros(1024)), "unpacks to"),
}
"""Hostile files by name."""

SAMPLE = (
    "pax header of 60 KB of digits",
    "tar whose file claims 8 EB",
    "value 100,000 lists deep",
    "entry with a number of 100,000 digits",
    "sparse file of 3 GB, checked",
    "experiment.json that is a pipe",
    "log line 100,000 lists deep",
)


def command(kind: str, path: Path, out: Path) -> list[str]:
    """The command line that reads a hostile file."""
    if kind in ("check", "evaluate"):
        return [kind, str(path)]
    if kind == "import":
        return [kind, str(path), f"--out={out}.jsonl"]
    if kind == "report":
        return [kind, str(path), f"--out={out}"]
    if kind == "text":
        both = [f"--{name}={path}" for name in ("train_source", "train_target")]
        more = [
            "--vocabulary_size=100",
            "--row_length=64",
            f"--eval_source={path}",
            f"--eval_target={path}",
        ]
        return ["prepare", "--dataset=parallel_text", *both, *more, f"--out={out}"]
    return ["prepare", "--dataset=cifar10", f"--from={path}", f"--out={out}"]


def honest_batch(protocol: int, keys: type) -> bytes:
    """A pickled batch as Python 3 writes it; its keys are text, or bytes as Python 2 wrote them."""
    import numpy as np

    names = {"data": np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072), "labels": [3, 9]}
    return pickle.dumps({n.encode() if keys is bytes else n: v for n, v in names.items()}, protocol)
