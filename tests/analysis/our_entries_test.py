"""Entries of runs whose results are odd: losses that are no numbers, several targets."""

import dataclasses

import pytest
from made_runs import write_run

from dawnjax.analysis import our_entries, our_runs
from dawnjax.analysis.leaderboard import leaderboard
from dawnjax.errors import ConfigError
from dawnjax.trials.group import FurtherTarget


def test_a_run_that_diverges_in_its_first_steps_is_a_trial(tmp_path):
    """Its losses have NaN, which a log has as text."""
    runs = [
        write_run(tmp_path / "a", losses=(2.5, 2.25)),
        write_run(
            tmp_path / "b", seed=1, seconds=None, status="diverged", losses=(2.5, "NaN", 2.0)
        ),
        write_run(tmp_path / "c", seed=2, seconds=None, status="diverged", losses=("Infinity",)),
    ]
    (entry,) = our_entries.entries_of(map(our_runs.read_run, runs))
    assert [trial.status for trial in entry.trials] == ["reached", "diverged", "diverged"]
    assert [trial.first_losses for trial in entry.trials] == [(2.5, 2.25), (2.5,), ()]
    assert entry.summary is not None and entry.summary.expected_seconds == 90.0


def test_a_second_target_is_part_of_what_was_reached(tmp_path):
    """Times to one of two targets are not ranked with times to both."""
    one = our_runs.read_run(write_run(tmp_path / "one"))
    two = our_runs.read_run(write_run(tmp_path / "two", identity="two"))
    first = two.result.target[0]
    both = [first, {**first, "metric": "top_5_accuracy", "value": 0.99}]
    two = two._replace(result=dataclasses.replace(two.result, target=both))
    entries = our_entries.entries_of([one, two])
    second = FurtherTarget(metric="top_5_accuracy", value=0.99)
    assert [entry.target.others for entry in entries] == [(), (second,)]
    with pytest.raises(ConfigError, match=r"0.9 and top_5_accuracy at least 0.99.* not to be ran"):
        leaderboard(entries, "x")
