"""Huge pages, which a command has from its start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dawnjax.machine import huge_pages

ASKED = "glibc.malloc.hugetlb=1"


@pytest.fixture
def linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system that has huge pages for asking; returns the file of its setting."""
    setting = tmp_path / "enabled"
    setting.write_text("always [madvise] never\n")
    monkeypatch.setattr(huge_pages, "SETTING", str(setting))
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.36")
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    return setting


def test_a_users_tunables_are_kept(linux, monkeypatch):
    assert huge_pages.tunables_with() == ASKED
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    assert huge_pages.tunables_with() == f"glibc.malloc.check=1:{ASKED}"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    assert huge_pages.tunables_with() == "glibc.malloc.hugetlb=0"


@pytest.mark.parametrize(
    ("setting", "library"),
    [
        ("[always] madvise never\n", "glibc 2.36"),
        ("always madvise [never]\n", "glibc 2.36"),
        ("always [madvise] never\n", "glibc 2.34"),
        ("always [madvise] never\n", "glibc"),
        ("always [madvise] never\n", None),
        (None, "glibc 2.36"),
    ],
)
def test_a_system_without_them_is_left_as_it_is(linux, setting, library, monkeypatch):
    linux.unlink() if setting is None else linux.write_text(setting)
    monkeypatch.setattr(os, "confstr", lambda name: library)
    assert huge_pages.tunables_with() == ""


@pytest.mark.parametrize(
    ("given", "arguments", "is_started"),
    [
        (["-m", "dawnjax", "train", "--seed=1"], ["train", "--seed=1"], True),
        (["-X", "dev", "/a/bin/dawnjax", "train"], ["train"], True),
        (["-c", "from dawnjax.__main__ import main; main()", "train"], ["train"], False),
        (["-"], ["train"], False),
        ([], [], False),
    ],
)
def test_only_a_command_is_started_again(linux, given, arguments, is_started, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", *given])
    monkeypatch.setattr(sys, "argv", ["dawnjax", *arguments])
    started = []
    monkeypatch.setattr(os, "execv", lambda program, argv: started.append((program, argv)))
    huge_pages.take()
    assert started == ([(sys.executable, [sys.executable, *given])] if is_started else [])
    huge_pages.take()  # as the started one does
    assert len(started) == is_started


@pytest.mark.processes
def test_a_command_that_started_again_is_the_same_process_with_the_same_words():
    """On a system without huge pages for asking it is started once; its answer is the same."""
    environment = {**os.environ, "GLIBC_TUNABLES": ""}
    command = [sys.executable, "-m", "dawnjax", "train", "--experiment=no such one"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no such one" in done.stderr and done.stdout == ""
