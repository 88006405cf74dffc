"""The entries of this repository, as a judge reads them."""

from pathlib import Path

import pytest

from dawnjax.race import rules, tracks
from dawnjax.race.entry import VERDICTS, content_hash
from dawnjax.race.verdicts import read_verdict

ENTRIES = Path(__file__).resolve().parents[2] / "entries"
NAMES = sorted(path.name for path in ENTRIES.iterdir() if path.name != VERDICTS)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_of_this_repository_stands(name):
    read = rules.read(ENTRIES / name)
    track = tracks.read_track(read.entry.track)
    assert rules.first_fault(ENTRIES / name, read, track, tracks.baseline_fields(track)) is None
    verdict = read_verdict(ENTRIES / VERDICTS, name)
    assert verdict is not None and verdict.entry_hash == content_hash(read.hashes)
    assert verdict.word in ("accepted", "tie", "slower")
