"""The README: what it shows of a command is what the command prints, but for its numbers."""

import re
import tarfile
from pathlib import Path

import pytest
from quick_compilation import QUICK

from dawnjax.__main__ import main

TOP = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```console\n\$ dawnjax (.*)\n((?:.*\n)*?)```$", re.MULTILINE)
SHOWN = dict(BLOCK.findall((TOP / "README.md").read_text()))


def masked(text: str) -> list[str]:
    """Lines with `#` for each number, and one blank for several."""
    lines = (re.sub(r"\d[\d,.]*", "#", line) for line in text.splitlines())
    return [" ".join(line.split()) for line in lines]


def holds(name: str, capture: pytest.CaptureFixture) -> None:
    """Run the command of a name, and look for its shown lines in what it prints."""
    (command,) = (command for command in SHOWN if command.startswith(name))
    assert main(command.split()) == 0
    printed = masked("".join(capture.readouterr()))
    shown = masked(SHOWN[command])
    assert len(shown) == 4 and [line for line in shown if line not in printed] == []


@pytest.mark.processes
def test_the_training_that_is_shown(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLA_FLAGS", QUICK)
    monkeypatch.setenv("COLUMNS", "118")
    holds("train", capfd)


@pytest.mark.compiles
def test_the_plan_that_is_shown(capsys):
    holds("plan", capsys)


def test_the_comparison_that_is_shown(tmp_path, capsys, monkeypatch, test_data):
    with tarfile.open(test_data / "speedruns" / "printed_lines.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path / "printed_lines" / "2025-12-31_GatesToCompiledAdam")
    holds("compare", capsys)
