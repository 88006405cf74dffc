"""The commands of docs/race.md from `race new` to `race board`, as they stand there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ordinary_user import skip_as_root

GUIDE = Path(__file__).parents[2] / "docs" / "race.md"
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
    assert found is not None
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
