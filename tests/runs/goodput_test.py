"""Goodput: each second of all attempts and gaps, in one part."""

import pytest
from made_logs import Log, interrupted_run, one_attempt

from dawnjax.runs.goodput import PARTS, wall_seconds
from dawnjax.runs.logged_run import LoggedRun
from dawnjax.trials.from_log import trial_of


def parts_of(log: Log) -> dict[str, float]:
    seconds, reason = wall_seconds(LoggedRun.from_events(log.events))
    assert reason == "" and tuple(seconds) == PARTS
    return {name: value for name, value in seconds.items() if value}


def killed_and_resumed(saved: int) -> Log:
    """Steps 1 to 40 in 20 s, of which 4 s waited; killed; resumed after 100 s from a save."""
    log = Log().begin(0.0).add("run_start", 8.0).add("phase", 8.0, name="train")
    log.add("train", 28.0, step=40, epoch=4.0, loss=1.0, steps=40, input_wait_seconds=4.0)
    log.add("host_sample", 30.0)
    log.begin(130.0).add("phase", 1.0, name="restore").add("restored", 3.0, step=saved)
    log.add("phase", 3.0, name="train")
    log.train(3.0 + (80 - saved) / 2, 80, 80 - saved)
    return log.add("attempt_end", 3.0 + (80 - saved) / 2, status="not_reached", step=80)


def test_the_parts_of_one_attempt_are_its_phases():
    parts = parts_of(one_attempt())
    assert parts == {
        "setup": 3.0, "compile": 5.0, "steps": 2.5, "evaluation": 1.5, "checkpoint": 1.5,
        "other": 0.5,
    }  # fmt: skip
    assert sum(parts.values()) == 14.0


@pytest.mark.parametrize(("saved", "share"), [(40, 1.0), (30, 0.75), (0, 0.0)])
def test_steps_that_no_save_holds_are_lost(saved, share):
    parts = parts_of(killed_and_resumed(saved))
    second = (80 - saved) / 2
    assert parts["input_wait"] == 4.0
    assert parts["steps"] == pytest.approx(16 * share + second)
    # The last 2 s before the kill were recorded by no step.
    assert parts["lost_steps"] == pytest.approx(16 * (1 - share) + 2)
    assert parts["gaps"] == pytest.approx(100.0)
    assert sum(parts.values()) == pytest.approx(130 + 3 + second)


def test_an_older_save_loses_the_steps_of_both_attempts_before():
    log = Log().begin(0.0).add("phase", 0.0, name="train").train(10.0, 10, 10)
    log.begin(20.0).add("restored", 0.0, step=8).add("phase", 0.0, name="train").train(4.0, 12, 4)
    log.begin(30.0).add("restored", 0.0, step=5).add("phase", 0.0, name="train").train(7.0, 12, 7)
    parts = parts_of(log)
    assert (parts["steps"], parts["lost_steps"]) == (5.0 + 7.0, 5.0 + 4.0)


def test_an_attempt_that_came_to_no_state_loses_nothing():
    log = Log().begin(0.0).add("phase", 0.0, name="train").train(10.0, 10, 10)
    log.begin(20.0).add("attempt_end", 2.0, status="failed", step=0)
    assert parts_of(log)["steps"] == 10.0


def test_a_result_holds_the_fraction_and_its_parts():
    result = trial_of(killed_and_resumed(30).events)
    assert result.goodput == pytest.approx((12 + 25) / 158)
    assert sum(result.wall_seconds.values()) == pytest.approx(158)


def test_lost_lines_leave_no_goodput():
    log = interrupted_run()
    events = [{**event, "lost_log": event["event"] == "attempt_start"} for event in log.events]
    assert wall_seconds(LoggedRun.from_events(events))[0] == {}
    result = trial_of(events)
    assert result.goodput is None and "lost" in result.reasons["goodput"]


def test_another_boot_is_measured_by_the_wall_clocks():
    log = killed_and_resumed(40)
    for event in log.events:
        if event["attempt"] == 2:
            event["boot_seconds"] -= 120.0
            if event["event"] == "attempt_start":
                event["boot_id"] = "another"
    assert parts_of(log)["gaps"] == pytest.approx(100.0)
