"""Logs of MLPerf's later rounds, record by record at seconds after `run_start`."""

import json
from pathlib import Path
from typing import Any

START = 1_700_000_000


def record(key: str, seconds: float, value: Any = None, **metadata: Any) -> str:
    body = {
        "namespace": "",
        "time_ms": int(1000 * (START + seconds)),
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 7, **metadata},
    }
    return ":::MLLOG " + json.dumps(body)


def log_of(benchmark: str, *records: str, seconds: float = 100.0, status: str = "success") -> bytes:
    lines = [
        record("submission_benchmark", -1, benchmark),
        record("submission_division", -1, "closed"),
        record("run_start", 0),
        *records,
        record("run_stop", seconds, status=status),
    ]
    return ("\n".join(lines) + "\n").encode()


def evaluations(labels: list[float], value: Any = 0.5) -> list[str]:
    """Records of evaluations at 1, 2, ... seconds, each with its label."""
    return [
        record("eval_accuracy", second, value, epoch_num=label)
        for second, label in enumerate(labels, start=1)
    ]


def write_round(top: Path, round_name: str, benchmark: str, logs: list[bytes]) -> Path:
    """Write logs as a round has them, and return their folder."""
    folder = top / f"training_results_{round_name}" / "Lab" / "results" / "sys" / benchmark
    folder.mkdir(parents=True)
    for number, log in enumerate(logs):
        (folder / f"result_{number}.txt").write_bytes(log)
    return folder
