"""Runs whose log, its end or a line was lost: the checkpoint restores what it holds."""

import pytest
from made_logs import EXPERIMENT, Log, lost_log, recompiling_run

from dawnjax.runs.clock import RunClock
from dawnjax.runs.log import RunLog, condense, encode_line, read_events
from dawnjax.runs.past import lacks_some_of, with_past
from dawnjax.runs.summary import summarize


def resumed(events: list, past: list | None, start: float = 2000.0, step: int = 20) -> Log:
    """A log that goes on with an attempt which restores at 6 s and reaches the target at 30 s."""
    log = Log()
    log.events = list(events)
    log.attempt = max((event["attempt"] for event in events), default=0)
    log.begin(start).add("restored", 6.0, step=step, past=past).evaluate(30.0, 30, 0.9)
    return log.add("attempt_end", 31.0, status="reached", step=30)


@pytest.mark.compiles
def test_compilation_of_a_lost_log_is_known():
    whole = recompiling_run()
    first = [event for event in whole.events if event["attempt"] == 1]
    second = [event for event in whole.events if event["attempt"] == 2]
    restored = {**second[0], "event": "restored", "step": 0, "t": 4.0, "past": first}
    result = summarize(with_past([*second[:-1], restored, second[-1]]))
    assert (result.time_to_accuracy_seconds, result.compile_seconds) == (42.0, 8.0)
    assert result.compile_seconds_before_run_start == 5.0
    assert result.compile_seconds_in_time_to_accuracy == 3.0
    assert result.compile_cache == {"train": "cold"}


def test_a_lost_log_is_replaced_by_the_past_in_the_checkpoint():
    log = resumed([], lost_log(), 1020.0, 10)
    assert lacks_some_of(lost_log(), log.events[:-3])
    result = summarize(log.read())
    # 12 s from run_start to the save, 30 s of the second attempt.
    assert result.time_to_accuracy_seconds == 42.0
    assert result.total_seconds_to_accuracy == 50.0
    assert result.interruptions == 1
    assert [row["step"] for row in result.evaluations] == [10, 30]


def test_a_lost_log_may_be_replaced_in_any_attempt():
    log = Log().begin(1000.0).add("phase", 1.0, name="compile").add("host_sample", 9.0)
    log = resumed(log.events, lost_log(), 1020.0, 10)
    result = summarize(log.read())
    # 12 s before the save, 9 s of the attempt killed while it compiled, 30 s of the last.
    assert result.time_to_accuracy_seconds == 51.0
    assert result.total_seconds_to_accuracy == 20.0 + 9.0 + 30.0
    assert result.total_seconds == 20.0 + 9.0 + 31.0 == sum(result.phases.values())
    # From second 8 to second 1,050 of the machine's clock.
    assert result.elapsed_seconds_to_accuracy == 1042.0
    assert result.interruptions == 2
    assert [row["seconds_since_run_start"] for row in result.evaluations] == [4.0, 51.0]
    # A disk lost again: the past is handed on whole.
    past = condense(log.read())
    again = summarize(resumed([], past, 3000.0).read())
    assert (again.interruptions, again.total_seconds) == (3, 60.0 + 31.0)
    assert again.time_to_accuracy_seconds == 51.0
    assert again.elapsed_seconds_to_accuracy == 1042.0


@pytest.mark.compiles
def test_a_log_that_lost_its_end_is_replaced_by_the_past_in_the_checkpoint():
    """Two attempts, the second saves at second 15 of its own; then lines are lost."""
    log = Log().begin(0.0)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").train(12.0, 10, 10)
    log.add("first_losses", 12.0, start_step=0, losses=[3.0, 2.0]).add("host_sample", 20.0)
    log.begin(1000.0).add("restored", 6.0, step=10, past=None)
    log.add("phase", 6.0, name="train").train(11.0, 20, 10).evaluate(12.0, 20, 0.5)
    saved = len(log.add("checkpoint", 15.0, step=20).events)
    past = condense(log.read())
    log.train(16.0, 30, 10).add("host_sample", 17.0)
    assert not lacks_some_of(past, log.events)  # nothing was lost
    assert not lacks_some_of(past, log.events[:saved])  # nothing from before the save was

    expected = summarize(resumed(log.events, None).read())
    assert expected.time_to_accuracy_seconds == 12.0 + 17.0 + 30.0
    for kept in range(5, saved):  # from `run_start` on
        events = log.events[:kept]
        assert lacks_some_of(past, events)
        result = summarize(resumed(events, past).read())
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
    assert summarize(again.read()).time_to_accuracy_seconds == 12.0 + 15.0 + 6.0 + 30.0
    # And what was lost once can be lost again.
    lost_again = resumed(log.events[:6], past)
    past = condense(lost_again.read())
    assert not lacks_some_of(past, lost_again.read())
    assert lacks_some_of(past, with_past(lost_again.events[:-2]))
    result = summarize(resumed(lost_again.events[:-2], past, 3000.0).read())
    assert result.total_seconds == 20.0 + 15.0 + 31.0 + 31.0


@pytest.mark.parametrize("lost", range(1, 9))
def test_any_damaged_line_before_the_save_changes_nothing(lost):
    """The log goes on after the save, so that all of the run is still known."""
    log = Log().begin(0.0)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").train(12.0, 10, 10)
    log.evaluate(12.0, 10, 0.5).add("checkpoint", 20.0, step=10)
    past = condense(log.read())
    log.train(24.0, 20, 10)
    damaged = [event for number, event in enumerate(log.events) if number != lost]
    expected = summarize(resumed(log.events, None, 100.0, 10).read())
    # From second 8 to 24 of the first attempt, and 30 s of the second.
    assert expected.time_to_accuracy_seconds == 46.0
    is_train = log.events[lost]["event"] == "train"
    assert lacks_some_of(past, damaged) is not is_train
    assert summarize(resumed(damaged, past, 100.0, 10).read()) == expected


def test_an_attempt_in_progress_reads_its_own_log_as_others_do(tmp_path):
    log = RunLog(tmp_path / "log.jsonl", RunClock())
    log.append("phase", name="restore")
    log.append("restored", step=10, past=lost_log())
    log.append("train", step=20, epoch=2.0, loss=1.0, steps=10, input_wait_seconds=0.0)
    log.close()
    assert log.events == condense(read_events(log.path)[0])
    assert {event["attempt"] for event in log.events} == {1, 2}
    again = RunLog(log.path, RunClock())
    again.append("warning", message="third")
    again.close()
    assert again.events == condense(read_events(log.path)[0])
    assert again.events[-1]["attempt"] == 3


def test_a_past_that_is_none_is_a_damaged_line(tmp_path):
    path = tmp_path / "log.jsonl"
    event = {"event": "restored", "attempt": 1, "sequence": 1, "t": 0.5, "step": 1}
    for past in (5, "text", [1], [{"event": "phase"}], {"a": 1}):
        path.write_bytes(encode_line({**event, "past": past}))
        assert read_events(path) == ([], [(1, "damaged")])


def test_what_a_lost_attempt_did_after_its_save_is_said_to_be_unknown():
    log = resumed([], lost_log(), 1020.0, 10)
    result = summarize(log.read())
    assert result.time_uncertainty_seconds is None
    assert "lost" in result.reasons["time_uncertainty_seconds"]
    assert "lost" in result.warnings[0]
    # On another machine, a wall clock that is 1,030 s behind never makes it less than the 12 + 30 s
    # of the run.
    for event in log.events:
        event["unix_seconds"] -= 1030.0
        if event["event"] == "attempt_start":
            event["boot_id"] = "another"
    assert summarize(log.read()).elapsed_seconds_to_accuracy == 42.0


def test_a_target_reached_in_a_lost_log_stays_reached():
    log = Log().begin(1020.0, 36.0)
    log.add("restored", 6.0, step=10, past=lost_log(price=36.0, accuracy=0.95))
    log.evaluate(7.0, 20, 0.97).add("attempt_end", 10.0, status="reached", step=20)
    result = summarize(log.read())
    assert result.reached and "time_to_accuracy_seconds" not in result.reasons
    # The evaluation at 12, 4 s after run_start.
    assert result.time_to_accuracy_seconds == result.elapsed_seconds_to_accuracy == 4.0
    assert result.total_seconds_to_accuracy == 12.0
    # 2 processes at 36 USD an hour are 0.02 USD a second.
    assert result.cost_usd == pytest.approx(0.08, abs=1e-6)
    assert result.allocated_cost_usd == pytest.approx(0.02 * (20 + 10), abs=1e-6)


def test_a_lost_log_keeps_its_cost():
    def result_after(past):
        log = Log().begin(1020.0, 36.0, hosts=1).add("restored", 6.0, step=10, past=past)
        return summarize(log.evaluate(30.0, 30, 0.9).add("host_sample", 31.0).read())

    result = result_after(lost_log(price=72.0, hosts=2))
    # 0.04 USD a second for 12 s of the run and 20 s in all, then 0.01.
    assert result.cost_usd == pytest.approx(0.04 * 12 + 0.01 * 30, abs=1e-6)
    assert result.allocated_cost_usd == pytest.approx(0.04 * 20 + 0.01 * 31, abs=1e-6)
    unpriced = result_after(lost_log())
    assert unpriced.cost_usd is unpriced.allocated_cost_usd is None
    assert unpriced.reasons["cost_usd"].endswith("in attempt 1")
    assert unpriced.reasons["allocated_cost_usd"].endswith("in attempt 1")


def read_without(path, log, lost) -> tuple[list, list]:
    """Reads a log of which some lines are gone."""
    fields = {"schema_version": 1, "process_index": 0, "xla_options": [], "run_options": {}}
    lines = [
        encode_line({**fields, **event}) for n, event in enumerate(log.events) if n not in lost
    ]
    path.write_bytes(b"".join(lines))
    return read_events(path)


def two_attempts() -> Log:
    """Run start at 8, reached at 14, killed at 15; resumed from the save of 12, reached at 30."""
    log = Log().begin(0.0)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").train(10.0, 5, 5)
    log.add("host_sample", 11.0, cpu_seconds=0.0, memory_bytes=0).add("checkpoint", 12.0, step=10)
    log.train(13.0, 10, 5).add("phase", 13.5, name="eval").evaluate(14.0, 20, 0.95)
    log.add("host_sample", 15.0, cpu_seconds=0.0, memory_bytes=0)
    log.begin(1000.0).add("restored", 6.0, step=10).add("phase", 6.0, name="eval")
    for event in log.events:
        if event["event"] == "experiment":
            event["experiment"] = {**EXPERIMENT, "evaluation": {"stop_at_target": True}}
    return log.evaluate(30.0, 20, 0.95).add("attempt_end", 31.0, status="reached", step=20)


# Places of two_attempts: 4 run_start, 5 phase, 6 train, 7 host_sample, 8 checkpoint, 9 train,
# 10 phase, 11 evaluation, 12 host_sample; 17 restored, 19 evaluation.
@pytest.mark.parametrize(
    ("lost", "seconds", "reason"),
    [
        ({7}, 6.0, ""),
        ({6}, 6.0, ""),
        ({0}, 6.0, ""),
        ({12}, 6.0, ""),  # after the target
        ({6, 7}, 6.0, ""),  # training went on in that attempt, so that no target was there
        ({11}, None, "one may have reached the target; the time is at most 37.000000 s"),
        ({9, 10, 11}, None, "one may have reached the target; the time is at most 37.000000 s"),
        ({4}, None, "lacks run_start"),
        ({11, 12}, None, "one may have reached the target"),
        ({19}, 6.0, ""),
    ],
)
def test_a_time_is_told_only_where_no_lost_line_could_change_it(tmp_path, lost, seconds, reason):
    events, faults = read_without(tmp_path / "log.jsonl", two_attempts(), lost)
    assert len(faults) == 1 and not faults[0].is_harmless
    result = summarize(events)
    assert result.time_to_accuracy_seconds == seconds
    assert result.reasons.get("time_to_accuracy_seconds", "").endswith(reason)
    assert result.examples_per_second is None
    assert any("are lost and no checkpoint holds them" in text for text in result.warnings)


def test_the_end_of_an_attempt_that_is_lost_leaves_the_clock_unknown(tmp_path):
    """As of attempts that did not reach: the last line of the first is gone, then reached again."""
    log = two_attempts()
    log.events[11] |= {"reached": False}
    events, _ = read_without(tmp_path / "log.jsonl", log, {12})
    result = summarize(events)
    assert result.time_to_accuracy_seconds is result.total_seconds_to_accuracy is None
    assert "when that attempt ended is not known" in result.reasons["time_to_accuracy_seconds"]
    assert [row["seconds_since_run_start"] for row in result.evaluations] == [6.0]
