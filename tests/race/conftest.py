"""Fixtures of the tests of race."""

from unittest.mock import Mock

import pytest
from quick_compilation import REPEATED

from dawnjax.race import heats
from dawnjax.race.sandbox import Walls


@pytest.fixture(autouse=True)
def installation_reads(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands in for reading all of Python's packages before each run, which takes seconds.

    cheats_test.py tries that alone.
    """
    reads = Mock()
    monkeypatch.setattr(heats, "read_installation", reads)
    return reads


@pytest.fixture
def quick_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets XLA optimize less inside the sandbox too."""
    given = Walls.environment
    monkeypatch.setattr(Walls, "environment", lambda walls: given(walls) | {"XLA_FLAGS": REPEATED})
