"""Our run directories as entries: the trials of one experiment on one system, seeds apart.

The log of process 0 is read; `result.json` is not. Trials are one entry when they agree in the
experiment's identity (mathematics, data, evaluation, target) and in the system: kind and number of
devices, hosts, mesh. Nothing else is ever mixed.
"""

import dataclasses
import datetime
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax.analysis import run_summary
from dawnjax.analysis.entries import Entry, Evaluation, Target, Trial
from dawnjax.analysis.run_summary import FINAL_STATUSES, RunResult
from dawnjax.analysis.stability import summarize_trials
from dawnjax.errors import ConfigError, RunError
from dawnjax.run_directory import RunDirectory, read_record
from dawnjax.run_log import log_path, read_events

_PROCESSOR_CLASSES = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU", "rocm": "GPU", "tpu": "TPU"}

_MAX_DEPTH = 6


class OurRun(NamedTuple):
    """One run directory, read.

    Attributes:
      name: Of the directory.
      result: What its log says.
      run_seconds: The run's clock at the end of its log; None if it never started.
      date: The day (UTC) on which it began; empty if not known.
      num_hosts: Hosts of the newest attempt.
      mesh: Its mesh, as the log has it.
      model: The experiment's model, by its tag.
      unit: What an example is: `examples`, or `packed rows`, each of several sentence pairs.
      systems: How many different systems its attempts ran on.
      damaged_lines: Lines of the log that were torn or damaged.
    """

    name: str
    result: RunResult
    run_seconds: float | None
    date: str
    num_hosts: int
    mesh: tuple[tuple[str, int], ...]
    model: str
    unit: str
    systems: int
    damaged_lines: int


def find_run_directories(path: Path) -> Iterator[Path]:
    """Gives the run directories in a folder, itself included, in the order of their names.

    Links are not followed, and a run directory is not searched for others.
    """
    depth = len(path.parts)
    for folder, folders, files in os.walk(path, followlinks=False):
        here = Path(folder)
        if "experiment.json" in files:
            folders.clear()
            yield here
        elif len(here.parts) - depth >= _MAX_DEPTH:
            folders.clear()
        folders.sort()


def read_run(path: Path) -> OurRun:
    """Reads a run directory.

    Raises:
      RunError: It is none, or its log cannot be read or says too little.
    """
    try:
        record = read_record(RunDirectory(path))
    except ConfigError as error:
        raise RunError(str(error)) from None
    if record is None:
        raise RunError(f"{path} is no run directory: it has no experiment.json")
    events, damaged = read_events(log_path(path, 0))
    try:
        result = run_summary.summarize_log(events)
    except RunError as error:
        raise RunError(f"{path}: the log of process 0 cannot be summarized: {error}") from None
    if result.identity != record["identity"]:
        raise RunError(f"{path}: the log is of another experiment than experiment.json")
    started = run_summary.run_started(events)
    run_seconds = run_summary.history_of(events)["run_seconds"] if started else None
    all_devices = [event for event in events if event["event"] == "devices"]
    systems = {_system(event) for event in all_devices}
    newest = all_devices[-1]
    moment = datetime.datetime.fromtimestamp(events[0]["unix_seconds"], datetime.UTC)
    experiment = next(e for e in reversed(events) if e["event"] == "experiment")["experiment"]
    tags = {
        part: str(found.get("tag", "")) if isinstance(found := experiment.get(part), dict) else ""
        for part in ("model", "data")
    }
    return OurRun(
        name=path.resolve().name,
        result=result,
        run_seconds=run_seconds,
        date=moment.date().isoformat(),
        num_hosts=newest.get("num_hosts", newest["num_processes"]),
        mesh=tuple(sorted(newest["mesh"].items())),
        model=tags["model"],
        unit="packed rows" if tags["data"] == "parallel_text" else "examples",
        systems=len(systems),
        damaged_lines=len(damaged),
    )


def entries_of(runs: Iterable[OurRun]) -> list[Entry]:
    """Groups runs into entries, by experiment, identity and system; in the order of their names.

    A run that is given twice counts once.
    """
    groups: dict[tuple[Any, ...], list[OurRun]] = {}
    seen: set[str] = set()
    twice: dict[tuple[Any, ...], list[str]] = {}
    for run in runs:
        result = run.result
        key = (
            result.experiment,
            result.identity,
            result.platform,
            result.device_kind,
            result.num_devices,
            result.num_processes,
            run.num_hosts,
            run.mesh,
        )
        if result.run_id and result.run_id in seen:
            twice.setdefault(key, []).append(run.name)
            continue
        seen.add(result.run_id)
        groups.setdefault(key, []).append(run)
    entries = []
    for key in sorted(groups, key=repr):
        own = sorted(groups[key], key=lambda run: (run.result.seed, run.name))
        entries.append(_entry(own, twice.get(key, [])))
    return _unique_sources(entries)


def _entry(runs: Sequence[OurRun], twice: Sequence[str]) -> Entry:
    first = runs[0].result
    target, target_warnings = _target(first)
    trials = tuple(_trial(run, target.metric) for run in runs)
    price, price_reason = _price(runs)
    reasons = {}
    if price is None:
        reasons["cost_per_hour_usd"] = price_reason
    dates = sorted(run.date for run in runs)
    hosts = runs[0].num_hosts
    system = f"{first.num_devices} x {first.device_kind}"
    if hosts > 1:
        system += f" on {hosts} hosts"
    versions = sorted({run.result.versions.get("jax", "") for run in runs})
    return Entry(
        source=f"{first.experiment}/{first.identity}/{system}",
        suite="dawnjax",
        benchmark=first.experiment,
        system=system,
        hardware=first.device_kind,
        processor_class=_PROCESSOR_CLASSES.get(first.platform, ""),
        # The devices of a CPU are simulated.
        num_accelerators=0 if first.platform == "cpu" else first.num_devices,
        num_hosts=hosts,
        framework=" or ".join(f"JAX {version}".strip() for version in versions),
        framework_family="JAX",
        model=runs[0].model,
        date=dates[-1],
        global_batch_size=first.global_batch_size,
        global_batch_unit=runs[0].unit,
        target=target,
        cost_per_hour_usd=price,
        trials=trials,
        summary=summarize_trials(
            [trial.time_to_accuracy_seconds for trial in trials],
            [trial.epochs for trial in trials],
            [trial.total_seconds for trial in trials],
            price,
        ),
        warnings=(*target_warnings, *_warnings(runs, twice)),
        reasons=reasons,
        identity=first.identity,
        variant=", ".join(f"{name}={value}" for name, value in sorted(first.overrides.items())),
    )


def _trial(run: OurRun, metric: str) -> Trial:
    result = run.result
    seconds = result.time_to_accuracy_seconds
    return Trial(
        file=run.name,
        reached=seconds is not None,
        time_to_accuracy_seconds=seconds,
        total_seconds=run.run_seconds,
        epochs=_epochs(result),
        status=result.status,
        seed=result.seed,
        interrupted=result.interruptions > 0,
        compile_seconds=result.compile_seconds_before_run_start,
        compile_cache=result.compiled,
        evaluations=tuple(
            Evaluation(
                epoch=row["epoch"],
                seconds_since_run_start=row["seconds_since_run_start"],
                value=float(row[metric]),
            )
            for row in result.evaluations
            # NaN and infinities are text in a log.
            if isinstance(row.get(metric), int | float)
        ),
    )


def _epochs(result: RunResult) -> float:
    """Gives the epochs up to the target, or to the end: training may go on after the target."""
    return result.epochs if result.epochs_to_target is None else result.epochs_to_target


def _target(result: RunResult) -> tuple[Target, list[str]]:
    parts = result.target
    first = parts[0] if parts else {"metric": "", "value": None, "direction": "at_least"}
    warnings = []
    if len(parts) > 1:
        everything = " and ".join(
            f"{part['metric']} {part['direction'].replace('_', ' ')} {part['value']:g}"
            for part in parts
        )
        warnings.append(
            f"the target is {everything}; the evaluations here are of {first['metric']} alone"
        )
    if result.target_note:
        warnings.append(f"of the target: {result.target_note}")
    metric = first["metric"]
    unit = "fraction" if metric.endswith("accuracy") else ""
    target = Target(metric=metric, value=first["value"], direction=first["direction"], unit=unit)
    return target, warnings


def _price(runs: Sequence[OurRun]) -> tuple[float | None, str]:
    prices = {run.result.run_options.get("price_per_hour_usd") for run in runs}
    if len(prices) > 1:
        return None, "the trials were given different prices"
    price = prices.pop()
    if price is None:
        return None, "no price given (--price_per_hour_usd)"
    return price * runs[0].num_hosts, ""


def _warnings(runs: Sequence[OurRun], twice: Sequence[str]) -> list[str]:
    warnings = [f"{name} is a run that was given already; it counts once" for name in twice]
    seeds = [run.result.seed for run in runs]
    again = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if again:
        warnings.append(
            f"seed {', '.join(map(str, again))} was run more than once: those trials vary in time "
            "alone, so that the spread over seeds is underestimated"
        )
    versions = {tuple(sorted(run.result.versions.items())) for run in runs}
    if len(versions) > 1:
        names = sorted({name for one in versions for name, _ in one})
        different = [n for n in names if len({dict(one).get(n) for one in versions}) > 1]
        warnings.append(f"the trials ran with different versions of {', '.join(different)}")
    options = [run.result.run_options for run in runs]
    for name in ("steps_per_call", "data_placement"):
        if len({repr(option.get(name)) for option in options}) > 1:
            warnings.append(f"the trials ran with different {name}")
    for run in runs:
        result = run.result
        if not result.reached and result.status not in FINAL_STATUSES:
            warnings.append(
                f"{run.name} has not ended ({result.status}); it counts as not reached until it is "
                "resumed"
            )
        if result.reached and result.time_to_accuracy_seconds is None:
            why = result.reasons.get("time_to_accuracy_seconds", "its time is not known")
            warnings.append(f"{run.name} reached, but {why}; it counts as not reached")
        if result.interruptions:
            warnings.append(
                f"{run.name} was interrupted {result.interruptions} times; its clock leaves out "
                "the gaps"
            )
        if run.systems > 1:
            warnings.append(f"the attempts of {run.name} ran on different systems")
        if run.damaged_lines:
            warnings.append(f"{run.damaged_lines} torn or damaged lines in the log of {run.name}")
        warnings += [f"{run.name}: {message}" for message in result.warnings]
    return warnings


def _system(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["device_kind"], event["num_devices"], event["num_processes"]


def _unique_sources(entries: Sequence[Entry]) -> list[Entry]:
    """Numbers entries that differ in their mesh or processes alone."""
    counts: dict[str, int] = {}
    unique = []
    for entry in entries:
        number = counts[entry.source] = counts.get(entry.source, 0) + 1
        if number > 1:
            entry = dataclasses.replace(entry, source=f"{entry.source} ({number})")
        unique.append(entry)
    return unique
