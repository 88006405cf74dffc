"""What a checkpoint carries of a run, where its log or the end of it was lost."""

import pytest
from made_logs import Log, lost_log, recompiling_run

from dawnjax.runs.history import History
from dawnjax.runs.summary import history_of, knows_more, run_started, summarize


def test_compilation_of_a_lost_log_is_carried():
    whole = recompiling_run()
    first = [event for event in whole.events if event["attempt"] == 1]
    second = [event for event in whole.events if event["attempt"] == 2]
    past = history_of(first)
    for history, before in (
        (past, 5.0),
        ({**past, "compile_seconds_before_run_start": None}, None),
    ):
        event = {**second[0], "event": "restored", "step": 0, "history": history, "t": 4.0}
        result = summarize([*second[:-1], event, second[-1]])
        assert (result.time_to_accuracy_seconds, result.compile_seconds) == (42.0, 8.0)
        assert result.compile_seconds_before_run_start == before
        assert result.compile_seconds_in_time_to_accuracy == (None if before is None else 3.0)
        assert ("lost" in result.reasons.get("compile_seconds_before_run_start", "")) == (
            not before
        )
        assert result.compile_cache == {"train": "cold"}


def test_a_lost_log_is_replaced_by_the_past_in_the_checkpoint():
    log = Log().begin(0.0)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").evaluate(12.0, 10, 0.5)
    log.add("train", 12.0, step=10, epoch=1.0, loss=1.0, steps=10, input_wait_seconds=0.0)
    now = log.add("host_sample", 20.0).events
    history = history_of(now)
    assert history["run_seconds"] == 12.0
    fresh = Log().begin(1020.0)
    fresh.add("restored", 6.0, step=10, history=history).evaluate(30.0, 30, 0.9)
    fresh.add("attempt_end", 31.0, status="reached", step=30)
    result = summarize(fresh.events)
    assert result.time_to_accuracy_seconds == 42.0
    assert result.total_seconds_to_accuracy == 50.0
    assert result.interruptions == 1
    assert [row["step"] for row in result.evaluations] == [10, 30]


def test_a_lost_log_may_be_replaced_in_any_attempt():
    log = Log().begin(1000.0).add("phase", 1.0, name="compile").add("host_sample", 9.0)
    assert not run_started(log.events)
    log.begin(1020.0).add("restored", 6.0, step=10, history=lost_log())
    assert run_started(log.events)
    log.evaluate(30.0, 30, 0.9).add("attempt_end", 31.0, status="reached", step=30)
    result = summarize(log.events)
    # 12 s before the save, 9 s of the attempt killed while it compiled, 30 s of the last.
    assert result.time_to_accuracy_seconds == 51.0
    assert result.total_seconds_to_accuracy == 20.0 + 9.0 + 30.0
    assert result.total_seconds == 20.0 + 9.0 + 31.0 == sum(result.phases.values())
    # From second 8 to second 1,050 of the wall clock.
    assert result.elapsed_seconds_to_accuracy == 1042.0
    assert result.interruptions == 2
    assert [row["seconds_since_run_start"] for row in result.evaluations] == [4.0, 51.0]
    # A disk lost again: the past is handed on whole.
    again = History.from_json(history_of(log.events))
    assert (again.attempts, again.run_seconds, again.total_seconds) == (3, 52.0, 60.0)
    assert (again.steps_made, again.run_start_unix_seconds) == (10, 1e9 + 8)


def test_a_log_that_lost_its_end_is_replaced_by_the_past_in_the_checkpoint():
    """Two attempts, the second saves at second 15 of its own; then lines are lost."""
    log = Log().begin(0.0)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").train(12.0, 10, 10)
    log.add("first_losses", 12.0, start_step=0, losses=[3.0, 2.0]).add("host_sample", 20.0)
    log.begin(1000.0).add("restored", 6.0, step=10, history=None)
    log.add("phase", 6.0, name="train").train(11.0, 20, 10).evaluate(12.0, 20, 0.5)
    saved = len(log.add("host_sample", 15.0).events)
    past = history_of(log.events)
    assert past["run_seconds"] == 12.0 + 15.0
    log.add("checkpoint", 15.0, step=20).add("host_sample", 17.0)
    assert not knows_more(past, log.events)  # nothing was lost
    assert not knows_more(past, log.events[: saved + 1])  # nothing from before the save was

    def resumed(events: list, past: dict | None, start: float = 2000.0) -> Log:
        rest = Log()
        rest.events, rest.attempt = list(events), max(event["attempt"] for event in events)
        rest.begin(start).add("restored", 6.0, step=20, history=past).evaluate(30.0, 30, 0.9)
        return rest.add("attempt_end", 31.0, status="reached", step=30)

    expected = summarize(resumed(log.events, None).events)
    assert expected.time_to_accuracy_seconds == 12.0 + 17.0 + 30.0
    for kept in range(5, saved):  # from `run_start` on
        events = log.events[:kept]
        assert knows_more(past, events)
        result = summarize(resumed(events, past).events)
        assert result.time_to_accuracy_seconds == 12.0 + 15.0 + 30.0
        assert result.elapsed_seconds_to_accuracy == 2030.0 - 8.0
        assert result.total_seconds == 20.0 + 15.0 + 31.0 == sum(result.phases.values())
        assert result.interruptions == 2
        assert result.first_losses == [3.0, 2.0]
        # 20 steps of 10 in seconds 8 to 20 of the first attempt and 6 to 15 of the second.
        assert result.examples_per_second == pytest.approx(200 / 21, abs=1e-6)
        assert [row["seconds_since_run_start"] for row in result.evaluations] == [24.0, 57.0]
        assert result.time_uncertainty_seconds is None
        assert "or its end was lost" in result.warnings[0]
    # An attempt that was killed between the loss and the restart is of no past.
    again = resumed(resumed(log.events[:6], None).events[:-2], past, 3000.0)
    assert summarize(again.events).time_to_accuracy_seconds == 12.0 + 15.0 + 6.0 + 30.0
    # And what was lost once can be lost again.
    lost_again = resumed(log.events[:6], past)
    past = history_of(lost_again.events)
    assert past["run_seconds"] == 12.0 + 15.0 + 31.0
    assert not knows_more(past, lost_again.events)
    assert knows_more(past, lost_again.events[:-2])
    result = summarize(resumed(lost_again.events[:-2], past, 3000.0).events)
    assert result.total_seconds == 20.0 + 15.0 + 31.0 + 31.0
    # A checkpoint that does not say which attempts it tells of cannot replace any.
    assert not knows_more({**past, "attempt_starts": []}, log.events[:6])


@pytest.mark.parametrize("knows_an_evaluation", [True, False])
def test_a_damaged_run_start_does_not_count_the_past_twice(knows_an_evaluation):
    def run(with_start: bool, past: dict | None = None) -> tuple[Log, dict | None]:
        log = Log().begin(0.0)
        if with_start:
            log.add("run_start", 8.0)
        log.add("phase", 8.0, name="train").train(12.0, 10, 10)
        if knows_an_evaluation:
            log.evaluate(12.0, 10, 0.5)
        history = history_of(log.add("host_sample", 20.0).events) if with_start else past
        log.add("checkpoint", 20.0, step=10).train(24.0, 20, 10)
        return log, history

    whole, past = run(with_start=True)
    damaged, _ = run(False, past)
    assert not run_started(damaged.events)
    for log, history in ((whole, None), (damaged, past)):
        log.begin(100.0).add("restored", 6.0, step=10, history=history)
        log.evaluate(30.0, 30, 0.9).add("attempt_end", 31.0, status="reached", step=30)
    result, expected = summarize(damaged.events), summarize(whole.events)
    # From second 8 to 24 of the first attempt, and 30 s of the second.
    assert expected.time_to_accuracy_seconds == 46.0
    assert result.to_json() == expected.to_json()


def test_the_clock_starts_with_run_start_or_a_past_that_has_it():
    log = Log().begin(0.0)
    assert not run_started([]) and not run_started(log.events)
    log.add("restored", 2.0, step=0, history=History(attempts=1, total_seconds=5.0).to_json())
    assert not run_started(log.events)
    log.add("run_start", 3.0)
    assert run_started(log.events)
    result = summarize(log.evaluate(7.0, 10, 0.9).events)
    assert (result.time_to_accuracy_seconds, result.total_seconds_to_accuracy) == (4.0, 12.0)


def test_what_a_lost_attempt_did_after_its_save_is_said_to_be_unknown():
    log = Log().begin(1020.0).add("restored", 6.0, step=10, history=lost_log())
    result = summarize(log.evaluate(30.0, 30, 0.9).events)
    assert result.time_uncertainty_seconds is None
    assert "lost" in result.reasons["time_uncertainty_seconds"]
    assert "lost" in result.warnings[0]
    # A wall clock that was set back by 1,030 s never makes it less than the 12 + 30 s of the run.
    for event in log.events:
        event["unix_seconds"] -= 1030.0
    assert summarize(log.events).elapsed_seconds_to_accuracy == 42.0


def test_a_target_reached_in_the_carried_past_stays_reached():
    history = lost_log(price=36.0, accuracy=0.95)
    assert history["reached"]
    log = Log().begin(1020.0, 36.0).add("restored", 6.0, step=10, history=history)
    log.evaluate(7.0, 20, 0.97).add("attempt_end", 10.0, status="reached", step=20)
    result = summarize(log.events)
    assert result.reached and "time_to_accuracy_seconds" not in result.reasons
    # The evaluation at 12, 4 s after run_start.
    assert result.time_to_accuracy_seconds == result.elapsed_seconds_to_accuracy == 4.0
    assert result.total_seconds_to_accuracy == 12.0
    # 2 processes at 36 USD an hour are 0.02 USD a second.
    assert result.cost_usd == pytest.approx(0.08, abs=1e-6)
    assert result.allocated_cost_usd == pytest.approx(0.02 * (20 + 10), abs=1e-6)


def test_a_past_survives_json():
    history = lost_log(price=36.0)
    assert History.from_json(history).to_json() == history
    assert History.from_json({"run_seconds": 3.0, "later_field": 1}) == History(
        run_seconds=3.0, cost_usd=None, allocated_cost_usd=None
    )


def test_a_carried_past_brings_its_cost():
    def resumed(history):
        log = Log().begin(1020.0, 36.0, hosts=1).add("restored", 6.0, step=10, history=history)
        return summarize(log.evaluate(30.0, 30, 0.9).add("host_sample", 31.0).events)

    result = resumed(lost_log(price=72.0, hosts=2))
    # 0.04 USD a second for 12 s of the run and 20 s in all, then 0.01.
    assert result.cost_usd == pytest.approx(0.04 * 12 + 0.01 * 30, abs=1e-6)
    assert result.allocated_cost_usd == pytest.approx(0.04 * 20 + 0.01 * 31, abs=1e-6)
    unpriced = resumed(lost_log())
    assert unpriced.cost_usd is unpriced.allocated_cost_usd is None
    assert "past" in unpriced.reasons["cost_usd"]
    assert "past" in unpriced.reasons["allocated_cost_usd"]
