"""Rules of MLPerf that a log breaks, named one by one; and the command that says so."""

import csv
import json

import pytest
from made_entries import make_entry, make_trial

from dawnjax.__main__ import main
from dawnjax.analysis.loading import Entries
from dawnjax.commands.import_results import write_tables
from dawnjax.official import mlperf_rules
from dawnjax.official.mlperf_rules import check_log

START = 1.6e9
ABOVE = "training_results_v4.0/Org/results/x/resnet"


def lines(division="closed"):
    """Events of a log that keeps the rules of v4.0: (key, seconds, value, metadata)."""
    return [
        ("cache_clear", -20, True, {}),
        ("submission_benchmark", -19, "resnet", {}),
        ("submission_org", -19, "Org", {}),
        ("submission_division", -19, division, {}),
        ("submission_status", -19, "onprem", {}),
        ("submission_platform", -19, "x", {}),
        ("init_start", -18, None, {}),
        ("global_batch_size", -17, 256, {}),
        ("gradient_accumulation_steps", -17, 1, {}),
        ("opt_name", -17, "sgd", {}),
        ("train_samples", -17, 1281167, {}),
        ("eval_samples", -17, 50000, {}),
        ("init_stop", -1, None, {}),
        ("run_start", 0, None, {}),
        ("block_start", 0, None, {"first_epoch_num": 1, "epoch_count": 4}),
        ("block_stop", 50, None, {"first_epoch_num": 1}),
        ("eval_start", 50, None, {"epoch_num": 4}),
        ("eval_accuracy", 58, 0.7591, {"epoch_num": 4}),
        ("eval_stop", 59, None, {"epoch_num": 4}),
        ("run_stop", 60, None, {"status": "success"}),
    ]


def log_of(events):
    records = [
        {
            "namespace": "",
            "time_ms": round(1000 * (START + seconds)),
            "event_type": "POINT_IN_TIME",
            "key": key,
            "value": value,
            "metadata": {"file": "a.py", "lineno": 1, **metadata},
        }
        for key, seconds, value, metadata in events
    ]
    return "".join(f":::MLLOG {json.dumps(record)}\n" for record in records).encode()


def broken(events, above=ABOVE):
    found, _, _ = check_log(log_of(events), above)
    return [(each.rule, each.line, each.reason) for each in found]


def without(key):
    return lambda events: [event for event in events if event[0] != key]


def changed(key, seconds=None, value=None, metadata=None):
    def change(events):
        return [
            (
                name,
                at if seconds is None or name != key else seconds,
                old if value is None or name != key else value,
                told if metadata is None or name != key else metadata,
            )
            for name, at, old, told in events
        ]

    return change


def test_a_log_that_keeps_the_rules_breaks_none():
    assert broken(lines()) == [] and broken(lines("open")) == []


@pytest.mark.parametrize(
    ("change", "rule", "line", "words"),
    [
        (without("run_start"), "once", None, "run_start is missing"),
        (without("eval_samples"), "once", None, "eval_samples is missing"),
        (without("submission_org"), "once", None, "submission_org is missing"),
        (
            lambda e: [*e, ("train_samples", -17, 3, {})],
            "once",
            21,
            "train_samples is logged 2 times with different values",
        ),
        (without("cache_clear"), "at least once", None, "cache_clear is missing"),
        (without("block_stop"), "at least once", None, "block_stop or epoch_stop is missing"),
        (changed("submission_division", value="half"), "division", 4, "'half'"),
        (changed("submission_benchmark", value="chess"), "benchmark", None, "'chess'"),
        (changed("init_stop", seconds=5), "order", 14, "run_start is stamped 5 s before init_stop"),
        (changed("block_start", seconds=-5), "order", 15, "block_start is stamped 5 s before"),
        (changed("init_start", seconds=-2000), "initialization", 13, "closed allows 1800"),
        (changed("block_start", metadata={}), "labels", 15, "neither epoch_count nor"),
        (
            changed("block_start", metadata={"first_epoch_num": 1, "epoch_count": 0}),
            "labels",
            15,
            "epoch_count='0'; it must be above 0",
        ),
        (changed("eval_accuracy", metadata={}), "labels", 18, "1 eval_accuracy have neither"),
        (changed("run_stop", metadata={}), "clock", 20, "whether the target was reached"),
        (changed("eval_accuracy", value=0.7), "target", 20, "best evaluation is 0.7; the target"),
        (changed("eval_accuracy", value=0.7589996), "target", 20, "best evaluation is 0.7589996;"),
        (without("opt_name"), "hyperparameters", None, "opt_name is missing"),
        (
            without("gradient_accumulation_steps"),
            "hyperparameters",
            None,
            "gradient_accumulation_steps is missing",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_line(change, rule, line, words):
    found = broken(change(lines()))
    assert [each[:2] for each in found] == [(rule, line)], found
    assert words in found[0][2]


def test_early_rounds_allow_less_initialization():
    late = changed("init_start", seconds=-1900)(lines("open"))
    assert broken(late) == []
    for round_name, allowed in (("v0.7", 1200), ("v1.1", 1800)):
        [[rule, _, words]] = broken(late, ABOVE.replace("v4.0", round_name))
        assert rule == "initialization" and f"open allows {allowed}" in words


HYPERPARAMETERS = {
    "opt_name": "adamw",
    "opt_learning_rate_decay_schedule": "cosine with linear warmup",
    "opt_adamw_beta_1": 0.9,
    "opt_adamw_beta_2": 0.95,
    "opt_adamw_epsilon": 1e-05,
    "opt_adamw_weight_decay": 0.1,
    "opt_gradient_clip_norm": 1.0,
    "opt_base_learning_rate": 8e-4,
    "opt_end_learning_rate": 8e-5,
    "opt_learning_rate_warmup_steps": 128,
    "opt_learning_rate_decay_steps": 1_199_872,
    "max_steps": 1_200_000,
    "max_sequence_length": 8192,
    "eval_samples": 1024,
}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("opt_name", "lamb", "opt_name is 'lamb'; it must be adamw"),
        ("opt_adamw_beta_2", 0.99, "opt_adamw_beta_2 is '0.99'; it must be 0.95"),
        ("max_sequence_length", "8192", "max_sequence_length is '8192'; it must be 8192"),
        ("gradient_accumulation_steps", 0, "it must be above 0"),
        (
            "opt_learning_rate_decay_steps",
            1_200_000,
            "_decay_steps + opt_learning_rate_warmup_steps is '1200128.0'; it must be 1200000",
        ),
    ],
)
def test_a_hyperparameter_outside_of_its_bounds_is_named(key, value, said):
    above = "training_results_v5.1/Org/results/x/llama31_8b"
    kept = [event for event in lines() if event[0] not in HYPERPARAMETERS]
    kept = changed("submission_benchmark", value="llama31_8b")(kept)
    kept = changed("eval_accuracy", value=3.29)(kept)
    kept += [(name, -17, each, {}) for name, each in HYPERPARAMETERS.items()]
    assert broken(kept, above) == []
    found = broken(changed(key, value=value)(kept), above)
    assert [each[0] for each in found] == ["bounds"] and said in found[0][2], found
    # The open division is free.
    opened = changed("submission_division", value="open")(changed(key, value=value)(kept))
    assert broken(opened, above) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: [*e, e[13]], "each time with the same value: run_start"),
        (lambda e: [*e, e[7]], "each time with the same value: global_batch_size"),
        (changed("eval_accuracy", seconds=-5), "eval_accuracy is stamped 5 s before run_start"),
        (changed("eval_start", seconds=70), "run_stop is stamped 10 s before eval_start"),
    ],
)
def test_oddities_that_the_compliance_checker_lets_pass_are_notes(change, words):
    """Each of these in a log of the open division: SUCCESS by mlperf-logging 4.1.68."""
    found, notes, _ = check_log(log_of(change(lines())), ABOVE)
    assert not found and len(notes) == 1 and words in notes[0], (found, notes)


def test_each_of_two_targets_must_be_reached():
    events = changed("submission_benchmark", value="maskrcnn")(lines())
    for box, mask, said in (
        (0.378, 0.34, ""),
        (0.37, 0.34, "the best evaluation is 0.37; the target is 0.377"),
        (0.378, 0.33, "the best SEGM is 0.33; the target is 0.339"),
    ):
        log = changed("eval_accuracy", value={"BBOX": box, "SEGM": mask})(events)
        found = broken(log, "training_results_v3.1/Org/results/x/maskrcnn")
        reasons = [reason for rule, _, reason in found if rule == "target"]
        assert reasons == ([f"run_stop says success, and {said}"] if said else [])


def test_a_key_that_a_benchmark_or_a_round_frees_is_not_asked_for():
    """`closed_minigo.yaml` lifts four rules of `common.yaml`; v3.1 took steps for labels."""
    events = changed("submission_benchmark", value="minigo")(
        changed("block_start", metadata={})(without("train_samples")(lines()))
    )
    rules = {each[0] for each in broken(events, "training_results_v3.0/Org/results/x/minigo")}
    assert not rules & {"once", "labels"}
    steps = changed("eval_accuracy", metadata={"step_num": 4})(lines())
    assert [each[0] for each in broken(steps)] == ["labels"]
    assert broken(steps, ABOVE.replace("v4.0", "v3.1")) == []


def test_a_trial_that_was_given_up_breaks_no_rule_and_is_noted():
    events = changed("run_stop", metadata={"status": "aborted"})(lines())
    found, notes, _ = check_log(log_of(events), ABOVE)
    assert not found and notes == [
        "the trial did not reach its target (aborted): it counts as the slowest"
    ]


def test_the_open_division_has_its_own_target_and_hyperparameters():
    events = changed("eval_accuracy", value=0.7)(without("opt_name")(lines("open")))
    assert broken(events) == []


def test_without_a_round_the_newest_rules_hold_and_a_note_says_so():
    found, notes, trial = check_log(log_of(lines()), "somewhere/resnet")
    assert not found and trial is not None
    assert notes == ["no folder names a round; the hyperparameters are those of v4.0"]


def test_stamps_in_seconds_and_lines_that_are_cut_are_named():
    events = [(k, (START + s) / 1000 - START, v, m) for k, s, v, m in lines()]
    rules = [each[0] for each in broken(events)]
    assert rules == ["form"]
    found, _, _ = check_log(log_of(lines()) + b":::MLLOG {torn\n", ABOVE)
    assert [(each.rule, each.line) for each in found] == [("readable", 21)]
    found, _, trial = check_log(b"no record\n", ABOVE)
    assert [each.rule for each in found] == ["readable"] and trial is None


def test_the_command_names_files_folders_and_what_is_neither(tmp_path, capsys):
    folder = tmp_path / "training_results_v4.0" / "Org" / "results" / "x" / "resnet"
    folder.mkdir(parents=True)
    for number in range(5):
        (folder / f"result_{number}.txt").write_bytes(log_of(lines()))
    assert main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(": ok\n") == 5
    (folder / "result_4.txt").unlink()
    (folder / "result_3.txt").write_bytes(log_of(without("run_stop")(lines())))
    assert main(["check", str(tmp_path / "training_results_v4.0")]) == 1
    told = capsys.readouterr().out
    assert "result_3.txt: FAULT: rule once: run_stop is missing" in told
    assert "rule trials: 4 logs can be read, and resnet asks for 5" in told
    other = tmp_path / "notes.txt"
    other.write_text("nothing\n")
    assert main(["check", str(other)]) == 1
    assert "notes.txt: FAULT: rule readable: the log has no MLPerf record" in (
        capsys.readouterr().out
    )
    (tmp_path / "empty").mkdir()
    assert main(["check", str(tmp_path / "empty")]) == 1
    assert "is no run directory" in capsys.readouterr().out


def test_every_row_of_the_keys_names_a_known_benchmark_and_its_rounds():
    from dawnjax.official import mlperf_rounds

    for row in mlperf_rules.required_keys():
        assert mlperf_rounds.is_known(row["benchmark"]), row
        assert row["first_round"].startswith("v") and row["last_round"].startswith("v")
        assert len(row["keys"].split()) >= 2
        keys = {*row["keys"].split(), "gradient_accumulation_steps", *mlperf_rules.ONCE_SINCE_V07}
        for bound in filter(None, row["bounds"].split("; ")):
            match = mlperf_rules.BOUND.fullmatch(bound)
            assert match and {match[1], match[2] or match[1]} <= keys, bound


def test_tables_have_every_field_of_entries_trials_and_evaluations(tmp_path, capsys):
    trials = [
        make_trial(seconds, 3.0, curve=[(1, 5.0, 90.0), (2, 9.0, 94.0)]) for seconds in (9, 8)
    ]
    entry = make_entry(trials, submitter="=cmd", reasons={"num_hosts": "not told"}, warnings=("w",))
    write_tables(tmp_path, Entries([entry]))
    tables = {
        path.stem: list(csv.DictReader(path.open(newline=""))) for path in tmp_path.glob("*.csv")
    }
    assert {name: len(rows) for name, rows in tables.items()} == {
        "entries": 1,
        "trials": 2,
        "evaluations": 4,
    }
    (row,) = tables["entries"]
    assert row["submitter"] == "'=cmd" and row["target_value"] == "93.0"
    assert row["reasons"] == "num_hosts: not told" and row["warnings"] == "w"
    assert row["num_hosts"] == "" and row["figures_trials"] == "2"
    assert tables["trials"][1]["time_to_accuracy_seconds"] == "8"
    assert tables["evaluations"][3]["trial"] == "1" and tables["evaluations"][3]["value"] == "94.0"
    assert "entries.csv: 1 rows" in capsys.readouterr().out


def test_an_import_needs_a_place_to_write_to(tmp_path, capsys):
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "file").write_text("")
    assert main(["import", str(source)]) == 2
    assert "--out is missing" in capsys.readouterr().err
    assert main(["import", str(source), f"--csv={tmp_path / 'file'}"]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert main(["import", str(source), f"--csv={tmp_path / 'tables'}"]) == 1
    assert "nothing was written" in capsys.readouterr().err and not (tmp_path / "tables").exists()
