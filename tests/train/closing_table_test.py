"""Table that closes a run."""

import io

import pytest
from dataset_specs import SMALL_IMAGES
from made_logs import one_attempt, recompiling_run
from rich.console import Console

from dawnjax.closing_table import closing_table
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.page.boxes import boxed
from dawnjax.trials.from_log import trial_of


def shown(events) -> dict[str, tuple[str, str]]:
    """The closing table of a run: value and what it holds, by quantity."""
    written = io.StringIO()
    console = Console(file=written, width=300)
    table = closing_table(trial_of(events), load_experiment("digits"), SMALL_IMAGES)
    console.print(boxed(table))
    rows = [line.split("│")[1:4] for line in written.getvalue().splitlines() if "│" in line]
    return {name.strip(): (value.strip(), note.strip()) for name, value, note in rows}


def test_the_closing_table_says_which_epochs_a_time_is_of():
    rows = shown(one_attempt().events)
    assert rows["time to accuracy"][1].endswith("reached the target, 2.00 epochs")
    assert rows["training alone"][1] == "train steps, no evaluation"
    log = one_attempt()
    log.events.pop()
    log.add("phase", 13.0, name="train").train(15.0, 40, 20)
    rows = shown(log.add("attempt_end", 16.0, status="reached", step=40).events)
    assert rows["time to accuracy"][1].endswith("reached the target, 2.00 epochs")
    assert rows["training alone"] == ("6.000 s", "train steps, no evaluation, of all 4.00 epochs")


def test_the_closing_table_rounds_no_figure_to_nothing():
    log = one_attempt(price=0.01)
    assert shown(log.events)["cost"][0] == "0.00002361 USD"  # of two hosts, for 4.25 s
    for event in log.events:
        event["t"] *= 1000
    assert shown(log.events)["throughput"][0] == "0.06667 examples/s"
    kept = [event for event in log.events if event["event"] != "train"]
    assert shown(kept)["throughput"] == ("-", "the log has no train step with its time")


def test_the_closing_table_does_not_round_a_quality_up_to_its_target():
    log = one_attempt()
    for event in log.events:
        if event["event"] == "evaluation":
            event |= {"metrics": {"top_1_accuracy": 0.89996}, "reached": False}
    log.events[-1]["status"] = "not_reached"
    rows = shown(log.events)
    assert rows["best top_1_accuracy"] == ("0.89996", "target at least 0.9")
    for name in ("time to accuracy", "total to accuracy"):
        assert rows[name] == ("-", "no evaluation reached the target")


def test_the_throughput_counts_the_steps_that_were_made_again():
    log = one_attempt()
    del log.events[-4:]  # killed after 20 steps, of which a save held 10
    log.begin(1000.0).add("restored", 2.0, step=10).add("phase", 3.0, name="train")
    log.add("train", 5.0, step=30, epoch=3.0, loss=1.0, steps=20, input_wait_seconds=0.0)
    log.add("phase", 5.0, name="eval").evaluate(6.0, 30, 0.95)
    rows = shown(log.add("attempt_end", 7.0, status="reached", step=30).events)
    # 40 steps of 10 in 1.5, 1 and 2 s.
    assert rows["throughput"] == (
        "88.89 examples/s",
        "40 steps of 10 made to reach step 30, 3.00 epochs",
    )


@pytest.mark.parametrize(
    ("mfu", "hfu", "value", "note"),
    [
        (0.5, 0.2, "20.0 %", "executed FLOPs; 50.0 % counting the model's, some of which are"),
        (0.5, 0.6, "50.0 %", "model FLOPs; 60.0 % counting all executed"),
        (None, 0.2, "20.0 %", "executed FLOPs; not counted"),
        (None, None, "-", "not counted"),
    ],
)
def test_the_executed_flops_come_first_where_an_algorithm_saves_some(mfu, hfu, value, note):
    reasons = {} if mfu else {"mfu": "not counted"}
    used = {"mfu": mfu, "hfu": hfu, "peak_source": "measured", "reasons": reasons}
    used |= {"window": "after_run", "step_seconds": 0.05}
    communication = {"exposed_fraction": 0.0, "exposed_skew_fraction": 0.0}
    host = {"process_index": 0, "communication": communication, "utilization": used}
    log = one_attempt()
    end = log.events.pop()
    log.add("host_summary", 13.5, hosts=[host]).events.append(end)
    # The run's own 20 steps took 0.15 s each.
    own = {"20.0 %": ", 6.7 % over all", "50.0 %": ", 16.7 % over all"}.get(value, "")
    shown_value, shown_note = shown(log.events)["FLOP utilization"]
    assert shown_value == value and shown_note.startswith(note) and own in shown_note


def test_the_closing_table_parts_communication_and_says_that_no_host_is_slow():
    communication = {"exposed_fraction": 0.9, "exposed_skew_fraction": 0.05}
    used = {"window": "after_run", "mfu": None, "hfu": None, "reasons": {"mfu": "not steady"}}
    log = one_attempt()
    end = log.events.pop()
    host = {"process_index": 0, "communication": communication, "utilization": used}
    log.add("host_summary", 13.5, hosts=[host], no_straggler="no host delays the others")
    rows = shown([*log.events, end])
    assert "85.0 % on the wire, 5.0 % waiting" in rows["exposed communication"][1]
    assert rows["slowest host"] == ("-", "no host delays the others")


def test_the_closing_table_says_how_many_cores_a_cpu_is():
    def row(cores, num_processes=1, platform="cpu"):
        log = one_attempt()
        devices = next(event for event in log.events if event["event"] == "devices")
        devices |= {"num_processes": num_processes, "platform": platform}
        end = log.events.pop()
        hosts = [{"process_index": index, "cores": count} for index, count in enumerate(cores)]
        log.add("host_summary", 13.5, hosts=hosts).events.append(end)
        return shown(log.events)["hardware"][1]

    assert row([2]) == "1 process(es), 2 cores"
    # Processes of one machine see the same cores: they are not added up.
    assert row([8, 2], num_processes=2) == "2 process(es), 2 or 8 cores seen by each"
    assert row([2], platform="gpu") == "1 process(es)"


def test_the_closing_table_says_where_compilation_lies_and_has_the_goodput():
    value, note = shown(recompiling_run().events)["compilation"]
    assert value == "8.000 s"
    assert "; 5.000 s before run_start, not in the time to accuracy; 3.000 s in it, after" in note
    value, note = shown(one_attempt().events)["goodput"]
    assert value == "17.9 %"  # 2.5 s of 14
    assert note == "steps that were kept, of 14 s; compile 5 s, setup 3 s, evaluation 1.50 s"
