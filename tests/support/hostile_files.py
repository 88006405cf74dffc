"""Files made to exhaust time or memory, each of them small on disk."""

import bz2
import gzip
import lzma
import zipfile
from pathlib import Path

from hostile_makers import (
    DEEP,
    JSON,
    LISTS,
    MIB,
    RESULT,
    START,
    STOP,
    Maker,
    black,
    deep_folders,
    entry,
    file_of,
    header,
    in_folder,
    line_of,
    log_archive,
    log_pipe,
    long_header,
    many_evaluations,
    many_zipped,
    npz_of,
    padded,
    pax_digits,
    run_of,
    sparse,
    tar,
    zeros,
    zip_of,
)

CASES: dict[str, tuple[str, Maker, str]] = {
    # What it is: the command that reads it, how it is made, and what the command's line says.
    "pax header of 200 KB of digits": (
        "import",
        file_of("a.tgz", lambda: pax_digits(200_000)),
        "extended header",
    ),
    "pax header of 60 KB of digits": (
        "import",
        file_of("a.tgz", lambda: pax_digits(60_000)),
        "digits",
    ),
    "GNU long name of 7 GB": (
        "import",
        file_of("a.tgz", lambda: long_header(b"L", 7168)),
        "extended header",
    ),
    "GNU long link of 1 GB": (
        "import",
        file_of("a.tgz", lambda: long_header(b"K", 1024)),
        "extended header",
    ),
    "pax header of 1 GB": (
        "import",
        file_of("a.tgz", lambda: long_header(b"x", 1024)),
        "extended header",
    ),
    "global pax header of 1 GB": (
        "import",
        file_of("a.tgz", lambda: long_header(b"g", 1024)),
        "extended header",
    ),
    "names of 60 KB in 2,000 files": (
        "import",
        file_of(
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
        file_of(
            "a.tgz", lambda: gzip.compress(b"".join(header(str(n), 0) for n in range(150_000)), 1)
        ),
        "more than 100,000 files",
    ),
    "tar whose file claims 8 EB": (
        "import",
        file_of("a.tar", lambda: header(RESULT, 2**63)),
        "expands to",
    ),
    "tar with a negative size": (
        "import",
        file_of("a.tar", lambda: tar((RESULT, START)).replace(b"0000000", b"-000001", 1)),
        "",
    ),
    "gzip of 7 GB of zeros": (
        "import",
        file_of("a.tgz", lambda: gzip.compress(header(RESULT, 60 * MIB)) + zeros(7168)),
        "",
    ),
    "bzip2 of 2 GB of zeros": (
        "import",
        file_of("a.tbz", lambda: bz2.compress(header("a", 0) + bytes(64 * MIB)) * 32),
        "",
    ),
    "xz with a dictionary of 1.5 GB": (
        "import",
        file_of(
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
    "zip of 1,000,000 files": ("import", file_of("a.zip", lambda: many_zipped(10**6)), "more than"),
    "zip bomb of 512 MB": (
        "import",
        file_of("a.zip", lambda: zip_of((RESULT, bytes(512 * MIB)))),
        "expands to",
    ),
    "zip packed by LZMA": (
        "import",
        file_of("a.zip", lambda: zip_of((RESULT, START), method=zipfile.ZIP_LZMA)),
        "is not packed with Deflate",
    ),
    "60 MB of [],[] in a log of 255 KB": (
        "import",
        file_of(
            "a.tgz",
            lambda: log_archive(
                START + b':::MLLOG {"key": "eval_accuracy", "value":' + LISTS + b"}\n" + STOP
            ),
        ),
        "commas",
    ),
    "log of 1,000,000 evaluations": (
        "import",
        file_of("a.tgz", lambda: log_archive(many_evaluations(800_000))),
        "marked lines",
    ),
    "log of 150,000 evaluations": (
        "import",
        file_of("a.tgz", lambda: log_archive(many_evaluations(150_000))),
        "eval_accuracy",
    ),
    "log of 3,000,000 records": (
        "import",
        file_of("a.tgz", lambda: log_archive(START + b':::MLLOG {"key":"a"}\n' * 3_000_000 + STOP)),
        "marked lines",
    ),
    "value 100,000 lists deep": (
        "import",
        file_of(
            "a.tgz",
            lambda: log_archive(
                START + b':::MLLOG {"key":"eval_accuracy","value":' + DEEP + b"}\n"
            ),
        ),
        "",
    ),
    "number of 100,000 digits": (
        "import",
        file_of(
            "a.tgz",
            lambda: log_archive(
                START + b':::MLLOG {"key":"run_stop","time_ms":' + b"9" * 10**5 + b"}\n"
            ),
        ),
        "",
    ),
    "line of 60 MB": (
        "import",
        file_of(
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
        file_of(
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
        file_of(
            "a.tgz",
            lambda: gzip.compress(
                tar(*((f"A/systems/{n}.json", JSON + bytes(2 * MIB - 100)) for n in range(40)))
            ),
        ),
        "",
    ),
    "description of a million lists": (
        "import",
        in_folder("ImageNet/inference/x.json", lambda: b'{"a":[' + b"[]," * 600_000 + b"1]}"),
        "commas",
    ),
    "table of 700,000 rows": (
        "import",
        in_folder(
            "ImageNet/train/x.tsv", lambda: b"epoch\thours\ttop5Accuracy\n" + b"1\t1\t1\n" * 690_000
        ),
        "",
    ),
    "table of 350,000 rows": (
        "import",
        in_folder(
            "ImageNet/train/x.tsv", lambda: b"epoch\thours\ttop5Accuracy\n" + b"1\t1\t1\n" * 350_000
        ),
        "lines",
    ),
    "table of tabs": (
        "import",
        in_folder(
            "ImageNet/train/x.tsv", lambda: b"epoch\thours\ttop5Accuracy\n" + b"\t" * 4_000_000
        ),
        "",
    ),
    "entry of 1,000,000 evaluations": (
        "report",
        file_of("a.jsonl", lambda: entry(10**6)),
        "values",
    ),
    "20 entries of 25,000 evaluations": (
        "report",
        file_of("a.jsonl", lambda: entry(25_000) * 20),
        "",
    ),
    "entry 100,000 lists deep": (
        "report",
        file_of("a.jsonl", lambda: entry(0).replace(b'"warnings": []', b'"warnings": ' + DEEP)),
        "nested",
    ),
    "entry with a number of 100,000 digits": (
        "report",
        file_of("a.jsonl", lambda: entry(0).replace(b"93.0", b"9" * 10**5)),
        "digits",
    ),
    "entries in a sparse file of 3 GB": (
        "report",
        lambda folder: sparse(folder / "a.jsonl"),
        "bytes",
    ),
    "sparse file of 3 GB, checked": ("check", lambda folder: sparse(folder / "a"), "bytes"),
    "sparse file of 3 GB, reported": ("report", lambda folder: sparse(folder / "a"), "bytes"),
    "sparse file of 3 GB, evaluated": (
        "evaluate",
        lambda folder: sparse(folder / "a"),
        "is not a run directory",
    ),
    "experiment.json of 3 GB, checked": ("check", run_of(experiment=b"sparse"), "bytes"),
    "experiment.json of 3 GB, reported": ("report", run_of(experiment=b"sparse"), "bytes"),
    "experiment.json of 3 GB, evaluated": ("evaluate", run_of(experiment=b"sparse"), "bytes"),
    "experiment.json that is a pipe": ("check", run_of(experiment=None), "not a plain file"),
    "result.json that is a pipe": ("check", run_of(result=None), ""),
    "log that is a pipe": ("check", log_pipe, "not a plain file"),
    "log line 100,000 lists deep": (
        "check",
        run_of(log=lambda: line_of("warning", "message", DEEP) + b"{}\n"),
        "line 1 is damaged",
    ),
    "folders 1,200 deep, reported": ("report", deep_folders, ""),
    "folders 1,200 deep, imported": ("import", deep_folders, ""),
    "npz of 1.5 GB of zeros": ("prepare", npz_of, "expands to"),
    "photograph of 100,000,000 pixels": (
        "prepare",
        file_of("a.tar", lambda: tar(("train/cat/1.png", black(10_000)))),
        "10000x10000",
    ),
    "text of 1 GB in a .gz of 1 MB": ("text", file_of("a.gz", lambda: zeros(1024)), "unpacks to"),
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
    if " " in kind:
        return kind.format(path=path, out=out).split()
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
