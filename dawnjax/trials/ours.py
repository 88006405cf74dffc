"""Our run directories: each a trial by its log, and together entries.

Trials are one entry when `origin` finds no difference between them: they are of one experiment on
one system, and differ in their seeds.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.machine.hardware import num_chips
from dawnjax.runs.directory import read_events_of, read_existing
from dawnjax.runs.log import MOST_BYTES, Event, log_path
from dawnjax.runs.logged_run import FINAL_STATUSES
from dawnjax.trials.checks import check_trial
from dawnjax.trials.from_log import of_another_kind, trial_of
from dawnjax.trials.group import Entry, set_apart
from dawnjax.trials.origin import Made
from dawnjax.trials.trial import Scalar, Trial

_MAX_DEPTH = 6

_PROCESSOR_CLASSES = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU", "rocm": "GPU", "tpu": "TPU"}

FINE_TUNED, FROM_BACKBONE = ", fine-tuned", ", from a trained backbone"
"""Suffixes for the benchmark of runs that began with another run's parameters; the second where the
rules of its MLPerf benchmark begin so."""


def find_run_directories(path: Path) -> Iterator[Path]:
    """Yield the run directories in a folder, or itself, by name; links are not followed."""
    depth = len(path.parts)
    for folder, folders, files in os.walk(path, followlinks=False):
        here = Path(folder)
        if "experiment.json" in files:
            folders.clear()
            yield here
        elif len(here.parts) - depth >= _MAX_DEPTH:
            folders.clear()
        folders.sort()


def read_run(path: Path) -> Trial:
    """Read a run directory by its log; `RunError` if it is none, or if the log says too little."""
    try:
        return read_with_events(path)[0]
    except ConfigError as error:
        raise RunError(str(error)) from None


def read_with_events(path: Path) -> tuple[Trial, list[Event]]:
    """Read a run directory by its log, as `read_run`, and the events of process 0.

    Raises:
      ConfigError: There is no run directory.
      RunError: The log cannot be read, or says too little.
    """
    events = read_events_of(path, read_existing(path))
    try:
        trial = dataclasses.replace(trial_of(events, path.resolve().name), directory=path)
        check_trial(trial)
        json.dumps(trial.to_json(), allow_nan=False)
    except (RunError, *records.FORGED) as error:
        why = str(error) if isinstance(error, RunError) else of_another_kind(error)
        raise RunError(f"{path}: the log cannot be summarized: {why}") from None
    return trial, events


def distinct(trials: Iterable[Trial]) -> list[Trial]:
    """Keep one copy of each run, that with the longest log, and warn of the copies left out."""
    kept: dict[str, Trial] = {}
    for number, trial in enumerate(trials):
        # Runs without an id are never taken for copies.
        run_id = trial.run_id or f"without an id {number}"
        kept[run_id] = _more_complete(kept[run_id], trial) if run_id in kept else trial
    return list(kept.values())


def _more_complete(first: Trial, second: Trial) -> Trial:
    logs = [_log(first), _log(second)]
    whole, part = first, second
    if len(logs[1]) > len(logs[0]):
        whole, part = second, first
    logs.sort(key=len)
    if logs[0] == logs[1]:
        remark = f"{part.name} is a run that was given already; it counts once"
    elif logs[1].startswith(logs[0]):
        remark = f"{part.name} is an earlier copy of this run; this longer log counts"
    else:
        remark = (
            f"{part.name} is a copy of this run, and neither log is the beginning of the other; "
            "this, which is longer, counts"
        )
    return dataclasses.replace(whole, warnings=(*first.warnings, remark))


def _log(trial: Trial) -> bytes:
    """Whole lines of a trial's log; empty where it was not read from a directory."""
    if trial.directory is None:
        return b""
    text = records.read_plain(log_path(trial.directory), MOST_BYTES)
    return text[: text.rfind(b"\n") + 1]


def entries_of(trials: Iterable[Trial]) -> list[Entry]:
    """Group trials, copies once, into entries by experiment, identity and system, by name."""
    groups: dict[tuple[str, Made], list[Trial]] = {}
    for trial in with_swept(distinct(trials)):
        groups.setdefault((trial.experiment, trial.made), []).append(trial)
    return _unique_sources(
        [
            _entry(sorted(groups[key], key=lambda trial: (trial.seed, trial.name)))
            # By text, because None and numbers do not compare.
            for key in sorted(groups, key=repr)
        ]
    )


def _entry(trials: Sequence[Trial]) -> Entry:
    first = trials[0]
    price, price_reason = _price(trials)
    reasons = {}
    if first.global_batch_size is None:
        reasons["global_batch_size"] = "it changes in the run"
    if price is None:
        reasons["cost_per_hour_usd"] = price_reason
    beginning = FROM_BACKBONE if first.begins_by_the_rules else FINE_TUNED
    beginning = beginning if first.initialized_from else ""
    system = first.system
    versions = sorted({trial.versions.get("jax", "") for trial in trials})
    variant = ", ".join(f"{name}={value}" for name, value in sorted(first.overrides.items()))
    entry = Entry(
        source="/".join(filter(None, [first.experiment, variant, str(system)])),
        suite="dawnjax",
        # No board has a run that began with another's parameters beside one that did not.
        benchmark=first.experiment + beginning,
        system=str(system),
        hardware=system.hardware,
        processor_class=_PROCESSOR_CLASSES.get(first.platform, ""),
        # The devices of a CPU are simulated.
        num_accelerators=(
            0 if first.platform == "cpu" else num_chips(first.num_devices, first.device_kind)
        ),
        num_hosts=system.num_hosts,
        framework=" or ".join(f"JAX {version}".strip() for version in versions),
        framework_family="JAX",
        model=first.model,
        # The newest trial's day: a leaderboard up to a day then holds no later trial.
        date=max(trial.date for trial in trials),
        global_batch_size=first.global_batch_size,
        global_batch_unit=first.example_unit,
        target=first.target,
        cost_per_hour_usd=price,
        trials=tuple(trials),
        warnings=(*_target_warnings(first), *_warnings(trials)),
        reasons=reasons,
        data=data_name(first),
        published=_told(first, "benchmark"),
        official=first.official,
        identity=first.identity,
        variant=variant,
        config=dict(first.fields),
    )
    return set_apart(entry, ", ".join(_distinctions(first)))


def with_swept(trials: Sequence[Trial]) -> list[Trial]:
    """Trials with those fields alone that a flag changed in any of them."""
    names = sorted({name for trial in trials for name in trial.overrides})
    return [
        dataclasses.replace(trial, fields={name: _config_value(trial, name) for name in names})
        for trial in trials
    ]


def _config_value(trial: Trial, name: str) -> Scalar:
    """Value of a field by its flag's name: a chosen variant by its tag, several as one text."""
    value = trial.fields.get(name, trial.fields.get(f"{name}.tag", trial.overrides.get(name)))
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, Scalar) else str(value)


def data_name(trial: Trial) -> str:
    """Name of a run's data, as its dataset declared it."""
    return _told(trial, "name") or "data that the log does not name"


def _told(trial: Trial, field: str) -> str:
    """Text that a dataset declares; empty where it declares none."""
    text = trial.data.get(field)
    return text if isinstance(text, str) else ""


def _distinctions(trial: Trial) -> list[str]:
    """Remaining differences, in words, between trials of one experiment on the same hardware."""
    system = trial.system
    words = [f"mesh.{axis}={size}" for axis, size in system.mesh if axis != "data" and size > 1]
    if system.num_processes != system.num_hosts:
        words.append(f"{system.num_processes} processes")
    return words + [f"{name}={value}" for name, value in sorted(trial.timed_options.items())]


def _target_warnings(trial: Trial) -> list[str]:
    warnings, target = [], trial.target
    if target.others:
        warnings.append(
            f"the target is {target.words()}; the evaluations here are of {target.metric} alone"
        )
    if trial.initialized_from:
        warnings.append(
            f"the training began with the parameters of {trial.initialized_from}; no time here "
            "includes training those"
        )
    if trial.target_note:
        warnings.append(f"of the target: {trial.target_note}")
    return warnings


def _price(trials: Sequence[Trial]) -> tuple[float | None, str]:
    for trial in trials:
        if len(trial.prices_per_hour_usd) > 1:
            return None, f"the attempts of {trial.name} were given different prices"
    prices = {price for trial in trials for price in trial.prices_per_hour_usd}
    if len(prices) > 1:
        return None, "the trials were given different prices"
    price = prices.pop()
    return price, "" if price is not None else "no price given (--price_per_hour_usd)"


def _warnings(trials: Sequence[Trial]) -> list[str]:
    warnings = []
    seeds = [trial.seed for trial in trials]
    if again := sorted({seed for seed in seeds if seed is not None and seeds.count(seed) > 1}):
        warnings.append(
            f"seed {', '.join(map(str, again))} was run more than once: those trials vary only "
            "in time, so the spread over seeds is underestimated"
        )
    names = sorted({name for trial in trials for name in trial.versions})
    if different := [n for n in names if len({trial.versions.get(n) for trial in trials}) > 1]:
        warnings.append(f"the trials ran with different versions of {', '.join(different)}")
    cores = sorted({trial.cores for trial in trials if trial.cores is not None})
    if len(cores) > 1:
        warnings.append(f"the hosts of the trials had {' or '.join(map(str, cores))} CPU cores")
    for trial in trials:
        if not trial.reached and trial.status not in FINAL_STATUSES:
            warnings.append(
                f"{trial.name} has not ended ({trial.status}); it counts as not reached until it "
                "is resumed"
            )
        if trial.reached and trial.time_to_accuracy_seconds is None:
            why = trial.reasons.get("time_to_accuracy_seconds", "its time is not known")
            warnings.append(f"{trial.name} reached, but {why}; it counts as not reached")
        if trial.interruptions:
            several = "s" if trial.interruptions > 1 else ""
            warnings.append(
                f"{trial.name} had {trial.interruptions} interruption{several}; its clock leaves "
                "out the gaps"
            )
        warnings += [f"{trial.name}: {message}" for message in trial.warnings]
    return warnings


def _unique_sources(entries: Sequence[Entry]) -> list[Entry]:
    """Set sources apart: by the identity where one name stands for several, else by a number."""
    identities: dict[str, set[str]] = {}
    for entry in entries:
        identities.setdefault(entry.source, set()).add(entry.identity)
    counts: dict[str, int] = {}
    unique = []
    for entry in entries:
        if len(identities[entry.source]) > 1:
            entry = set_apart(entry, f"identity {entry.identity[:8]}")
        number = counts[entry.source] = counts.get(entry.source, 0) + 1
        unique.append(entry if number == 1 else set_apart(entry, str(number)))
    return unique
