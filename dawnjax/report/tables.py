"""Tables with a row for each entry: their columns, the overview, and the table of warnings."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from dawnjax.analysis.cost import system_price
from dawnjax.analysis.leaderboard import why_no_time
from dawnjax.page.table import Cell, Column, Missing, Table, row_of
from dawnjax.page.words import NO_TARGET, NOT_REACHED
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
"""Shown if all trials read their programs from the cache, so no trial measured compilation."""


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
    """Cells of `WHAT`; `names` come from `labels_by_key`."""
    suite, benchmark, source = key = key_of(entry)
    return {
        "entry": names[key],
        "suite": suite,
        "benchmark": benchmark,
        "submitter": entry.submitter,
        "system": entry.system or entry.hardware,
        "source": source,
    }


def entry_table(
    name: str,
    title: str,
    columns: Sequence[Column],
    entries: Sequence[Entry],
    cells_of: Callable[[Entry, Figures], Mapping[str, Cell]],
    notes: Sequence[str],
) -> Table:
    """Table with a row for each training entry, and the reason where a number is missing.

    Args:
      cells_of: Cells by their column; others are fields of the entry's figures, or its own.
    """
    names, rows = labels_by_key(entries), []
    for entry, found in summaries(entries):
        row = row_of(columns, found, entry, **{**what(entry, names), **cells_of(entry, found)})
        rows.append(
            tuple(
                Missing(why_null(entry, column.name)) if cell is None else cell
                for column, cell in zip(columns, row, strict=True)
            )
        )
    return Table(
        name=name, title=title, columns=tuple(columns), rows=tuple(rows), notes=tuple(notes)
    )


def why_null(entry: Entry, name: str) -> str:
    """Reason why a cell of an entry's table has no number; empty where unknown."""
    summary = entry.figures
    given = entry.reasons.get(name, "")
    if name in ("mean_cost_usd", "cost_per_hour_usd"):
        return system_price(entry).basis if summary.reached else why_no_time(entry)
    if given:
        return given
    if name.startswith(("epochs", "seconds_per_epoch")):
        return entry.reasons.get("epochs", "the logs do not record the epochs")
    if not summary.reached and name != "compile_seconds":
        why = why_no_time(entry)
        return "no trial reached the target" if why == NOT_REACHED else why
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
        return "the length of the trials that did not reach is not known"
    if name == "compile_seconds":
        return "these results do not record compilation"
    if name in ("num_accelerators", "num_hosts", "global_batch_size"):
        return "the results do not record it"
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

    def cells_of(entry: Entry, found: Figures) -> dict[str, Cell]:
        warm = compile_seconds(entry, "warm")
        return {
            "global_batch_unit": entry.global_batch_unit if entry.global_batch_size else None,
            "target": entry.target.value,
            "mean_seconds": found.mean_seconds if found.reached else why_no_time(entry),
            "reached": found.reached + found.untimed if entry.has_target else Missing(NO_TARGET),
            "compile_seconds": mean_compile_seconds(entry),
            "cold_trials": len(compile_seconds(entry, "cold")),
            "warm_compile_seconds": sum(warm) / len(warm) if warm else None,
            "warm_trials": len(warm),
            "scaling_factor": entry.scaling_factor if entry.suite == "mlperf_training" else None,
            "mean_cost_usd": found.cost_usd,
            "warnings": len(entry.warnings),
        }

    notes = (
        "Mean time and mean cost: over the trials that reached. MLPerf score: without the fastest "
        "and the slowest trial (for unet3d, four at each end); a trial that did not reach counts "
        "as the slowest. The entry's scaling.json gives the factor; the unscaled score is before "
        "that factor.",
        "Compilation: before the clock, the means of the cold trials (at least one program was "
        "compiled) and of the warm trials (all were read from the cache).",
    )
    return entry_table("entries", "Entries", columns, entries, cells_of, notes)


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
