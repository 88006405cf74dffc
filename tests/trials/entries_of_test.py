"""Entries of runs whose results are odd: losses that are no numbers, several targets."""

import dataclasses

import pytest
from made_runs import write_run

from dawnjax.analysis.leaderboard import leaderboard
from dawnjax.errors import ConfigError
from dawnjax.trials import ours
from dawnjax.trials.target import Target


def test_a_run_that_diverges_in_its_first_steps_is_a_trial(tmp_path):
    """Its losses have NaN, which a log has as text."""
    runs = [
        write_run(tmp_path / "a", losses=(2.5, 2.25)),
        write_run(
            tmp_path / "b", seed=1, seconds=None, status="diverged", losses=(2.5, "NaN", 2.0)
        ),
        write_run(tmp_path / "c", seed=2, seconds=None, status="diverged", losses=("Infinity",)),
    ]
    (entry,) = ours.entries_of(map(ours.read_run, runs))
    assert [trial.status for trial in entry.trials] == ["reached", "diverged", "diverged"]
    assert [trial.finite_losses for trial in entry.trials] == [(2.5, 2.25), (2.5,), ()]
    assert entry.figures.expected_seconds == 90.0


def test_a_second_target_is_part_of_what_was_reached(tmp_path):
    """Times to one of two targets are not ranked with times to both."""
    one = ours.read_run(write_run(tmp_path / "one"))
    two = ours.read_run(write_run(tmp_path / "two", identity="two"))
    second = Target(metric="top_5_accuracy", value=0.99)
    two = dataclasses.replace(two, target=dataclasses.replace(two.target, others=(second,)))
    entries = ours.entries_of([one, two])
    assert [entry.target.others for entry in entries] == [(), (second,)]
    with pytest.raises(ConfigError, match=r"0.9 and top_5_accuracy at least 0.99.* not to be ran"):
        leaderboard(entries, "x")
