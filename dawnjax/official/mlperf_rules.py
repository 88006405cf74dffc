"""Rules of MLPerf Training that a log keeps or breaks, each by its name.

The rules are those of the compliance checker that a log's file alone can answer: which keys are
there and how often, their order in time, labels, the end, the target of the closed division, and
the hyperparameters of its benchmarks, with their bounds. Bounds by formulas, and the convergence of
entries against reference runs, are left to MLPerf's own programs.

Source: mlcommons/logging 4.1.59, compliance_checker: `training_*/common.yaml`, `closed_*.yaml` and
`open_*.yaml`; bounds of commit 7bbf792686.
"""

import functools
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax import records
from dawnjax.official import mlperf, mlperf_rounds, sources
from dawnjax.official.mlperf_log import Record, Records, line_of, parse
from dawnjax.official.mlperf_trial import TrialLog, read_trial, values_of
from dawnjax.official.outcome import Refused, SourceRefused, quoted
from dawnjax.official.text import finite
from dawnjax.trials.target import Target, reaches

ONCE = ("submission_benchmark", "submission_division", "init_stop", "run_start", "run_stop")
ONCE_SINCE_V07 = ("train_samples", "eval_samples")
SUBMITTER = ("submission_org", "submission_platform")
"""Once, but for v0.5 and v5.0."""

AT_LEAST_ONCE = (
    *(("cache_clear",), ("init_start",), ("eval_accuracy",), ("eval_start", "block_start")),
    *(("block_start", "epoch_start"), ("block_stop", "epoch_stop"), ("eval_stop", "block_stop")),
)
"""Of each group one key."""

LABELS = {
    "block_start": ("epoch_count", "samples_count"),
    "block_stop": ("first_epoch_num", "samples_count"),
    **dict.fromkeys(
        ("epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_accuracy"),
        ("epoch_num", "samples_count"),
    ),
}
"""Metadata of which such a line has one; v3.1 took `step_num` too."""

WAIVED = {"minigo": (*ONCE_SINCE_V07, "block_start", "block_stop")}
"""Keys whose number and labels are free in the closed division of a benchmark."""

OF_ALL_CLOSED = ("gradient_accumulation_steps",)
"""Hyperparameters of every benchmark of the closed division, since v1.0."""

MOST_INITIALIZATION_SECONDS = {"closed": 30 * 60.0, "open": 240 * 60.0}
_OF_EARLY_ROUNDS = {"v0.6": 20 * 60.0, "v0.7": 20 * 60.0, "v1.0": 30 * 60.0, "v1.1": 30 * 60.0}
"""Before v2.0 one limit held for both divisions."""


class Broken(NamedTuple):
    """A rule that a log breaks; `line` counts from 1, None for a fault of the whole file."""

    rule: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}: "
        return f"{line}rule {self.rule}: {self.reason}"


class Checked(NamedTuple):
    """Log, or folder of logs, with the rules that it breaks and notes on how it was read."""

    name: str
    broken: list[Broken]
    notes: list[str]


def check(path: Path) -> Iterator[Checked]:
    """Yield the MLPerf logs of a folder, an archive or a file, then the folders with a wrong
    number of them; nothing where there are none.
    """
    try:
        yield from _of_files(path)
    except SourceRefused as refused:
        name = refused.file or str(path)
        yield Checked(name, [Broken("readable", refused.reason, refused.line)], [])


def _of_files(path: Path) -> Iterator[Checked]:
    folders: dict[str, tuple[str, list[TrialLog]]] = {}
    for file in sources.files(path):
        base, above = posixpath.basename(file.name), posixpath.dirname(file.context)
        if not file.alone and not mlperf.RESULT_FILE.fullmatch(base):
            continue
        try:
            data = file.read(sources.LOG_BYTES)
        except SourceRefused:
            raise
        except Refused as refused:
            yield Checked(file.name, [Broken("readable", refused.reason, refused.line)], [])
            continue
        broken, notes, trial = check_log(data, above)
        yield Checked(str(path) if file.alone else file.name, broken, notes)
        if trial is not None and not file.alone:
            shown = posixpath.dirname(file.name) or str(path)
            folders.setdefault(above, (shown, []))[1].append(trial)
    for above, (name, trials) in folders.items():
        benchmark = trials[0].benchmark or mlperf_rounds.benchmark_of(posixpath.basename(above))
        needed = mlperf_rounds.num_trials(benchmark, mlperf_rounds.round_in(above))
        if needed is not None and len(trials) < needed:
            reason = f"{len(trials)} logs can be read, and {benchmark} asks for {needed}"
            yield Checked(name, [Broken("trials", reason)], [])


def check_log(data: bytes, above: str) -> tuple[list[Broken], list[str], TrialLog | None]:
    """Rules that a log breaks, notes on how it was read, and its trial where it has one.

    `above` is the path of its folder, which may name the round and the benchmark.
    """
    round_name = mlperf_rounds.round_in(above)
    try:
        log = parse(data)
    except Refused as refused:
        return [Broken("readable", f"the log {refused.reason}", refused.line)], [], None
    broken = [
        Broken("readable", "a marked line is in no known form", line_of(data, offset))
        for offset in log.unreadable[:10]
    ]
    by_key: dict[str, list[Record]] = {}
    for record in log.records:
        by_key.setdefault(record.key, []).append(record)
    notes: list[str] = []
    if log.version == "v0.5":
        notes.append("v0.5 has rules of its own: only the clock, the end and the target are held")
        broken += _once(("run_start", "run_stop"), by_key, data, notes)
    else:
        broken += _common(log, by_key, data, round_name, notes)
    trial = None
    try:
        trial = read_trial(data, posixpath.basename(above), round_name)
    except Refused as refused:
        if not broken:  # a missing run_start has been named
            broken.append(Broken("clock", refused.reason, refused.line))
    if trial is not None:
        broken += _of_trial(trial, by_key, data, round_name, notes, posixpath.basename(above))
    return broken, notes, trial


def _once(
    keys: Sequence[str], by_key: dict[str, list[Record]], data: bytes, notes: list[str]
) -> list[Broken]:
    broken, repeated = [], []
    for key in keys:
        found = by_key.get(key, [])
        if not found:
            broken.append(Broken("once", f"{key} is missing; it must be logged exactly once"))
        elif any(record.value != found[0].value for record in found):
            line = line_of(data, found[1].offset)
            reason = f"{key} is logged {len(found)} times with different values"
            broken.append(Broken("once", f"{reason}; it must be logged exactly once", line))
        elif len(found) > 1:
            repeated.append(key)
    if repeated:  # each process of a job may log it
        notes.append(f"logged more than once, each time with the same value: {', '.join(repeated)}")
    return broken


def _common(
    log: Records, by_key: dict[str, list[Record]], data: bytes, round_name: str, notes: list[str]
) -> list[Broken]:
    division = next((r for r in by_key.get("submission_division", ())), None)
    benchmark = next((r.value for r in by_key.get("submission_benchmark", ())), None)
    is_closed = division is not None and division.value == "closed"
    waived = WAIVED.get(str(benchmark), ()) if is_closed else ()
    once = ONCE if log.version == "v0.6" else (*ONCE, *ONCE_SINCE_V07)
    once = once if round_name == "v5.0" else (*once, *SUBMITTER)
    broken = _once([key for key in once if key not in waived], by_key, data, notes)
    for keys in AT_LEAST_ONCE:
        if not any(key in by_key for key in keys):
            names = " or ".join(keys)
            broken.append(Broken("at least once", f"{names} is missing; one or more are needed"))
    if division is not None and division.value not in ("closed", "open"):
        reason = f"submission_division is {quoted(division.value)}; it must be closed or open"
        broken.append(Broken("division", reason, line_of(data, division.offset)))
    for key, wanted in LABELS.items() if log.version != "v0.6" else ():
        if key in waived:
            continue
        wanted = (*wanted, "step_num") if round_name == "v3.1" else wanted
        bare = [r for r in by_key.get(key, ()) if not any(name in r.metadata for name in wanted)]
        if bare:
            reason = f"{len(bare)} {key} have neither {' nor '.join(wanted)} in their metadata"
            broken.append(Broken("labels", reason, line_of(data, bare[0].offset)))
    for record in by_key.get("block_start", ()) if "block_start" not in waived else ():
        count = record.metadata.get("epoch_count")
        if count is not None and (finite(count) or 0.0) <= 0:
            reason = f"block_start has epoch_count={quoted(count)}; it must be above 0"
            broken.append(Broken("labels", reason, line_of(data, record.offset)))
    name = "" if division is None else str(division.value)
    most = _OF_EARLY_ROUNDS.get(round_name, MOST_INITIALIZATION_SECONDS.get(name))
    return broken + _order(by_key, data, name, notes, most, is_strict=log.version == "v0.6")


def _order(
    by_key: dict[str, list[Record]],
    data: bytes,
    division: str,
    notes: list[str],
    most_initialization: float | None,
    *,
    is_strict: bool,
) -> list[Broken]:
    """Order by the stamps: ranks write into one file as they come.

    From v0.7 on the compliance checker holds no epoch and no evaluation to the clock; unless
    `is_strict`, those outside of it are noted.
    """

    def first(key: str, last: bool = False) -> Record | None:
        timed = [record for record in by_key.get(key, ()) if record.seconds is not None]
        pick = max if last else min
        return pick(timed, key=lambda record: record.seconds or 0.0) if timed else None

    in_training = ("block_start", "epoch_start", "eval_start", "eval_accuracy")
    rules = [
        (first("init_start", last=True), first("init_stop")),
        (first("init_stop"), first("run_start")),
        (first("run_start"), first("run_stop", last=True)),
        (first("run_start"), first("block_start")),
    ]
    customs = [
        *((first("run_start"), first(key)) for key in in_training[1:]),
        *((first(key, last=True), first("run_stop", last=True)) for key in in_training),
    ]
    broken = []
    for number, (before, after) in enumerate([*rules, *customs]):
        if before is None or after is None:
            continue
        late = (before.seconds or 0.0) - (after.seconds or 0.0)
        if late > 0:
            reason = f"{after.key} is stamped {late:g} s before {before.key}"
            line = line_of(data, after.offset)
            if number < len(rules) or is_strict:
                broken.append(Broken("order", f"{reason}, which must precede it", line))
            else:
                notes.append(f"line {line}: {reason}")
    began, ended = first("init_start"), first("init_stop")
    if began is not None and ended is not None and most_initialization is not None:
        took = (ended.seconds or 0.0) - (began.seconds or 0.0)
        if took >= most_initialization:
            allowed = f"{division} allows {most_initialization:.0f}"
            reason = f"{took:.0f} s from init_start to init_stop; {allowed}"
            broken.append(Broken("initialization", reason, line_of(data, ended.offset)))
    return broken


def _of_trial(
    trial: TrialLog,
    by_key: dict[str, list[Record]],
    data: bytes,
    round_name: str,
    notes: list[str],
    folder: str,
) -> list[Broken]:
    broken = []
    if trial.inferred:
        broken.append(Broken("form", f"read otherwise than the log says: {trial.inferred}"))
    benchmark = trial.benchmark or mlperf_rounds.benchmark_of(folder)
    if not mlperf_rounds.is_known(benchmark):
        broken.append(Broken("benchmark", f"{quoted(benchmark)} is no benchmark of MLPerf"))
    if not trial.reached:
        notes.append(
            f"the trial did not reach its target ({trial.status}): it counts as the slowest"
        )
    division = trial.descriptions.get("submission_division", "")
    if trial.reached:
        target = mlperf.target_of(benchmark, round_name, [trial], [], {})
        parts: list[tuple[Target | Target, list[float], str]]
        parts = [(target, [e.value for e in trial.evaluations], "evaluation")]
        for other in target.others:
            values = values_of(by_key.get("eval_accuracy", []), other.metric)
            parts += [(other, values, other.metric)] if values else []
        line = line_of(data, by_key["run_stop"][-1].offset)
        shorts = (_short_of(*part) for part in parts)
        broken += [Broken("target", reason, line) for reason in shorts if reason]
    if division != "closed" or trial.version in ("v0.5", "v0.6"):
        return broken
    row = _keys(benchmark, round_name)
    if row is None:
        notes.append(f"the hyperparameters of {benchmark} in {round_name} are not known here")
        return broken
    if not round_name:
        last = row["last_round"]
        notes.append(f"no folder names a round; the hyperparameters are those of {last}")
    keys = [*row["keys"].split(), *(OF_ALL_CLOSED if round_name != "v0.7" else ())]
    asked = [key for key in dict.fromkeys(keys) if key not in ONCE_SINCE_V07]
    broken += [
        Broken("hyperparameters", each.reason, each.line)
        for each in _once(asked, by_key, data, notes)
    ]
    return broken + list(_outside(row["bounds"], by_key, data))


def _short_of(target: Target | Target, values: Sequence[float], name: str) -> str:
    """Reason why a trial that says success did not reach a target; empty if it did."""
    wanted, direction = target.value, target.direction
    if wanted is None or any(reaches(value, wanted, direction) for value in values):
        return ""
    best = (max if direction == "at_least" else min)(values, default=None)
    shown = "there is no evaluation" if best is None else f"the best {name} is {best:.9g}"
    return f"run_stop says success, and {shown}; the target is {wanted:g}"


BOUND = re.compile(r"(\w+)(?: \+ (\w+))? (=|>=|>) (.+)")
_ASKED = {"=": "", ">=": "at least ", ">": "above "}


def _outside(bounds: str, by_key: dict[str, list[Record]], data: bytes) -> Iterator[Broken]:
    """Hyperparameters outside of their bounds; one that is not logged has been named."""
    for text in filter(None, bounds.split("; ")):
        match = BOUND.fullmatch(text)
        assert match, text
        key, second, relation, wanted = match.groups()
        added = by_key.get(second or "", [])[:1]
        if second and not added:
            continue
        name = f"{key} + {second}" if second else key
        for record in by_key.get(key, ()):
            value = record.value
            if added:
                numbers = [finite(each) for each in (value, added[0].value)]
                value = None if None in numbers else sum(filter(None, numbers))
            if not _holds(value, relation, wanted.split(" | ")):
                asked = _ASKED[relation] + wanted.replace(" | ", " or ")
                reason = f"{name} is {quoted(value)}; it must be {asked}"
                yield Broken("bounds", reason, line_of(data, record.offset))
                break


def _holds(value: Any, relation: str, wanted: Sequence[str]) -> bool:
    if relation == "=":
        numbers = map(_float, wanted)
        return any(
            value == text if number is None else finite(value) == number
            for text, number in zip(wanted, numbers, strict=True)
        )
    number, least = finite(value), float(wanted[0])
    return number is not None and (number > least or (relation == ">=" and number == least))


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@functools.cache
def required_keys() -> tuple[dict[str, str], ...]:
    """Rows of `mlperf_keys.csv`: keys of each closed benchmark from a round to a round.

    Of its bounds, `A + B = 5` is for the sum of two keys, and `= 1 | 2` for one of two values.
    """
    path = Path(__file__).with_name("mlperf_keys.csv")
    filled = ("benchmark", "first_round", "last_round", "keys", "source")
    return tuple(row for _, row in records.csv_rows(path, filled))


def _keys(benchmark: str, round_name: str) -> dict[str, str] | None:
    """Keys that the closed division asks of a benchmark; the newest round's without a round."""
    rows = [row for row in required_keys() if row["benchmark"] == benchmark]
    if not round_name:
        return rows[-1] if rows else None
    return next(iter(mlperf_rounds.in_round(rows, round_name)), None)
