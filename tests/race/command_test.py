"""`dawnjax race` as a user types it, and the commands of docs/race.md as they stand there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ordinary_user import skip_as_root

GUIDE = Path(__file__).parents[2] / "docs" / "race.md"


@pytest.mark.parametrize(
    ("changed", "is_taken"),
    [
        (r"A\tentries/mine/entry.json\nA\tentries/mine/source/mine.py\n", True),
        (r"A\tentries/mine/entry.json\nA\tentries/verdicts/mine.json\n", False),
        (r"A\tentries/mine/entry.json\nM\tentries/record/entry.json\n", False),
        ("", False),
    ],
)
def test_the_workflow_in_the_guide_takes_one_new_entry_alone(changed, is_taken, tmp_path):
    found = re.search(r"run: \|\n((?: {10}.*\n)+)", GUIDE.read_text())
    git = tmp_path / "git"
    git.write_text(f"#!/bin/sh\nprintf '{changed}'\n")
    git.chmod(0o755)
    done = subprocess.run(
        ["bash", "-e", "-c", found[1].replace("${{ github.base_ref }}", "main")],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_ENV": str(tmp_path / "env")},
    )
    assert (done.returncode == 0) == is_taken
    if is_taken:
        assert (tmp_path / "env").read_text() == "ENTRY=entries/mine\n"


JUDGED = (0, 6, 7)


def commands() -> list[list[str]]:
    part = GUIDE.read_text().partition("## Enter")[2].partition("## What the judge promises")[0]
    found = [shlex.split(line) for line in re.findall(r"^    (dawnjax .*)$", part, re.MULTILINE)]
    assert [argv[2] for argv in found if argv[1] == "race"] == [
        *("new", "new", "submit", "submit", "verify", "board")
    ]
    return found


def write_program(folder: Path) -> None:
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (folder / "kernel").mkdir()
    (folder / "kernel" / "run.py").write_text(found[1])


@pytest.mark.long
def test_the_guide_works_word_for_word(tmp_path):
    skip_as_root()
    write_program(tmp_path)
    shown = ""
    for argv in commands():
        done = subprocess.run(
            [sys.executable, "-m", *argv], cwd=tmp_path, capture_output=True, text=True
        )
        wanted = JUDGED if argv[2:3] == ["verify"] else (0,)
        assert done.returncode in wanted, (argv, done.stdout, done.stderr)
        shown = done.stdout
    assert (tmp_path / "entries" / "verdicts" / "mine.json").exists()
    assert re.search(r"mine +none +(accepted|slower|tie)", shown)
    assert re.search(r"kernel +program +not yet judged", shown)
