"""Paths that begin with `~`, also where there is no home directory."""

from pathlib import Path

import pytest

from dawnjax import records
from dawnjax.errors import RunError


def test_a_home_that_is_known_takes_the_place_of_the_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert records.path_of("~/runs") == records.in_home("~/runs") == tmp_path / "runs"


def test_the_home_of_nobody_stays_as_it_is_written():
    assert records.path_of("~no-such-user/runs") == Path("~no-such-user/runs")


@pytest.mark.parametrize("home", ["", "here"])
def test_a_home_that_is_no_place_keeps_no_cache(monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    with pytest.raises(RunError, match="set HOME"):
        records.in_home("~/.cache")
    with pytest.raises(RunError, match="set HOME"):
        records.in_home("~no-such-user/.cache")
