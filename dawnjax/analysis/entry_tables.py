"""Tables with one row for each entry: overview, stability, epochs against time per epoch."""

from collections.abc import Iterable

from dawnjax.page.table import Cell, Column, Table, row_of
from dawnjax.page.words import NOT_REACHED
from dawnjax.statistics.interval import FEWEST_TRIALS, Interval
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES
from dawnjax.statistics.stability import stability_of
from dawnjax.trials.group import Entry
from dawnjax.trials.trial_summary import Summary

WHAT = (
    Column("suite", "suite"),
    Column("benchmark", "benchmark"),
    Column("submitter", "submitter"),
    Column("system", "system"),
    Column("source", "entry"),
)
"""The columns that tell entries apart."""


COMPILATION = Column("compile_seconds", "cold compilation", "s", "number")
"""Stands beside the time to accuracy: compilation before the clock, without a cache."""

WARM = "read from cache"
"""Stands there where all trials read their programs from the cache: no trial tells their cost."""


def mean_compile_seconds(entry: Entry) -> float | str | None:
    """Mean compilation of the cold trials, or `WARM`; None where no trial records it."""
    cold = compile_seconds(entry, "cold")
    if cold:
        return sum(cold) / len(cold)
    return WARM if compile_seconds(entry, "warm") else None


def compile_seconds(entry: Entry, cache: str) -> list[float]:
    """Compilation before the clock of the trials whose cache was `cold` or `warm`."""
    return [
        trial.compile_seconds_before_run_start
        for trial in entry.trials
        if trial.compile_seconds_before_run_start is not None and trial.compile_cache == cache
    ]


def what(entry: Entry) -> dict[str, Cell]:
    return {
        "suite": f"{entry.suite} {entry.round}".strip(),
        "benchmark": entry.benchmark,
        "submitter": entry.submitter,
        "system": entry.system or entry.hardware,
        "source": entry.source,
    }


def summaries(entries: Iterable[Entry]) -> list[tuple[Entry, Summary]]:
    """Training entries that have trials, each with its summary."""
    return [
        (entry, entry.summary)
        for entry in entries
        if entry.kind == "training" and entry.summary is not None and entry.summary.trials
    ]


def overview_table(entries: Iterable[Entry]) -> Table:
    """Table of every training entry with its system, its times and its cost."""
    columns = (
        *WHAT,
        Column("hardware", "hardware"),
        Column("num_accelerators", "accelerators", kind="integer"),
        Column("num_hosts", "hosts", kind="integer"),
        Column("framework", "framework"),
        Column("model", "model"),
        Column("data", "data"),
        Column("date", "date"),
        Column("global_batch_size", "batch size", kind="integer"),
        Column("global_batch_unit", "of"),
        Column("target", "target", kind="number"),
        Column("trials", "trials", kind="integer"),
        Column("reached", "reached", kind="integer"),
        Column("mean_seconds", "mean time to accuracy", "s", "number"),
        Column("score_seconds", "MLPerf score", "s", "number"),
        Column("unscaled_score_seconds", "MLPerf score, unscaled", "s", "number"),
        Column("scaling_factor", "factor of the score", "x", "number"),
        COMPILATION,
        Column("cold_trials", "of cold trials", kind="integer"),
        Column("warm_compile_seconds", "warm compilation", "s", "number"),
        Column("warm_trials", "of warm trials", kind="integer"),
        Column("mean_cost_usd", "mean cost", "USD", "number"),
        Column("inferred", "trials with inferred times", kind="integer"),
        Column("warnings", "warnings", kind="integer"),
    )
    rows = []
    for entry, summary in summaries(entries):
        warm = compile_seconds(entry, "warm")
        rows.append(
            row_of(
                columns,
                summary,
                entry,
                **what(entry),
                global_batch_unit=entry.global_batch_unit if entry.global_batch_size else None,
                target=entry.target.value,
                mean_seconds=summary.mean_seconds if summary.reached else NOT_REACHED,
                compile_seconds=mean_compile_seconds(entry),
                cold_trials=len(compile_seconds(entry, "cold")),
                warm_compile_seconds=sum(warm) / len(warm) if warm else None,
                warm_trials=len(warm),
                scaling_factor=entry.scaling_factor if entry.suite == "mlperf_training" else None,
                mean_cost_usd=summary.cost_usd,
                warnings=len(entry.warnings),
            )
        )
    return Table(
        name="entries",
        title="Entries",
        columns=columns,
        rows=tuple(rows),
        notes=(
            "Mean time and mean cost: over the trials that reached. MLPerf score: without the "
            "fastest and the slowest trial (of unet3d, four at each end); a trial that did not "
            "reach counts as the slowest. The factor is that of the entry's scaling.json; the "
            "unscaled score is the one before it.",
            "Compilation: before the clock, the mean of the cold trials (at least one program was "
            "compiled) and of the warm ones (all were read from the cache of compiled programs).",
        ),
    )


def stability_table(entries: Iterable[Entry]) -> Table:
    """Table of fraction reached, mean, CV and expected time of each entry, with 95 % intervals.

    Variation of a single trial is empty. Below `FEWEST_TRIALS` trials their range replaces the
    mean's interval, and `mean_seconds_ends` says so.
    """
    rows = []
    for entry, summary in summaries(entries):
        stability = stability_of(
            [trial.time_to_accuracy_seconds for trial in entry.trials],
            [trial.clock_seconds for trial in entry.trials],
        )
        rows.append(
            (
                *what(entry).values(),
                summary.trials,
                summary.reached,
                *_interval(stability.reached, summary.reached / summary.trials),
                *_interval(
                    stability.mean_seconds, summary.mean_seconds if summary.reached else NOT_REACHED
                ),
                summary.cv,
                *_interval(stability.expected_seconds, summary.expected_seconds),
                mean_compile_seconds(entry),
                any(trial.interrupted for trial in entry.trials),
            )
        )
    return Table(
        name="stability",
        title="Stability of the time to accuracy",
        columns=(
            *WHAT,
            Column("trials", "trials", kind="integer"),
            Column("reached", "reached", kind="integer"),
            *_interval_columns("reached_fraction", "fraction reached", "", "fraction"),
            *_interval_columns("mean_seconds", "mean time to accuracy", "s", "number"),
            Column("cv", "coefficient of variation", kind="fraction"),
            *_interval_columns("expected_seconds", "expected time to accuracy", "s", "number"),
            COMPILATION,
            Column("interrupted", "has interrupted trials", kind="flag"),
        ),
        rows=tuple(rows),
        notes=(
            "Coefficient of variation: population standard deviation over mean, of the trials that "
            "reached.",
            "Expected time: time of all trials over the number that reached. It has an interval "
            f"from {FEWEST_WITH_FAILURES} trials on where some did not reach. Where all reached, "
            "what a failure costs is not known, and the mean's interval stands for trials that "
            "reach.",
            "95 % intervals: Wilson's for the fraction, t intervals of the logarithm for the "
            f"others. Of fewer than {FEWEST_TRIALS} trials the ends are their range.",
        ),
    )


def epochs_table(entries: Iterable[Entry]) -> Table:
    """Table of epochs, time per epoch and the ratio of their CVs (arXiv 1806.01427, Table 4)."""
    columns = (
        *WHAT,
        Column("reached", "reached", kind="integer"),
        Column("epochs_mean", "epochs", kind="number"),
        Column("epochs_std", "± epochs", kind="number"),
        Column("seconds_per_epoch_mean", "time per epoch", "s", "number"),
        Column("seconds_per_epoch_std", "± time per epoch", "s", "number"),
        Column("ratio_of_cvs", "ratio of CVs", kind="number"),
    )
    return Table(
        name="epochs",
        title="Epochs to the target, and time per epoch",
        columns=columns,
        rows=tuple(
            row_of(columns, summary, **what(entry))
            for entry, summary in summaries(entries)
            if summary.epochs_mean is not None
        ),
        notes=(
            "Means and population standard deviations over the trials that reached; of one trial "
            "there is no deviation. Time per epoch is time to accuracy over epochs, start-up and "
            "evaluation included.",
            "Ratio: CV of the epochs over CV of the time per epoch; 0 where the epochs do not "
            "vary.",
        ),
    )


def warnings_table(entries: Iterable[Entry]) -> Table:
    """Table of every warning of every entry, and every reason for an unknown field."""
    rows = []
    for entry in entries:
        names = what(entry).values()
        rows += [(*names, "warning", "", text) for text in entry.warnings]
        rows += [(*names, "not known", name, why) for name, why in entry.reasons.items()]
    return Table(
        name="warnings",
        title="Warnings, and what is not known",
        columns=(*WHAT, Column("kind"), Column("field"), Column("text")),
        rows=tuple(rows),
    )


def _interval_columns(name: str, label: str, unit: str, kind: str) -> tuple[Column, ...]:
    return (
        Column(name, label, unit, kind),
        Column(f"{name}_low", f"{label}, from", unit, kind),
        Column(f"{name}_high", f"{label}, to", unit, kind),
        Column(f"{name}_ends", f"{label}, the ends are"),
    )


def _interval(interval: Interval | None, value: Cell) -> tuple[Cell, Cell, Cell, Cell]:
    if interval is None:
        return value, None, None, None
    return value, interval.low, interval.high, interval.ends or None
