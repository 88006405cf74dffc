"""Speedups and comparisons against hand-computed and published values."""

import dataclasses

import numpy as np
import pytest
from made_entries import entry_of, make_entry, make_trial, official_entries
from official_figures import RESNET_1, RESNET_80

from dawnjax.analysis.comparison import compare, speedup
from dawnjax.analysis.paper import find_entry
from dawnjax.report.trials import compare_table
from dawnjax.trials.labels import labels_by_key


def test_speedup_by_hand():
    small = make_entry([make_trial(t, 10.0) for t in (90, 100, 110)], num_accelerators=8)
    large = make_entry([make_trial(t, 20.0) for t in (20, 20, 80)], num_accelerators=32)
    value = speedup(small, large)
    assert value.tta == 5.0  # Scores 100 and 20.
    assert value.throughput == pytest.approx(5.0)  # 10 s an epoch, and 2 s.
    assert value.epochs == 2.0 and value.accelerators == 4.0


def test_a_scaled_score_does_not_change_the_speedup():
    trials = [make_trial(t, 10.0) for t in (90, 100, 110)]
    scaled = make_entry(trials, scaling_factor=1.5)
    figures = scaled.figures
    assert (figures.unscaled_score_seconds, figures.score_seconds) == (100.0, 150.0)
    value = speedup(make_entry(trials), scaled)
    assert (value.tta, value.throughput, value.epochs) == (1.0, 1.0, 1.0)


def test_no_score_no_speedup():
    value = speedup(entry_of([1.0, 2.0, None, None], total=5.0), entry_of([1.0, 1.0, 1.0]))
    assert value.tta is None and value.throughput is None


def test_published_speedups(test_data):
    # Table 7 prints 21.6x and 28.2x; the logs give 21.558 and 28.042.
    entries = official_entries(test_data)
    small = find_entry(entries, RESNET_1)
    large = find_entry(entries, RESNET_80)
    assert small is not None and large is not None
    value = speedup(small, large)
    assert value.tta == pytest.approx(21.558, abs=1e-3)
    assert value.throughput == pytest.approx(28.042, abs=1e-3)
    assert value.epochs == pytest.approx(82 / 63)


def test_the_verdict_on_two_published_entries():
    # MLPerf v0.5, SSD, DGX-2 and then DGX-2H.
    first = [964.123, 951.939, 957.515, 949.441, 855.407]
    second = [788.179, 877.591, 877.361, 880.660, 783.603]
    value = compare(entry_of(first), entry_of(second))
    verdict = value.verdict
    assert verdict is not None and verdict.ratio is not None and value.caution == ""
    assert verdict.ratio.value == pytest.approx(841.4788 / 935.685, rel=1e-6)
    # 5.73 degrees of freedom, of which t at 97.5 % is 2.475.
    parts = [np.std(s, ddof=1) ** 2 / np.mean(s) ** 2 / 5 for s in (first, second)]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 3)
    assert freedom == pytest.approx(5.727, abs=1e-3)
    half = 2.4752 * np.sqrt(sum(parts))
    assert verdict.ratio.low == pytest.approx(verdict.ratio.value * np.exp(-half), rel=1e-3)
    assert verdict.ratio.high == pytest.approx(verdict.ratio.value * np.exp(half), rel=1e-3)
    assert verdict.word == "faster_if_all_reach"


def test_the_same_trials_do_not_differ():
    entry = entry_of([10.0, 11.0, 12.0, 13.0, 14.0])
    verdict = compare(entry, entry).verdict
    assert verdict is not None and verdict.word == "undecided"
    assert verdict.advice is not None and verdict.advice.if_equal
    assert verdict.advice.if_as_measured is None


@pytest.mark.parametrize("trials", [2, 3, 4])
def test_few_trials_decide_nothing(trials):
    # Twice as fast, without any overlap: with so few even that is no answer.
    slow = entry_of([20.0 + number for number in range(trials)])
    fast = entry_of([10.0 + number for number in range(5)])
    for first, second, sign in ((slow, fast, -1), (fast, slow, 1)):
        verdict = compare(first, second).verdict
        assert verdict is not None and verdict.word == "undecided"
        assert "a verdict needs 5 of each" in verdict.why
        assert verdict.advice is not None and verdict.advice.minimum == 5 - trials
        ratio = verdict.ratio
        assert ratio is not None and ratio.ends == f"range of {trials}"
        assert (ratio.value - 1) * sign > 0
    (row,) = compare_table([(slow, fast)], labels_by_key([slow, fast])).records()
    assert row["verdict"] == "undecided" and row["ratio_ends"] == f"range of {trials}"
    assert "the fewest that it takes" in str(row["advice"])
    # The least of the fast over the greatest of the slow, and the other way round.
    assert row["ratio_low"] == pytest.approx(10 / (19 + trials))
    assert row["ratio_high"] == pytest.approx(14 / 20)


def test_cautions():
    small = entry_of([10.0, 11.0], identity="a", benchmark="x")
    assert "different experiments" in compare(small, entry_of([1.0, 2.0], benchmark="x")).caution
    assert "different benchmarks" in compare(small, entry_of([1.0, 2.0])).caution
    scaled = compare(small, dataclasses.replace(small, scaling_factor=1.125)).caution
    assert scaled == "times before the round's review, which scaled the scores by 1 and 1.125"
    unknown = compare(small, make_entry([make_trial(10.0), make_trial(None)]))
    assert unknown.verdict is None and "how long a trial ran is not known" in unknown.caution
    trials = [dataclasses.replace(make_trial(10.0), run_id=run_id) for run_id in ("r", "")]
    shared = compare(make_entry(trials), make_entry(trials[::-1])).caution
    assert shared == "1 of the second's trials in the first too"
    other = make_entry([make_trial(None)])
    (row,) = compare_table([(small, other)], labels_by_key([small, other])).records()
    assert row["verdict"] == "not known" and row["ratio"] is None


def test_entries_with_the_same_first_losses_are_pairs_by_seed():
    def with_losses(entry, *last):
        trials = [
            dataclasses.replace(trial, seed=seed, first_losses=(2.3, loss))
            for seed, (trial, loss) in enumerate(zip(entry.trials, last, strict=True))
        ]
        return dataclasses.replace(entry, trials=tuple(trials))

    times = [10.0, 20.0, 30.0, 40.0, 50.0]
    first = with_losses(entry_of(times), 1.0, 1.1, 1.2, 1.3, 1.4)
    second = with_losses(entry_of([1.2 * t for t in times]), 1.0, 1.1, 1.2, 1.3, 1.4)
    verdict = compare(first, second).verdict
    assert verdict is not None and verdict.is_paired and verdict.word == "slower"
    other = compare(first, with_losses(entry_of(times), 1.0, 1.1, 1.2, 1.3, 1.5)).verdict
    assert other is not None and not other.is_paired
