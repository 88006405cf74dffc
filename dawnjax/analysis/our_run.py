"""One run directory of ours for the analysis: its result, system, options and log."""

import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax.official.exported_run import begins_by_the_rules
from dawnjax.runs import summary
from dawnjax.runs.directory import flatten
from dawnjax.runs.logged_run import chooses
from dawnjax.runs.loss_curve import averaged, loss_curve
from dawnjax.runs.spent import Spent, spent
from dawnjax.runs.summary import RunResult
from dawnjax.trials.group import day_of
from dawnjax.trials.origin import (
    Made,
    Origin,
    System,
    cores_of,
    made_of,
    options_of,
    timed_options,
)

MOST_LOSSES = 120
"""Points of a run's training loss that a page draws."""


class OurRun(NamedTuple):
    """One run directory, read.

    Attributes:
      spent: Time until the training ended, and its cost.
      unit: The task's name for examples, in the plural.
      systems: Number of different systems of its attempts.
      official: The official benchmark that the experiment names; empty if none.
      cores: Cores open to process 0 in the newest attempt; None if unknown.
      options: The newest attempt's options that can change the time, and settings of JAX and XLA
        that can change the numbers, which are not the default.
      made: What made the run, and on what; runs of different ones are never pooled.
      fields: Fields of its experiment, by dotted name; of runs read together those that a flag
        changed in any of them (`our_entries.with_swept`).
      losses: Its training loss by step, as means over stretches (`loss_curve.averaged`).
      chooses: A search chose its recipe by this run, which is then no result.
      begins_by_the_rules: It took from another run what its MLPerf benchmark begins with.
      directory: It was read from there.
      moments: Times of the events but heartbeats, float64. They show which of two
        logs is the beginning of the second.
    """

    name: str
    result: RunResult
    spent: Spent
    date: str
    model: str
    unit: str
    systems: int
    made: Made
    cores: int | None = None
    official: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    changed_options: tuple[str, ...] = ()
    moments: bytes = b""
    losses: tuple[tuple[int, float], ...] = ()
    copies: tuple[str, ...] = ()
    chooses: bool = False
    begins_by_the_rules: bool = False
    directory: Path | None = None
    fields: Mapping[str, Any] = {}

    @property
    def origin(self) -> Origin:
        return self.made.origin

    @property
    def system(self) -> System:
        return self.made.system


def run_of(
    name: str,
    record: dict[str, Any],
    events: Sequence[dict[str, Any]],
) -> OurRun:
    """A run of the content of its `experiment.json` and the events of process 0."""
    result = summary.summarize(events)
    all_devices = [event for event in events if event["event"] == "devices"]
    records = [event for event in events if event["event"] == "experiment"]
    options = [timed_options(event["run_options"]) for event in records]
    cores = cores_of(events)
    is_cpu = result.platform == "cpu"
    systems = {
        (
            event["device_kind"],
            event["num_devices"],
            event["num_processes"],
            cores.get(event["attempt"]) if is_cpu else None,
        )
        for event in all_devices
    }
    experiment = records[-1]["experiment"]
    official = experiment.get("mlperf_benchmark")
    tags = {
        part: str(fields.get("tag", "")) if isinstance(fields := experiment.get(part), dict) else ""
        for part in ("model", "data")
    }
    return OurRun(
        name=name,
        result=result,
        spent=spent(events),
        date=day_of(events[0].get("unix_seconds")),
        model=tags["model"],
        unit=result.example_unit,
        systems=len(systems),
        made=made_of(record["identity"], events),
        official=official if isinstance(official, str) else "",
        cores=cores[max(cores)] if cores else None,
        options=tuple(sorted(options_of(events).items())),
        changed_options=_different(options),
        losses=tuple(averaged(loss_curve(events), MOST_LOSSES)),
        chooses=chooses(events),
        begins_by_the_rules=begins_by_the_rules(events),
        fields=flatten(experiment),
        moments=array.array(
            "d", (event["t"] for event in events if event["event"] != "host_sample")
        ).tobytes(),
    )


def _different(options: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    names = sorted({name for chosen in options for name in chosen})
    return tuple(n for n in names if len({repr(chosen.get(n)) for chosen in options}) > 1)
