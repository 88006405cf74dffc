"""Run directories as entries: which may be pooled, grouped by system, failures counted."""

import dataclasses
import json

import pytest
from made_runs import write_run

from dawnjax.__main__ import run_command
from dawnjax.analysis.cost import training_cost
from dawnjax.analysis.leaderboard import leaderboard
from dawnjax.config.config_json import to_json
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError, RunError
from dawnjax.report import tables
from dawnjax.report.pooled import pooled
from dawnjax.runs.log import read_events
from dawnjax.runs.stages import make_spans
from dawnjax.trials import ours
from dawnjax.trials.target import Target


def entries_of(*paths):
    return ours.entries_of(ours.read_run(path) for path in paths)


def test_trials_of_three_seeds_are_one_entry(tmp_path):
    paths = [
        write_run(tmp_path / "one", seed=1, seconds=10.0, price=36.0),
        write_run(tmp_path / "zero", seed=0, seconds=20.0, price=36.0),
        write_run(tmp_path / "two", seed=2, seconds=None, price=36.0),
    ]
    (entry,) = entries_of(*paths)
    assert [trial.seed for trial in entry.trials] == [0, 1, 2]
    assert [trial.name for trial in entry.trials] == ["zero", "one", "two"]
    assert [trial.time_to_accuracy_seconds for trial in entry.trials] == [20.0, 10.0, None]
    assert [trial.status for trial in entry.trials] == ["reached", "reached", "not_reached"]
    assert entry.suite == "dawnjax" and entry.benchmark == "x"
    assert entry.hardware == "tpu v4" and entry.processor_class == "TPU"
    assert (entry.num_accelerators, entry.num_hosts, entry.global_batch_size) == (8, 2, 10)
    assert entry.target.metric == "top_1_accuracy" and entry.target.unit == "fraction"
    assert entry.framework == "JAX 0.10.2" and entry.date == "2001-09-09"
    assert entry.cost_per_hour_usd == 72.0  # 2 hosts.
    summary = entry.figures
    assert (summary.trials, summary.reached, summary.mean_seconds) == (3, 2, 15.0)
    # The one that failed ran 40 s on its clock: 70 s for 2.
    assert entry.trials[2].clock_seconds == 40.0
    assert summary.expected_seconds == 35.0
    assert summary.cost_usd == pytest.approx(15 * 72 / 3600)
    # 10 s, one evaluation each 5 s, ten steps of 10 of 100 examples before each.
    assert [trial.epochs_to_target for trial in entry.trials] == [4.0, 2.0, None]
    assert entry.warnings == ()


def test_compilation_is_that_of_the_trials_that_compiled(tmp_path):
    def row(*paths):
        (entry,) = entries_of(*paths)
        (found,) = tables.overview_table([entry]).records()
        return [
            found[name]
            for name in ("compile_seconds", "cold_trials", "warm_compile_seconds", "warm_trials")
        ]

    cold = write_run(tmp_path / "cold", cache="cold")
    warm = write_run(tmp_path / "warm", seed=1, cache="warm")
    unknown = write_run(tmp_path / "unknown", seed=2)
    assert row(unknown) == [None, 0, None, 0]
    assert row(cold, warm, unknown) == [5.0, 1, 5.0, 1]
    assert row(warm) == ["read from cache", 0, 5.0, 1]


def test_options_that_can_change_the_time_are_never_mixed_and_others_are(tmp_path):
    every_step = {"checkpoint": {"every_steps": 1, "directory": "", "keep": 2}}
    elsewhere = {"run_dir": "x", "checkpoint": {"directory": "y"}, "profile": {"after_run": False}}
    windows = {"profile": {"steps": "10:20"}, "tensorboard": False}
    paths = [
        write_run(tmp_path / "a", options=every_step),
        write_run(tmp_path / "b", seed=1),  # a log without the options, and one with the defaults
        write_run(tmp_path / "b2", seed=6, options=json.loads(json.dumps(to_json(RunOptions())))),
        write_run(tmp_path / "c", seed=2, options={**elsewhere, "compile_cache_dir": "none"}),
        write_run(tmp_path / "d", seed=3, options=windows),
        write_run(tmp_path / "e", seed=4, options={"weight_update_sharding": True}),
    ]
    entries = entries_of(*paths)
    found = {entry.distinction: [trial.name for trial in entry.trials] for entry in entries}
    assert found == {
        "checkpoint.every_steps=1": ["a"],
        "": ["b", "c", "b2"],
        "profile.steps=10:20, tensorboard=False": ["d"],
        "weight_update_sharding=True": ["e"],
    }
    assert all(f"({entry.distinction})" in entry.source for entry in entries if entry.distinction)


def test_the_cores_of_a_cpu_are_its_hardware_and_those_of_a_host_are_a_warning(tmp_path):
    def runs(folder, **fields):
        return [
            write_run(tmp_path / folder / f"{cores}", seed=cores or 0, cores=cores, **fields)
            for cores in (1, 2, None)
        ]

    cpus = entries_of(*runs("cpu", platform="cpu", device_kind="cpu", num_devices=1))
    assert [(entry.system, entry.hardware) for entry in cpus] == [
        ("1 x cpu (1 core a host) on 2 hosts", "cpu (1 core a host)"),
        ("1 x cpu (2 cores a host) on 2 hosts", "cpu (2 cores a host)"),
        ("1 x cpu on 2 hosts", "cpu"),
    ]
    # Devices of a CPU are simulated: no accelerators.
    assert {(entry.num_accelerators, entry.processor_class) for entry in cpus} == {(0, "CPU")}
    (accelerator,) = entries_of(*runs("tpu"))
    assert accelerator.warnings == ("the hosts of the trials had 1 or 2 CPU cores",)


MSE = {"name": "mse", "title": "MSE", "unit": "mm", "least": 0.0, "direction": "at_most"}


def measuring_mse(path, values, **declared):
    """A run of a task with a metric of its own, with a value for each evaluation."""
    rows = iter(values)

    def change(event):
        if event["event"] == "experiment":
            target = {"metric": "mse", "value": 0.3, "direction": "at_most"}
            event["experiment"] = {**event["experiment"], "targets": [target]}
            event |= {"metrics": [{**MSE, **declared}], "example_unit": "patients"}
        elif event["event"] == "evaluation":
            event["metrics"] = {"mse": next(rows)}

    return rewrite(write_run(path), change)


def test_a_metric_is_what_the_run_declares(tmp_path):
    path = measuring_mse(tmp_path / "a", [0.5, 0.25])
    run = ours.read_run(path)
    assert run.metrics == (MSE,) and run.example_unit == "patients"
    assert run.best == {"mse": 0.25}
    (entry,) = ours.entries_of([run])
    target = entry.target
    assert (target.unit, target.title, target.direction) == ("mm", "MSE", "at_most")
    assert entry.global_batch_unit == "patients"
    (row,) = leaderboard([entry], "x").rows
    assert row.rank == 1 and row.entry.target.words() == "mse at most 0.3"


@pytest.mark.parametrize(
    ("values", "declared", "why"),
    [
        ([0.5, -0.1], {}, "mse is -0.1 at step 20, outside of 0 to inf"),
        ([0.5, 0.1], {"direction": "lower"}, "direction: Invalid enum value 'lower'"),
        ([0.5, 0.1], {"colour": "red"}, "of another kind .*colour"),
    ],
)
def test_values_and_declarations_that_cannot_be_are_refused(tmp_path, values, declared, why):
    path = measuring_mse(tmp_path / "odd", values, **declared)
    with pytest.raises(RunError, match=f"odd: .*{why}"):
        ours.read_run(path)


def test_a_result_or_a_log_without_its_declarations_is_refused(tmp_path, capsys):
    name = "metrics"
    path = write_run(tmp_path / "a")
    written = ours.read_run(path).to_json()
    del written[name]
    (path / "result.json").write_text(json.dumps(written))
    assert run_command("check", [str(path)]) == 1
    assert f"result.json says {name}='nothing', the log" in capsys.readouterr().out

    def change(event):
        if event["event"] == "experiment":
            del event[name]

    with pytest.raises(RunError, match=f"a field of the log is missing .*KeyError: '{name}'"):
        ours.read_run(rewrite(path, change))


def test_a_batch_that_changes_in_the_run_is_none_with_the_reason(tmp_path):
    def change(event):
        if event["event"] == "experiment":
            spans = make_spans((1.0,), (event["experiment"]["global_batch_size"], 5), 4.0, 100)
            event["spans"] = [{**dataclasses.asdict(span), "values": {}} for span in spans]

    (entry,) = entries_of(rewrite(write_run(tmp_path / "a"), change))
    assert entry.global_batch_size is None
    assert entry.reasons["global_batch_size"] == "it changes in the run"


def test_an_interrupted_trial_is_marked(tmp_path):
    (entry,) = entries_of(write_run(tmp_path / "a", interrupted=True, seconds=20.0))
    (trial,) = entry.trials
    assert trial.interruptions == 1 and trial.reached
    # 12 s of the first attempt, 20 s of the second; the gap of 1,000 s does not count.
    assert trial.time_to_accuracy_seconds == 32.0
    assert any("had 1 interruption;" in warning for warning in entry.warnings)


def test_a_trial_that_has_not_ended_counts_as_not_reached_and_is_named(tmp_path):
    paths = [
        write_run(tmp_path / "a", seconds=10.0),
        write_run(tmp_path / "b", seed=1, seconds=None, status=None),
        write_run(tmp_path / "c", seed=2, seconds=None, status="diverged"),
    ]
    (entry,) = entries_of(*paths)
    assert entry.figures.reached == 1
    assert [t.status for t in entry.trials] == ["reached", "running", "diverged"]
    assert len([w for w in entry.warnings if "has not ended" in w]) == 1
    assert any(w.startswith("b has not ended (running)") for w in entry.warnings)


def test_a_run_given_twice_counts_once_and_a_seed_run_twice_is_named(tmp_path):
    path = write_run(tmp_path / "a", run_id="same")
    copy = write_run(tmp_path / "b", run_id="same")
    again = write_run(tmp_path / "c", run_id="other")
    (entry,) = entries_of(path, copy, again)
    assert [trial.name for trial in entry.trials] == ["a", "c"]
    assert any("b is a run that was given already" in w for w in entry.warnings)
    assert any("seed 0 was run more than once" in w for w in entry.warnings)


def test_of_two_copies_the_log_that_goes_on_counts(tmp_path):
    whole = write_run(tmp_path / "z", run_id="same")
    early = write_run(tmp_path / "a", run_id="same")
    log = early / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:6]) + lines[6][:20])  # as a copy taken during the run
    for paths in ((early, whole), (whole, early)):
        (entry,) = entries_of(*paths)
        assert [(trial.name, trial.status) for trial in entry.trials] == [("z", "reached")]
        assert entry.warnings == ("z: a is an earlier copy of this run; this longer log counts",)
    other = write_run(tmp_path / "b", run_id="same", seconds=20.0)
    (entry,) = entries_of(whole, other)
    assert [trial.name for trial in entry.trials] == ["b"]
    assert entry.warnings[0] == (
        "b: z is a copy of this run, and neither log is the beginning of the other; this, which is "
        "longer, counts"
    )


def rewrite(path, change):
    log = path / "log.jsonl"
    events = read_events(log)
    for event in events:
        change(event)
    # `encode_line` would refuse to write some of it, such as NaN.
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_a_wall_clock_that_is_no_date_leaves_the_date_unknown(tmp_path):
    def change(event):
        event["unix_seconds"] = 1e300

    (entry,) = entries_of(rewrite(write_run(tmp_path / "a"), change))
    assert entry.date == "" and entry.figures.mean_seconds == 10.0


def test_a_trial_resumed_at_another_price_costs_each_attempt_s_own(tmp_path):
    def change(event):
        if event["event"] == "experiment" and event["attempt"] == 2:
            event["run_options"]["price_per_hour_usd"] = 360.0

    path = write_run(tmp_path / "a", interrupted=True, seconds=20.0, price=36.0)
    (entry,) = entries_of(rewrite(path, change))
    # 2 hosts: 12 s at 0.02 USD a second, then 20 s at 0.2.
    assert entry.figures.cost_usd == pytest.approx(4.24)
    assert training_cost(entry, 32.0)[0] == pytest.approx(4.24)
    assert entry.cost_per_hour_usd is None
    why = "the attempts of a were given different prices"
    assert entry.reasons["cost_per_hour_usd"] == why


def test_different_versions_and_prices_are_named(tmp_path):
    paths = [
        write_run(tmp_path / "a", versions={"jax": "0.10.2"}, price=1.0),
        write_run(tmp_path / "b", seed=1, versions={"jax": "0.10.3"}, price=2.0),
    ]
    (entry,) = entries_of(*paths)
    assert entry.framework == "JAX 0.10.2 or JAX 0.10.3"
    assert any("different versions of jax" in warning for warning in entry.warnings)
    assert entry.cost_per_hour_usd is None
    assert entry.reasons["cost_per_hour_usd"] == "the trials were given different prices"


def test_a_trial_that_reached_at_an_unknown_time_is_named(tmp_path):
    path = write_run(tmp_path / "a")
    log = path / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b'"run_start"' not in line))
    (entry,) = entries_of(path)
    (trial,) = entry.trials
    assert entry.figures.reached == 0 and trial.clock_seconds is None
    assert any("a reached, but the log lacks run_start" in warning for warning in entry.warnings)


def test_run_directories_are_found_in_folders_but_not_in_runs_or_links(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "deep" / "b")
    write_run(tmp_path / "runs" / "a" / "checkpoints" / "inner")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "runs" / "deep")
    found = [path.name for path in ours.find_run_directories(tmp_path)]
    assert found == ["a", "b"]


def test_a_run_that_diverges_in_its_first_steps_is_a_trial(tmp_path):
    """Its losses have NaN, which a log has as text."""
    runs = [
        write_run(tmp_path / "a", losses=(2.5, 2.25)),
        write_run(
            tmp_path / "b", seed=1, seconds=None, status="diverged", losses=(2.5, "NaN", 2.0)
        ),
        write_run(tmp_path / "c", seed=2, seconds=None, status="diverged", losses=("Infinity",)),
    ]
    (entry,) = entries_of(*runs)
    assert [trial.status for trial in entry.trials] == ["reached", "diverged", "diverged"]
    assert [trial.finite_losses for trial in entry.trials] == [(2.5, 2.25), (2.5,), ()]
    assert entry.figures.expected_seconds == 90.0


def test_a_second_target_is_part_of_what_was_reached(tmp_path):
    """Times to one of two targets are not ranked with times to both."""
    one = ours.read_run(write_run(tmp_path / "one"))
    two = ours.read_run(write_run(tmp_path / "two", identity="two"))
    second = Target(metric="top_5_accuracy", value=0.99)
    two = dataclasses.replace(two, target=dataclasses.replace(two.target, others=(second,)))
    entries = ours.entries_of([one, two])
    assert [entry.target.others for entry in entries] == [(), (second,)]
    with pytest.raises(ConfigError, match=r"0.9 and top_5_accuracy at least 0.99.* cannot be ran"):
        leaderboard(entries, "x")


ON_CPU = {"platform": "cpu", "device_kind": "cpu", "cores": 2}


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({}, {"identity": "b"}, "its experiment has the identity b, not identity"),
        (
            {},
            {"options": {"gradient_norm": True}},
            "run options differ: gradient_norm=True",
        ),
        ({}, {"settings": {"jax_x": 1}}, "its run options differ: jax_x=1"),
        ({}, {"num_devices": 16}, "it ran on 16 x tpu v4 on 2 hosts, not on 8 x"),
        ({}, {"device_kind": "tpu v5"}, "it ran on 8 x tpu v5 on 2 hosts, not on 8 x tpu v4"),
        ({}, {"mesh": {"data": 4, "fsdp": 2}}, "it ran with mesh=4 data x 2 fsdp, not 8 data"),
        ({}, {"platform": "gpu"}, "it ran with platform=gpu, not tpu"),
        (ON_CPU, {**ON_CPU, "cores": 1}, "cpu (1 core a host) on 2 hosts, not on 8 x cpu (2 cores"),
    ],
)
def test_runs_that_differ_in_more_than_their_seed_are_never_pooled(tmp_path, first, second, why):
    runs = [
        ours.read_run(write_run(tmp_path / name, seed=seed, **fields))
        for seed, (name, fields) in enumerate({"a": first, "b": first, "c": second}.items())
    ]
    alike, differ = runs[1].made.difference(runs[0].made), runs[2].made.difference(runs[0].made)
    assert not alike and why in differ
    entries = ours.entries_of(runs)
    assert sorted(len(entry.trials) for entry in entries) == [1, 2]
    assert entries[0].source != entries[1].source
    assert sorted(len(group) for _, group in pooled(runs)) == [1, 2]
