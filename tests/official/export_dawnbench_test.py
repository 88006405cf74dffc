"""From a run to DAWNBench's form, through the rules of its repository, and back."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from made_logs import EXPERIMENT, Log
from retold_runs import Event, cifar10, error_of, export, only_entry, result_of, retold

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.official import export_dawnbench
from dawnjax.official.exported_run import ExportedRun
from dawnjax.trials.from_log import trial_of

pytestmark = pytest.mark.compiles


def test_dawnbench_entries_follow_the_rules_of_their_repository(dawnbench):
    place = dawnbench[1] / "CIFAR10" / "train"
    assert sorted(p.name for p in place.iterdir()) == [
        "person_resnet_cpu_jax.json",
        "person_resnet_cpu_jax.tsv",
    ]
    record = json.loads((place / "person_resnet_cpu_jax.json").read_text())
    needed = ["version", "author", "authorEmail", "framework", "model", "hardware", "timestamp"]
    assert [name for name in needed if name not in record] == []
    assert (record["version"], record["author"]) == ("v1.0", "A. Person")
    # Simulated devices share the cores that stand beside them.
    assert re.fullmatch(r"\d+ x cpu \(\d+ cores?\)", record["hardware"])
    rows = [line.split("\t") for line in (place / "person_resnet_cpu_jax.tsv").open()]
    assert [cell.strip() for cell in rows[0]] == ["epoch", "hours", "top1Accuracy"]
    assert max(float(row[2]) for row in rows[1:]) >= 94
    assert [float(row[2]) for row in rows[1:]] == [50, 93.999, 94, 92]


def test_dawnbench_comes_back_as_the_same_result(dawnbench):
    result, entry = result_of(dawnbench[0]), only_entry(dawnbench[1])
    (trial,) = entry.trials
    assert result.time_to_accuracy_seconds is not None
    assert trial.time_to_accuracy_seconds == pytest.approx(result.time_to_accuracy_seconds, 1e-12)
    assert [e.epoch for e in trial.evaluations] == [r.epoch for r in result.evaluations]
    assert [e.value / 100 for e in trial.evaluations] == pytest.approx(
        [row.value for row in result.evaluations], abs=1e-8
    )
    assert trial.epochs == 1.5
    assert entry.figures.cost_usd == pytest.approx(result.cost_usd, abs=1e-6)
    assert (entry.benchmark, entry.submitter) == ("CIFAR10", "A. Person")


def test_dawnbench_takes_no_entry_below_the_threshold(trained, tmp_path, capsys):
    run = retold(trained, tmp_path / "run", 5, cifar10([0.5, 0.9399]))
    argv = ["--format=dawnbench", str(run), "--submitter=A", f"--out={tmp_path / 'out'}"]
    assert "the best top1Accuracy is 93.99" in error_of(capsys, *argv)


def accuracy_in(unit: str, change: Callable[[list[Event]], list[Event]] = list):
    """Makes a run one whose task declares its accuracy in another unit."""

    def changed(events: list[Event]) -> list[Event]:
        for event in events:
            for metric in event.get("metrics", ()) if event["event"] == "experiment" else ():
                if metric["name"] == "top_1_accuracy":
                    metric |= {"unit": unit, "is_proportion": False, "most": 100.0}
        return change(events)

    return changed


def test_an_accuracy_is_exported_by_its_declared_unit(trained, tmp_path, capsys):
    argv = ["--format=dawnbench", "--submitter=A", f"--out={tmp_path / 'out'}"]
    values = cifar10([50.0, 94.5])
    run = retold(trained, tmp_path / "percent", 5, accuracy_in("percent", values))
    assert export(*argv, str(run)) == 0
    (trial,) = only_entry(tmp_path / "out").trials
    assert [evaluation.value for evaluation in trial.evaluations] == [50.0, 94.5]
    run = retold(trained, tmp_path / "points", 5, accuracy_in("points", values))
    error = error_of(capsys, *argv, str(run))
    assert "measures no top_1_accuracy as a fraction or in percent (its unit: points)" in error
    run = retold(trained, tmp_path / "mlperf", 5, accuracy_in("percent"))
    error = error_of(capsys, "--format=mlperf", *argv[1:], str(run))
    assert "the target of resnet is the top-1 accuracy alone, as a fraction" in error


def test_the_name_of_a_benchmark_is_no_mathematics():
    unnamed = load_experiment("imagenet_resnet_tiny")
    spec = unnamed.data.spec()
    experiment = dataclasses.replace(unnamed, mlperf_benchmark="resnet")
    assert experiment.identity(spec) == unnamed.identity(spec)


def two_attempts(*prices: float) -> ExportedRun:
    first, second = prices
    log = Log().begin(0.0, first).add("run_start", 8.0).evaluate(12.0, 10, 0.5)
    log.add("host_sample", 20.0).begin(1020.0, second).add("restored", 1.0, step=10)
    log.evaluate(30.0, 30, 0.95).add("attempt_end", 31.0, status="reached", step=30)
    recipe = {**EXPERIMENT, "model": {"tag": "resnet"}}
    events = [
        {**event, "experiment": recipe} if event["event"] == "experiment" else event
        for event in log.events
    ]
    result = dataclasses.replace(trial_of(events), data={"benchmark": "CIFAR-10"})
    return ExportedRun(Path("run"), result, tuple(events))


@pytest.mark.parametrize(("prices", "cost"), [((36.0, 36.0), 72.0), ((36.0, 72.0), None)])
def test_an_entry_of_two_prices_has_none(prices, cost, tmp_path):
    """Its hours at the last attempt's price would be another cost than the run's."""
    [path] = export_dawnbench.export([two_attempts(*prices)], tmp_path / "out", author="A. Person")
    assert json.loads(path.read_text()).get("costPerHour") == cost  # of two hosts
