"""The tests of real sandboxes, as an ordinary user where the others run as root."""

import os
from pathlib import Path

import pytest
from ordinary_user import pytest_as_user

HERE = Path(__file__).parent


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="these tests run as they are")


@AS_ROOT
@pytest.mark.processes
@pytest.mark.parametrize("name", ["sandbox_test", "cheats_test", "recipes_test", "programs_test"])
def test_as_an_ordinary_user(name):
    passes(pytest_as_user(HERE / f"{name}.py", "not long and not parity"))


@AS_ROOT
@pytest.mark.parity
def test_programs_in_pytorch_as_an_ordinary_user():
    passes(pytest_as_user(HERE / "programs_test.py", "parity"))


@AS_ROOT
@pytest.mark.long
def test_the_whole_guide_as_an_ordinary_user():
    passes(pytest_as_user(HERE / "guide_test.py", "long"))


def passes(done):
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-4000:]
    assert "SKIPPED" not in done.stdout, done.stdout[-4000:]
