"""The board: places, ties by name, and verdicts that no longer hold."""

import dataclasses

import pytest
from made_race import write_entry

from dawnjax.__main__ import main
from dawnjax.errors import ConfigError
from dawnjax.race import board, rules
from dawnjax.race.entry import Beside, Trial, content_hash
from dawnjax.race.judge import standing_record
from dawnjax.race.tracks import read_track
from dawnjax.race.verdicts import JudgedEntry, SideResult, read_verdict, write_verdict


def judge(folder, word, ratio, **more):
    """Write a verdict on an entry beside it."""
    read = rules.read(folder)
    trial = Trial(seed=9, reached=True, seconds=10 * ratio, quality=0.99)
    beside = Beside(
        word="faster", why="", ratio=ratio, low=ratio - 0.1, high=ratio + 0.1, ends="99 %",
        p_value=0.001, is_paired=True,
    )  # fmt: skip
    side = SideResult(trials=(trial,), mean_seconds=10 * ratio, preparation_seconds=5.0)
    verdict = JudgedEntry(
        name=read.entry.name,
        track="digits",
        state="state",
        entry_hash=content_hash(read.hashes),
        date="2026-01-02",
        word=word,
        baseline=beside,
        sides={read.entry.name: side},
        **more,
    )
    write_verdict(folder.parent / "verdicts", verdict)


def test_entries_stand_by_their_ratio_and_ties_by_name(tmp_path):
    for name, word, ratio, more in (
        ("slow", "accepted", 0.9, {}),
        ("quick", "accepted", 0.5, {"sandbox": "none"}),
        ("near", "tie", 0.51, {"rival": "quick", "why": "the interval holds 1"}),
        ("cheat", "refused", 0.1, {"rule": "clock", "why": "it stood"}),
    ):
        judge(write_entry(tmp_path, name)[0], word, ratio, **more)
    write_entry(tmp_path, "fresh")
    boards = board.read_board(tmp_path / "entries")
    table = board.board_table(read_track("digits"), boards["digits"])
    assert table.column("entry") == ["quick", "slow", "near", "cheat", "fresh"]
    assert table.column("rank") == [1, 2, None, None, None]
    assert table.column("verdict")[2:] == ["tie with quick", "refused", "not yet judged"]
    assert table.notes == (
        "quick ran without a sandbox.",
        "near ties with quick: the interval holds 1.",
        "cheat: clock: it stood.",
    )
    page = board.page_of(boards)
    assert "near ties with quick" in page and "quick takes" in page
    with pytest.raises(ConfigError, match="is a file; choose a directory"):
        board.write_page(boards, tmp_path / "entries" / "quick" / "entry.json")


def test_a_verdict_on_other_files_is_none(tmp_path):
    folder, _ = write_entry(tmp_path)
    judge(folder, "accepted", 0.5)
    (folder / "README.md").write_text("Words that came later.")
    [(_, verdict)] = board.read_board(tmp_path / "entries")["digits"]
    assert verdict is None


def test_a_damaged_verdict_and_an_empty_folder_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match="holds no entry"):
        board.read_board(tmp_path)
    folder, _ = write_entry(tmp_path)
    (folder.parent / "verdicts").mkdir()
    (folder.parent / "verdicts" / "mine.json").write_text("{}")
    with pytest.raises(
        ConfigError, match=r"mine.json is no verdict \(Object missing required field name\); remove"
    ):
        board.read_board(folder.parent)


def test_an_entry_that_beat_a_record_stands_before_it(tmp_path):
    """In turn it was faster, though its ratio to the baseline, of another day, is worse."""
    first, _ = write_entry(tmp_path, "first")
    second, _ = write_entry(tmp_path, "second")
    third, _ = write_entry(tmp_path, "third")
    beaten = content_hash(rules.read(first).hashes)
    judge(first, "accepted", 0.5)
    judge(second, "accepted", 0.55, rival="first", rival_hash=beaten)
    judge(third, "accepted", 0.6)

    def order():
        return [entry.name for entry, _ in board.read_board(tmp_path / "entries")["digits"]]

    def record(beside):
        verdicts = tmp_path / "entries" / "verdicts"
        beside_it = tmp_path / "entries", verdicts, read_track("digits"), beside
        side, _ = standing_record(*beside_it, trusts=True)
        return side and side.name

    assert order() == ["second", "first", "third"]
    assert (record("new"), record("second")) == ("second", "first")
    judge(third, "accepted", 0.3)
    assert order() == ["third", "second", "first"] and record("new") == "third"
    # The first was another recipe when the second beat it.
    judge(second, "accepted", 0.55, rival="first", rival_hash="0")
    assert order() == ["third", "first", "second"]


def test_a_record_beside_a_baseline_that_never_reached_and_words_of_a_run(tmp_path, capsys):
    folder, _ = write_entry(tmp_path)
    judge(folder, "accepted", 0.5)
    verdicts = folder.parent / "verdicts"
    verdict = read_verdict(verdicts, "mine")
    assert verdict is not None and verdict.baseline is not None
    never = {"word": "only_second_reached", "ratio": None, "low": None, "high": None}
    beside = dataclasses.replace(verdict.baseline, **never)
    write_verdict(verdicts, dataclasses.replace(verdict, baseline=beside))
    cheat, _ = write_entry(tmp_path, "cheat")
    judge(cheat, "refused", 0.5, rule="run", why="it ended: \x1b[2J")
    page = board.page_of(board.read_board(folder.parent))
    assert "mine is the record; the baseline never reached the target" in page
    assert main(["race", "board", str(folder.parent)]) == 0
    shown = capsys.readouterr().out
    assert "run: it ended: \\u001b[2J" in shown and "\x1b" not in shown
