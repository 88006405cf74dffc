"""The benchmarks' harness: statistics by hand, checks that can fail, processes that end."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import harness, time_to_accuracy, workers


def test_the_ratio_is_the_geometric_mean_of_the_rounds_ratios():
    rounds = harness.Rounds([2.0, 9.0, 4.0], [1.0, 3.0, 4.5])
    # 2, 3 and 8 / 9; of three rounds the ends are their range.
    assert rounds.ratio.value == pytest.approx((2 * 3 * 8 / 9) ** (1 / 3))
    assert rounds.ratio.ends == "range of 3"
    assert (rounds.ratio.low, rounds.ratio.high) == pytest.approx((8 / 9, 3))
    assert rounds.medians == (4.0, 3.0)
    assert rounds.ratio.ends_text() == "range of 3: 0.889 to 3.000"


def test_pairs_are_compared_as_pairs():
    # Both sides change speed together: each round's ratio is 2, and so are both ends.
    rounds = harness.Rounds([2.0, 20.0, 200.0, 2.0, 2.0], [1.0, 10.0, 100.0, 1.0, 1.0])
    assert (rounds.ratio.value, rounds.ratio.low, rounds.ratio.high) == pytest.approx((2, 2, 2))
    facts = rounds.to_json()
    assert set(facts) == {"unit", "first", "second"} and harness.Rounds.of(facts) == rounds


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


def worker(script, limit_seconds=120.0):
    return workers.Worker(
        [sys.executable, "-c", script], limit_seconds=limit_seconds, environment={}
    )


SERVER = """
import itertools
from benchmarks import workers
count = itertools.count(1)
workers.serve({"compile_seconds": 0.5}, lambda: {"seconds": next(count)})
"""


def test_a_worker_answers_round_by_round():
    with worker(SERVER) as side:
        assert side.ready == {"compile_seconds": 0.5}
        assert [side.round()["seconds"] for _ in range(3)] == [1, 2, 3]


def test_a_worker_that_dies_or_sleeps_says_so():
    with pytest.raises(workers.SideFailed, match="no memory left"):
        worker("import sys; sys.exit('no memory left')")
    with pytest.raises(workers.SideFailed, match="no answer in 0.3 s"):
        worker("import time; time.sleep(100)", limit_seconds=0.3)


def test_the_fastest_way_is_kept_and_the_others_end():
    serve = "print('a banner')\nprint('{}', flush=True)\nwhile input(): print('%s', flush=True)"
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

    name, best, tried = workers.fastest(
        {name: functools.partial(start, name) for name in scripts}, lambda answer: answer["seconds"]
    )
    with best:
        assert name == "fast" and best.round() == {"seconds": 1}
    for way, ratio, against in (("fast", 1 / 3, "slow"), ("between", 2, "fast")):
        assert harness.Rounds.of(tried[way]).ratio.value == pytest.approx(ratio)
        assert tried[way]["against"] == against
    assert "no device" in tried["without a device"]["failed"]
    assert "broke" in tried["breaks"]["failed"]
    assert all(side.process.returncode is not None for side in started.values())


def test_results_are_on_disk_as_they_come_and_shown_as_on_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(harness.RESULTS_VARIABLE, str(tmp_path / "out"))
    results = harness.Results("some", goal=2.0)
    results.add(first=1)
    assert json.loads(results.path.read_text())["first"] == 1
    results.add(second=2)
    record = json.loads(results.path.read_text())
    assert (record["goal"], record["first"], record["second"]) == (2.0, 1, 2)
    assert {"date", "processor", "accelerators", "versions"} <= set(record["environment"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["some.json"]
    rounds = harness.Rounds([4.0, 4.0], [1.0, 1.0]).to_json()
    results.add(
        commands={"it": {"against": "nothing", **rounds}},
        second_runs={"experiment": "x"}
        | dict.fromkeys(("compile_seconds", "process_seconds"), rounds),
    )
    results.show("start_up")
    head, first, *_, path = capsys.readouterr().out.splitlines()
    assert "ratio (95 %)" in head and path == str(results.path)
    assert "`it` against nothing" in first and "4.000 (range of 2: 4.000 to 4.000)" in first


def test_a_trial_without_an_evaluation_took_all_its_time(monkeypatch):
    result = {
        "status": "diverged",
        "reached": False,
        "target": {"metric": "top_1_accuracy"},
        "evaluations": [],
        "total_seconds": 12.0,
    } | dict.fromkeys(
        ("time_to_accuracy_seconds", "total_seconds_to_accuracy", "train_seconds")
        + ("compile_seconds", "epochs", "steps", "examples_per_second")
    )

    def train(command, **_):
        (folder,) = (word.partition("=")[2] for word in command if word.startswith("--run_dir="))
        Path(folder).mkdir()
        (Path(folder) / "result.json").write_text(json.dumps(result))

    monkeypatch.setattr(time_to_accuracy.subprocess, "run", train)
    trial = time_to_accuracy.run_trial("digits", 0, [])
    assert trial["run_seconds"] == 12.0 and not trial["reached"]


def test_a_crash_is_a_trial_that_did_not_reach(monkeypatch):
    crashed = subprocess.CompletedProcess([], 1, "", "a line\nno memory left\n")
    monkeypatch.setattr(time_to_accuracy.subprocess, "run", lambda *_, **__: crashed)
    trial = time_to_accuracy.run_trial("digits", 3, [])
    assert trial["error"] == ["no memory left"] and not trial["reached"] and trial["seed"] == 3
