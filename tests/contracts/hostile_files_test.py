"""Hostile files: each ends in one clear line, within 300 MB and 10 s of a core."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import hostile_data
import hostile_logs
import numpy as np
import pytest
from hostile_files import CASES, SAMPLE, command
from hostile_makers import entry

from dawnjax.analysis.loading import load
from dawnjax.errors import RunError
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.labelled_images import read_npz

EVERY = {**CASES, **hostile_data.CASES, **hostile_logs.CASES}
MEGABYTES, SECONDS = 300, 10
"""Limits of time and memory for a process that reads a file."""


@pytest.mark.processes
@pytest.mark.parametrize(
    "names",
    [
        (*SAMPLE, *hostile_data.SAMPLE, *hostile_logs.SAMPLE),
        pytest.param(tuple(EVERY), marks=pytest.mark.long),
    ],
    ids=["sample", "all"],
)
def test_a_hostile_file_ends_in_a_line(tmp_path, names, campaign):
    hostile = campaign(
        "hostile_files",
        "hostile archives, logs, entries, run directories, studies, races and data sets",
        f"one clear line, within {MEGABYTES} MB and {SECONDS} s of a core",
    )
    child = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).parents[1] / "support" / "hostile_child.py"),
            str(tmp_path / "shown"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin and child.stdout
    for name in names:
        kind, make, said = EVERY[name]
        folder = tmp_path / "case"
        folder.mkdir()
        path = make(folder)
        print(json.dumps(command(kind, path, tmp_path / "out")), file=child.stdin, flush=True)
        answer = json.loads(child.stdout.readline())
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        lines = [line for line in answer["output"].splitlines() if ": note: " not in line]
        why = [
            *(["it was not refused"] if answer["status"] not in (1, 2) else []),
            *(["no line says it"] if not any(said in line for line in lines) else []),
            *(["a traceback"] if "Traceback" in answer["output"] else []),
            *(["several lines"] if len(lines) > 2 else []),
            *(["lines too long"] if max(map(len, lines), default=0) > 600 else []),
            *(["too much memory"] if answer["megabytes"] > MEGABYTES else []),
            *(["too slow"] if answer["seconds"] > SECONDS else []),
        ]
        hostile.tried(
            name,
            held=not why,
            why=f"{', '.join(why)}: {answer['output'][-600:]!r}",
            seconds=answer["seconds"],
            megabytes=answer["megabytes"],
        )
        print(f"{answer['megabytes']:6.0f} MB {answer['seconds']:5.1f} s  {name}: {lines[-1:]}")
        subprocess.run(["rm", "-rf", str(folder)], check=True)  # 1,200 folders deep, too
    child.stdin.close()
    child.wait()
    hostile.finish()


def test_an_entry_whose_direction_is_up_is_damaged(tmp_path):
    path = tmp_path / "a.jsonl"
    target = {"metric": "top5Accuracy", "value": 93.0, "direction": "up"}
    path.write_bytes(entry(1, target=target))
    with pytest.raises(RunError, match="target.direction is 'up'; choose at_least or at_most"):
        load(path)


def test_an_npz_bomb_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, images=np.zeros((2**17, 1024), np.uint8))
    with pytest.raises(DataError, match="expands to 134,217,8.. bytes"):
        read_npz(path, ["images"])
