"""Our runs as entries: the trials of one experiment on one system, seeds apart.

Trials are one entry when `results.origin` finds no difference between them.
"""

from collections.abc import Iterable, Sequence

from dawnjax.analysis.leaderboard import target_words
from dawnjax.analysis.our_run import OurRun
from dawnjax.runs.logged_run import FINAL_STATUSES
from dawnjax.runs.summary import RunResult
from dawnjax.tasks.metric import declared_metrics
from dawnjax.trials.group import (
    Entry,
    EntryTarget,
    FurtherTarget,
    Scalar,
    TimedEvaluation,
    Trial,
    set_apart,
    summary_of,
)
from dawnjax.trials.origin import Made

_PROCESSOR_CLASSES = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU", "rocm": "GPU", "tpu": "TPU"}


def distinct(runs: Iterable[OurRun]) -> list[OurRun]:
    """Keep one copy of each run, that with the longest log, and remark on the copies left out."""
    kept: dict[str, OurRun] = {}
    for number, run in enumerate(runs):
        # Runs without an id are never taken for copies.
        run_id = run.result.run_id or f"without an id {number}"
        kept[run_id] = _more_complete(kept[run_id], run) if run_id in kept else run
    return list(kept.values())


def _more_complete(first: OurRun, second: OurRun) -> OurRun:
    whole, part = first, second
    lengths = [(len(run.moments), run.result.total_seconds) for run in (first, second)]
    if lengths[1] > lengths[0]:
        whole, part = second, first
    if whole.moments == part.moments:
        remark = f"{part.name} is a run that was given already; it counts once"
    elif whole.moments.startswith(part.moments):
        remark = f"{part.name} is an earlier copy of {whole.name}, whose log goes on; that counts"
    else:
        remark = (
            f"{part.name} and {whole.name} are copies of one run, and neither log is the beginning "
            f"of the other; {whole.name}, which has more events, counts"
        )
    return whole._replace(copies=(*first.copies, *second.copies, remark))


FINE_TUNED, FROM_BACKBONE = ", fine-tuned", ", from a trained backbone"
"""Suffixes for the benchmark of runs that began with another run's parameters; the second where the
rules of its MLPerf benchmark begin so."""


def entries_of(runs: Iterable[OurRun]) -> list[Entry]:
    """Group runs, copies once, into entries by experiment, identity and system, sorted by name."""
    groups: dict[tuple[str, Made], list[OurRun]] = {}
    for run in with_swept(distinct(runs)):
        groups.setdefault((run.result.experiment, run.made), []).append(run)
    return _unique_sources(
        [
            _entry(sorted(groups[key], key=lambda run: (run.result.seed, run.name)))
            # By text, because None and numbers do not compare.
            for key in sorted(groups, key=repr)
        ]
    )


def _entry(runs: Sequence[OurRun]) -> Entry:
    first = runs[0].result
    target = target_of(first)
    trials = tuple(_trial(run, target.metric) for run in runs)
    price, price_reason = _price(runs)
    reasons = {}
    if first.global_batch_size is None:
        reasons["global_batch_size"] = "it changes in the run"
    if price is None:
        reasons["cost_per_hour_usd"] = price_reason
    beginning = FROM_BACKBONE if runs[0].begins_by_the_rules else FINE_TUNED
    beginning = beginning if first.initialized_from else ""
    dates = sorted(run.date for run in runs)
    system = runs[0].system
    versions = sorted({run.result.versions.get("jax", "") for run in runs})
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
        num_accelerators=0 if first.platform == "cpu" else first.num_devices,
        num_hosts=system.num_hosts,
        framework=" or ".join(f"JAX {version}".strip() for version in versions),
        framework_family="JAX",
        model=runs[0].model,
        # The newest trial's day: a leaderboard up to a day then holds no later trial.
        date=dates[-1],
        global_batch_size=first.global_batch_size,
        global_batch_unit=runs[0].unit,
        target=target,
        cost_per_hour_usd=price,
        trials=trials,
        summary=summary_of(trials),
        warnings=(*_target_warnings(first, target), *_warnings(runs)),
        reasons=reasons,
        data=data_name(first),
        published=_published(first),
        official=runs[0].official,
        identity=first.identity,
        variant=variant,
        config=dict(runs[0].fields),
    )
    return set_apart(entry, ", ".join(_distinctions(runs[0])))


def with_swept(runs: Sequence[OurRun]) -> list[OurRun]:
    """Runs with those fields alone that a flag changed in any of them."""
    names = sorted({name for run in runs for name in run.result.overrides})
    return [run._replace(fields={name: _config_value(run, name) for name in names}) for run in runs]


def _config_value(run: OurRun, name: str) -> Scalar:
    """Value of a field by its flag's name: a chosen variant by its tag, several as one text."""
    value = run.fields.get(name, run.fields.get(f"{name}.tag", run.result.overrides.get(name)))
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, Scalar) else str(value)


def data_name(result: RunResult) -> str:
    """Name of a run's data, as its dataset declared it."""
    name = result.data.get("name") if isinstance(result.data, dict) else None
    return name if isinstance(name, str) and name else "data that the log does not name"


def _published(result: RunResult) -> str:
    """Published set behind a run's data; empty for all other data."""
    name = result.data.get("benchmark") if isinstance(result.data, dict) else None
    return name if isinstance(name, str) else ""


def _distinctions(run: OurRun) -> list[str]:
    """Remaining differences, in words, between trials of one experiment on the same hardware."""
    system = run.system
    words = [f"mesh.{axis}={size}" for axis, size in system.mesh if axis != "data" and size > 1]
    if system.num_processes != system.num_hosts:
        words.append(f"{system.num_processes} processes")
    return words + [f"{name}={value}" for name, value in run.options]


def _trial(run: OurRun, metric: str) -> Trial:
    result = run.result
    seconds = result.time_to_accuracy_seconds
    return Trial(
        file=run.name,
        reached=seconds is not None,
        time_to_accuracy_seconds=seconds,
        clock_seconds=run.spent.seconds,
        # Up to the target: a run may train past it.
        epochs=result.epochs if result.epochs_to_target is None else result.epochs_to_target,
        status=result.status,
        seed=result.seed,
        # JSON has no NaN, so an entry ends before the first loss that is not finite.
        first_losses=result.finite_losses,
        interrupted=result.interruptions > 0,
        compile_seconds_before_run_start=result.compile_seconds_before_run_start,
        compile_cache=result.compiled,
        cost_usd=run.spent.cost_usd,
        run_id=result.run_id,
        evaluations=tuple(
            TimedEvaluation(
                epoch=row["epoch"],
                seconds_since_run_start=row["seconds_since_run_start"],
                value=float(row[metric]),
            )
            for row in result.evaluations
            # NaN and infinities are text in a log.
            if isinstance(row.get(metric), int | float)
        ),
    )


def target_of(result: RunResult) -> EntryTarget:
    """Target of a run with its metric's declaration: the first, and any others beside it."""
    if not result.target:
        return EntryTarget(metric="", value=None)
    first = result.target[0]
    metric = declared_metrics(result.metrics).get(first["metric"])
    declared = {} if metric is None else {"unit": metric.unit, "title": metric.title}
    return EntryTarget(
        metric=first["metric"],
        value=first["value"],
        direction=first["direction"],
        others=tuple(
            FurtherTarget(metric=part["metric"], value=part["value"], direction=part["direction"])
            for part in result.target[1:]
        ),
        **declared,
    )


def _target_warnings(result: RunResult, target: EntryTarget) -> list[str]:
    warnings = []
    if target.others:
        words, metric = target_words(target), target.metric
        warnings.append(f"the target is {words}; the evaluations here are of {metric} alone")
    if result.initialized_from:
        warnings.append(
            f"the training began with the parameters of {result.initialized_from}; what that took "
            "is in no time here"
        )
    if result.target_note:
        warnings.append(f"of the target: {result.target_note}")
    return warnings


def _price(runs: Sequence[OurRun]) -> tuple[float | None, str]:
    for run in runs:
        if len(run.spent.hourly_prices) > 1:
            return None, f"the attempts of {run.name} were given different prices"
    prices = {run.spent.hourly_prices[0] for run in runs}
    if len(prices) > 1:
        return None, "the trials were given different prices"
    price = prices.pop()
    return price, "" if price is not None else "no price given (--price_per_hour_usd)"


def _warnings(runs: Sequence[OurRun]) -> list[str]:
    warnings = [remark for run in runs for remark in run.copies]
    seeds = [run.result.seed for run in runs]
    again = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if again:
        warnings.append(
            f"seed {', '.join(map(str, again))} was run more than once: those trials vary in time "
            "alone, so that the spread over seeds is underestimated"
        )
    versions = {tuple(sorted(run.result.versions.items())) for run in runs}
    if len(versions) > 1:
        names = sorted({name for of_run in versions for name, _ in of_run})
        different = [n for n in names if len({dict(of_run).get(n) for of_run in versions}) > 1]
        warnings.append(f"the trials ran with different versions of {', '.join(different)}")
    cores = sorted({run.cores for run in runs if run.cores is not None})
    if len(cores) > 1:
        warnings.append(f"the hosts of the trials had {' or '.join(map(str, cores))} CPU cores")
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
            several = "s" if result.interruptions > 1 else ""
            warnings.append(
                f"{run.name} had {result.interruptions} interruption{several}; its clock leaves "
                "out the gaps"
            )
        if run.systems > 1:
            warnings.append(f"the attempts of {run.name} ran on different systems")
        if run.changed_options:
            names = ", ".join(run.changed_options)
            warnings.append(f"the attempts of {run.name} ran with different {names}")
        warnings += [f"{run.name}: {message}" for message in result.warnings]
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
