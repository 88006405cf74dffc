"""`dawnjax race` as a user types it: the tracks, and one line for wrong use."""

import pytest

from dawnjax.__main__ import main


def test_the_tracks_are_listed_and_shown(capsys):
    assert main(["race"]) == 0
    listed = capsys.readouterr().out
    for name in ("digits", "wikipedia_bytes", "cifar10", "fineweb"):
        assert f"\n{name}" in listed
    assert main(["race", "tracks", "digits"]) == 0
    assert "baseline: dawnjax train --experiment=digits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["submitt"], "no part 'submitt'; did you mean 'submit'?"),
        (["tracks", "digit"], "no track 'digit'; did you mean 'digits'?"),
        (["submit"], "no run is given; dawnjax race submit RUNS..."),
        (["submit", "runs", "--track=digits"], "--name is missing"),
        (["board", "entries", "--track=digits"], "--track is no flag of `race board`"),
        (["board", "nowhere"], "there is no folder nowhere"),
        (["board"], "one folder of entries is shown, and 0 were given"),
        (["verify", "nowhere"], "there is no folder nowhere"),
        (["verify"], "one entry is verified, and 0 were given"),
        (
            ["submit", "a", "--track=digits", "--name=x/y", "--against=b", "--out=c"],
            "--name='x/y' must be up to 80 letters",
        ),
        (
            ["submit", "a", "--track=digits", "--name=x", "--against=b", "--out=c"],
            "there is no folder a",
        ),
    ],
)
def test_wrong_use_is_one_line(argv, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["race", *argv]) == 2
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1 and not list(tmp_path.iterdir())
