"""Folders that one test makes and tests of all workers read."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Temporary folder of the whole test run, the same one in each worker."""
    base = factory.getbasetemp()
    # A worker's own folder lies in that of the run, which then has a name of pytest's.
    return base.parent if base.name.startswith("popen-") else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Folder that the first test to ask for it fills; a test of another worker waits for it.

    Args:
      name: What is made; unique within the test run.
      make: Fills the folder. If it fails, the next test tries anew in an emptied folder.
    """
    parent = shared_folder(factory) / "made_once"
    parent.mkdir(exist_ok=True)
    folder, mark = parent / name, parent / f"{name}.made"
    with (parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists():
            attempt = 0
            while folder.exists():
                attempt += 1
                folder = parent / f"{name}_{attempt}"
            folder.mkdir()
            make(folder)
            mark.write_text(folder.name)
        return parent / mark.read_text()


def copied_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Copy of the folder that `made_once` gives, for tests that write into it."""
    return shutil.copytree(made_once(factory, name, make), factory.mktemp(name) / "copy")
