"""Leaderboards by time and by cost, up to a day."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dawnjax.analysis.cost import training_cost
from dawnjax.analysis.entry_tables import COMPILATION, mean_compile_seconds
from dawnjax.errors import ConfigError
from dawnjax.machine.prices import PRICES, Price, parse_date
from dawnjax.page.table import Column, Table, row_of
from dawnjax.page.words import NOT_REACHED
from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS, Interval
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES, Sample, time_interval
from dawnjax.statistics.verdict import holm, p_different
from dawnjax.trials.group import Entry, EntryTarget, reaches

ORDERS = ("time", "cost")

MOST_COMPARED = 200
"""Entries of a leaderboard that are compared each with each."""

RULE = (
    "Ranks order the estimates. A range below a rank holds the places that the entry might have. "
    "An entry is certainly before another where both have enough trials and their expected times "
    "(or costs) differ; all such claims of a leaderboard hold together in 95 % of cases (Holm). "
    "The interval below a time is that of the mean if all trials reached the target, and else that "
    f"of the expected time. Fewer than {FEWEST_TRIALS} trials ({FEWEST_WITH_FAILURES} where some "
    "did not reach) have no interval, only their range, and an MLPerf score has none."
)
"""When ranks are certain, and which intervals there are."""


class _Row(NamedTuple):
    entry: Entry
    seconds: float | None
    cost: float | None
    price_source: str
    why_unranked: str
    interval: Interval | None = None


def benchmarks(entries: Iterable[Entry]) -> list[tuple[str, str, str, str]]:
    """Distinct (suite, round, kind, benchmark) of the entries, in order."""
    return sorted({(e.suite, e.round, e.kind, e.benchmark) for e in entries})


def targets(entries: Iterable[Entry]) -> list[EntryTarget]:
    """Targets of entries, in order; a board ranks times to one target only."""
    distinct = {entry.target for entry in entries}
    return sorted(distinct, key=lambda target: repr(dataclasses.astuple(target)))


def target_words(target: EntryTarget) -> str:
    """Target in words, such as `top_1_accuracy at least 0.93`."""
    value = "a value not known" if target.value is None else f"{target.value:g}"
    words = f"{target.metric} {target.direction.replace('_', ' ')} {value}".strip()
    return " and ".join([words, *map(str, target.others)])


def up_to(entries: Iterable[Entry], until: str) -> list[Entry]:
    """Entries dated up to a day, that day included; entries without a date are left out."""
    last = parse_date(until)
    if last is None:
        raise ConfigError(f"the cut-off date is {until!r}, not YYYY-MM-DD")
    return [entry for entry in entries if (day := parse_date(entry.date)) and day <= last]


def ranking_seconds(entry: Entry) -> tuple[float | None, str]:
    """Time by which a training entry is ranked, or None and the reason.

    That is the score for MLPerf, and the expected time to accuracy for other suites, which is the
    mean where all trials reached.
    """
    if "rank" in entry.reasons:
        return None, entry.reasons["rank"]
    summary = entry.summary
    if summary is None or not summary.trials:
        return None, "no trials"
    if not summary.reached:
        return None, NOT_REACHED
    if entry.suite == "mlperf_training":
        if summary.score_seconds is not None:
            return summary.score_seconds, ""
        return None, f"no score: {summary.reached} of {summary.trials} trials reached"
    if summary.expected_seconds is not None:
        return summary.expected_seconds, ""
    return None, f"{summary.reached} of {summary.trials} trials reached; time of the others unknown"


def leaderboard(
    entries: Iterable[Entry],
    benchmark: str,
    *,
    by: str = "time",
    until: str | None = None,
    kind: str = "training",
    target: EntryTarget | None = None,
    prices: Sequence[Price] = PRICES,
) -> Table:
    """Rank a benchmark's entries; those that cannot be ranked stand at the end.

    Args:
      by: `time` (time to accuracy, or latency of inference) or `cost`.
      until: The last day, `YYYY-MM-DD`; entries without a date are then left out.
      kind: `training` or `inference`.
      target: Only entries with this target; needed where the entries have several.
      prices: For entries that give no price.
    """
    if by not in ORDERS:
        raise ConfigError(f"a leaderboard is by {' or '.join(ORDERS)}, not by {by!r}")
    if kind not in ("training", "inference"):
        raise ConfigError(f"a leaderboard is of training or inference, not of {kind!r}")
    chosen = [
        entry
        for entry in entries
        if (entry.benchmark, entry.kind) == (benchmark, kind) and target in (None, entry.target)
    ]
    several = targets(chosen)
    if len(several) > 1:
        raise ConfigError(
            f"the entries of {benchmark} have several targets "
            f"({', '.join(map(target_words, several))}), whose times are not to be ranked "
            "together: choose one with target="
        )
    undated = sum(parse_date(entry.date) is None for entry in chosen)
    if until is not None:
        chosen = up_to(chosen, until)
    rows = [
        _training_row(entry, prices) if kind == "training" else _inference_row(entry)
        for entry in chosen
    ]
    key = (lambda row: row.seconds) if by == "time" else (lambda row: row.cost)
    ranked = [row for row in rows if not row.why_unranked and key(row) is not None]
    ranked.sort(key=lambda row: (key(row), row.entry.source))
    unranked = [row for row in rows if row.why_unranked or key(row) is None]
    unranked.sort(key=lambda row: row.entry.source)
    spans = _spans([_amounts(row, by) for row in ranked if kind == "training"])
    ranks = [*enumerate(ranked, start=1), *((None, row) for row in unranked)]
    notes = []
    if kind == "training":
        notes.append(RULE)
        if (None, None) in spans:
            notes.append(
                f"More than {MOST_COMPARED} entries are too many to be compared each with each: no "
                "rank has a range."
            )
    if until is not None:
        notes.append(f"Entries dated up to {until}.")
        if undated:
            notes.append(f"{undated} entries without a date are left out.")
    if unranked:
        notes.append(f"{len(unranked)} entries at the end are not ranked; the remark says why.")
    cost = "expected cost"
    if kind == "training":
        notes.append(
            "Expected cost: what all trials cost over the number that reached; of MLPerf entries "
            "the cost of the score."
        )
    else:
        cost = "cost of 10,000"
    quantity = "time to accuracy" if kind == "training" else "latency"
    columns = (
        Column("rank", "rank", kind="integer"),
        Column("rank_from", "rank, from", kind="integer"),
        Column("rank_to", "rank, to", kind="integer"),
        Column("source", "entry"),
        Column("submitter", "submitter"),
        Column("model", "model"),
        Column("hardware", "hardware"),
        Column("framework", "framework"),
        Column("date", "date"),
        Column("target", "target"),
        Column("trials", "trials", kind="integer"),
        Column("seconds", quantity, "s", "number"),
        Column("seconds_low", f"{quantity}, from", "s", "number"),
        Column("seconds_high", f"{quantity}, to", "s", "number"),
        Column("seconds_ends", f"{quantity}, the ends are"),
        COMPILATION,
        Column("cost_usd", cost, "USD", "number"),
        Column("price_source", "price"),
        Column("remark", "remark"),
    )
    return Table(
        name=f"leaderboard_{kind}_{by}",
        title=f"{benchmark}: {kind} by {quantity if by == 'time' else 'cost'}",
        columns=columns,
        rows=tuple(
            _cells(columns, row, spans[rank - 1] if rank and spans else (None, None), rank)
            for rank, row in ranks
        ),
        notes=tuple(notes),
    )


def _training_row(entry: Entry, prices: Sequence[Price]) -> _Row:
    seconds, why = ranking_seconds(entry)
    cost, price_source = training_cost(entry, seconds, prices)
    return _Row(entry, seconds, cost, price_source, why, _interval(entry))


def scaled_score(entry: Entry) -> str:
    """Score before and after an MLPerf round's factor, in words; empty where it stays."""
    summary = entry.summary
    if entry.scaling_factor == 1 or summary is None or summary.score_seconds is None:
        return ""
    return (
        f"score {summary.unscaled_score_seconds:.2f} s x {entry.scaling_factor:.4g}, as the review "
        f"of the round scaled it: {summary.score_seconds:.2f} s"
    )


def _inferred(entry: Entry) -> str:
    """Number of trials read otherwise than their logs say, and the reading; empty if none was."""
    how = [trial.inferred for trial in entry.trials if trial.inferred]
    if not how:
        return ""
    return f"of {len(how)} of {len(entry.trials)} trials {'; '.join(dict.fromkeys(how))}"


def _interval(entry: Entry) -> Interval | None:
    sample = None if entry.suite == "mlperf_training" else entry.sample
    return None if sample is None else time_interval(sample)


def _amounts(row: _Row, by: str) -> Sample | None:
    trials = row.entry.trials
    sample = row.entry.sample
    if sample is not None and row.entry.scaling_factor != 1:
        # The rules scale the score, so trials are tested at the same scale as they are ranked.
        sample = Sample(sample.amounts * row.entry.scaling_factor, sample.reached)
    if by == "time":
        return sample
    costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
    if trials and len(costs) == len(trials):
        return Sample(np.array(costs), np.array([trial.reached for trial in trials]))
    if sample is not None and row.cost is not None and row.seconds:
        return Sample(sample.amounts * row.cost / row.seconds, sample.reached)
    return sample


def _spans(samples: Sequence[Sample | None]) -> list[tuple[int | None, int | None]]:
    """First and last possible rank of each ranked entry; None where too many are ranked."""
    if len(samples) > MOST_COMPARED:
        return [(None, None)] * len(samples)
    spans = [[1, len(samples)] for _ in samples]
    tested = [
        (before, after, p_different(first, second))
        for (before, first), (after, second) in itertools.combinations(enumerate(samples), 2)
        if first is not None and second is not None
        if min(len(first), len(second)) >= FEWEST_TRIALS
    ]
    # Holm's levels bound the chance of any false difference on the board by ALPHA.
    levels = holm([p_value for *_, p_value in tested], lambda left: ALPHA / left)
    for (before, after, p_value), level in zip(tested, levels, strict=True):
        if p_value <= level:
            spans[after][0] += 1
            spans[before][1] -= 1
    return [(first, last) for first, last in spans]


def _inference_row(entry: Entry) -> _Row:
    measured = entry.inference
    if measured is None:
        return _Row(entry, None, None, "", "nothing measured")
    milliseconds, quality = measured.latency_milliseconds, measured.quality
    why = ""
    if quality is None or entry.target.value is None:
        why = "quality not known"
    elif not reaches(quality, entry.target.value, entry.target.direction):
        why = f"quality {quality:.9g} is short of {entry.target.value:g}"
    return _Row(
        entry,
        None if milliseconds is None else milliseconds / 1000,
        measured.cost_usd,
        "given by the entry, for 10,000 examples" if measured.cost_usd is not None else "not given",
        why,
    )


def _cells(
    columns: Sequence[Column], row: _Row, span: tuple[int | None, int | None], rank: int | None
) -> tuple[str | int | float | None, ...]:
    entry = row.entry
    remark = row.why_unranked
    if rank is None and not remark:
        remark = row.price_source if row.cost is None else "time not known"
    remark = "; ".join(filter(None, [remark, scaled_score(entry), _inferred(entry)]))
    return row_of(
        columns,
        row,
        entry,
        rank=rank,
        rank_from=span[0],
        rank_to=span[1],
        seconds_low=row.interval and row.interval.low,
        seconds_high=row.interval and row.interval.high,
        seconds_ends=row.interval.ends or None if row.interval else None,
        hardware=entry.hardware or entry.system,
        target=target_words(entry.target),
        trials=len(entry.trials) if entry.kind == "training" else None,
        compile_seconds=mean_compile_seconds(entry),
        cost_usd=row.cost,
        remark=remark,
    )
