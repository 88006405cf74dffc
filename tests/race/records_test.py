"""The entries of this repository, as a judge reads them."""

from pathlib import Path

import pytest
from told import told

from dawnjax.race import rules, tracks
from dawnjax.race.entry import VERDICTS, read_entry
from dawnjax.race.verdicts import BASELINE, compared, read_verdict

ENTRIES = Path(__file__).resolve().parents[2] / "entries"
NAMES = sorted(path.name for path in ENTRIES.iterdir() if path.name != VERDICTS)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_of_this_repository_stands(name):
    entry = read_entry(ENTRIES / name)
    track = tracks.read_track(entry.track)
    rules.check(ENTRIES / name, entry, track)
    verdict = read_verdict(ENTRIES / VERDICTS, name, entry.recipe)
    assert verdict is not None and verdict.word != "refused"
    beside = compared(
        verdict.sides[name], verdict.sides[BASELINE], verdict.error_probability, track
    )
    assert verdict.baseline is not None and verdict.baseline.text() == beside.text()


def test_the_board_of_this_repository_is_told_whole(capsys):
    rows = told(capsys, "race", "board", str(ENTRIES))["board"]
    assert {row["name"] for row in rows} == {*NAMES}
    names = {"better", "equal", "gain", "ratio", "error_probability"}
    assert names <= rows[0]["verdict"]["baseline"].keys()
