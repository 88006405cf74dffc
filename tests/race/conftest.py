"""Fixtures of the tests of race."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from ordinary_user import skip_as_root
from quick_compilation import REPEATED

from dawnjax.race import heats, sandbox, tracks
from dawnjax.race.handover import Handover
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


@pytest.fixture
def course(tmp_path: Path) -> heats.Course:
    """The course of the track `digits`, in real sandboxes."""
    skip_as_root()
    sandbox.check()
    track = tracks.read_track("digits")
    experiment, spec = tracks.data_at(track, None)
    handover = Handover(experiment.data, spec, tmp_path / "closed")
    made = heats.Course(track=track, handover=handover, work=tmp_path / "work")
    made.work.mkdir()
    return made
