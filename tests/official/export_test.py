"""From a run to MLPerf's form, through its own rules, and back."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from retold_runs import Event, cifar10, error_of, export, on_data, only_entry, result_of, retold

from dawnjax.__main__ import main
from dawnjax.runs.log import read_events
from dawnjax.runs.logged_run import LoggedRun
from dawnjax.trials.from_log import trial_of

pytestmark = pytest.mark.compiles


def stretched(factor: float) -> Callable[[list[Event]], list[Event]]:
    """Makes every second after run_start longer."""

    def change(events: list[Event]) -> list[Event]:
        start = next(event for event in events if event["event"] == "run_start")
        for event in events:
            longer = max(0.0, event["t"] - start["t"]) * (factor - 1)
            event["t"] += longer
            event["unix_seconds"] += longer
            if event["boot_seconds"] is not None:
                event["boot_seconds"] += longer
        return events

    return change


def unreached(events: list[Event]) -> list[Event]:
    for event in events:
        if event["event"] == "evaluation":
            event["reached"] = False
            event["metrics"]["top_1_accuracy"] = 0.1
        if event["event"] in ("trained", "attempt_end"):
            event["status"] = "not_reached"
    return events


@pytest.fixture(scope="module")
def trials(trained, tmp_path_factory) -> list[Path]:
    """Five trials: the trained run and four that took longer."""
    folder = tmp_path_factory.mktemp("trials")
    more = [retold(trained, folder / f"s{n}", n, stretched(1 + n / 10)) for n in (4, 5, 6, 7)]
    return [trained, *more]


@pytest.fixture(scope="module")
def submission(trials, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("mlperf") / "out"
    argv = ["--format=mlperf", *map(str, trials), "--submitter=Example Lab", "--system=box_1"]
    assert export(*argv, f"--out={out}") == 0
    return out


def test_mlperf_comes_back_as_the_same_result(trials, submission):
    entry = only_entry(submission)
    results = [result_of(run) for run in trials]
    milliseconds = 0.001  # the resolution of the form; two stamps are rounded
    assert [t.time_to_accuracy_seconds for t in entry.trials] == pytest.approx(
        [r.time_to_accuracy_seconds for r in results], abs=milliseconds
    )
    assert [t.seed for t in entry.trials] == [3, 4, 5, 6, 7]
    for trial, result in zip(entry.trials, results, strict=True):
        assert trial.epochs == result.evaluations[-1].epoch
        assert [(e.epoch, e.value) for e in trial.evaluations] == [
            (row.epoch, row.value) for row in result.evaluations
        ]
        assert [e.seconds_since_run_start for e in trial.evaluations] == pytest.approx(
            [row.seconds_since_run_start for row in result.evaluations], abs=milliseconds
        )
    times = sorted(r.time_to_accuracy_seconds or 0 for r in results)
    assert entry.figures.score_seconds == pytest.approx(sum(times[1:-1]) / 3, abs=milliseconds)
    assert (entry.benchmark, entry.division, entry.submitter) == ("resnet", "open", "Example Lab")
    assert (entry.target.value, entry.global_batch_size) == (0.759, 64)
    assert (entry.num_hosts, entry.framework_family, entry.processor_class) == (1, "JAX", "CPU")
    log = (submission / "results/box_1/resnet/result_0.txt").read_text()
    lines = [json.loads(line.split(" ", 1)[1]) for line in log.splitlines()]
    values = {line["key"]: line["value"] for line in lines}
    assert values["gradient_accumulation_steps"] == 1
    assert (values["train_samples"], values["eval_samples"]) == (900, 897)


def check_compliance(path: Path, capsys, num_logs: int) -> None:
    """Checks logs by MLPerf's own checker, which has no remark on them either."""
    pytest.importorskip("mlperf_logging", reason="mlperf-logging is not installed")
    capsys.readouterr()
    assert main(["check", "--ruleset=4.0.0", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == num_logs and all(line.endswith(": ok") for line in lines)


def test_mlperfs_own_programs_accept_it_and_read_the_same_score(submission, capsys):
    check_compliance(submission, capsys, 5)
    from mlperf_logging.result_summarizer import result_summarizer
    from mlperf_logging.system_desc_checker import system_desc_checker

    description = str(submission / "systems" / "box_1.json")
    assert system_desc_checker.check_system_desc(description, "training", "4.0.0")[0]
    table, *_ = result_summarizer.summarize_results(str(submission), "training", "4.0.0")
    entry = only_entry(submission)
    assert table["resnet"].tolist() == [
        pytest.approx((entry.figures.score_seconds or 0) / 60, abs=1e-6)
    ]
    assert table["submitter"].tolist() == ["Example Lab"]


def test_a_trial_that_did_not_reach_is_aborted_and_comes_back_with_its_time(
    trained, trials, tmp_path, capsys
):
    def saved_late(events: list[Event]) -> list[Event]:
        """Makes the last save and the profile, after the training, take 500 s."""
        end = LoggedRun.from_events(unreached(events)).training_end
        for event in events[events.index(end) + 1 :]:
            event |= {name: event[name] + 500 for name in ("t", "unix_seconds", "boot_seconds")}
        return events

    failed = retold(trained, tmp_path / "failed", 9, saved_late)
    argv = ["--format=mlperf", *map(str, trials[:4]), str(failed), "--submitter=L"]
    assert export(*argv, f"--out={tmp_path / 'out'}") == 0
    entry = only_entry(tmp_path / "out")
    assert (entry.figures.reached, entry.figures.trials) == (4, 5)
    assert entry.trials[-1].status == "aborted"
    times = sorted(t.time_to_accuracy_seconds for t in entry.trials if t.time_to_accuracy_seconds)
    # It counts as the slowest, so only the fastest of the others is left out.
    assert entry.figures.score_seconds == pytest.approx(sum(times[1:]) / 3)
    seconds = trial_of(read_events(failed / "log.jsonl")).clock_seconds
    assert entry.trials[-1].clock_seconds == pytest.approx(seconds, abs=0.001)
    check_compliance(tmp_path / "out", capsys, 5)


def interrupted(events: list[Event]) -> list[Event]:
    began = next(n for n, event in enumerate(events) if event["event"] == "run_start")
    first = copy.deepcopy(events[: began + 1])
    second = copy.deepcopy([e for e in events if e["event"] != "run_start"])
    for event in second:
        event["attempt"] = 2
    return first + second


def suspended(events: list[Event]) -> list[Event]:
    began = False
    for event in events:
        if began and event["boot_seconds"] is not None:
            event["boot_seconds"] += 100
        began = began or event["event"] == "run_start"
    return events


def told(name: str, **fields: Any) -> Callable[[list[Event]], list[Event]]:
    """Makes every event of a name say other things."""

    def change(events: list[Event]) -> list[Event]:
        return [event | fields if event["event"] == name else event for event in events]

    return change


def of_benchmark(name: str) -> Callable[[list[Event]], list[Event]]:
    def change(events: list[Event]) -> list[Event]:
        for event in events:
            if event["event"] == "experiment":
                event["experiment"]["mlperf_benchmark"] = name
        return events

    return change


def slow_start(events: list[Event]) -> list[Event]:
    for event in events:
        if event["event"] != "attempt_start":
            event["t"] += 5 * 3600
    return events


def with_stages(events: list[Event]) -> list[Event]:
    for event in events:
        if event["event"] == "experiment":
            (whole,) = event["spans"]
            step, batch = whole["last_step"] // 2, whole["global_batch_size"]
            later = {"index": 1, "first_step": step, "first_example": step * batch}
            event["spans"] = [
                {**whole, "last_step": step},
                {**whole, **later, "global_batch_size": batch // 2},
            ]
    return events


def running(events: list[Event]) -> list[Event]:
    return [e for e in unreached(events) if e["event"] not in ("trained", "attempt_end")]


@pytest.mark.parametrize(
    "change,reason",
    [
        (with_stages, "the batch size changes in the run"),
        (interrupted, "the trial was interrupted;"),
        (suspended, "was suspended for 100 s"),
        (of_benchmark(""), "is not an MLPerf benchmark"),
        (of_benchmark("../../resnet"), "names '../../resnet'"),
        (slow_start, "the open division allows 14400"),
        (running, "has not ended (running)"),
    ],
)
def test_what_mlperf_does_not_allow(trained, tmp_path, capsys, change, reason):
    run = retold(trained, tmp_path / "run", 5, change)
    out = tmp_path / "out"
    assert export("--format=mlperf", str(run), "--submitter=L", f"--out={out}") in (1, 2)
    assert reason in capsys.readouterr().err and not out.exists()


@pytest.mark.parametrize("form", ["dawnbench", "mlperf"])
def test_only_a_benchmark_s_own_data_are_exported(trained, tmp_path, capsys, form):
    argv = [f"--format={form}", "--submitter=L", f"--out={tmp_path / 'out'}"]
    words = {"name": "60 images, not ImageNet", "benchmark": "", "evidence": "6 classes"}
    for number, declared in enumerate((words, {"benchmark": ["ImageNet"]})):
        run = retold(trained, tmp_path / str(number), 5, on_data(**declared))  # pyright: ignore[reportArgumentType]
        error = error_of(capsys, *argv, str(run))
        assert "benchmark's are" in error and (number or "not ImageNet: 6 classes; the" in error)
    assert not (tmp_path / "out").exists()


def test_trials_of_one_result_differ_in_their_seed_only(trained, trials, tmp_path, capsys):
    settings = {"numbers": {"jax_default_matmul_precision": "highest"}, "others": {}}
    changes = {
        "it ran on 7 x ": told("devices", num_devices=7),
        "it ran with mesh=4 fsdp, not ": told("devices", mesh={"fsdp": 4}),
        "its run options differ: gradient_norm=True": told(
            "experiment", run_options={"gradient_norm": True}
        ),
        "jax_default_matmul_precision=highest; the trials": told("devices", settings=settings),
        "it ran with jax 0.0.1, not with python ": told("attempt_start", versions={"jax": "0.0.1"}),
    }
    argv = ["--format=mlperf", str(trained), "--submitter=L", f"--out={tmp_path / 'out'}"]
    for number, (why, change) in enumerate(changes.items()):
        other = retold(trained, tmp_path / str(number), 8, change)
        assert why in error_of(capsys, *argv, str(other))
    again = retold(trained, tmp_path / "again", 3)
    assert "has the seed 3" in error_of(capsys, *argv, str(again))


PRIVATE = {
    "host name": "node17-of-ann",
    "path": "/home/ann/runs/3",
    "address": "ann@lab.example.org",
    "boot id": "c0ffee00-7a1e-4b5d-9c3f-2f1d8e6b4a90",
}


def with_private_words(events: list[Event]) -> list[Event]:
    """Writes private words wherever a log holds their kind."""
    for event in events:
        if event["event"] == "attempt_start":
            event["boot_id"] = PRIVATE["boot id"]
        if event["event"] == "host_summary":
            for host in event["hosts"]:
                host["hostname"] = PRIVATE["host name"]
        if event["event"] == "experiment":
            event["experiment"]["data"]["data_dir"] = PRIVATE["path"]
            event["experiment"]["accumulation_steps"] = 4
            options = event["run_options"]
            options["run_dir"] = options["compile_cache_dir"] = PRIVATE["path"]
            options["checkpoint"]["directory"] = f"/scratch/{PRIVATE['address']}"
            options["processes"]["coordinator_address"] = f"{PRIVATE['host name']}:1234"
    return events


def test_what_is_private_stays_in_the_log(trained, tmp_path):
    def reached_cifar10(events: list[Event]) -> list[Event]:
        return with_private_words(cifar10([0.5, 0.95])(events))

    changes = {"mlperf": with_private_words, "dawnbench": reached_cifar10}
    for form, change in changes.items():
        run = retold(trained, tmp_path / form / "run", 5, change)
        out = tmp_path / form / "out"
        assert export(f"--format={form}", str(run), "--submitter=Lab", f"--out={out}") == 0
        log = (run / "log.jsonl").read_text()
        exported = [path.read_text() for path in out.rglob("*") if path.is_file()]
        assert len(exported) == 2
        for word in PRIVATE.values():
            assert word in log
            assert not any(word in text for text in exported), (form, word)
        assert not any(str(run) in text for text in exported)
        # What is not private is as the run had it.
        has_parts = '"gradient_accumulation_steps", "value": 4,' in "".join(exported)
        assert has_parts == (form == "mlperf")
