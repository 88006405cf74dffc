"""The judge's clock: what a run's own log may say, and the handover that starts it."""

import dataclasses

import numpy as np
import pytest
from made_race import trial_log

from dawnjax.errors import RunError
from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.race.handover import Handover, withheld
from dawnjax.race.heats import Heat, clock_fault, preparation_fault
from dawnjax.race.tracks import read_track


def rule_of(log, seconds):
    fault = clock_fault(log.events, seconds)
    return fault and fault.rule


def test_a_log_that_agrees_with_the_judge_s_clock_passes():
    assert rule_of(trial_log(10.0), 10.3) is None


def test_a_clock_that_is_stopped_is_refused():
    fault = clock_fault(trial_log(2.0).events, 10.0)
    assert fault is not None and fault.rule == "clock"
    assert "its own clock counted 2.00 s, and the judge's 10.00 s: it stood" in fault.why


def test_steps_before_the_clock_are_refused():
    log = trial_log(2.0)
    place = next(n for n, event in enumerate(log.events) if event["event"] == "run_start")
    log.events.insert(place, log.train(7.0, 10, 10).events.pop())
    assert rule_of(log, 2.0) == "compile"
    assert rule_of(trial_log(30.0), 2.0) == "clock"  # it trained before it had its data


def test_a_second_look_and_a_missing_log_are_refused():
    assert rule_of(trial_log(10.0, looks=2), 10.0) == "evaluation"
    fault = clock_fault([], 10.0)
    assert fault is not None and "no run_start" in fault.why


def test_a_long_preparation_is_refused(tmp_path):
    def heats(*seconds):
        return [Heat(0, tmp_path, each, 1.0) for each in seconds]

    track = read_track("digits")
    assert preparation_fault(track, heats(11.0, 13.0), heats(6.0, 6.0)) is None
    assert preparation_fault(track, heats(12.0, 13.0), heats(6.0, 6.0)) is not None
    fault = preparation_fault(track, heats(60.0, 60.0), heats(6.0, 6.0))
    assert fault is not None and fault.rule == "compile"
    assert "it took 60.0 s before its data, and the baseline 6.0 s" in fault.why


def test_examples_come_when_the_clock_starts_and_those_to_evaluate_never(tmp_path):
    data, moments = Digits(), []
    handover = Handover.prepare(data, data.spec(), tmp_path / "closed")
    handover.describe(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["data.json"]

    def wait():
        moments.append("asked")
        handover.hand_over(tmp_path / "run")

    seen = withheld(data, tmp_path / "run", wait)
    assert seen.spec() == data.spec() and moments == []
    assert dataclasses.asdict(seen) == dataclasses.asdict(data) and seen.TAG == data.TAG
    evaluated, real = seen.load("eval"), data.load("eval")
    assert moments == [] and {n: a.shape for n, a in evaluated.items()} == {
        name: array.shape for name, array in real.items()
    }
    assert all((array == 1).all() for array in evaluated.values())
    train = seen.load("train")
    assert moments == ["asked"]
    for name, array in data.load("train").items():
        np.testing.assert_array_equal(train[name], array)
    with pytest.raises(ValueError, match="read-only|readonly"):
        train["label"][0] = 1


def test_each_round_has_an_order_of_its_own(tmp_path):
    data = Digits()
    handover = Handover.prepare(data, data.spec(), tmp_path / "closed")
    rounds = []
    for name in ("first", "second"):
        handover.shuffle()
        handover.describe(tmp_path / name)
        handover.hand_over(tmp_path / name)
        rounds.append(withheld(data, tmp_path / name, lambda: None).load("train"))
    real = data.load("train")

    def pairs(arrays):
        images = map(np.ndarray.tobytes, arrays["image"])
        return list(zip(images, arrays["label"].tolist(), strict=True))

    assert pairs(rounds[0]) != pairs(rounds[1]) != pairs(real)
    assert sorted(pairs(rounds[0])) == sorted(pairs(rounds[1])) == sorted(pairs(real))
    with pytest.raises(RunError, match="cannot hand the data over"):
        handover.hand_over(tmp_path / "second")
