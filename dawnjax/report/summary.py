"""First and last sections of the page: answers, conclusions and warnings."""

import math
import statistics
from collections.abc import Sequence

from dawnjax.analysis.cost import training_cost
from dawnjax.analysis.leaderboard import ranking_seconds
from dawnjax.analysis.scaling import speedup
from dawnjax.page import svg, words
from dawnjax.page.rows import Row, draw_strips
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Column, Table
from dawnjax.report.boards import Board, board_table, leaderboards_table, why_none_is_comparable
from dawnjax.report.inputs import Inputs
from dawnjax.report.systems import pairs_of
from dawnjax.report.tables import (
    SUITE_NAMES,
    overview_table,
    summaries,
    warnings_table,
)
from dawnjax.statistics.sample import time_interval
from dawnjax.trials.group import Entry
from dawnjax.trials.labels import hardware, label, quality, target_label


def facts(inputs: Inputs) -> list[tuple[str, str]]:
    """Top of the page, (value, what it is): the answer for a single entry; else none."""
    known = summaries(inputs.entries)
    is_alone = len(inputs.entries) == len(known) == 1
    return _answer(known[0][0]) if is_alone else []


def _answer(entry: Entry) -> list[tuple[str, str]]:
    """Whether an entry reached, its time with an interval, its cost."""
    trials, reached = len(entry.trials), sum(trial.reached for trial in entry.trials)
    said = "reached" if reached else words.NOT_REACHED
    if trials > 1:
        said = f"{reached} of {trials} reached"
    if not entry.has_target:
        said = words.count(trials, "trial")
    numbers = [(said, target_label(entry.target))]
    seconds, why = ranking_seconds(entry)
    if seconds is not None:
        numbers.append((words.duration(seconds), f"{_time_name(entry)}, {_interval_words(entry)}"))
    elif reached:
        numbers.append((words.NOT_KNOWN, f"time to accuracy: {why}"))
    else:
        best = _best(entry)
        numbers += [(quality(best, entry.target), "best quality")] if best is not None else []
    cost, source = training_cost(entry, seconds)
    if seconds is not None:
        known = words.NOT_KNOWN if cost is None else words.usd(cost)
        why = source.partition(",")[0]  # the notes of the run's table have all of it
        numbers.append((known, f"cost: {why}" if cost is None else "expected cost"))
    return [*numbers, (hardware(entry), "hardware")]


def _time_name(entry: Entry) -> str:
    if entry.suite == "mlperf_training":
        return "MLPerf score"
    return "time to accuracy" if len(entry.trials) == 1 else "expected time to accuracy"


def _interval_words(entry: Entry) -> str:
    if len(entry.trials) == 1:
        return "one trial: its variation is not known"
    is_score = entry.suite == "mlperf_training"  # whose interval no rule gives
    interval = (
        None if is_score or entry.figures.sample is None else time_interval(entry.figures.sample)
    )
    ends = interval.ends_text(text=words.duration, known="") if interval else ""
    return ends or "no interval"


def _best(entry: Entry) -> float | None:
    """Best value of all evaluations; a diverged trial's may be NaN, which is not a value."""
    rows = [row for trial in entry.trials for row in trial.evaluations]
    values = [row.value for row in rows if math.isfinite(row.value)]
    better = max if entry.target.direction == "at_least" else min
    return better(values) if values else None


def title_of(inputs: Inputs) -> str:
    """Title made from our experiments, or from the suites of the entries."""
    suites = dict.fromkeys(entry.suite for entry in inputs.entries)
    names = [SUITE_NAMES.get(suite, suite) for suite in suites]
    ours = sorted({entry.benchmark for entry in inputs.entries if entry.suite == "dawnjax"})
    if len(suites) == 1 and len(ours) == 1:
        return f"Time to accuracy: {ours[0]}"
    return "Time to accuracy: " + ", ".join(sorted(names))


def conclusions(inputs: Inputs) -> list[str]:
    """Conclusions of the report, each a sentence or two."""
    entries = inputs.entries
    sentences = [why_none_is_comparable(entries)]
    known = summaries(entries)
    cvs = [(s.cv, entry) for entry, s in known if s.cv is not None and s.reached > 1]
    if cvs:
        most, entry = max(cvs, key=lambda pair: pair[0])
        middle = statistics.median(cv for cv, _ in cvs)
        name = words.shortened(label(entry, benchmark=True), 80)
        sentences.append(
            "One trial is not a result: between trials that differ only in their seed, the time "
            f"to accuracy varies by {words.percent(middle)} in the median of {len(cvs)} entries "
            f"and by {words.percent(most)} at most ({name}; coefficients of variation)."
        )
    single = sum(summary.trials == 1 for _, summary in known)
    if single and len(known) > 1:
        sentences.append(
            f"{words.grouped(single)} of {words.grouped(len(known))} training entries "
            f"{'has' if single == 1 else 'have'} only one trial, so their variation is not known."
        )
    aimed = [summary for entry, summary in known if entry.has_target]
    misses = [summary.trials - summary.reached - summary.untimed for summary in aimed]
    missed = sum(misses)
    if missed:
        incomplete = sum(map(bool, misses))
        sentences.append(
            f"{words.count(missed, 'trial')} of "
            f"{words.count(incomplete, 'entry', 'entries')} did not reach the target. Mean times "
            "cover the trials that reached it; expected times also count the others."
        )
    values = [speedup(small, large) for small, large in pairs_of(entries)]
    both = [v for v in values if v.tta is not None and v.throughput is not None]
    less = sum(v.tta < v.throughput for v in both if v.tta and v.throughput)
    if less:
        sentences.append(
            f"Throughput overstates the gain: in {less} of "
            f"{words.count(len(both), 'pair')} of systems the larger one gained less in time to "
            "accuracy than in throughput."
        )
    odd = sum(len(entry.warnings) for entry in entries)
    if odd:
        sentences.append(
            f"{words.count(odd, 'warning')} {'says' if odd == 1 else 'say'} what was odd and how "
            "it was read; see Warnings, and what is not known."
        )
    if inputs.problems:
        sentences.append(
            f"{words.count(len(inputs.problems), 'file or run', 'files or runs')} could not be "
            "read and are not in this report."
        )
    return [sentence for sentence in sentences if sentence]


def warnings_section(inputs: Inputs) -> Section | None:
    """Warnings, unknown values and unread sources; None if there is nothing to show."""
    warnings, overview = warnings_table(inputs.entries), overview_table(inputs.entries)
    problems = Table(
        name="not_read",
        title="Not read",
        columns=(Column("reason", "reason"),),
        rows=tuple((problem,) for problem in inputs.problems),
    )
    folded = [warnings] if warnings.rows else []
    folded += [overview] if len(overview.rows) > 1 else []
    if not problems.rows and not folded:
        return None
    return Section(
        name="warnings",
        title="Warnings, and what is not known",
        blocks=(problems,) if problems.rows else (),
        folded=tuple(folded),
        tables=(overview,),
    )


FEWEST_COMPARED = 3
"""Ranked entries that the first figure needs."""


def summary_section(
    all_boards: Sequence[Board],
    figures: Sequence[Figure] = (),
    tables: Sequence[Table] = (),
) -> Section:
    """First section: boards of our entries, the given figures, all times by benchmark."""
    ours = [board for board in all_boards if board.kind == "training" and board.is_ours]
    own = [board_table(board) for board in ours if len(board.rows) > 1]
    return Section(
        name="summary",
        title="Summary",
        blocks=(*own, *figures, *_overview_figure(all_boards)),
        tables=(*tables, *([leaderboards_table(all_boards)] if all_boards else [])),
    )


def _overview_figure(all_boards: Sequence[Board]) -> tuple[Figure, ...]:
    rows = []
    for board in all_boards:
        timed = [(row.seconds, row) for row in board.ranked if row.seconds]
        if board.kind != "training" or not timed:
            continue
        rows.append(
            Row(
                label=board.title,
                group="",
                values=tuple(seconds for seconds, _ in timed),
                note=f"{words.duration(timed[0][0])} · {len(timed)}",
                titles=tuple(
                    f"rank {row.rank}: {_who(row.entry)} on {hardware(row.entry)}, "
                    f"{words.duration(seconds)}"
                    for seconds, row in timed
                ),
            )
        )
    if sum(len(row.values) for row in rows) < FEWEST_COMPARED:
        return ()
    axis = svg.Axis("time to accuracy", words.duration, svg.time_ticks, log=True)
    figure = Figure(
        name="overview",
        title="Time to accuracy of each ranked entry, by benchmark",
        summary="; ".join(
            f"{row.label}: {words.count(len(row.values), 'entry', 'entries')}, "
            f"{words.duration(min(row.values))} to {words.duration(max(row.values))}"
            for row in rows
        )
        + ".",
        caption="A dot is an entry. At the right: the fastest time, and the number of entries.",
        draw=lambda width: draw_strips(rows, axis, width),
        tables=("leaderboards",),
    )
    return (figure,)


def _who(entry: Entry) -> str:
    if entry.suite == "dawnjax":
        changed = f"({entry.distinction})" if entry.distinction else ""
        return " ".join(filter(None, [entry.benchmark, entry.variant, changed]))
    by = f" ({words.shortened(entry.submitter, 40)})" if entry.submitter else ""
    return (entry.model or label(entry)) + by
