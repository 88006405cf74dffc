"""The board: places, ties, verdicts that no longer hold, and the entries of this repository."""

import shutil
from pathlib import Path

import pytest
from made_race import write_entry
from told import told

from dawnjax.__main__ import main
from dawnjax.race import board, rules, tracks
from dawnjax.race.entry import VERDICTS, read_entry
from dawnjax.race.verdicts import (
    BASELINE,
    Beside,
    JudgedEntry,
    JudgedTrial,
    SideResult,
    compared,
    read_verdict,
    write_verdict,
)


def judge(folder, word, ratio, **more):
    """Write a verdict on an entry beside it."""
    entry = read_entry(folder)
    trial = JudgedTrial(seed=9, reached=True, seconds=10 * (ratio or 1), quality=0.99)
    low, high = ratio and ratio - 0.1, ratio and ratio + 0.1
    beside = Beside(
        word="faster", ratio=ratio, low=low, high=high, error_probability=0.01, p_value=0.001
    )
    verdict = JudgedEntry(
        name=entry.name,
        track="digits",
        recipe=entry.recipe,
        code=entry.code,
        date="2026-01-02",
        word=word,
        baseline=beside,
        sides={entry.name: SideResult(trials=(trial,), preparation_seconds=5.0)},
        **more,
    )
    write_verdict(folder.parent / "verdicts", verdict)


def rows(tmp_path):
    shown = board.board_table(board.read_board(tmp_path / "entries")["digits"])
    return [(row[0], row[1], row[3]) for row in shown.rows]


def test_entries_stand_by_what_they_beat_and_ties_share_a_rank(tmp_path, capsys):
    for name, word, ratio, more in (
        ("slow", "accepted", 0.9, {}),
        ("quick", "accepted", 0.5, {}),
        ("near", "tie", 0.51, {"rival": "quick"}),
        ("alike", "tie", 0.99, {}),
        ("cheat", "refused", 0.1, {"rule": "run", "why": "it ended: \x1b[2J"}),
        # Beside the record it was faster, on a day on which the baseline was faster too.
        ("newest", "accepted", 0.55, {"rival": "quick", "records_before": 1}),
        ("wonder", "accepted", None, {}),
    ):
        judge(write_entry(tmp_path, name)[0], word, ratio, **more)
    write_entry(tmp_path, "fresh")
    assert rows(tmp_path) == [
        ("1", "newest", "accepted"),
        ("2", "quick", "accepted"),
        ("3", "slow", "accepted"),
        ("4", "wonder", "accepted"),
        ("=2", "near", "tie with quick"),
        ("", "alike", "tie with the baseline"),
        ("", "cheat", "refused: run"),
        ("", "fresh", "not yet judged"),
    ]
    page = tmp_path / "board.html"
    assert main(["race", "board", str(tmp_path / "entries"), f"--html={page}"]) == 0
    assert "newest" in page.read_text() and "<script" not in page.read_text()
    shown = capsys.readouterr().out
    assert shown.startswith("Handwritten digits on any CPU\n") and "\x1b" not in shown
    assert "0.500 of the time (99 %: 0.400 to 0.600), p 0.001" in shown
    assert "a side never reached the target" in shown


def test_a_verdict_on_another_recipe_is_none(tmp_path):
    folder, _ = write_entry(tmp_path)
    judge(folder, "accepted", 0.5)
    (folder / "README.md").write_text("Words that came later.")
    assert rows(tmp_path) == [("1", "mine", "accepted")]
    shutil.rmtree(folder)
    write_entry(tmp_path, changes="num_epochs=9,")
    assert rows(tmp_path) == [("", "mine", "not yet judged")]


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
