"""AGENTS.md and the guides in skills/: short, and each of their commands runs."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dawnjax.__main__ import main
from dawnjax.config.experiment_modules import experiment_names

TOP = Path(__file__).parents[2]
AGENTS = TOP / "AGENTS.md"
SKILLS = sorted(TOP.glob("skills/*/SKILL.md"))
PAGES = [AGENTS, *SKILLS]

SMALL = "--num_epochs=3 --model.stage_sizes=1 --model.stage_widths=8 --evaluation.first_epoch=0"
EASY = [*SMALL.split(), "--targets.0.value=0.1"]
"""Flags of a small network that soon reaches an easy target."""


def commands(page: Path) -> Iterator[str]:
    """Lines of the page's blocks, but for the one that installs."""
    found = re.findall(r"^```sh( \w+)?\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    has_compilers = importlib.util.find_spec("libtpu") is not None
    for kind, text in found:
        if "venv" not in text and (kind != " plan" or has_compilers):
            yield from text.splitlines()


def test_agents_md_is_short_and_claude_md_is_a_link_to_it():
    assert len(AGENTS.read_text().splitlines()) <= 150
    assert os.readlink(TOP / "CLAUDE.md") == "AGENTS.md"


@pytest.mark.parametrize("page", SKILLS, ids=lambda page: page.parent.name)
def test_a_guide_has_its_name_and_when_to_take_it(page):
    head = page.read_text().split("---\n")[1]
    assert re.search(rf"^name: {page.parent.name}$", head, re.MULTILINE)
    assert re.search(r"^description: \w.{20,}", head, re.MULTILINE)


def check_tests(words: list[str]) -> None:
    """Say if the tests of a line of pytest are there; the suite runs them itself."""
    paths = [TOP / word for word in words if word.startswith("tests/")]
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
    assert paths and all(path.exists() for path in paths), words
    # Rows of tables have names of experiments and of tasks.
    texts = "".join(file.read_text() for file in [*files, *TOP.glob("tests/support/*.py")])
    asked = words[words.index("-k") + 1] if "-k" in words else ""
    for name in set(re.findall(r"\w+", asked)) - {"and", "or", "not"}:
        assert name in texts or name in experiment_names(), name


@pytest.mark.compiles
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_each_command_runs(page, tmp_path, monkeypatch, compile_cache):
    """In this process; no profile is made that no command reads."""
    monkeypatch.chdir(tmp_path)
    lines = [*commands(page)]
    for line in lines:
        program, *words = shlex.split(line)
        if program == "pytest":
            check_tests(words)
        elif "|" in words:
            shell = f'dawnjax() {{ {sys.executable} -m dawnjax "$@"; }}; set -euo pipefail; {line}'
            environment = {**os.environ, "PYTHONPATH": str(TOP)}
            subprocess.run(["bash", "-c", shell], env=environment, check=True)
        else:
            assert program == "dawnjax"
            command, name, *_ = words
            more = [compile_cache] if command in ("train", "study") else []
            if command == "train" and not any("dawnjax profile" in other for other in lines):
                more.append("--profile.after_run=false")
            if more and name == "digits":
                more += [*EASY, *(["--seeds=2"] if command == "study" else [])]
            assert main([*words, *more]) == 0, line
