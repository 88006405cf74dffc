"""The benchmarks' harness: statistics by hand, checks that can fail, processes that end."""

import functools
import json
import sys

import numpy as np
import pytest

from benchmarks import harness


def test_the_ratio_is_the_median_of_the_rounds_ratios():
    comparison = harness.Comparison([2.0, 9.0, 4.0], [1.0, 3.0, 8.0])
    # 2, 3 and 0.5; the ratio of the medians would be 4 / 3.
    assert comparison.ratio == 2.0


def test_the_interval_is_that_of_the_exact_bootstrap_distribution():
    comparison = harness.Comparison([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5)
    # The median of five draws is at most the k-th of five values where three or more draws are:
    # P(Bin(5, k / 5) >= 3) = 0.058, 0.317, 0.683, 0.942, 1 for k = 1 ... 5.
    # So 0.025 lies at the first value, 0.975 at the last, 0.1 at the second and 0.9 at the fourth.
    assert comparison.interval(0.95) == (1.0, 5.0)
    assert comparison.interval(0.80) == (2.0, 4.0)
    # 0.35 and 0.65 lie at the third.
    assert comparison.interval(0.30) == (3.0, 3.0)


def test_pairs_are_drawn_as_pairs():
    # Both sides change speed together: each round's ratio is 2, and so is every redrawn median.
    comparison = harness.Comparison([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert comparison.interval() == (2.0, 2.0)
    assert comparison.row("x") == ["x", "20.000", "10.000", "2.000", "2.000 to 2.000"]


def test_independent_sides_have_the_ratio_of_their_means():
    ratio = harness.RatioOfMeans([1.0, 3.0], [4.0])
    assert ratio.ratio == 0.5
    # Two draws of 1 and 3 have mean 1, 2, 3 with chances 1/4, 1/2, 1/4; divided by 4.
    assert ratio.interval(0.95) == (0.25, 0.75)
    assert ratio.interval(0.40) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [float("nan")])]
)
def test_figures_without_a_ratio_are_refused(first, second):
    with pytest.raises(ValueError, match="pairs|ratio"):
        harness.Comparison(first, second)


def test_sides_alternate_and_warm_ups_do_not_count():
    calls = []

    def side(name):
        def run():
            calls.append(name)
            return float(len(calls))

        return run

    comparison = harness.alternate(side("a"), side("b"), rounds=2, warm_ups=1, unit="s")
    assert calls == ["b", "a", "a", "b", "b", "a"]
    assert (comparison.first, comparison.second) == ([3.0, 6.0], [4.0, 5.0])
    assert comparison.to_json()["unit"] == "s"


def test_equal_losses_pass_and_are_kept():
    kept = harness.same_losses([2.0, 1.0], [2.01, 1.0], tolerance=0.01)
    np.testing.assert_allclose(kept["largest_difference"], 0.01 / 2.01)
    np.testing.assert_allclose(kept["movement"], 1.01 / 2.01)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ([2.0, 1.0], [2.0, 1.2], "differ by 16.67%"),
        ([2.0, 1.0], [2.0], "two or more"),
        ([float("nan"), 1.0], [2.0, 1.0], "not finite"),
        # Two untrained networks: close, and saying nothing.
        ([2.302, 2.303], [2.303, 2.301], "move by"),
    ],
)
def test_losses_that_tell_nothing_or_differ_are_refused(first, second, reason):
    with pytest.raises(harness.NotTheSame, match=reason):
        harness.same_losses(first, second, tolerance=0.05)


def test_a_side_that_never_reached_is_refused():
    kept = harness.both_reached([True, False], [True])
    assert (kept["first_reached"], kept["first_trials"]) == (1, 2)
    with pytest.raises(harness.NotTheSame, match="second side reached the target, of 2"):
        harness.both_reached([True], [False, False])


SERVER = """
import itertools
from benchmarks import harness
print("a banner that is no answer")
count = itertools.count(1)
harness.serve({"compile_seconds": 0.5}, lambda: {"seconds": next(count)})
"""


def worker(script, limit_seconds=30.0):
    return harness.Worker(
        [sys.executable, "-c", script], limit_seconds=limit_seconds, environment={}
    )


def test_a_worker_answers_round_by_round():
    with worker(SERVER) as side:
        assert side.ready == {"compile_seconds": 0.5}
        assert [side.round()["seconds"] for _ in range(3)] == [1, 2, 3]


def test_a_worker_that_dies_or_sleeps_says_so():
    with pytest.raises(harness.SideFailed, match="no memory left"):
        worker("import sys; sys.exit('no memory left')")
    with pytest.raises(harness.SideFailed, match="no answer in 0.3 s"):
        worker("import time; time.sleep(60)", limit_seconds=0.3)


def test_the_fastest_way_is_kept_and_the_others_end():
    serve = "print('{}', flush=True)\nwhile input(): print('%s', flush=True)"
    scripts = {
        "slow": serve % '{"seconds": 3}',
        "without a device": "raise SystemExit('no device')",
        "fast": serve % '{"seconds": 1}',
        "between": serve % '{"seconds": 2}',
        "breaks": "print('{}', flush=True); input(); raise SystemExit('broke')",
    }
    started = {}

    def start(name):
        started[name] = worker(scripts[name])
        return started[name]

    name, best, tried = harness.fastest(
        {name: functools.partial(start, name) for name in scripts}, lambda answer: answer["seconds"]
    )
    with best:
        assert name == "fast" and best.round() == {"seconds": 1}
    assert tried["fast"]["ratio_median"] == 1 / 3 and tried["fast"]["against"] == "slow"
    assert tried["between"]["ratio_median"] == 2 and tried["between"]["against"] == "fast"
    assert "no device" in tried["without a device"]["failed"]
    assert "broke" in tried["breaks"]["failed"]
    assert all(side._process.returncode is not None for side in started.values())


def test_where_every_way_fails_the_reasons_are_told():
    with pytest.raises(harness.SideFailed, match="only: .*no device"):
        harness.fastest({"only": lambda: worker("raise SystemExit('no device')")}, lambda _: 1.0)


def test_a_process_with_one_answer():
    command = [sys.executable, "-c", "print('hello'); print('{\"a\": 1}')"]
    assert harness.run_json(command, limit_seconds=30) == {"a": 1}
    with pytest.raises(harness.SideFailed, match="exit status 3"):
        harness.run_json([sys.executable, "-c", "raise SystemExit(3)"], limit_seconds=30)
    with pytest.raises(harness.SideFailed, match="not done in 0.3 s"):
        harness.run_json([sys.executable, "-c", "import time; time.sleep(60)"], limit_seconds=0.3)


def test_results_are_on_disk_as_they_come(tmp_path, monkeypatch):
    monkeypatch.setenv(harness.RESULTS_VARIABLE, str(tmp_path / "out"))
    results = harness.Results("some", goal=2.0)
    results.add(first=1)
    assert json.loads(results.path.read_text())["first"] == 1
    results.add(second=2)
    record = json.loads(results.path.read_text())
    assert (record["goal"], record["first"], record["second"]) == (2.0, 1, 2)
    assert {"date", "processor", "accelerators", "versions"} <= set(record["environment"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["some.json"]


def test_a_table_is_aligned():
    assert harness.table([["", "ours"], ["a step", "1.5"]]) == "        ours\na step   1.5"
