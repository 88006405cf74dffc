"""First and last sections of the page: contents, conclusions and warnings."""

import statistics
from collections.abc import Sequence

from dawnjax.analysis.comparison import speedup
from dawnjax.analysis.entry_tables import overview_table, summaries, warnings_table
from dawnjax.analysis.paper import AGREES, DISAGREES, NO_LOGS
from dawnjax.page import svg, words
from dawnjax.page.rows import Row, draw_strips
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Table
from dawnjax.page.view import MOST_ROWS, CellView, HeadView, Reasons, TableView, number_cell
from dawnjax.report.boards import SUITE_NAMES, Board
from dawnjax.report.inputs import Inputs
from dawnjax.report.labels import COMPILATION_HEAD, compilation_cell, entry_view, hardware, label
from dawnjax.report.systems import pairs_of
from dawnjax.trials.group import Entry

MOST_ENTRIES_NAMED = 3


def facts(inputs: Inputs) -> list[tuple[str, str]]:
    """Counts at the top of the page, each with its noun."""
    entries = inputs.entries
    training = [summary for _, summary in summaries(entries)]
    trials = sum(summary.trials for summary in training)
    reached = sum(summary.reached for summary in training)
    inference = sum(entry.kind == "inference" for entry in entries)
    dates = sorted(entry.date for entry in entries if entry.date)
    numbers = [_counted(len(entries), "entry", "entries")]
    if trials:
        numbers.append(_counted(trials, "training trial", "training trials"))
        share = f"{words.grouped(reached)} of {words.grouped(trials)}"
        numbers.append((share, "reached the target"))
    if inference:
        numbers.append(_counted(inference, "inference entry", "inference entries"))
    if dates:
        span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
        numbers.append((span, "dates"))
    return numbers


def _counted(amount: int, singular: str, plural: str) -> tuple[str, str]:
    return words.grouped(amount), singular if amount == 1 else plural


def title_of(inputs: Inputs) -> str:
    """Title made from the suites of the entries."""
    suites = [SUITE_NAMES.get(s, s) for s in dict.fromkeys(e.suite for e in inputs.entries)]
    return "Time to accuracy: " + ", ".join(sorted(suites))


def conclusions(inputs: Inputs) -> list[str]:
    """Conclusions of the report, each a sentence or two."""
    entries = inputs.entries
    sentences = []
    known = summaries(entries)
    cvs = [(s.cv, entry) for entry, s in known if s.cv is not None and s.reached > 1]
    if cvs:
        most, entry = max(cvs, key=lambda pair: pair[0])
        middle = statistics.median(cv for cv, _ in cvs)
        name = words.first(label(entry, benchmark=True), 10)
        sentences.append(
            f"One trial is not a result: between trials that differ in their seed alone, the time "
            f"to accuracy varies by {words.percent(middle)} in the median of {len(cvs)} entries "
            f"and by {words.percent(most)} at most ({name}; coefficients of variation)."
        )
    single = sum(summary.trials == 1 for _, summary in known)
    if single:
        sentences.append(
            f"{words.grouped(single)} of {words.grouped(len(known))} training entries "
            f"{'has' if single == 1 else 'have'} one trial alone: how much the time would vary is "
            "not known there."
        )
    missed = sum(summary.trials - summary.reached for _, summary in known)
    if missed:
        incomplete = sum(summary.reached < summary.trials for _, summary in known)
        sentences.append(
            f"{words.count(missed, 'trial')} of "
            f"{words.count(incomplete, 'entry', 'entries')} did not reach the target. Mean "
            "times cover the trials that reached it; expected times also charge for the others."
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
    return sentences


def warnings_section(inputs: Inputs) -> Section | None:
    """Warnings and unknowns, equal texts in one row; None without any."""
    table = warnings_table(inputs.entries)
    overview = overview_table(inputs.entries)
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for record in table.records():
        key = (str(record["kind"]), str(record["field"] or ""), str(record["text"]))
        grouped.setdefault(key, []).append(f"{record['benchmark']} {record['source']}".strip())
    rows = []
    for (kind, field, text), names in sorted(
        grouped.items(), key=lambda item: (item[0][0] != "warning", -len(item[1]), item[0])
    ):
        more = len(names) - MOST_ENTRIES_NAMED
        listed = ", ".join(names[:MOST_ENTRIES_NAMED]) + (f" and {more} more" if more > 0 else "")
        rows.append(
            (
                CellView(text, listed),
                CellView(kind),
                CellView(field) if field else CellView("the whole entry"),
                number_cell(len(names), words.grouped(len(names))),
            )
        )
    problems = TableView(
        name="",
        caption="Not read",
        heads=(HeadView("reason"),),
        # All rows: no file has them.
        rows=tuple((CellView(problem),) for problem in inputs.problems),
        total=len(inputs.problems),
    )
    texts = TableView(
        name=table.name,
        caption="Warnings, and reasons for what is not known",
        heads=(
            HeadView("text", "entries"),
            HeadView("kind"),
            HeadView("field"),
            HeadView("entries", number=True),
        ),
        rows=tuple(rows[: 2 * MOST_ROWS]),
        total=len(rows),
    )
    folded = [entry_view(overview, inputs.entries)]
    return Section(
        name="warnings",
        title="Warnings, and what is not known",
        lead=("All that was odd in the sources, could not be read or is not known.",),
        blocks=(*((problems,) if inputs.problems else ()), *((texts,) if rows else ())),
        folded=tuple(folded),
        tables=(table, overview),
    )


def paper_section(tables: Sequence[Table], errata: Table) -> Section | None:
    """The paper's tables, published beside recomputed, after their errata."""
    counts: dict[str, int] = dict.fromkeys((AGREES, DISAGREES, NO_LOGS), 0)
    for table in tables:
        for verdict in table.column("verdict"):
            counts[str(verdict)] = counts.get(str(verdict), 0) + 1
    blocks = [_paper_view(errata)] if errata.rows else []
    blocks += [_paper_view(table) for table in tables if table.rows]
    return Section(
        name="paper",
        title="The paper's tables, published and recomputed",
        lead=(
            "Every cell that the results given here can be held against: "
            f"{counts[AGREES]} agree, {counts[DISAGREES]} do not, and "
            f"{counts[NO_LOGS]} have no logs here.",
            "Published figures: Analysis of DAWNBench, a Time-to-Accuracy Machine Learning "
            "Performance Benchmark (arXiv 1806.01427).",
        ),
        blocks=tuple(blocks),
        tables=(*tables, errata),
    )


_VERDICT_SIGNS = {AGREES: "✓ ", DISAGREES: "✗ ", NO_LOGS: "– "}


def _paper_view(table: Table) -> TableView:
    reasons = Reasons()
    rows = []
    for record in table.records():
        value, unit = record["recomputed"], str(record["unit"] or "")
        if isinstance(value, int | float):
            text = f"{words.plain(float(f'{value:.5g}'))} {unit}".strip()
            recomputed = number_cell(value, text)
        else:
            recomputed = CellView("not computed", kind="null", mark=reasons.mark(NO_LOGS))
        verdict = str(record["verdict"] or "")
        rows.append(
            (
                CellView(f"{record['row']}: {record['cell']}", str(record["table"])),
                CellView(str(record["published"] or "not printed"), kind="number"),
                recomputed,
                CellView(_VERDICT_SIGNS.get(verdict, "") + (verdict or "not printed")),
                CellView(str(record["remark"] or "")),
            )
        )
    return TableView(
        name=table.name,
        caption=table.title,
        heads=(
            HeadView("cell", "in the paper"),
            HeadView("published", number=True),
            HeadView("recomputed", number=True),
            HeadView("verdict"),
            HeadView("remark"),
        ),
        rows=tuple(rows),
        reasons=reasons.listed(),
        notes=table.notes,
        total=len(rows),
    )


FEWEST_COMPARED = 2
"""Ranked entries that the first figure needs."""


def summary_section(
    all_boards: Sequence[Board], figures: Sequence[Figure] = (), tables: tuple[Table, ...] = ()
) -> Section:
    """First section: the given figures, each benchmark's entries on one axis, and the best."""
    blocks = (*figures, _overview_figure(all_boards), best_view(all_boards))
    return Section(
        name="summary",
        title="Summary",
        blocks=tuple(block for block in blocks if block is not None),
        tables=tables,
    )


def _overview_figure(all_boards: Sequence[Board]) -> Figure | None:
    rows = []
    for board in all_boards:
        ranked = [r for r in board.by_time.records() if r["rank"] is not None and r["seconds"]]
        if board.kind != "training" or not ranked:
            continue
        rows.append(
            Row(
                label=board.title,
                group="",
                values=tuple(record["seconds"] for record in ranked),
                note=f"{words.duration(ranked[0]['seconds'])} · {len(ranked)}",
                titles=tuple(
                    f"rank {record['rank']}: {_who(entry)} on {hardware(entry)}, "
                    f"{words.duration(record['seconds'])}"
                    for record in ranked
                    for entry in [board.entries[str(record["source"])]]
                ),
            )
        )
    if sum(len(row.values) for row in rows) < FEWEST_COMPARED:
        return None
    axis = svg.Axis("time to accuracy", words.duration, svg.time_ticks, log=True)
    return Figure(
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
        tables=("leaderboards_by_time",),
    )


NO_PRICE = "no ranked entry has a price"


def best_view(all_boards: Sequence[Board]) -> TableView | None:
    """Fastest and cheapest training entry of each benchmark; None without a board."""
    rows = []
    reasons = Reasons()
    compiled = any(
        row["compile_seconds"] is not None
        for board in all_boards
        for row in board.by_time.records()
    )
    for board in all_boards:
        if board.kind != "training":
            continue
        fast, cheap = board.best("time"), board.best("cost")
        whys = sorted({str(row["remark"]) for row in board.by_time.records() if row["remark"]})
        ranked = sum(row["rank"] is not None for row in board.by_time.records())
        all_of_them = len(board.by_time.rows)
        counted = f"{ranked} of {all_of_them} ranked"
        cells = [CellView(board.title, counted)]
        for row, why in ((fast, "; ".join(whys[:2])), (cheap, NO_PRICE)):
            if row is None:
                mark = reasons.mark(why or "there is no trial")
                width = 3 if compiled and why != NO_PRICE else 2
                cells += [CellView("none", kind="null", mark=mark)] * width
                continue
            entry = board.entries[str(row["source"])]
            cells.append(CellView(_who(entry), hardware(entry)))
            if row is fast:
                seconds = row["seconds"]
                cells.append(number_cell(seconds, words.duration(seconds)))
                if compiled:
                    cells.append(compilation_cell(entry))
            else:
                cells.append(CellView(words.usd(row["cost_usd"]), kind="number"))
        rows.append(tuple(cells))
    if not rows:
        return None
    return TableView(
        name="",
        caption="Fastest and cheapest of each benchmark",
        heads=(
            HeadView("benchmark"),
            HeadView("fastest", "on"),
            HeadView("time to accuracy", number=True),
            *([COMPILATION_HEAD] if compiled else []),
            HeadView("cheapest", "on"),
            HeadView("expected cost", number=True),
        ),
        rows=tuple(rows),
        reasons=reasons.listed(),
        total=len(rows),
    )


def _who(entry: Entry) -> str:
    if entry.suite == "dawnjax":
        changed = f"({entry.distinction})" if entry.distinction else ""
        return " ".join(filter(None, [entry.benchmark, entry.variant, changed]))
    by = f" ({words.shortened(entry.submitter, 40)})" if entry.submitter else ""
    return (entry.model or label(entry)) + by
