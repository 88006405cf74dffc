"""Times and costs of a trial from logs whose answer is computed by hand, and their schema."""

import dataclasses
import json
from pathlib import Path

import pytest
from made_logs import Log, interrupted_run, one_attempt, recompiling_run

from dawnjax.errors import RunError
from dawnjax.trials.from_log import trial_of
from dawnjax.trials.trial import schema


def test_one_attempt():
    result = trial_of(one_attempt(price=36.0).events)
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
    assert [row.seconds_since_run_start for row in result.evaluations] == [2.0, 4.25]
    # 2 hosts at 36 USD an hour are 0.02 USD a second.
    assert result.cost_usd == pytest.approx(0.02 * 4.25, abs=1e-6)
    assert result.allocated_cost_usd == pytest.approx(0.02 * 14, abs=1e-6)
    assert result.time_uncertainty_seconds == 0.0


def test_the_work_before_an_evaluation():
    """100 examples at step 10, 200 at step 20: 50 tokens and 3,000 FLOPs each."""
    log = one_attempt()
    described = next(event for event in log.events if event["event"] == "experiment")
    described["parts_of_examples"] = {"tokens": 50.0}
    log.add("work", 13.0, num_params=123, flops_per_example=[3000.0])
    result = trial_of(log.events)
    assert result.num_params == 123
    assert [(row.tokens, row.flops) for row in result.evaluations] == [(5e3, 3e5), (1e4, 6e5)]
    assert result.to_json()["evaluations"][0]["tokens"] == 5e3
    # A log that does not tell them gives none, and the result has no such fields.
    result = trial_of(one_attempt().events)
    assert [(row.tokens, row.flops) for row in result.evaluations] == [(None, None)] * 2
    assert "tokens" not in result.to_json()["evaluations"][0] and result.num_params is None


def test_the_work_of_stages():
    """10 steps of 10 examples, then 10 of 20, whose examples take twice the FLOPs."""
    log = one_attempt()
    described = next(event for event in log.events if event["event"] == "experiment")
    first = described["spans"][0] | {"last_step": 10}
    second = {"index": 1, "first_step": 10, "last_step": 80, "first_example": 100}
    described["spans"] = [first, {**second, "global_batch_size": 20, "values": {}}]
    log.add("work", 13.0, num_params=1, flops_per_example=[1000.0, 2000.0])
    flops = [row.flops for row in trial_of(log.events).evaluations]
    assert flops == [100 * 1000.0, 100 * 1000.0 + 200 * 2000.0]


def test_a_run_without_a_recorded_step_has_no_throughput():
    log = Log().begin(0.0).add("run_start", 8.0).add("phase", 8.0, name="train")
    result = trial_of(log.add("attempt_end", 9.0, status="failed", step=0).events)
    assert result.train_seconds == 1.0 and result.examples_per_second is None
    assert "no train step" in result.reasons["examples_per_second"]


def test_an_interruption_counts_all_but_the_gap():
    result = trial_of(interrupted_run().events)
    # (20 - 8) of the first attempt, and all 30 s of the second: restart and redone work count.
    assert result.time_to_accuracy_seconds == 42.0
    assert result.total_seconds_to_accuracy == 50.0
    # From boot second 8 to boot second 1,050.
    assert result.elapsed_seconds_to_accuracy == 1042.0
    assert result.interruptions == 1
    assert result.time_uncertainty_seconds == 1.0
    assert [row.seconds_since_run_start for row in result.evaluations] == [4.0, 37.0, 42.0]


@pytest.mark.compiles
def test_compilation_is_before_the_clock_or_in_the_time_to_accuracy():
    result = trial_of(one_attempt().events)
    assert result.compile_seconds_before_run_start == result.compile_seconds == 5.0
    assert result.compile_seconds_in_time_to_accuracy == 0.0
    resumed = recompiling_run()
    result = trial_of(resumed.events)
    assert (result.time_to_accuracy_seconds, result.compile_seconds) == (42.0, 8.0)
    assert result.compile_seconds_before_run_start == 5.0
    assert result.compile_seconds_in_time_to_accuracy == 3.0
    # Of the programs that this is of, as the run first had them; the profile's are none of them.
    assert result.compile_cache == {"train": "cold"}
    # A GPU's searches that were read back make neither a cold nor a warm run.
    states = {"warm": {"warm"}, "tuned": {"warm", "tuned"}, "cold": {"cold", "tuned"}, "": set()}
    for said, of_programs in states.items():
        programs = {str(number): state for number, state in enumerate(of_programs)}
        assert dataclasses.replace(result, compile_cache=programs).compiled == said
    # After the target it is in neither.
    resumed.begin(2000.0).add("phase", 1.0, name="compile").add("host_sample", 3.0)
    result = trial_of(resumed.events)
    assert (result.compile_seconds, result.compile_seconds_before_run_start) == (10.0, 5.0)
    assert result.compile_seconds_in_time_to_accuracy == 3.0
    # Not reached: only that before the clock is told.
    result = trial_of(recompiling_run(reached=0.5).events)
    assert result.compile_seconds_in_time_to_accuracy is None
    reason = result.reasons["compile_seconds_in_time_to_accuracy"]
    assert (result.compile_seconds_before_run_start, "reached" in reason) == (5.0, True)


def test_training_that_goes_on_after_the_target():
    result = trial_of(one_attempt().events)
    assert (result.epochs_to_target, result.epochs, result.trained_on) == (2.0, 2.0, False)
    log = one_attempt()
    log.events.pop()
    log.add("phase", 13.0, name="train").train(15.0, 40, 20)
    result = trial_of(log.add("attempt_end", 16.0, status="reached", step=40).events)
    assert (result.epochs_to_target, result.epochs, result.trained_on) == (2.0, 4.0, True)


def test_a_stepped_wall_clock_changes_no_time():
    log = interrupted_run()
    expected = trial_of(log.events)
    for event in log.events:
        if event["t"] > 9 or event["attempt"] == 2:
            event["unix_seconds"] += 3600
    stepped = trial_of(log.events)
    assert dataclasses.replace(stepped, warnings=()) == expected
    assert stepped.warnings == (
        "the wall clock was set by +3,600 s in attempt 1; no duration in it is read from that "
        "clock",
    )


def test_another_machine_has_only_the_wall_clock_for_the_gap():
    log = interrupted_run()
    for event in log.events:
        if event["attempt"] == 2:
            event["boot_seconds"] -= 900
            event["unix_seconds"] += 5
            if event["event"] == "attempt_start":
                event["boot_id"] = "another"
    result = trial_of(log.events)
    assert result.elapsed_seconds_to_accuracy == 1047.0
    (warning,) = result.warnings
    assert warning.startswith("attempts 1 and 2 ran on two boots or machines, whose wall clocks")


def test_a_clock_that_goes_back_on_one_boot_measures_no_gap():
    """As after the restore of a machine's snapshot, which keeps the name of the boot."""
    log = interrupted_run()
    for event in log.events:
        if event["attempt"] == 2:
            event["boot_seconds"] -= 2000
    result = trial_of(log.events)
    assert result.elapsed_seconds_to_accuracy == 1042.0  # by the wall clocks; it was -958
    assert result.goodput is not None and result.wall_seconds["gaps"] == 1000.0


def test_an_attempt_killed_before_run_start_is_in_the_total_alone():
    log = Log().begin(0.0).add("host_sample", 5.0)
    log.begin(100.0).add("run_start", 3.0).evaluate(7.0, 10, 0.9)
    log.add("attempt_end", 8.0, status="reached", step=10)
    result = trial_of(log.events)
    assert result.time_to_accuracy_seconds == 4.0
    assert result.total_seconds_to_accuracy == 12.0


def test_each_attempt_costs_its_own_price_and_hosts():
    log = Log().begin(0.0, price=36.0, hosts=1)
    log.add("run_start", 8.0).add("host_sample", 20.0)
    log.begin(100.0, price=72.0, hosts=3).evaluate(30.0, 30, 0.9)
    log.add("attempt_end", 40.0, status="reached", step=30)
    result = trial_of(log.events)
    # 0.01 USD a second for one host, then 0.06 for three.
    assert result.cost_usd == pytest.approx(0.01 * 12 + 0.06 * 30, abs=1e-6)
    assert result.allocated_cost_usd == pytest.approx(0.01 * 20 + 0.06 * 40, abs=1e-6)


def test_an_attempt_without_a_price_leaves_no_cost_where_it_counts():
    log = Log().begin(0.0).add("host_sample", 5.0)
    log.begin(100.0, price=36.0, hosts=1).add("run_start", 3.0).evaluate(7.0, 10, 0.9)
    log.add("attempt_end", 8.0, status="reached", step=10)
    log.begin(200.0).add("attempt_end", 1.0, status="reached", step=10)
    result = trial_of(log.events)
    # The first ended before the run's clock started and the third came after the target.
    assert result.cost_usd == pytest.approx(0.04, abs=1e-6)
    assert "cost_usd" not in result.reasons
    assert "price" in trial_of(one_attempt().events).reasons["cost_usd"]
    assert result.allocated_cost_usd is None
    assert result.reasons["allocated_cost_usd"].endswith("in attempt 1, 3")


def test_reaching_the_target_is_no_status():
    log = Log().begin(0.0).add("run_start", 1.0).evaluate(2.0, 10, 0.95).add("host_sample", 3.0)
    result = trial_of(log.events)
    assert (result.status, result.reached) == ("running", True)
    log.add("attempt_end", 5.0, status="failed", step=10)
    result = trial_of(log.events)
    assert (result.status, result.reached, result.time_to_accuracy_seconds) == ("failed", True, 1.0)
    # An event after the end changes no status, a new attempt does.
    log.add("warning", 5.5, message="late")
    assert trial_of(log.events).status == "failed"
    assert trial_of(log.begin(50.0).events).status == "running"


def test_steps_are_those_of_the_newest_state():
    log = Log().begin(0.0).add("run_start", 1.0).train(2.0, 20, 20)
    log.add("checkpoint", 2.5, step=20).train(3.0, 50, 30)
    assert (trial_of(log.events).steps, trial_of(log.events).epochs) == (50, 5.0)
    # Killed while it compiles, then back at the checkpoint: steps 21 to 50 are gone.
    log.begin(10.0).add("host_sample", 1.0)
    assert trial_of(log.events).steps == 50
    log.begin(20.0).add("restored", 1.0, step=20)
    assert (trial_of(log.events).steps, trial_of(log.events).epochs) == (20, 2.0)
    log.train(2.0, 30, 10).add("diverged", 2.5, step=27)
    assert trial_of(log.events).steps == 30
    # One that fails before it restores has no state of its own.
    log.begin(30.0).add("attempt_end", 1.0, status="failed", step=0)
    assert trial_of(log.events).steps == 30
    log.begin(40.0).add("attempt_end", 1.0, status="interrupted", step=20)
    assert trial_of(log.events).steps == 20


def test_a_killed_run_reads_as_running_and_diverged_as_not_reached():
    log = Log().begin(0.0).add("run_start", 1.0).evaluate(2.0, 10, 0.5).add("host_sample", 3.0)
    assert trial_of(log.events).status == "running"
    log.add("diverged", 4.0, step=17)
    log.add("attempt_end", 5.0, status="diverged", step=20)
    result = trial_of(log.events)
    assert (result.status, result.reached, result.diverged_step) == ("diverged", False, 17)
    assert result.time_to_accuracy_seconds is None
    assert "reached" in result.reasons["time_to_accuracy_seconds"]


def test_an_empty_log_is_one_clear_error():
    with pytest.raises(RunError, match="no attempt|described itself"):
        trial_of([])


def spent(events):
    trial = trial_of(events)
    return trial.clock_seconds, trial.seconds_cost_usd, trial.prices_per_hour_usd


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
    # Resumed with nothing to train: the gap, the restart and the second profile are outside too.
    log.begin(200.0, 36.0, hosts=1).add("restored", 6.0, step=10)
    log.add("phase", 7.0, name="profile").add("attempt_end", 60.0, status="not_reached", step=10)
    assert spent(log.events) == took
    # 12 s to the step whose loss was NaN.
    log = Log().begin(0.0, 36.0, hosts=1).add("run_start", 8.0).train(20.0, 10, 10)
    log.add("diverged", 20.0, step=7).add("attempt_end", 25.0, status="diverged", step=10)
    assert spent(log.events) == (12.0, pytest.approx(0.12), (36.0,))


def test_what_a_trial_took_that_has_not_ended_goes_on_to_its_last_event():
    log = missed().train(24.0, 20, 10).add("host_sample", 27.0)
    assert spent(log.events)[0] == 19.0
    # 22 s of the killed attempt count whole, then 5 s of one that was killed as it restored.
    log = missed().add("host_sample", 30.0)
    log.begin(200.0).add("phase", 1.0, name="restore").add("host_sample", 5.0)
    assert spent(log.events)[0] == 27.0
    log.train(9.0, 20, 10).evaluate(10.0, 20, 0.5)
    profiled(log, 90.0).add("attempt_end", 91.0, status="not_reached", step=20)
    assert spent(log.events)[0] == 32.0
    assert spent(Log().begin(0.0).events) == (None, None, (None,))


def test_the_cost_of_a_trial_that_reached_is_that_of_its_time_to_accuracy():
    log = Log().begin(0.0, price=36.0, hosts=1)
    log.add("run_start", 8.0).add("host_sample", 20.0)
    log.begin(100.0, price=72.0, hosts=3).evaluate(30.0, 30, 0.9).train(35.0, 40, 10)
    log.add("attempt_end", 40.0, status="reached", step=30)
    # 12 s at 0.01 USD and 30 s at 0.06.
    assert spent(log.events) == (47.0, pytest.approx(1.92), (36.0, 216.0))


FILE = Path(__file__).parents[2] / "docs" / "schemas" / "result.json"


def test_the_schema_is_the_committed_file():
    text = json.dumps(schema(), indent=1) + "\n"
    assert FILE.read_text() == text, (
        f"the fields of result.json changed: raise SCHEMA_VERSION in dawnjax/trials/trial.py where "
        f"a reader must know, and write schema() to {FILE}"
    )


def test_a_result_has_the_fields_of_the_schema_and_no_others():
    jsonschema = pytest.importorskip("jsonschema")
    for log in (one_attempt(36.0), interrupted_run()):
        result = json.loads(json.dumps(trial_of(log.events).to_json()))
        jsonschema.validate(result, schema())
        assert result.keys() == schema()["$defs"]["Trial"]["properties"].keys()
