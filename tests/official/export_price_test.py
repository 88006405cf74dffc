"""Price of an exported entry, from a made log."""

import dataclasses
import json
from pathlib import Path

import pytest
from made_logs import EXPERIMENT, Log

from dawnjax.official import export_dawnbench
from dawnjax.official.exported_run import ExportedRun
from dawnjax.trials.from_log import trial_of


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
