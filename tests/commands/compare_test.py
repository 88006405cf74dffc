"""`dawnjax compare`: what tests/golden/compare.txt does not show."""

from dawnjax.__main__ import main


def test_official_entries_of_different_targets_are_not_compared(tmp_path, capsys, test_data):
    entries = str(test_data / "official" / "dawnbench_entries.tar.xz")
    assert main(["compare", entries, entries]) == 2
    line = capsys.readouterr().err
    sources = [word for word in line.split("'") if "/train/" in word]
    assert len(sources) == 8 and "more" in line
    assert main(["compare", f"{entries}#{sources[0]}", f"{entries}#{sources[1]}"]) == 0
    text = capsys.readouterr().out
    assert "undecided: 1 and 1 trials" in text and "not runs of DawnJAX" in text
