"""The tests of real sandboxes, as an ordinary user where the others run as root."""

import os
from pathlib import Path

import pytest
from ordinary_user import pytest_as_user

HERE = Path(__file__).parent


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="these tests run as they are")


@AS_ROOT
@pytest.mark.processes
def test_as_an_ordinary_user():
    names = ("sandbox_test", "cheats_test", "recipes_test", "programs_test")
    files = [HERE / f"{name}.py" for name in names]
    passes(pytest_as_user("not long and not parity", *files))


@AS_ROOT
@pytest.mark.parity
def test_programs_in_pytorch_as_an_ordinary_user():
    passes(pytest_as_user("parity", HERE / "programs_test.py"))


@AS_ROOT
@pytest.mark.long
def test_the_whole_guide_and_the_other_cheats_as_an_ordinary_user():
    names = ("command_test", "recipes_test")
    passes(pytest_as_user("long", *(HERE / f"{name}.py" for name in names)))


def passes(done):
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-4000:]
    assert "SKIPPED" not in done.stdout, done.stdout[-4000:]
