"""Tables with a row for each entry: overview and stability; and the table of warnings."""

from collections.abc import Iterable, Mapping, Sequence

from dawnjax.analysis.cost import system_price
from dawnjax.page.table import Cell, Column, Missing, Table, row_of
from dawnjax.page.words import NOT_REACHED
from dawnjax.statistics.interval import FEWEST_TRIALS, Interval
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES
from dawnjax.trials.figures import Figures
from dawnjax.trials.group import OTHER, Entry
from dawnjax.trials.labels import key_of, labels_by_key

SUITE_NAMES = {
    "dawnbench": "DAWNBench",
    "mlperf_training": "MLPerf Training",
    "dawnjax": "DawnJAX",
    OTHER: "other programs",
}

WHAT = (
    Column("entry", "entry"),
    Column("suite", "suite", filed=True),
    Column("benchmark", "benchmark", under="entry"),
    Column("submitter", "submitter", filed=True),
    Column("system", "system", filed=True),
    Column("source", "source", filed=True),
)
"""The columns that tell entries apart."""

COMPILATION = Column("compile_seconds", "cold compilation", "s", "number")
"""Stands beside the time to accuracy: compilation before the clock, without a cache."""

WARM = "read from cache"
"""Stands there where all trials read their programs from the cache: no trial tells their cost."""


def scope(suite: str, round: str, benchmark: str) -> str:
    """Name of a benchmark: its suite, round and task."""
    return " ".join(part for part in (SUITE_NAMES.get(suite, suite), round, benchmark) if part)


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
        if trial.compile_seconds_before_run_start is not None and trial.compiled == cache
    ]


def summaries(entries: Iterable[Entry]) -> list[tuple[Entry, Figures]]:
    """Training entries that have trials, each with its figures."""
    return [
        (entry, entry.figures) for entry in entries if entry.kind == "training" and entry.trials
    ]


def what(entry: Entry, names: Mapping[tuple[str, ...], str]) -> dict[str, Cell]:
    """Cells of `WHAT`; `names` are those of `labels_by_key`."""
    suite, benchmark, source = key = key_of(entry)
    return {
        "entry": names[key],
        "suite": suite,
        "benchmark": benchmark,
        "submitter": entry.submitter,
        "system": entry.system or entry.hardware,
        "source": source,
    }


def entry_row(
    columns: Sequence[Column],
    entry: Entry,
    names: Mapping[tuple[str, ...], str],
    *records: object,
    **cells: Cell,
) -> tuple[Cell, ...]:
    """Cells of an entry's row, as `row_of`, with the reason where a number is missing."""
    row = row_of(columns, *records, entry, **what(entry, names), **cells)
    return tuple(
        Missing(why_null(entry, column.name)) if cell is None else cell
        for column, cell in zip(columns, row, strict=True)
    )


def why_null(entry: Entry, name: str) -> str:
    """Reason why a cell of an entry's table has no number; empty where unknown."""
    summary = entry.figures
    given = entry.reasons.get(name, "")
    if name in ("mean_cost_usd", "cost_per_hour_usd"):
        return system_price(entry).basis if summary.reached else NOT_REACHED
    if given:
        return given
    if name.startswith(("epochs", "seconds_per_epoch")):
        return entry.reasons.get("epochs", "the logs do not tell the epochs")
    if not summary.reached and name != "compile_seconds":
        return "no trial reached the target"
    if name in ("cv", "ratio_of_cvs") and summary.reached < 2:
        return "variation needs two trials that reached"
    if name == "ratio_of_cvs":
        return "the time per epoch does not vary, or the epochs are not known"
    if name in ("score_seconds", "unscaled_score_seconds"):
        if summary.trials < 3:
            return "a score needs at least 3 trials"
        if summary.reached == summary.trials:
            return "too few trials for a score: the rules leave out several at each end"
        return f"{summary.trials - summary.reached} of {summary.trials} trials did not reach"
    if name == "expected_seconds":
        return "how long the trials that did not reach ran is not known"
    if name == "compile_seconds":
        return "these results do not tell compilation"
    if name in ("num_accelerators", "num_hosts", "global_batch_size"):
        return "the results do not tell it"
    return ""


def overview_table(entries: Sequence[Entry]) -> Table:
    """Table of every training entry with its system, its times and its cost."""
    columns = (
        *WHAT,
        Column("hardware", "hardware"),
        Column("num_accelerators", "accelerators", kind="integer"),
        Column("num_hosts", "hosts", kind="integer", filed=True),
        Column("framework", "framework"),
        Column("model", "model", filed=True),
        Column("data", "data", filed=True),
        Column("date", "date", kind="date"),
        Column("global_batch_size", "batch size", kind="integer"),
        Column("global_batch_unit", "of", filed=True),
        Column("target", "target", kind="number", filed=True),
        Column("trials", "trials", kind="integer"),
        Column("reached", "reached", kind="integer"),
        Column("mean_seconds", "mean time to accuracy", "s", "number"),
        Column("score_seconds", "MLPerf score", "s", "number"),
        Column("unscaled_score_seconds", "MLPerf score, unscaled", "s", "number", filed=True),
        Column("scaling_factor", "factor of the score", "x", "number", filed=True),
        COMPILATION,
        Column("cold_trials", "of cold trials", kind="integer", filed=True),
        Column("warm_compile_seconds", "warm compilation", "s", "number", filed=True),
        Column("warm_trials", "of warm trials", kind="integer", filed=True),
        Column("mean_cost_usd", "mean cost", "USD", "number"),
        Column("warnings", "warnings", kind="integer", filed=True),
    )
    names, rows = labels_by_key(entries), []
    for entry, summary in summaries(entries):
        warm = compile_seconds(entry, "warm")
        rows.append(
            entry_row(
                columns,
                entry,
                names,
                summary,
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


def stability_table(entries: Sequence[Entry]) -> Table:
    """Table of fraction reached, times, CV and epochs of each entry, with 95 % intervals.

    Below `FEWEST_TRIALS` trials their range replaces the mean's interval, and `mean_seconds_ends`
    says so.
    """
    columns = (
        *WHAT,
        Column("trials", "trials", kind="integer"),
        Column("reached", "reached", kind="integer"),
        *_interval_columns("reached_fraction", "fraction reached", "", "fraction"),
        *_interval_columns("mean_seconds", "mean time to accuracy", "s", "number"),
        Column("cv", "coefficient of variation", kind="fraction"),
        *_interval_columns("expected_seconds", "expected time to accuracy", "s", "number"),
        COMPILATION,
        Column("epochs_mean", "epochs", kind="number"),
        Column("epochs_std", "± epochs", kind="number", filed=True),
        Column("seconds_per_epoch_mean", "time per epoch", "s", "number"),
        Column("seconds_per_epoch_std", "± time per epoch", "s", "number", filed=True),
        Column("ratio_of_cvs", "CV of epochs / of their time", kind="number"),
        Column("interrupted", "has interrupted trials", kind="flag", filed=True),
    )
    names, rows = labels_by_key(entries), []
    for entry, summary in summaries(entries):
        mean = summary.mean_seconds if summary.reached else NOT_REACHED
        rows.append(
            entry_row(
                columns,
                entry,
                names,
                summary,
                **_ends("reached_fraction", summary.reached_interval),
                **_ends("mean_seconds", summary.mean_interval),
                **_ends("expected_seconds", summary.expected_interval),
                reached_fraction=summary.reached / summary.trials,
                mean_seconds=mean,
                compile_seconds=mean_compile_seconds(entry),
                interrupted=any(trial.interruptions > 0 for trial in entry.trials),
            )
        )
    return Table(
        name="stability",
        title="Stability of the time to accuracy",
        columns=columns,
        rows=tuple(rows),
        notes=(
            "Coefficient of variation: population standard deviation over mean, of the trials that "
            "reached.",
            "Expected time: time of all trials over the number that reached. It has an interval "
            f"from {FEWEST_WITH_FAILURES} trials on where some did not reach. Where all reached, "
            "its upper end adds the misses that so many trials cannot rule out, each at the whole "
            "budget of the experiment: much with few trials. The interval of the mean is the one "
            "if all trials reach.",
            "95 % intervals: Wilson's for the fraction, t intervals of the logarithm for the "
            f"others. Of fewer than {FEWEST_TRIALS} trials the ends are their range.",
            "Time per epoch is time to accuracy over epochs, start-up and evaluation included. The "
            "ratio of CVs is 0 where the epochs do not vary (arXiv 1806.01427, Table 4).",
        ),
    )


def warnings_table(entries: Iterable[Entry]) -> Table:
    """Table of every warning and every reason for an unknown field, equal texts in one row."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        name = f"{entry.benchmark} {entry.source}".strip()
        texts = [("warning", "", text) for text in entry.warnings]
        texts += [("not known", field, why) for field, why in entry.reasons.items()]
        for key in texts:
            grouped.setdefault(key, []).append(name)
    ordered = sorted(grouped, key=lambda key: (key[0] != "warning", -len(grouped[key]), key))
    return Table(
        name="warnings",
        title="Warnings, and reasons for what is not known",
        columns=(
            Column("text", "text"),
            Column("names", "entries", under="text"),
            Column("kind", "kind"),
            Column("field", "field"),
            Column("entries", "number of entries", kind="integer"),
        ),
        rows=tuple(
            (text, ", ".join(names), kind, field or "the whole entry", len(names))
            for kind, field, text in ordered
            for names in [grouped[kind, field, text]]
        ),
    )


def _interval_columns(name: str, label: str, unit: str, kind: str) -> tuple[Column, ...]:
    return (
        Column(name, label, unit, kind),
        Column(f"{name}_low", f"{label}, from", unit, kind),
        Column(f"{name}_high", f"{label}, to", unit, kind),
        Column(f"{name}_ends", f"{label}, the ends are"),
    )


def _ends(name: str, interval: Interval | None) -> dict[str, Cell]:
    low, high, ends = (
        (interval.low, interval.high, interval.ends or None) if interval else (None, None, None)
    )
    return {f"{name}_low": low, f"{name}_high": high, f"{name}_ends": ends}
