"""Time to accuracy from logs whose answer is computed by hand."""

import pytest

from dawnjax.analysis.run_summary import (
    History,
    history_of,
    knows_more,
    run_started,
    spent,
    summarize,
)
from dawnjax.analysis.stage_rates import stage_rows
from dawnjax.errors import RunError
from dawnjax.run_log import condense
from dawnjax.stages import Span

EXPERIMENT = {
    "name": "x",
    "global_batch_size": 10,
    "targets": [{"metric": "top_1_accuracy", "value": 0.9, "direction": "at_least"}],
    "target_note": "",
}


class Log:
    """Writes events of attempts at given moments."""

    def __init__(self, boot_id="boot"):
        self.events, self.attempt, self.start = [], 0, 0.0
        self.boot_id = boot_id

    def begin(self, start, price=None, hosts=None):
        self.attempt, self.start = self.attempt + 1, start
        self.add("attempt_start", 0.5, run_id="r", boot_id=self.boot_id, versions={})
        self.add(
            "experiment",
            0.5,
            experiment=EXPERIMENT,
            identity="i",
            overrides={},
            seed=0,
            num_train_examples=100,
            num_eval_examples=20,
            run_options={"price_per_hour_usd": price},
        )
        self.add(
            "devices",
            0.5,
            device_kind="cpu",
            platform="cpu",
            num_devices=2,
            num_processes=2,
            **({} if hosts is None else {"num_hosts": hosts}),
            mesh={},
        )
        self.add("phase", 0.5, name="setup")
        return self

    def add(self, event, t, /, **fields):
        self.events.append(
            {
                "event": event,
                "attempt": self.attempt,
                "t": t,
                "boot_seconds": self.start + t,
                "unix_seconds": 1e9 + self.start + t,
                **fields,
            }
        )
        return self

    def train(self, t, step, steps):
        return self.add(
            "train", t, step=step, epoch=step / 10, loss=1.0, steps=steps, input_wait_seconds=0.0
        )

    def evaluate(self, t, step, accuracy):
        return self.add(
            "evaluation",
            t,
            step=step,
            epoch=step / 10,
            metrics={"top_1_accuracy": accuracy},
            reached=accuracy >= 0.9,
        )


def one_attempt(price=None):
    log = Log().begin(100.0, price)
    log.add("phase", 2.0, name="compile").add("phase", 7.0, name="setup")
    log.add("run_start", 8.0).add("phase", 8.0, name="train")
    log.add("train", 9.0, step=10, epoch=1.0, loss=2.0, steps=10, input_wait_seconds=0.0)
    log.add("phase", 9.5, name="eval").evaluate(10.0, 10, 0.5).add("phase", 10.0, name="train")
    log.add("train", 11.0, step=20, epoch=2.0, loss=1.0, steps=10, input_wait_seconds=0.0)
    log.add("phase", 11.5, name="eval").evaluate(12.25, 20, 0.95)
    log.add("phase", 12.5, name="checkpoint")
    return log.add("attempt_end", 14.0, status="reached", step=20)


def test_one_attempt():
    result = summarize(one_attempt(price=36.0).events)
    assert result.reached and result.status == "reached"
    assert result.time_to_accuracy_seconds == 4.25  # 12.25 - 8
    assert result.elapsed_seconds_to_accuracy == 4.25
    assert result.total_seconds_to_accuracy == 12.25
    assert result.total_seconds == 14.0
    assert result.compile_seconds == 5.0
    assert result.train_seconds == 3.0  # 8 to 9.5 and 10 to 11.5
    # setup: 0 to 2 and 7 to 8; eval: 9.5 to 10 and 11.5 to 12.5
    assert result.phases == {
        "setup": 3.0,
        "compile": 5.0,
        "restore": 0.0,
        "train": 3.0,
        "eval": 1.5,
        "checkpoint": 1.5,
        "profile": 0.0,
        "other": 0.0,
    }
    assert sum(result.phases.values()) == result.total_seconds
    assert result.examples_per_second == pytest.approx(20 * 10 / 3.0, abs=1e-6)
    assert (result.steps, result.epochs, result.interruptions) == (20, 2.0, 0)
    assert result.best == {"top_1_accuracy": 0.95}
    assert [row["seconds_since_run_start"] for row in result.evaluations] == [2.0, 4.25]
    # 2 hosts at 36 USD an hour are 0.02 USD a second.
    assert result.cost_usd == pytest.approx(0.02 * 4.25, abs=1e-6)
    assert result.allocated_cost_usd == pytest.approx(0.02 * 14, abs=1e-6)
    assert result.time_uncertainty_seconds == 0.0


def test_without_a_price_cost_is_null_with_the_reason():
    result = summarize(one_attempt().events)
    assert result.cost_usd is None and "price" in result.reasons["cost_usd"]


def interrupted_run():
    """Run start at 8, killed after 20 s, 1,000 s gap, then reached 30 s into the second attempt."""
    log = Log().begin(0.0)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").evaluate(12.0, 10, 0.5)
    log.add("host_sample", 20.0)
    log.begin(1020.0)
    log.add("restored", 6.0, step=10, history=None).evaluate(25.0, 20, 0.7)
    log.evaluate(30.0, 30, 0.9)
    return log.add("attempt_end", 31.0, status="reached", step=30)


def test_an_interruption_counts_all_but_the_gap():
    result = summarize(interrupted_run().events)
    # (20 - 8) of the first attempt, and all 30 s of the second: restart and redone work count.
    assert result.time_to_accuracy_seconds == 42.0
    assert result.total_seconds_to_accuracy == 50.0
    # From boot second 8 to boot second 1,050.
    assert result.elapsed_seconds_to_accuracy == 1042.0
    assert result.interruptions == 1
    assert result.time_uncertainty_seconds == 1.0
    assert [row["seconds_since_run_start"] for row in result.evaluations] == [4.0, 37.0, 42.0]


def test_a_killed_attempt_s_steps_count_with_their_seconds():
    log = Log().begin(0.0)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").add("stage", 8.0, index=0)
    log.train(10.0, 10, 10).add("stage", 10.0, index=1).train(12.0, 20, 10)
    log.add("host_sample", 13.0)  # and killed
    spans = (Span(0, 0, 10, 0, 5), Span(1, 10, 40, 50, 5))
    rows = stage_rows({"stages": {}, "augmentation": {}}, spans, [log.events])
    assert [(row["steps_made"], row["train_seconds"]) for row in rows] == [(10, 2.0), (10, 3.0)]


def recompiling_run(reached=0.9):
    """Compiles from 2 to 7 with run_start at 8, killed at 20; resumed, it compiles from 1 to 4."""
    log = Log().begin(0.0)
    log.add("phase", 2.0, name="compile").add("compiled", 6.0, program="train", cache="cold")
    log.add("phase", 7.0, name="setup").add("run_start", 8.0).add("phase", 8.0, name="train")
    log.add("host_sample", 20.0).begin(1020.0)
    log.add("phase", 1.0, name="compile").add("compiled", 3.0, program="train", cache="warm")
    log.add("phase", 4.0, name="train").evaluate(30.0, 30, reached)
    log.add("phase", 31.0, name="profile").add("compiled", 32.0, program="twin", cache="off")
    return log.add("attempt_end", 33.0, status="reached", step=30)


def test_compilation_is_before_the_clock_or_in_the_time_to_accuracy():
    result = summarize(one_attempt().events)
    assert result.compile_seconds_before_run_start == result.compile_seconds == 5.0
    assert result.compile_seconds_in_time_to_accuracy == 0.0
    resumed = recompiling_run()
    result = summarize(resumed.events)
    assert (result.time_to_accuracy_seconds, result.compile_seconds) == (42.0, 8.0)
    assert result.compile_seconds_before_run_start == 5.0
    assert result.compile_seconds_in_time_to_accuracy == 3.0
    # Of the programs that this is of, as the run first had them; the profile's are none of them.
    assert result.compile_cache == {"train": "cold"}
    # After the target it is in neither.
    resumed.begin(2000.0).add("phase", 1.0, name="compile").add("host_sample", 3.0)
    result = summarize(resumed.events)
    assert (result.compile_seconds, result.compile_seconds_before_run_start) == (10.0, 5.0)
    assert result.compile_seconds_in_time_to_accuracy == 3.0
    # Not reached: only that before the clock is told.
    result = summarize(recompiling_run(reached=0.5).events)
    assert result.compile_seconds_in_time_to_accuracy is None
    reason = result.reasons["compile_seconds_in_time_to_accuracy"]
    assert (result.compile_seconds_before_run_start, "reached" in reason) == (5.0, True)


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


def test_training_that_goes_on_after_the_target():
    result = summarize(one_attempt().events)
    assert (result.epochs_to_target, result.epochs, result.trained_on) == (2.0, 2.0, False)
    log = one_attempt()
    log.events.pop()
    log.add("phase", 13.0, name="train").train(15.0, 40, 20)
    result = summarize(log.add("attempt_end", 16.0, status="reached", step=40).events)
    assert (result.epochs_to_target, result.epochs, result.trained_on) == (2.0, 4.0, True)


def test_a_stepped_wall_clock_changes_no_time():
    log = interrupted_run()
    expected = summarize(log.events)
    for event in log.events:
        if event["t"] > 9 or event["attempt"] == 2:
            event["unix_seconds"] += 3600
    stepped = summarize(log.events)
    assert stepped == expected


def test_another_machine_has_only_the_wall_clock_for_the_gap():
    log = interrupted_run()
    for event in log.events:
        if event["attempt"] == 2:
            event["boot_seconds"] -= 900
            event["unix_seconds"] += 5
            if event["event"] == "attempt_start":
                event["boot_id"] = "another"
    assert summarize(log.events).elapsed_seconds_to_accuracy == 1047.0


def test_an_attempt_killed_before_run_start_is_in_the_total_alone():
    log = Log().begin(0.0).add("host_sample", 5.0)
    log.begin(100.0).add("run_start", 3.0).evaluate(7.0, 10, 0.9)
    log.add("attempt_end", 8.0, status="reached", step=10)
    result = summarize(log.events)
    assert result.time_to_accuracy_seconds == 4.0
    assert result.total_seconds_to_accuracy == 12.0


def test_redone_evaluations_are_reported_once_and_a_difference_is_said():
    log = interrupted_run()
    assert len(summarize(log.events).evaluations) == 3
    same = Log().begin(0.0).add("run_start", 1.0).evaluate(2.0, 10, 0.5).add("host_sample", 3.0)
    same.begin(10.0).evaluate(4.0, 10, 0.5)
    assert summarize(same.events).warnings == []
    same.evaluate(5.0, 10, 0.6)
    assert "step 10" in summarize(same.events).warnings[0]
    assert [row["top_1_accuracy"] for row in summarize(same.events).evaluations] == [0.5]


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


def lost_log(price=None, hosts=None, accuracy=0.5):
    """Run start at 8, an evaluation at 12, a save at 20: what the checkpoint then carries."""
    log = Log().begin(0.0, price, hosts)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").train(12.0, 10, 10)
    return history_of(log.evaluate(12.0, 10, accuracy).add("host_sample", 20.0).events)


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


def test_each_attempt_costs_its_own_price_and_hosts():
    log = Log().begin(0.0, price=36.0, hosts=1)
    log.add("run_start", 8.0).add("host_sample", 20.0)
    log.begin(100.0, price=72.0, hosts=3).evaluate(30.0, 30, 0.9)
    log.add("attempt_end", 40.0, status="reached", step=30)
    result = summarize(log.events)
    # 0.01 USD a second for one host, then 0.06 for three.
    assert result.cost_usd == pytest.approx(0.01 * 12 + 0.06 * 30, abs=1e-6)
    assert result.allocated_cost_usd == pytest.approx(0.01 * 20 + 0.06 * 40, abs=1e-6)


def missed(price=None):
    """Run start at 8; the last step ends at 20, the last evaluation at 21, nothing is reached."""
    log = Log().begin(0.0, price, hosts=1)
    log.add("run_start", 8.0).train(20.0, 10, 10).evaluate(21.0, 10, 0.5)
    return log.add("phase", 21.5, name="checkpoint").add("checkpoint", 22.0, step=10)


def profiled(log, until):
    return log.add("phase", 23.0, name="profile").add("host_sample", until)


def test_what_a_trial_took_ends_with_its_training():
    # 13 s to the evaluation, at 0.01 USD a second; neither the save nor the profile counts.
    took = (13.0, pytest.approx(0.13), (36.0,))
    for status in ("not_reached", "interrupted"):
        log = profiled(missed(36.0), 90.0).add("attempt_end", 91.0, status=status, step=10)
        assert spent(log.events) == took
    log = profiled(missed(36.0), 90.0)  # and killed
    assert spent(log.events) == took
    assert spent(condense(log.events)) == took
    # Resumed with nothing to train: the gap, the restart and the second profile are outside too.
    log.begin(200.0, 36.0, hosts=1).add("restored", 6.0, step=10, history=None)
    log.add("phase", 7.0, name="profile").add("attempt_end", 60.0, status="not_reached", step=10)
    assert spent(log.events) == took
    # 12 s to the step whose loss was NaN.
    log = Log().begin(0.0, 36.0, hosts=1).add("run_start", 8.0).train(20.0, 10, 10)
    log.add("diverged", 20.0, step=7).add("attempt_end", 25.0, status="diverged", step=10)
    assert spent(log.events) == (12.0, pytest.approx(0.12), (36.0,))


def test_what_a_trial_took_that_has_not_ended_goes_on_to_its_last_event():
    log = missed().train(24.0, 20, 10).add("host_sample", 27.0)
    assert spent(log.events).seconds == 19.0
    # 22 s of the killed attempt count whole, then 5 s of one that was killed as it restored.
    log = missed().add("host_sample", 30.0)
    log.begin(200.0).add("phase", 1.0, name="restore").add("host_sample", 5.0)
    assert spent(log.events).seconds == 27.0
    log.train(9.0, 20, 10).evaluate(10.0, 20, 0.5)
    profiled(log, 90.0).add("attempt_end", 91.0, status="not_reached", step=20)
    assert spent(log.events).seconds == 32.0
    assert spent(Log().begin(0.0).events) == (None, None, (None,))


def test_what_a_trial_took_in_a_log_that_was_lost():
    log = Log().begin(1020.0, 36.0).add("restored", 6.0, step=10, history=lost_log(price=36.0))
    profiled(log, 90.0).add("attempt_end", 91.0, status="not_reached", step=10)
    history = lost_log(price=36.0)
    assert spent(log.events)[:2] == (history["run_seconds"], history["cost_usd"])


def test_the_cost_of_a_trial_that_reached_is_that_of_its_time_to_accuracy():
    log = Log().begin(0.0, price=36.0, hosts=1)
    log.add("run_start", 8.0).add("host_sample", 20.0)
    log.begin(100.0, price=72.0, hosts=3).evaluate(30.0, 30, 0.9).train(35.0, 40, 10)
    log.add("attempt_end", 40.0, status="reached", step=30)
    # 12 s at 0.01 USD and 30 s at 0.06.
    assert spent(log.events) == (47.0, pytest.approx(1.92), (36.0, 216.0))


@pytest.mark.parametrize("price", [-5.0, "3", True, 1e300, float("nan")])
def test_what_is_no_price_is_ignored_with_a_warning(price):
    result = summarize(one_attempt(price=price).events)
    assert result.cost_usd is None and result.allocated_cost_usd is None
    assert result.warnings == [
        f"the price of attempt 1 is {price!r}, no amount of dollars an hour; it is ignored"
    ]


def test_an_attempt_without_a_price_leaves_no_cost_where_it_counts():
    log = Log().begin(0.0).add("host_sample", 5.0)
    log.begin(100.0, price=36.0, hosts=1).add("run_start", 3.0).evaluate(7.0, 10, 0.9)
    log.add("attempt_end", 8.0, status="reached", step=10)
    log.begin(200.0).add("attempt_end", 1.0, status="reached", step=10)
    result = summarize(log.events)
    # The first ended before the run's clock started and the third came after the target.
    assert result.cost_usd == pytest.approx(0.04, abs=1e-6)
    assert "cost_usd" not in result.reasons
    assert result.allocated_cost_usd is None
    assert result.reasons["allocated_cost_usd"].endswith("in attempt 1, 3")


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


def test_reaching_the_target_is_no_status():
    log = Log().begin(0.0).add("run_start", 1.0).evaluate(2.0, 10, 0.95).add("host_sample", 3.0)
    result = summarize(log.events)
    assert (result.status, result.reached) == ("running", True)
    log.add("attempt_end", 5.0, status="failed", step=10)
    result = summarize(log.events)
    assert (result.status, result.reached, result.time_to_accuracy_seconds) == ("failed", True, 1.0)
    # An event after the end changes no status, a new attempt does.
    log.add("warning", 5.5, message="late")
    assert summarize(log.events).status == "failed"
    assert summarize(log.begin(50.0).events).status == "running"


def test_an_attempt_whose_start_is_damaged_keeps_its_seconds():
    for damaged, others in ((1, 2), (2, 1)):
        log = interrupted_run()
        expected = summarize(log.events)
        events = [
            event
            for event in log.events
            if (event["event"], event["attempt"]) != ("attempt_start", damaged)
        ]
        result = summarize(events)
        assert result.time_to_accuracy_seconds == expected.time_to_accuracy_seconds == 42.0
        assert result.total_seconds == 51.0
        assert (result.run_id, result.interruptions) == ("r", 1)
        assert f"attempt {damaged}" in result.warnings[0]
        assert not any(f"attempt {others}" in message for message in result.warnings)
        # Whether the machine was booted in between is not known: the wall clock says 1,042 too.
        assert result.elapsed_seconds_to_accuracy == 1042.0


def test_steps_are_those_of_the_newest_state():
    log = Log().begin(0.0).add("run_start", 1.0).train(2.0, 20, 20)
    log.add("checkpoint", 2.5, step=20).train(3.0, 50, 30)
    assert (summarize(log.events).steps, summarize(log.events).epochs) == (50, 5.0)
    # Killed while it compiles, then back at the checkpoint: steps 21 to 50 are gone.
    log.begin(10.0).add("host_sample", 1.0)
    assert summarize(log.events).steps == 50
    log.begin(20.0).add("restored", 1.0, step=20, history=None)
    assert (summarize(log.events).steps, summarize(log.events).epochs) == (20, 2.0)
    log.train(2.0, 30, 10).add("diverged", 2.5, step=27)
    assert summarize(log.events).steps == 30
    assert summarize(condense(log.events)).steps == 30
    # One that fails before it restores has no state of its own.
    log.begin(30.0).add("attempt_end", 1.0, status="failed", step=0)
    assert summarize(log.events).steps == 30
    log.begin(40.0).add("attempt_end", 1.0, status="interrupted", step=20)
    assert summarize(log.events).steps == 20


def test_a_killed_run_reads_as_running_and_diverged_as_not_reached():
    log = Log().begin(0.0).add("run_start", 1.0).evaluate(2.0, 10, 0.5).add("host_sample", 3.0)
    assert summarize(log.events).status == "running"
    log.add("diverged", 4.0, step=17)
    log.add("attempt_end", 5.0, status="diverged", step=20)
    result = summarize(log.events)
    assert (result.status, result.reached, result.diverged_step) == ("diverged", False, 17)
    assert result.time_to_accuracy_seconds is None
    assert "reached" in result.reasons["time_to_accuracy_seconds"]


def test_attempts_with_other_versions_are_named():
    def run(*versions: dict, past: dict | None = None) -> Log:
        log = Log()
        for number, installed in enumerate(versions):
            log.begin(100.0 * number + (0.0 if past is None else 1000.0))
            log.events[-4]["versions"] = installed
            if past is not None and number == 0:
                log.add("restored", 1.0, step=10, history=past)
            elif number == 0:
                log.add("run_start", 1.0)
            log.evaluate(2.0, 10, 0.5)
        return log

    old, new = {"jax": "0.10", "commit": "a1"}, {"jax": "0.11", "commit": "b2+"}
    assert summarize(run(old, dict(old)).events).warnings == []
    result = summarize(run(old, old, new).events)
    assert result.versions == new
    (warning,) = result.warnings
    assert "jax 0.10 (attempt 1, attempt 2), 0.11 (attempt 3); commit a1 (" in warning
    # Out of a checkout there is no commit; and a lost log leaves its versions in the checkpoint.
    past = history_of(run(old).events)
    result = summarize(run({"jax": "0.10"}, past=past).events)
    assert "commit a1 (an attempt whose log was lost), none (attempt 1)" in result.warnings[-1]
    assert "jax" not in result.warnings[-1]


def test_suspension_is_said():
    log = one_attempt()
    for event in log.events:
        if event["t"] > 9:
            event["boot_seconds"] += 100
    assert "suspended for 100 s" in summarize(log.events).warnings[0]


def test_the_summary_of_condensed_events_is_the_same():
    events = interrupted_run().events
    assert summarize(condense(events)) == summarize(events)


def test_an_empty_log_is_one_clear_error():
    with pytest.raises(RunError, match="no attempt|described itself"):
        summarize([])
