"""Hostile files: each ends in one clear line, within 300 MB and 10 s of a core."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_files import CASES, SAMPLE

MEGABYTES, SECONDS = 300, 10
"""Limits of time and memory for a process that reads a file."""


@pytest.mark.processes
@pytest.mark.parametrize(
    "names",
    [SAMPLE, pytest.param(tuple(CASES), marks=pytest.mark.long)],
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
    for name in names:
        command, make, said = CASES[name]
        folder = tmp_path / "case"
        folder.mkdir()
        path = make(folder)
        argv = [word.format(path=path, out=tmp_path / "out") for word in command.split()]
        print(json.dumps(argv), file=child.stdin, flush=True)
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
