"""Fixtures of the tests of train."""

from pathlib import Path

import pytest
from fault_runs import command, run
from shared_runs import made_once


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory, compile_cache) -> Path:
    """A run that nothing disturbs; the others must end as it does."""

    def make(folder: Path) -> None:
        done = run(command(folder / "run", compile_cache))
        assert done.returncode == 3, done.stderr

    return made_once(tmp_path_factory, "uninterrupted", make) / "run"
