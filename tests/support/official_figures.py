"""Published figures of official results, recomputed by an independent parser from the same files.

`tests/official/mlperf_v05.csv` has those of the result logs of mlcommons/training_results_v0.5
(commit c71f2e7), `dawnbench.csv` those of stanford-futuredata/dawn-bench-entries (commit fb27b82).
Times of trials are in the order of the numbers of their files.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

_NVIDIA = "v0.5.0/nvidia/submission/results"
RESNET_1 = f"{_NVIDIA}/dgx1_ngc18.11_mxnet/resnet"
RESNET_80 = f"{_NVIDIA}/dgx1_multi_ngc18.11_mxnet/resnet"
SSD_8 = f"{_NVIDIA}/dgx1_multi_ngc18.11_pytorch/ssd"
"""Sources of entries of MLPerf v0.5."""


class MlperfRow(NamedTuple):
    """One official MLPerf v0.5 entry; seconds unless the name says otherwise."""

    entry: str
    reached: int
    trials: int
    mean: float
    score_minutes: float | None
    cv_percent: float
    rule: str
    epochs_mean: float
    epochs_std: float
    per_epoch_mean: float
    per_epoch_std: float
    ratio: float
    logged_batch: tuple[int, ...]
    times: tuple[float, ...]


class DawnbenchRow(NamedTuple):
    """One official DAWNBench training entry: its place by time, and the row that decides."""

    task: str
    rank: int
    name: str
    date: str
    hours: float
    epoch: float
    metric: float
    cost_usd: float | None


def mlperf_rows() -> list[MlperfRow]:
    """The rows of MLPerf v0.5."""
    cells = ([*row[:-2], row[-2].split(), row[-1].split()] for row in _cells("mlperf_v05"))
    return [msgspec.convert(row, MlperfRow, strict=False) for row in cells]


def dawnbench_rows() -> list[DawnbenchRow]:
    """The leaderboards of ImageNet, CIFAR10 and SQuAD by training time."""
    return [msgspec.convert(row, DawnbenchRow, strict=False) for row in _cells("dawnbench")]


def _cells(name: str) -> Iterator[list[str]]:
    path = Path(__file__).parents[1] / "official" / f"{name}.csv"
    with path.open(newline="") as file:
        _, *rows = csv.reader(file)
    for row in rows:
        # An empty number is null; the lists at the end of a row stay texts.
        yield [cell if cell or place >= 12 else "null" for place, cell in enumerate(row)]
