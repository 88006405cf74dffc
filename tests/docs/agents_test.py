"""AGENTS.md and the guides in skills/: short, and each of their commands runs."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dawnjax.__main__ import COMMANDS

TOP = Path(__file__).parents[2]
AGENTS = TOP / "AGENTS.md"
SKILLS = sorted(TOP.glob("skills/*/SKILL.md"))
PAGES = [AGENTS, *SKILLS]

SMALL = "--num_epochs=3 --model.stage_sizes=1 --model.stage_widths=8 --evaluation.first_epoch=0"
PRELUDE = f"""
set -euo pipefail
# A small network that soon reaches an easy target, few trials of it, and no profile that no
# command reads.
dawnjax() {{
  local more=""
  [[ "$1" == train ]] && more="$UNPROFILED"
  [[ "${{2:-}}" == digits ]] && case "$1" in
    train) more+=" {SMALL} --targets.0.value=0.1" ;;
    study) more="{SMALL} --targets.0.value=0.1 --seeds=2" ;;
  esac
  {sys.executable} -m dawnjax "$@" $more
}}
python() {{ {sys.executable} "$@"; }}
# The suite runs the tests themselves: here they are found, below.
pytest() {{ printf '%q ' "$@" >> tests_to_find; echo >> tests_to_find; }}
"""
FINDS = """
import pathlib, shlex, sys, pytest
for line in pathlib.Path(sys.argv[1], "tests_to_find").read_text().splitlines():
    status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *shlex.split(line)])
    assert status == 0, (line, status)
"""


def blocks(page: Path) -> list[str]:
    """The blocks of commands, but for the one that installs."""
    found = re.findall(r"^```sh( \w+)?\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    has_compilers = importlib.util.find_spec("libtpu") is not None
    return [text for kind, text in found if kind != " plan" or has_compilers]


def test_agents_md_is_short_and_claude_md_is_a_link_to_it():
    assert len(AGENTS.read_text().splitlines()) <= 150
    assert os.readlink(TOP / "CLAUDE.md") == "AGENTS.md"


@pytest.mark.parametrize("page", SKILLS, ids=lambda page: page.parent.name)
def test_a_guide_has_its_name_and_when_to_take_it(page):
    head = page.read_text().split("---\n")[1]
    assert re.search(rf"^name: {page.parent.name}$", head, re.MULTILINE)
    assert re.search(r"^description: \w.{20,}", head, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_links_and_paths_exist(page):
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (page.parent / link).exists(), link
    folders = "dawnjax|docs|tests|models|experiments|input_pipeline"
    for path in re.findall(rf"`((?:{folders})/[^`]*)`", text):
        if not re.search(r"NAME|ROOM|COMMAND|\s", path):
            assert (TOP / path).exists(), path


@pytest.mark.processes
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_each_command_runs(page, tmp_path, compile_cache):
    script = "".join(text for text in blocks(page) if "venv" not in text)
    assert set(re.findall(r"^dawnjax (\w+)", script, re.MULTILINE)) <= set(COMMANDS)
    environment = {**os.environ, "PYTHONPATH": str(TOP), "DAWNJAX_TEST_COSTS": ""}
    is_read = "dawnjax profile" in script
    environment["UNPROFILED"] = "" if is_read else "--profile.after_run=false"
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-c", PRELUDE + script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    if (tmp_path / "tests_to_find").exists():
        finds = [sys.executable, "-c", FINDS, str(tmp_path)]
        subprocess.run(finds, cwd=TOP, env=environment, timeout=500, check=True)
