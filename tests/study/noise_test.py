"""`dawnjax study --noise`: what a number of trials can tell, before they are spent."""

import math

import pytest
from made_other_logs import normal, write_side
from scipy import stats
from told import told

from dawnjax.__main__ import main


def reach(trials):
    """Standard errors of a difference that Welch's test of the verdicts finds in 80 % of cases."""
    freedom = 2 * (trials - 2)
    return stats.t.ppf(0.975, freedom) + stats.t.ppf(0.8, freedom)


def test_the_noise_of_logs(tmp_path, capsys):
    side = write_side(tmp_path / "a", normal(3.0, 0.1, 5))
    assert main(["study", "--noise", str(side)]) == 0
    text = capsys.readouterr().out
    assert "val_loss at the last evaluation: a trial deviates by 0.1, from 5 trials" in text
    assert "no verdict below 5" in text
    [row] = told(capsys, "study", "--noise", str(side), "--at=steps=50")["noise"]
    [found] = row["noise"]
    assert found["of"] == "val_loss at 50 steps" and found["deviation"] == pytest.approx(0.1)
    by_trials = {row["trials"]: row for row in found["narrowest"]}
    assert by_trials[3]["margin"] is None
    assert by_trials[20]["margin"] == pytest.approx(0.1 * math.sqrt(2 / 20) * reach(20))


def test_the_noise_of_times_is_a_ratio(tmp_path, capsys):
    """Times of 5 to 7 s on a grid of 1 s, whose two unseen evaluations count too."""
    side = write_side(tmp_path / "a", normal(3.0, 0.002, 8))
    [row] = told(capsys, "study", "--noise", str(side), "--target=3.008")["noise"]
    times, quality = row["noise"]
    assert times["is_ratio"] and not quality["is_ratio"] and times["pilots"] == 8
    five = times["narrowest"][1]
    # Two evaluations of 1 s weigh among the five trials of a verdict, not among the eight pilots.
    for row, trials in ((five, 5), (times["narrowest"][3], 20)):
        counted = times["deviation"] ** 2 + times["unseen"] / (trials - 1)
        expected = math.expm1(math.sqrt(counted * 2 / trials) * reach(trials))
        assert row["trials"] == trials and row["margin"] == pytest.approx(expected)
    assert times["unseen"] == pytest.approx(2 / 6**2, rel=0.2) and quality["unseen"] == 0
    # What the pilots may not show is how they vary; the unseen trials are known.
    grown = times["deviation"] ** 2 * 7 / stats.chi2.ppf(0.05, 7) + times["unseen"] / 4
    assert five["at_most"] == pytest.approx(math.expm1(math.sqrt(grown * 2 / 5) * reach(5)))
