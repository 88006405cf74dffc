"""Rules of an entry that need no run: its folder, hashes, code, track and trials.

They keep honest entries honest, and say early what is wrong. They are not what stops a cheat: the
judge believes neither log nor code (`judge`, `sandbox`, `handover`).
"""

import ast
import dataclasses
import json
import sys
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax import records
from dawnjax.analysis import our_runs
from dawnjax.analysis.our_run import OurRun
from dawnjax.config import own_files
from dawnjax.errors import ConfigError, RunError
from dawnjax.race.entry import (
    ENTRY_FILE,
    MOST_BYTES,
    RIVAL,
    RUNS,
    SOURCE,
    Beside,
    Entry,
    Trial,
    files_of,
    hashes_of,
    read_entry,
)
from dawnjax.race.tracks import Track, own_choices
from dawnjax.race.verdicts import BASELINE
from dawnjax.runs import summary
from dawnjax.runs.directory import RunDirectory, read_record, texts_of
from dawnjax.statistics.interval import FEWEST_TRIALS
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import FASTER, ONLY_SECOND, judge, p_different

LEVEL = 0.01
"""Chance that an entry as fast as the standing record is found faster or slower."""

BETTER = (FASTER, ONLY_SECOND)
"""Verdicts on an entry beside a rival with which it takes the rival's place."""

OPTIONS = ("steps_per_call", "data_placement")
"""Run options that an entry may choose; the judge sets all others."""

_JUDGES = ("tensorboard", "tracker", "checkpoint.every_seconds", "checkpoint.every_steps")

_LIBRARIES = {
    *("__future__", "abc", "collections", "dataclasses", "enum", "functools", "itertools", "math"),
    *("operator", "typing", "flax", "jax", "numpy", "optax"),
}
_OF_DAWNJAX = {"config", "experiments", "input_pipeline", "models", "optim", "tasks"}
"""Modules that a source may import; a recipe needs no others."""

_OUTSIDE = {
    *("__builtins__", "__import__", "builtins", "compile", "eval", "exec", "gc", "importlib"),
    *("delattr", "getattr", "globals", "inspect", "locals", "setattr", "sys", "threading", "vars"),
    *("ctypes", "ctypeslib", "multiprocessing", "os", "subprocess", "http", "socket", "urllib"),
    *("DataSource", "fromfile", "genfromtxt", "load", "loadtxt", "memmap"),
    *("io", "open", "pathlib", "pickle"),
}
"""Names that lead to files, to other processes or around the project's code."""


class Fault(NamedTuple):
    """A rule that an entry breaks, and how."""

    rule: str
    why: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.why}"


class Read(NamedTuple):
    """An entry that was read, with its runs and the hash of each file."""

    entry: Entry
    runs: list[OurRun]
    rivals: list[OurRun]
    hashes: dict[str, str]


def read(folder: Path) -> Read:
    """Read an entry with its runs.

    Raises:
      ConfigError: It is no whole entry; names the rule.
    """
    files = files_of(folder)  # before anything in it is read
    entry, hashes = read_entry(folder), hashes_of(files)
    described = {name: digest for name, digest in hashes.items() if name != ENTRY_FILE}
    for name in sorted(described.keys() | entry.files.keys()):
        if described.get(name) != entry.files.get(name):
            where = "is not there" if name not in described else "has another hash than it says"
            raise ConfigError(f"{folder}: hash: {name} {where} in {ENTRY_FILE}")
    try:
        runs, rivals = (
            sorted(
                map(our_runs.read_run, our_runs.find_run_directories(folder / part)),
                key=lambda run: run.result.seed,
            )
            for part in (RUNS, RIVAL)
        )
    except RunError as error:
        raise ConfigError(f"{folder}: hash: {error}") from None
    return Read(entry, runs, rivals, hashes)


def first_fault(
    folder: Path, entry: Read, track: Track, baseline: Mapping[str, Any]
) -> Fault | None:
    """First rule that an entry breaks; None where it breaks none.

    Args:
      baseline: Experiment of the track's baseline, as plain JSON values.
    """
    try:
        return next(_faults(folder, entry, track, baseline), None)
    except records.FORGED as error:
        return Fault("hash", summary.of_another_kind(error))


def _faults(folder: Path, read: Read, track: Track, baseline: Mapping[str, Any]) -> Iterator[Fault]:
    entry = read.entry
    if track.lacks:
        yield Fault("data", f"no entry of {track.name} can be judged: {track.lacks}")
    if entry.track != track.name:
        yield Fault("track", f"the entry is for the track {entry.track}, not {track.name}")
    for path in our_runs.find_run_directories(folder / RUNS):
        record = record_at(path)
        yield from _record_faults(path, record, entry)
        yield from _track_faults(path, record, track, baseline)
    for path in our_runs.find_run_directories(folder / RIVAL):
        record = record_at(path)
        yield from _track_faults(path, record, track, baseline)
        if rival_of(record, baseline) != entry.rival:
            yield Fault(
                "trials", f"{ENTRY_FILE} has {entry.rival} for {rival_of(record, baseline)}"
            )
    yield from (Fault("code", why) for why in _choice_faults(entry))
    yield from (
        Fault("code", why)
        for why in source_faults(_sources(folder), [entry.experiment, entry.options], track)
    )
    for runs, trials, what in (
        (read.runs, entry.trials, "trials"),
        (read.rivals, entry.rivals, "rivals"),
    ):
        yield from (
            Fault("trials", f"{what}: {why}") for why in trial_faults(runs, track, read.runs)
        )
        if tuple(map(trial_of, runs)) != trials:
            yield Fault("trials", f"{ENTRY_FILE} says other times or seeds than the logs ({what})")
    if read.runs and options_of(read.runs[0]) != entry.options:
        yield Fault("trials", f"{ENTRY_FILE} has other run options than the logs")
    found = compared(entry.trials, entry.rivals)
    if found is None or found.word not in BETTER:
        why = "no times to compare" if found is None else found.why
        yield Fault("significance", f"not faster than {entry.rival} at p < {LEVEL}: {why}")
    elif found.text() != entry.claim.text():
        why = f"{ENTRY_FILE} claims {entry.claim.text()}; the logs say {found.text()}"
        yield Fault("significance", why)


def record_at(path: Path) -> dict[str, Any]:
    """Content of a run's `experiment.json`; `ConfigError` if it has none, or a damaged one."""
    record = read_record(RunDirectory(path))
    if record is None:
        raise ConfigError(f"{path} has no experiment.json")
    return record


def _record_faults(path: Path, record: dict[str, Any], entry: Entry) -> Iterator[Fault]:
    """Yield where a run's record contradicts itself, its log or the source."""
    for why in own_files.record_faults(record):
        yield Fault("hash", f"{path.name}: {why}")
    texts = texts_of(record.get("source"))
    given = {name: entry.files.get(f"{SOURCE}/{name}") for name in texts}
    named = {name for name in entry.files if name.startswith(f"{SOURCE}/")}
    if given != {name: item["sha256"] for name, item in texts.items()} or len(named) > len(given):
        yield Fault("hash", f"{path.name}: the source is not the one that its log was made by")
    if next(iter(texts), "") != entry.source:
        yield Fault("hash", f"{path.name}: the recipe's main file is not {entry.source!r}")
    if without_place(record["experiment"]) != entry.experiment:
        yield Fault("hash", f"{path.name}: its experiment is not that of {ENTRY_FILE}")


def _track_faults(
    path: Path, record: dict[str, Any], track: Track, baseline: Mapping[str, Any]
) -> Iterator[Fault]:
    """Yield where a run is one of another track."""
    differences = track.differences(record["experiment"], baseline)
    if differences:
        yield Fault("track", f"{path.name}: {differences[0]}; begin with: {track.command}")
    fingerprint = record["identity_fields"].get("data", {}).get("fingerprint")
    if track.data_fingerprint and fingerprint != track.data_fingerprint:
        yield Fault(
            "track",
            f"{path.name}: its data have the fingerprint {fingerprint}, those of {track.name} "
            f"{track.data_fingerprint}",
        )


def without_place(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Experiment without the place of its data, and without claims about a recipe."""
    fields = {
        name: value
        for name, value in experiment.items()
        if name not in ("observations", "target_note", "mlperf_benchmark")
    }
    data = fields.get("data")
    if isinstance(data, dict) and "data_dir" in data:
        fields["data"] = {**data, "data_dir": ""}
    return fields


def rival_of(record: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
    """Name of what a run of a rival trains: the baseline, or another recipe."""
    rival = without_place(record["experiment"])
    is_baseline = rival == without_place(baseline)
    return BASELINE if is_baseline else f"{rival['name']}, which is not the baseline"


def _choice_faults(entry: Entry) -> Iterator[str]:
    own = own_choices(entry.experiment)
    if own:
        yield (
            f"{', '.join(own)}: the weights are measured without any code of the entry, so task, "
            "model and data must be the project's; optimizer and schedule may be its own"
        )


def _sources(folder: Path) -> dict[str, bytes]:
    paths = sorted((folder / SOURCE).rglob("*.py")) if (folder / SOURCE).is_dir() else ()
    return {
        path.relative_to(folder / SOURCE).as_posix(): records.read_plain(path, MOST_BYTES)
        for path in paths
    }


def source_faults(
    sources: Mapping[str, bytes], fields: Sequence[Any], track: Track
) -> Iterator[str]:
    """Yield what the track forbids in all that an entry tells a run: Python files and fields."""
    size = sum(map(len, sources.values()))
    if size > track.limits.source_bytes:
        yield f"the source has {size:,} bytes; at most {track.limits.source_bytes:,} may race"
        return
    # What can be told in so few bytes is no set of weights, wherever it hides: in a comment, the
    # name of a file, a field.
    told = [*sources.values(), json.dumps([*sources, *fields]).encode()]
    packed = len(zlib.compress(b"".join(told), 9))
    if packed > track.limits.packed_bytes:
        yield (
            f"source and fields pack to {packed:,} bytes; at most {track.limits.packed_bytes:,} "
            "may race: data and weights must not hide in them"
        )
    own = {Path(name).parts[0].removesuffix(".py") for name in sources} - sys.stdlib_module_names
    for name, content in sources.items():
        try:
            tree = ast.parse(content)  # bytes: their first lines may name an encoding
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            yield f"{name} is no Python"
            continue
        for node in ast.walk(tree):
            if why := _beyond_a_recipe(node, own):
                yield f"{name}:{getattr(node, 'lineno', 0)}: {why}"


def _beyond_a_recipe(node: ast.AST, own: Collection[str]) -> str:
    """Reason why a part of a source does more than describe a recipe; empty if it does not.

    It shows people what to read. The walls around a run are those of `sandbox`.
    """
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom) and not node.level:
        modules = [f"{node.module}.{alias.name}" for alias in node.names]
    for module in modules:
        root, *parts = module.split(".")
        is_open = root in own or root in _LIBRARIES
        if not is_open and not (root == "dawnjax" and parts and parts[0] in _OF_DAWNJAX):
            known = ", ".join(sorted(_LIBRARIES - {"__future__"}))
            return f"imports {module}; a recipe has {known}, and dawnjax.experiments and the like"
    words = [part for module in modules for part in module.split(".")[1:]]
    if isinstance(node, ast.Attribute):
        words.append(node.attr)
    elif isinstance(node, ast.Name):
        words.append(node.id)
    if taken := next((word for word in words if word in _OUTSIDE), None):
        return f"uses {taken}; a recipe reads no file, starts no process and changes no other code"
    is_own = isinstance(node, ast.Attribute) and _is_own(node.value)
    private = next((word for word in words if word.startswith("_")), None)
    if private and not is_own and not isinstance(node, ast.Name):
        return f"uses {private}, which is private to what it imports"
    if isinstance(node, ast.Attribute) and not is_own and not isinstance(node.ctx, ast.Load):
        return f"sets {node.attr} of what is not its own"
    return ""


def _is_own(value: ast.expr) -> bool:
    """True for `self`, `cls` and `super()`."""
    called = value.func if isinstance(value, ast.Call) else value
    names = {"super"} if isinstance(value, ast.Call) else {"self", "cls"}
    return isinstance(called, ast.Name) and called.id in names


def trial_faults(runs: Sequence[OurRun], track: Track, own: Sequence[OurRun]) -> Iterator[str]:
    """Yield why runs cannot be the trials of one side beside those of the entry."""
    if len(runs) < FEWEST_TRIALS:
        yield f"{len(runs)} are too few; a comparison takes {FEWEST_TRIALS}"
        return
    first, beside, seeds = runs[0], own[0], [run.result.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        yield "two have one seed"
    for run in runs:
        result = run.result
        # Both sides run on one system; each has its own origin.
        why = run.origin.difference(first.origin) or run.system.difference(beside.system)
        if why:
            yield f"seed {result.seed}: {why}"
        if run.chooses:
            yield f"seed {result.seed} chose the recipe, and so cannot judge it"
        if result.interruptions:
            yield f"seed {result.seed} was interrupted"
        if result.platform != track.platform:
            yield (
                f"seed {result.seed} ran on a {result.platform}, and {track.name} is for a "
                f"{track.platform}"
            )
        if result.num_devices != 1:
            yield f"seed {result.seed} ran on {result.num_devices} devices; a track takes one"
        if len(result.evaluations) != 1:
            yield (
                f"seed {result.seed} looked {len(result.evaluations)} times at the examples to "
                "evaluate; a run looks once, at its end"
            )
        others = [name for name, _ in run.options if name not in (*OPTIONS, *_JUDGES)]
        if others:
            yield (
                f"seed {result.seed} ran with {others[0]}; of the options that can change a time "
                f"an entry has {', '.join(OPTIONS)}, and the experiment's own xla_options"
            )
        if run.spent.seconds is None:
            yield f"seed {result.seed}: how long it took is not known"


def trial_of(run: OurRun) -> Trial:
    """A trial by its log; `seconds` is 0 where it is not known."""
    result = run.result
    metric = str(result.target[0]["metric"])
    seconds = result.time_to_accuracy_seconds
    seconds = run.spent.seconds if seconds is None else seconds
    quality = result.best.get(metric)
    return Trial(
        seed=result.seed,
        reached=result.time_to_accuracy_seconds is not None,
        seconds=seconds or 0.0,
        quality=quality,
    )


def options_of(run: OurRun) -> dict[str, Any]:
    """Run options that an entry may choose, and that are not the default."""
    return {name: value for name, value in run.options if name in OPTIONS}


def sample_of(trials: Sequence[Trial], *, in_turn: bool) -> Sample | None:
    times = [trial.seconds if trial.reached else None for trial in trials]
    sample = Sample.of(times, [t.seconds for t in trials], [t.seed for t in trials])
    return sample and dataclasses.replace(sample, in_turn=in_turn)


def compared(
    trials: Sequence[Trial], rivals: Sequence[Trial], *, in_turn: bool = False
) -> Beside | None:
    """Trials beside those of a rival, at the race's level.

    None where a side has no trial, or the time of one is not known. Equal seeds are pairs where the
    judge ran both sides `in_turn`. Two studies that ran one after the other are no pairs: a machine
    may have been slower in one of them.
    """
    if not trials or not rivals:
        return None
    first, second = (sample_of(side, in_turn=in_turn) for side in (rivals, trials))
    if first is None or second is None:
        return None
    # Equal within a margin is no verdict here: a record may be small, if it is significant.
    verdict = judge(first, second, alpha=LEVEL, may_be_equivalent=False)
    ratio = verdict.ratio
    return Beside(
        word=verdict.word,
        why=verdict.why.removesuffix(", and is wider than the margin"),  # the race has none
        ratio=ratio and ratio.value,
        low=ratio and ratio.low,
        high=ratio and ratio.high,
        ends=ratio.ends if ratio else "",
        p_value=p_different(first, second),
        is_paired=verdict.is_paired,
    )
