"""Archives and files of official results, made by hand."""

import io
import tarfile
from pathlib import Path

from dawnjax.official.importer import import_results

LOG = b"""\
:::MLPv0.5.0 resnet 1541720000.000000000 (train.py:1) run_start
:::MLPv0.5.0 resnet 1541720001.000000000 (train.py:2) train_epoch: 0
:::MLPv0.5.0 resnet 1541720050.000000000 (train.py:3) eval_accuracy: {"epoch": 0, "value": 0.75}
:::MLPv0.5.0 resnet 1541720050.500000000 (train.py:4) eval_target: 0.749
:::MLPv0.5.0 resnet 1541720060.000000000 (train.py:5) run_stop: {"success": true}
"""

LATER = b"""\
:::MLLOG {"key": "submission_benchmark", "value": "resnet", "time_ms": 1600000001000}
:::MLLOG {"key": "run_start", "value": null, "time_ms": 1600000001000, "metadata": {}}
:::MLLOG {"key": "eval_accuracy", "value": 0.76, "time_ms": 1600000008000, \
"metadata": {"epoch_num": 2}}
:::MLLOG {"key": "run_stop", "value": null, "time_ms": 1600000009000, \
"metadata": {"status": "success"}}
"""

JSON = b'{"version": "v1.0", "author": "A", "framework": "JAX", "model": "M", "hardware": "1 V100"}'
TSV = b"epoch\thours\ttop5Accuracy\n1\t0.5\t80\n2\t1\t93\n"

RESULT = "v0.5.0/someone/submission/results/sys/resnet/result_0.txt"


def only_rejection(*paths: Path) -> str:
    imported = import_results(list(paths))
    assert not imported.entries
    (rejection,) = imported.rejections
    line = str(rejection)
    assert "\n" not in line
    assert line.isprintable()
    return line


def tar_of(path: Path, members: list[tarfile.TarInfo], contents: list[bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, content in zip(members, contents, strict=True):
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return path


def regular(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)
