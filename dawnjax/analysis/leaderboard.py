"""Leaderboards by time and by cost, up to a day."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dawnjax.analysis.cost import training_cost
from dawnjax.errors import ConfigError
from dawnjax.machine.prices import PRICES, Price, parse_date
from dawnjax.page.words import NO_MOMENT, NO_TARGET, NOT_REACHED
from dawnjax.statistics.contrast import p_different
from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS, Interval
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES, Sample
from dawnjax.statistics.trimmed import p_scores_differ
from dawnjax.statistics.verdict import DIFFERENT, holm, judge
from dawnjax.trials.group import Entry
from dawnjax.trials.target import Target, reaches

ORDERS = ("time", "cost")

MOST_COMPARED = 200
"""Entries of a leaderboard that are compared each with each."""

RULE = (
    "Ranks order the estimates. A range below a rank holds the places that the entry might have. "
    "An entry is certainly before another where both have enough trials and what ranks them (an "
    "expected time, a cost, or an MLPerf score) differs; all such claims of a leaderboard hold "
    "together in 95 % of cases (Holm). A claim about expected times or costs counts misses: where "
    "no trial missed, it needs a difference that misses hidden by so few trials cannot make up "
    "for. In an MLPerf score a miss is the slowest trial, which the score leaves out. "
    "The interval below a time is the mean's if all trials reached the target, and else the "
    f"expected time's. Fewer than {FEWEST_TRIALS} trials ({FEWEST_WITH_FAILURES} where some "
    "did not reach) have no interval, only their range, and an MLPerf score has none."
)
"""When ranks are certain, and which intervals there are."""

Span = tuple[int | None, int | None]


def benchmarks(entries: Iterable[Entry]) -> list[tuple[str, str, str, str]]:
    """Distinct (suite, round, kind, benchmark) of the entries, in order."""
    return sorted({(e.suite, e.round, e.kind, e.benchmark) for e in entries})


def targets(entries: Iterable[Entry]) -> list[Target]:
    """Targets of entries, in order; a board ranks times to one target only."""
    distinct = {entry.target for entry in entries}
    return sorted(distinct, key=lambda target: repr(dataclasses.astuple(target)))


def up_to(entries: Iterable[Entry], until: str) -> list[Entry]:
    """Entries dated up to a day, that day included; entries without a date are left out."""
    last = parse_date(until)
    if last is None:
        raise ConfigError(f"the cut-off date is {until!r}, not YYYY-MM-DD")
    return [entry for entry in entries if (day := parse_date(entry.date)) and day <= last]


def why_no_time(entry: Entry) -> str:
    """Why no trial of an entry has a time to accuracy."""
    if not entry.has_target:
        return NO_TARGET
    return NO_MOMENT if entry.figures.untimed else NOT_REACHED


def ranking_seconds(entry: Entry) -> tuple[float | None, str]:
    """Time by which a training entry is ranked, or None and the reason.

    That is the score for MLPerf, and the expected time to accuracy for other suites, which is the
    mean where all trials reached.
    """
    if "rank" in entry.reasons:
        return None, entry.reasons["rank"]
    summary = entry.figures
    if not summary.trials:
        return None, "no trials"
    if not summary.reached:
        return None, why_no_time(entry)
    if entry.suite == "mlperf_training":
        if summary.score_seconds is not None:
            return summary.score_seconds, ""
        return None, f"no score: {summary.reached} of {summary.trials} trials reached"
    if summary.expected_seconds is not None:
        return summary.expected_seconds, ""
    return None, f"{summary.reached} of {summary.trials} trials reached; time of the others unknown"


@dataclasses.dataclass(frozen=True)
class Ranked:
    """An entry on a leaderboard.

    Attributes:
      seconds: Time to accuracy, or latency of inference; None if unknown.
      why: Why it has no rank by time; empty if it has one.
      cost_usd: Expected cost of training, or cost of 10,000 examples of inference.
      price_source: Where the price comes from, or why there is none.
      interval: That of the time.
      rank: By time; None for an entry that is not ranked.
      span: First and last rank that the entry might have; None where ranks are not compared.
      why_no_cost: Why it has no rank by cost; empty if it has one.
    """

    entry: Entry
    seconds: float | None
    why: str
    cost_usd: float | None
    price_source: str
    interval: Interval | None = None
    rank: int | None = None
    span: Span = (None, None)
    cost_rank: int | None = None
    cost_span: Span = (None, None)
    why_no_cost: str = ""


class Leaderboard(NamedTuple):
    """Entries by time, those without a rank last, and what a reader must know about the ranks."""

    rows: list[Ranked]
    notes: list[str]


def leaderboard(
    entries: Iterable[Entry],
    benchmark: str,
    *,
    until: str | None = None,
    kind: str = "training",
    target: Target | None = None,
    prices: Sequence[Price] = PRICES,
) -> Leaderboard:
    """Rank a benchmark's entries by time and by cost.

    Args:
      until: The last day, `YYYY-MM-DD`; entries without a date are then left out.
      kind: `training` or `inference`.
      target: Only entries with this target; needed where the entries have several.
      prices: For entries that give no price.
    """
    if kind not in ("training", "inference"):
        raise ConfigError(f"a leaderboard is of training or inference, not of {kind!r}")
    chosen = [
        entry
        for entry in entries
        if (entry.benchmark, entry.kind) == (benchmark, kind) and target in (None, entry.target)
    ]
    several = targets(chosen)
    if len(several) > 1:
        words = ", ".join(one.words() for one in several)
        raise ConfigError(
            f"the entries of {benchmark} have several targets ({words}), and times to different "
            "targets cannot be ranked together: choose one with target="
        )
    undated = sum(parse_date(entry.date) is None for entry in chosen)
    if until is not None:
        chosen = up_to(chosen, until)
    rows = [
        _training_row(entry, prices) if kind == "training" else _inference_row(entry)
        for entry in chosen
    ]
    by_time, by_cost = (_places(rows, by, kind) for by in ORDERS)
    notes = []
    if kind == "training" and len(by_time) > MOST_COMPARED:
        notes.append(
            f"More than {MOST_COMPARED} entries are too many to be compared each with each: no "
            "rank has a range."
        )
    if until is not None:
        notes.append(f"Entries dated up to {until}.")
        if undated:
            notes.append(f"{undated} entries without a date are left out.")
    ranked = [
        _ranked(row, by_time.get(place), by_cost.get(place)) for place, row in enumerate(rows)
    ]
    ranked.sort(key=lambda row: (row.rank is None, row.rank or 0, row.entry.source))
    return Leaderboard(ranked, notes)


def _places(rows: Sequence[Ranked], by: str, kind: str) -> dict[int, tuple[int, Span]]:
    """Rank by `time` or `cost`, and its span, by a row's place; without rows that have none."""
    values = [row.seconds if by == "time" else row.cost_usd for row in rows]
    ranked = [
        (value, row.entry.source, place)
        for place, (row, value) in enumerate(zip(rows, values, strict=True))
        if not row.why and value is not None
    ]
    order = [place for *_, place in sorted(ranked)]
    training = kind == "training"
    spans = _spans(
        [(_amounts(rows[it], by) if training else None, _drops(rows[it].entry)) for it in order]
    )
    return {
        place: (rank, span if training else (None, None))
        for rank, (place, span) in enumerate(zip(order, spans, strict=True), start=1)
    }


def _ranked(
    row: Ranked, by_time: tuple[int, Span] | None, by_cost: tuple[int, Span] | None
) -> Ranked:
    rank, span = by_time or (None, (None, None))
    cost_rank, cost_span = by_cost or (None, (None, None))
    unknown = row.price_source if row.cost_usd is None else "time not known"
    return dataclasses.replace(
        row,
        rank=rank,
        span=span,
        why="" if by_time else row.why or "time not known",
        cost_rank=cost_rank,
        cost_span=cost_span,
        why_no_cost="" if by_cost else row.why or unknown,
    )


def _training_row(entry: Entry, prices: Sequence[Price]) -> Ranked:
    seconds, why = ranking_seconds(entry)
    # An MLPerf score is not a mean of all trials.
    interval = None if entry.suite == "mlperf_training" else entry.figures.interval
    return Ranked(entry, seconds, why, *training_cost(entry, seconds, prices), interval)


def scaled_score(entry: Entry) -> str:
    """Score before and after an MLPerf round's factor, in words; empty where it stays."""
    summary = entry.figures
    if entry.scaling_factor == 1 or summary.score_seconds is None:
        return ""
    return (
        f"score {summary.unscaled_score_seconds:.2f} s x {entry.scaling_factor:.4g}, as the review "
        f"of the round scaled it: {summary.score_seconds:.2f} s"
    )


def _amounts(row: Ranked, by: str) -> Sample | None:
    sample = row.entry.figures.sample
    if sample is not None and row.entry.scaling_factor != 1:
        # The rules scale the score, so trials are tested at the same scale as they are ranked.
        sample = sample.scaled(row.entry.scaling_factor)
    if by == "time":
        return sample
    if sample is None or not row.seconds or not row.cost_usd:
        return None
    sample = sample.scaled(row.cost_usd / row.seconds)
    costs = [trial.seconds_cost_usd for trial in row.entry.trials]
    known = np.array([cost for cost in costs if cost is not None])
    return sample if len(known) < len(costs) else dataclasses.replace(sample, amounts=known)


def _drops(entry: Entry) -> int | None:
    """Trials that an MLPerf score omits at each end; None for an entry without a score."""
    return entry.drops if entry.suite == "mlperf_training" else None


def _spans(sides: Sequence[tuple[Sample | None, int | None]]) -> list[Span]:
    """First and last possible rank of each ranked entry; None where too many are ranked.

    Args:
      sides: Trials of each entry, and the drops of the score that ranks it.
    """
    if len(sides) > MOST_COMPARED:
        return [(None, None)] * len(sides)
    spans = [[1, len(sides)] for _ in sides]
    # What ranks two entries is what is tested, so the one ranked before is the faster one.
    tested = [
        (
            before,
            after,
            p_different(first, second) if drops is None else p_scores_differ(first, second, drops),
        )
        for (before, (first, drops)), (after, (second, others)) in itertools.combinations(
            enumerate(sides), 2
        )
        if first is not None and second is not None and drops == others
        if min(len(first), len(second)) >= FEWEST_TRIALS
    ]
    # Holm's levels bound the chance of any false difference on the board by ALPHA.
    levels = holm([p_value for *_, p_value in tested], lambda left: ALPHA / left)
    for (before, after, p_value), level in zip(tested, levels, strict=True):
        if p_value <= level and _counts_misses(sides[before], sides[after], level):
            spans[after][0] += 1
            spans[before][1] -= 1
    return [(first, last) for first, last in spans]


def _counts_misses(
    before: tuple[Sample | None, int | None], after: tuple[Sample | None, int | None], level: float
) -> bool:
    """True if a difference holds with the misses that the trials may hide.

    An MLPerf score has its own rule for misses: one is the slowest trial, which it leaves out.
    """
    (first, drops), (second, _) = before, after
    if drops is not None or first is None or second is None:
        return drops is not None
    return judge(first, second, alpha=level, may_be_equivalent=False).word in DIFFERENT


def _inference_row(entry: Entry) -> Ranked:
    measured = entry.inference
    if measured is None:
        return Ranked(entry, None, "nothing measured", None, "")
    milliseconds, quality, why = measured.latency_milliseconds, measured.quality, ""
    if quality is None or entry.target.value is None:
        why = "quality not known"
    elif not reaches(quality, entry.target.value, entry.target.direction):
        why = f"quality {quality:.9g} is short of {entry.target.value:g}"
    cost = measured.cost_usd
    price = "not given" if cost is None else "given by the entry, for 10,000 examples"
    seconds = None if milliseconds is None else milliseconds / 1000
    return Ranked(entry, seconds, why, cost, price)
