"""Folders that one test makes and tests of all workers read."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dawnjax.__main__ import main

SMALL = "--num_epochs=3 --evaluation.first_epoch=1 --targets.0.value=0.1"
SMALL += " --model.stage_sizes=1 --model.stage_widths=8"
"""Flags of a small network that soon reaches an easy target."""

SMALL_RUN = f"digits {SMALL} --tensorboard=false --profile.seconds=0.05"
SMALL_RUN += " --profile.measured_peaks=false"


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


def small_run(factory: pytest.TempPathFactory, compile_cache: str) -> Path:
    """Run of `digits` by `SMALL_RUN`; nobody may change it."""

    def make(folder: Path) -> None:
        argv = [*SMALL_RUN.split(), f"--run_dir={folder / 'run'}", compile_cache]
        assert main(["train", *argv]) == 0

    return made_once(factory, "small_run", make) / "run"
