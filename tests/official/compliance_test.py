"""MLPerf logs under `dawnjax check`, which asks MLPerf's own compliance checker."""

import shutil
from pathlib import Path

import pytest
from later_logs import record

from dawnjax.__main__ import main
from dawnjax.official import compliance

ABOVE = Path("training_results_v4.0/Org/results/x/resnet")

LOG = [
    ("cache_clear", -20, True, {}),
    ("submission_benchmark", -19, "resnet", {}),
    ("submission_org", -19, "Org", {}),
    ("submission_division", -19, "open", {}),
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
    ("block_stop", 50, None, {"first_epoch_num": 1, "epoch_count": 4}),
    ("eval_start", 50, None, {"epoch_num": 4}),
    ("eval_accuracy", 58, 0.7591, {"epoch_num": 4}),
    ("eval_stop", 59, None, {"epoch_num": 4}),
    ("run_stop", 60, None, {"status": "success"}),
]
"""Events of a log that keeps the rules of v4.0: key, seconds, value, metadata."""


def lines(**values: object) -> bytes:
    """The log with other values of some keys; a key with `...` is left out."""
    records = [
        record(key, seconds, values.get(key, value), **metadata)
        for key, seconds, value, metadata in LOG
        if values.get(key) is not ...
    ]
    return "".join(f"{line}\n" for line in records).encode()


@pytest.fixture
def checked(tmp_path, capsys):
    """Checks a log in a folder of round v4.0; returns the exit status and the lines printed."""
    pytest.importorskip("mlperf_logging", reason="mlperf-logging is not installed")

    def check(log: bytes, *argv: str, above: Path = ABOVE) -> tuple[int, list[str]]:
        path = tmp_path / above / "result_0.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log)
        status = main(["check", str(tmp_path), *argv])
        told = capsys.readouterr()
        assert not told.err
        shutil.rmtree(tmp_path / above.parts[0])
        name = f"{above}/result_0.txt: "
        return status, [line.removeprefix(name) for line in told.out.splitlines()]

    return check


HALF = "line 5: rule submission_division: v['value'] in ['closed', 'open'] does not hold"
V05 = b":::MLPv0.5.0 resnet 1541720000.0 (train.py:1) run_start\n"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (lines(run_stop=...), "rule run_stop: Required EXACTLY_ONE occurrence of 'run_stop'"),
        (b"words\n" + lines(submission_division="half"), HALF),
        (lines() + b':::MLLOG {"key": 1\n', "rule form: "),
        (lines() + b":::MLLOG {}\n", "rule form: the checker stops at KeyError: 'time_ms'"),
        (V05, "rule readable: is from v0.5; MLPerf's checker has no rules"),
        # Rules are code, and a division becomes part of the name of their file.
        (lines(submission_division="../../../../proc/self/cwd/own"), "opt_name has a slash"),
        (lines() + b":::MLLOG {\n" * 250_000, "at most 200,000 are read"),
    ],
    ids=range(7),
)
def test_each_broken_rule_is_a_line(checked, log, told):
    status, found = checked(log)
    assert status == 1 and any(line.startswith("FAULT: ") and told in line for line in found), found


def test_a_log_by_the_rules_passes_and_what_is_there_twice_is_noted(checked):
    assert checked(lines()) == (0, ["ok"])
    status, (note, passed) = checked(lines() + lines().split(b"\n")[2])
    assert (status, passed) == (0, "ok")
    assert note.startswith("note: rule submission_org: Required EXACTLY_ONE occurrence")


def test_the_rules_are_those_of_the_round_or_of_the_flag(checked, capsys):
    unnamed = Path("submission/results/x/resnet")
    (status, (fault,)) = checked(lines(), above=unnamed)
    assert status == 1 and "does not show its round; give --ruleset, such as" in fault
    assert checked(lines(), "--ruleset=2.0.0", above=unnamed) == (0, ["ok"])
    assert main(["check", "--ruleset=1", "."]) == 2
    assert "--ruleset=1: choose from 0.6.0, 0.7.0, 1.0.0," in capsys.readouterr().err


def test_a_log_that_would_take_the_checker_minutes_is_stopped(checked, monkeypatch):
    """The checker looks for its mark again from every letter of a line."""
    monkeypatch.setattr(compliance, "MOST_SECONDS", 1)
    status, (fault,) = checked(lines() + b":::MLLOG " + b"a" * 600_000)
    assert status == 1 and "checker without an answer: it may take" in fault
