"""The leaderboards: each benchmark by time and by cost, and cost against time."""

import dataclasses
from collections.abc import Collection, Sequence

from dawnjax.analysis import leaderboard as ranking
from dawnjax.analysis.cost import price_table
from dawnjax.analysis.our_runs import FINE_TUNED
from dawnjax.analysis.tables import Column, Table
from dawnjax.report import plots, svg, words
from dawnjax.report.figures import Figure
from dawnjax.report.sections import Section
from dawnjax.report.table_view import (
    COMPILATION_HEAD,
    CellView,
    HeadView,
    Reasons,
    TableView,
    compilation_cell,
    hardware,
    label,
    number_cell,
    records_of,
    view,
)
from dawnjax.results.entries import Entry, Target
from dawnjax.tasks.metric import KNOWN_METRICS

SUITE_NAMES = {
    "dawnbench": "DAWNBench",
    "mlperf_training": "MLPerf Training",
    "dawnjax": "DawnJAX",
}


LEAST_SORTED = 4
"""A leaderboard of so many rows or more can be sorted and filtered."""


@dataclasses.dataclass(frozen=True)
class Board:
    """One benchmark's leaderboard, of entries on the same data with one target.

    Attributes:
      title: Suite, round and benchmark; of ours the data; with the target where the benchmark's
        entries have several.
      kind: `training` or `inference`.
      by_time: Ranked by time.
      by_cost: Ranked by cost.
      entries: Those of the board by their source.
    """

    title: str
    kind: str
    by_time: Table
    by_cost: Table
    entries: dict[str, Entry]

    def best(self, by: str) -> dict | None:
        """Row ranked first by `time` or `cost`; None where nothing is ranked."""
        rows = (self.by_time if by == "time" else self.by_cost).records()
        return rows[0] if rows and rows[0]["rank"] is not None else None


def scope(suite: str, round: str, benchmark: str) -> str:
    """Name of a benchmark: its suite, round and task."""
    return " ".join(part for part in (SUITE_NAMES.get(suite, suite), round, benchmark) if part)


def with_target(title: str, target: Target, targets: Collection[Target]) -> str:
    """Name of a benchmark, with a target, where its entries have several."""
    return title if len(targets) < 2 else f"{title} to {ranking.target_words(target)}"


def boards(entries: Sequence[Entry], until: str | None = None) -> list[Board]:
    """Makes the leaderboards of all benchmarks, training before inference."""
    keys = ranking.benchmarks(entries)
    keys.sort(key=lambda key: (key[2] != "training", key[0] != "dawnjax", key))
    made = []
    for key in keys:
        suite, round, kind, benchmark = key
        of_benchmark = [e for e in entries if (e.suite, e.round, e.kind, e.benchmark) == key]
        of_benchmark += _ours_among(of_benchmark, entries)
        # Times on other data are another benchmark's, whatever the experiment is called.
        for data in sorted({entry.data for entry in of_benchmark}):
            on_data = [entry for entry in of_benchmark if entry.data == data]
            name = " on ".join(filter(None, [scope(suite, round, benchmark), data]))
            targets = ranking.targets(on_data)
            for target in targets:
                ranked = {entry.source: entry for entry in on_data if entry.target == target}
                by_time, by_cost = (
                    ranking.leaderboard(ranked.values(), benchmark, by=by, until=until, kind=kind)
                    for by in ranking.ORDERS
                )
                if by_time.rows:
                    title = with_target(name, target, targets)
                    made.append(Board(title, kind, by_time, by_cost, ranked))
    return made


_SAME_DATA = {"CIFAR10": "CIFAR-10", "ImageNet": "ImageNet", "SQuAD": "SQuAD"}
"""By DAWNBench's task, the published set that its entries train on."""


def _ours_among(official: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """Our runs on the data and to the target of a task of DAWNBench, as entries of that task.

    A run that began with another's parameters is no such run.
    """
    if not official or official[0].suite != "dawnbench" or official[0].kind != "training":
        return []
    ours = []
    for target in ranking.targets(official):
        scale = 100.0 if target.unit == "percent" else 1.0
        known = KNOWN_METRICS.get(target.metric)
        for entry in entries:
            is_same = (
                entry.suite == "dawnjax"
                and entry.published
                and entry.published == _SAME_DATA.get(official[0].benchmark)
                and not entry.benchmark.endswith(FINE_TUNED)
                and known is not None
                and entry.target.metric == known.name
                and entry.target.value is not None
                and target.value is not None
                and abs(entry.target.value * scale - target.value) < 1e-6
            )
            if is_same:
                named = " ".join(filter(None, ["own run:", entry.benchmark, entry.variant]))
                ours.append(
                    dataclasses.replace(
                        entry,
                        benchmark=official[0].benchmark,
                        round=official[0].round,
                        target=target,
                        data="",
                        variant=named,
                    )
                )
    return ours


def inference_section(all_boards: Sequence[Board]) -> Section | None:
    """Section of the leaderboards of inference."""
    chosen = [board for board in all_boards if board.kind == "inference"]
    if not chosen:
        return None
    return Section(
        name="inference",
        title="Leaderboards of inference",
        lead=(
            "Ranked by the latency of one example, among entries whose quality is that of the "
            "benchmark's target.",
        ),
        blocks=tuple(board_view(board) for board in chosen),
    )


def leaderboards_section(all_boards: Sequence[Board], until: str | None = None) -> Section | None:
    """Section of the leaderboards of training, and the two tables of all of them."""
    if not all_boards:
        return None
    blocks = []
    training = [board for board in all_boards if board.kind == "training"]
    for number, board in enumerate(training, start=1):
        blocks.append(board_view(board))
        figure = cost_figure(board, number)
        if figure is not None:
            blocks.append(figure)
    lead = [
        "Ranked by time to accuracy: MLPerf entries by their score, all others by the expected "
        "time of all trials.",
        "Our own runs on a published set stand among DAWNBench's entries too, by our clock, which "
        "starts when all is compiled.",
        ranking.RULE,
        "The expected cost is what all trials cost over the number that reached, at the price of "
        "the whole system. Entries that cannot be ranked stand at the end, with the reason.",
    ]
    if until:
        lead.append(f"Only entries dated up to {until} are ranked.")
    prices = price_table()
    return Section(
        name="leaderboards",
        title="Leaderboards",
        lead=tuple(lead),
        blocks=tuple(blocks),
        folded=(view(prices, caption="Prices for entries that give none"),),
        tables=(*(_joined(all_boards, by) for by in ranking.ORDERS), prices),
    )


def board_view(board: Board) -> TableView:
    """Makes the view of a leaderboard with both ranks; complete without any sorting."""
    records = records_of(board.by_time)
    by_cost = {_place(row): row for row in records_of(board.by_cost)}
    training = board.kind == "training"
    priced = any(row["cost_usd"] is not None for row in records)
    submitters = any(row["submitter"] for row in records)
    compiled = any(row["compile_seconds"] is not None for row in records)
    # The page shows remarks by letters below the table, and the rule once, above all boards.
    notes = tuple(
        note for note in board.by_time.notes if "remark" not in note and note != ranking.RULE
    )
    by_time_apart, by_cost_apart = _any_apart(records), _any_apart(list(by_cost.values()))
    if training and not by_time_apart and sum(row["rank"] is not None for row in records) > 1:
        notes = (
            *notes,
            "No two of these entries are told apart: ranks are of the estimates alone.",
        )
    if not priced:
        whys = sorted({str(row["price_source"]) for row in records})
        notes = (*notes, "No cost is known: " + "; ".join(whys[:3]) + ".")
    reasons = Reasons()
    rows, dates = [], []
    for row in records:
        cost_row = by_cost[_place(row)]
        cost_rank = cost_row["rank"]
        entry = board.entries[str(row["source"])]
        remark = str(row["remark"] or "")
        why = str(cost_row["remark"] or row["price_source"] or "")
        not_priced_alone = cost_rank is None and row["cost_usd"] is not None
        cells = [
            _rank_cell(row, reasons.mark(remark), by_time_apart),
            _name_cell(entry),
            _timed(row, reasons, remark),
            *([compilation_cell(entry)] if compiled else []),
            *(
                [
                    _measured(row["cost_usd"], words.usd, reasons, why),
                    _rank_cell(
                        cost_row, reasons.mark(why) if not_priced_alone else "", by_cost_apart
                    ),
                ]
                if priced
                else []
            ),
            _text(hardware(entry)),
            *([_text(row["submitter"])] if submitters else []),
            _text(row["framework"]),
            CellView(str(row["date"]), kind="date") if row["date"] else _text(""),
        ]
        if training:
            cells.append(number_cell(row["trials"], str(row["trials"])))
        rows.append(tuple(cells))
        dates.append(str(row["date"] or ""))
    heads = [
        HeadView("rank", "by time", number=True, rank="time"),
        HeadView("model", "entry"),
        HeadView("time to accuracy", "95% interval", number=True)
        if training
        else HeadView("latency", number=True),
        *([COMPILATION_HEAD] if compiled else []),
        *(
            [
                HeadView("expected cost", number=True)
                if training
                else HeadView("cost", "of 10 000", number=True),
                HeadView("rank", "by cost", number=True, rank="cost"),
            ]
            if priced
            else []
        ),
        HeadView("hardware"),
        *([HeadView("submitter")] if submitters else []),
        HeadView("framework"),
        HeadView("date"),
        *([HeadView("trials", number=True)] if training else []),
    ]
    return TableView(
        name="leaderboards_by_time",
        caption=f"{board.title}: {'training' if training else 'inference'}",
        heads=tuple(heads),
        rows=tuple(rows),
        reasons=reasons.listed(),
        notes=notes,
        total=len(rows),
        sortable=len(rows) >= LEAST_SORTED,
        dates=tuple(dates) if len(rows) >= LEAST_SORTED else (),
        header=1,
    )


def cost_figure(board: Board, number: int) -> Figure | None:
    """Draws cost against time of a training benchmark, if three entries or more have both."""
    rows = [row for row in records_of(board.by_time) if row["rank"] is not None]
    both = [row for row in rows if row["cost_usd"] and row["seconds"]]
    if board.kind != "training" or len(both) < 3:
        return None
    best, front = float("inf"), set()
    for row in both:  # from the fastest on
        if row["cost_usd"] < best:
            best = row["cost_usd"]
            front.add(_place(row))
    points = [
        plots.Point(
            row["seconds"],
            row["cost_usd"],
            f"{row['rank']} {label(board.entries[row['source']])}" if _place(row) in front else "",
            0 if _place(row) in front else 1,
            row["rank"],
        )
        for row in both
    ]
    x = plots.Axis("time to accuracy (logarithmic)", words.duration, svg.time_ticks, log=True)
    y = plots.Axis("expected cost, USD (logarithmic)", words.usd, log=True)
    names = (
        "no other entry is both faster and cheaper",
        "another entry is faster and cheaper",
    )
    fast, cheap = both[0], min(both, key=lambda row: row["cost_usd"])
    return Figure(
        name=f"cost-{number}",
        title=f"{board.title}: cost against time",
        summary=(
            f"{len(both)} entries. Fastest with a price: {fast['source']}, "
            f"{words.duration(fast['seconds'])} for {words.usd(fast['cost_usd'])}. Cheapest: "
            f"{cheap['source']}, {words.usd(cheap['cost_usd'])} in "
            f"{words.duration(cheap['seconds'])}."
        ),
        caption="Numbers are ranks by time in the table above. Lower left is better.",
        draw=lambda width: plots.draw_points(points, x, y, width, series_names=names),
        left_out=tuple(
            (str(row["source"]), str(row["price_source"] or "no price"))
            for row in rows
            if not (row["cost_usd"] and row["seconds"])
        ),
        tables=("leaderboards_by_time",),
    )


def _joined(all_boards: Sequence[Board], by: str) -> Table:
    """Joins all leaderboards to one table: the name of a benchmark never becomes a file name."""
    rows, notes = [], []
    columns: tuple[Column, ...] = ()
    for board in all_boards:
        table = board.by_time if by == "time" else board.by_cost
        labels = {"seconds": "time", "cost_usd": "cost"}
        columns = tuple(
            dataclasses.replace(column, label=labels.get(column.name, column.label))
            for column in table.columns
        )
        rows += [(board.title, board.kind, *row) for row in table.rows]
        notes += [note for note in table.notes if note not in notes]
    return Table(
        name=f"leaderboards_by_{by}",
        title=f"Leaderboards by {by}",
        columns=(Column("board", "benchmark"), Column("kind"), *columns),
        rows=tuple(rows),
        notes=(
            "Time is time to accuracy of training, latency of inference. Cost is the expected cost "
            "of training, of inference that of 10,000 examples.",
            *notes,
        ),
    )


def _name_cell(entry: Entry) -> CellView:
    if entry.suite == "dawnjax":
        changed = ", ".join(filter(None, [entry.variant, entry.distinction]))
        return CellView(changed or "as it is", entry.source)
    return CellView(entry.model or label(entry), label(entry) if entry.model else "")


def _place(row: dict) -> tuple:
    return row["source"], row["submitter"], row["model"], row["date"]


def _any_apart(records: Sequence[dict]) -> bool:
    """Whether two entries of a leaderboard are told apart."""
    spans = [(row["rank_from"], row["rank_to"]) for row in records if row["rank_from"] is not None]
    return any(span != (1, len(spans)) for span in spans)


def _rank_cell(row: dict, mark: str, any_apart: bool) -> CellView:
    """The cell of a rank, over the places that the entry might have where that says anything."""
    rank, first, last = row["rank"], row["rank_from"], row["rank_to"]
    if rank is None:
        return CellView("not ranked", kind="null", mark=mark)
    span = f"{first}\N{EN DASH}{last}" if any_apart and first != last else ""
    return dataclasses.replace(number_cell(rank, str(rank), span), mark=mark)


def _timed(row: dict, reasons: Reasons, why: str) -> CellView:
    """The cell of the time that ranks an entry, over its interval."""
    cell = _measured(row["seconds"], words.duration, reasons, why)
    low, high = row["seconds_low"], row["seconds_high"]
    if cell.kind != "number" or low is None:
        return cell
    upper = high if isinstance(high, str) else words.duration(high)
    return dataclasses.replace(cell, small=f"{words.duration(low)} to {upper}")


def _text(value: object) -> CellView:
    return CellView(str(value)) if value else CellView("not given", kind="null")


def _measured(value: float | None, text, reasons: Reasons, why: str) -> CellView:
    if value is None:
        return CellView(
            words.NOT_REACHED if why == words.NOT_REACHED else words.NOT_KNOWN,
            kind="null",
            mark=reasons.mark(why),
        )
    return number_cell(value, text(value))
