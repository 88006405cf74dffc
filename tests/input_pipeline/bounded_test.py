"""The process in which a stranger's file is read: it ends at its limits of memory and of time."""

import pytest

from dawnjax.input_pipeline.reading import bounded
from dawnjax.input_pipeline.reading.bounded import Bounded, BoundedError


def test_what_takes_more_memory_or_time_than_is_given_ends(monkeypatch):
    with pytest.raises(BoundedError, match="it needs more than 768 MiB of memory"):
        Bounded(bytearray, 2**31, bytes_a_second=1)
    three = Bounded(int, 3, bytes_a_second=1)
    assert three.ask("__add__", 4) == 7
    monkeypatch.setattr(bounded, "SECONDS", 1.0)
    with pytest.raises(BoundedError, match="it needs more than 1 s"):
        three.ask("__pow__", 10**9)
