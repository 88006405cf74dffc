"""Differences between two sets of DawnJAX's runs: recipe, first losses, phases, step, ops."""

import csv
import dataclasses
import io
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.page.words import of_name, rounded
from dawnjax.runs.directory import RunDirectory, flatten, read_record
from dawnjax.statistics.contrast import ratio_of_means
from dawnjax.statistics.sample import SAME_LOSSES, largest_difference
from dawnjax.study.sides import Side
from dawnjax.trials.figures import steps_before
from dawnjax.trials.hosts import hosts_of
from dawnjax.trials.trial import Trial

MOST_OPS = 10

MOST_SECONDS = 1e9
"""Bound of an op's seconds, so that the sum of an untrusted table stays finite."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """A quantity of both sides, means over their trials.

    Attributes:
      first: A's value; None if no trial has it.
      second: B's value likewise.
      ratio: Second divided by first; None if a side has none or is 0.
      low: Lower end of the ratio's interval, or of the range of few trials.
      high: Upper end likewise.
      level: Chance that such an interval holds the truth; None for a range.
      trials: Trials of the smaller side.
    """

    name: str
    unit: str
    first: float | None
    second: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    trials: int | None = None


def same_mathematics(first: Side, second: Side) -> tuple[bool | None, str]:
    """True if both sides train the same, by identity and first losses; and the reason.

    None if that cannot be decided: a schedule may differ after the first losses.
    """
    if not first.runs or not second.runs:
        return None, "not runs of DawnJAX: neither the experiment nor the first losses are known"
    texts = {record.get("source.sha256", "") for record in map(_record, first.runs + second.runs)}
    is_one = first.entry.identity == second.entry.identity and len(texts) == 1
    words = "the same experiment" if is_one else "different experiments"
    by_seed = {trial.seed: trial for trial in first.runs if trial.finite_losses}
    pairs = [(by_seed[b.seed], b) for b in second.runs if b.seed in by_seed and b.finite_losses]
    if not pairs:
        return (None if is_one else False), f"{words}; no seed has first losses on both sides"
    if any(len(a.finite_losses) != len(b.finite_losses) for a, b in pairs):
        return False, f"{words}; for one seed, one side has fewer finite first losses"
    worst = max(largest_difference(a.finite_losses, b.finite_losses) for a, b in pairs)
    seeds = f"{len(pairs)} seed{'s' if len(pairs) > 1 else ''}"
    said = f"{words}; first losses of {seeds} differ by at most {rounded(100 * worst, 1)} %"
    return (is_one or None if worst <= SAME_LOSSES else False), said


def changed_fields(first: Side, second: Side) -> list[str]:
    """Fields of the experiment and facts of the system that differ between the sides."""
    if not first.runs or not second.runs:
        return []
    before, after = (_facts(side.runs[0]) for side in (first, second))
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return [f"{name}: {_value(before.get(name))} -> {_value(after.get(name))}" for name in names]


def _record(trial: Trial) -> dict[str, Any]:
    """Content of a trial's `experiment.json`, by dotted name."""
    assert trial.directory is not None
    return flatten(read_record(RunDirectory(trial.directory)) or {})


def _facts(trial: Trial) -> dict[str, Any]:
    # Claims about a recipe change nothing that a run does, and a changed recipe has none.
    fields = {
        name.removeprefix("experiment."): value
        for name, value in _record(trial).items()
        if re.match(r"experiment\.(?!observations|target_note)", name)
    }
    options = {f"run option {name}": value for name, value in flatten(trial.run_options).items()}
    for name in ("run_dir", "profile.after_run"):
        options.pop(f"run option {name}", None)
    system = {
        "devices": f"{trial.num_devices} x {trial.device_kind}",
        "processes": trial.num_processes,
        **{f"version of {name}": version for name, version in trial.versions.items()},
    }
    return {**fields, **options, **system}


def _value(value: Any) -> str:
    return "not there" if value is None else str(value)


def changes(first: Side, second: Side) -> list[Change]:
    """Time of both sides: compilation, steps, evaluations, epochs to the target."""
    sides = first, second
    quantities: list[tuple[str, str, Callable[[Trial], float | None] | None]] = [
        ("cold compilation", "s", _cold_compilation_seconds),
        ("a step", "ms", _step_milliseconds),
        ("an evaluation", "ms", _evaluation_milliseconds),
        ("epochs to the target", "", None),
        ("checkpoints", "s", lambda run: run.phases.get("checkpoint")),
    ]
    if not first.runs or not second.runs:
        # Those of a trial that did not reach end with its budget.
        reached = [[trial for trial in side.entry.trials if trial.reached] for side in sides]
        return [_epochs(*reached)]
    return [
        _epochs(first.runs, second.runs)
        if of_run is None
        else _change(name, unit, *([of_run(run) for run in side.runs] for side in sides))
        for name, unit, of_run in quantities
    ]


def _epochs(first: Sequence[Trial], second: Sequence[Trial]) -> Change:
    """Epochs to the target, which fall on the grid of evaluations."""
    counts = [[trial.epochs_to_target for trial in side] for side in (first, second)]
    steps = [
        steps_before(side, of_side, lambda row: row.epoch)
        for side, of_side in zip((first, second), counts, strict=True)
    ]
    return _change("epochs to the target", "", *counts, steps=(steps[0], steps[1]))


def _cold_compilation_seconds(run: Trial) -> float | None:
    """Compilation before the clock; None where programs came from a cache, which is faster."""
    return run.compile_seconds_before_run_start if run.compiled == "cold" else None


def _step_milliseconds(run: Trial) -> float | None:
    """Milliseconds a step; None where the batch changes in the run."""
    if run.examples_per_second is None or run.global_batch_size is None:
        return None
    return 1e3 * run.global_batch_size / run.examples_per_second


def _evaluation_milliseconds(run: Trial) -> float | None:
    """Milliseconds an evaluation; None after an interruption.

    The phase then includes repeated or interrupted evaluations, which the rows do not.
    """
    seconds = run.phases.get("eval")
    if not seconds or not run.evaluations or run.interruptions:
        return None
    return 1e3 * seconds / len(run.evaluations)


def _change(
    name: str,
    unit: str,
    first: Sequence[float | None],
    second: Sequence[float | None],
    *,
    steps: tuple[Sequence[float | None], Sequence[float | None]] = ((), ()),
) -> Change:
    known = [[figure for figure in side if figure is not None] for side in (first, second)]
    means = [statistics.fmean(side) if side else None for side in known]
    change = Change(name=name, unit=unit, first=means[0], second=means[1])
    if not all(side and min(side) > 0 for side in known):
        return change
    found = ratio_of_means(known[0], known[1], steps)
    ends = {name: getattr(found, name) for name in ("low", "high", "level", "trials")}
    return dataclasses.replace(change, ratio=found.value, **ends)


def step_parts(first: Side, second: Side) -> list[Change]:
    """Parts of a step by the profiles, in milliseconds, mean over hosts and trials.

    Empty where a side has no profile.
    """
    sides = [_parts(side.runs) for side in (first, second)]
    if not all(sides):
        return []
    names = [name for name in sides[0] if name in sides[1]]
    changed = [_change(of_name(name), "ms", sides[0][name], sides[1][name]) for name in names]
    return [change for change in changed if change.first or change.second]


def _parts(trials: Sequence[Trial]) -> dict[str, list[float | None]]:
    parts: dict[str, list[float | None]] = {}
    for trial in trials:
        seconds = [host.parts for host in hosts_of(trial) if host.parts]
        for name in seconds[0] if seconds else ():
            mean = statistics.fmean(of_host.get(name, 0.0) for of_host in seconds)
            parts.setdefault(name, []).append(1e3 * mean)
    return parts


def op_changes(first: Side, second: Side) -> list[Change]:
    """Kinds of op that gained or lost most seconds a step, the largest difference first.

    Ops match by layer and by name without its number, which differs from program to program; a
    side without such an op has 0. Empty where a side has no profile of ops.
    """
    before, after = (_op_seconds(side) for side in (first, second))
    if not before or not after:
        return []
    seconds = {name: (before.get(name, 0.0), after.get(name, 0.0)) for name in {*before, *after}}
    names = sorted(seconds, key=lambda name: (-abs(seconds[name][1] - seconds[name][0]), name))
    return [
        Change(name=name, unit="s a step", first=seconds[name][0], second=seconds[name][1])
        for name in names[:MOST_OPS]
        if len({*seconds[name]}) > 1
    ]


def _op_seconds(side: Side) -> dict[str, float]:
    """Seconds a step of each kind of op on process 0, the mean over profiled trials."""
    totals: dict[str, float] = {}
    trials = 0
    for trial in side.runs:
        assert trial.directory is not None
        host = next(iter(hosts_of(trial)), None)
        name = host and host.utilization.window
        file = trial.directory / "profile" / "process_00000" / str(name) / "ops.csv"
        if not name or not file.is_file():
            continue
        trials += 1
        try:
            lines = records.read_plain(file).decode()
            for row in csv.DictReader(io.StringIO(lines, newline="")):
                kind = _kind(row)
                seconds = float(row["seconds"])
                if not 0 <= seconds <= MOST_SECONDS:
                    raise ValueError(f"an op of {seconds:g} s")
                totals[kind] = totals.get(kind, 0.0) + seconds
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            raise RunError(
                f"{file} is not a table of ops ({error}); profile the run again"
            ) from None
    return {name: seconds / trials for name, seconds in totals.items()}


def _kind(row: dict[str, str]) -> str:
    name = re.sub(r"[._]\d+\b", "", row["name"])
    return f"{name} in {row['scope']}" if row["scope"] else name
