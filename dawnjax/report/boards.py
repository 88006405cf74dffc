"""The leaderboards: each benchmark by time and by cost, and cost against time."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

from dawnjax.analysis import leaderboard as ranking
from dawnjax.analysis.cost import price_table
from dawnjax.analysis.our_entries import FINE_TUNED
from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Column, Table
from dawnjax.page.view import CellView, HeadView, Reasons, TableView, interval, number_cell, view
from dawnjax.report.labels import COMPILATION_HEAD, compilation_cell, hardware, label
from dawnjax.tasks.metric import KNOWN_METRICS
from dawnjax.trials.group import Entry, EntryTarget, FurtherTarget

SUITE_NAMES = {"dawnbench": "DAWNBench", "mlperf_training": "MLPerf Training", "dawnjax": "DawnJAX"}

LEAST_SORTED = 4
"""A leaderboard of so many rows or more can be sorted and filtered."""


@dataclasses.dataclass(frozen=True)
class Board:
    """Leaderboard of one benchmark: entries on the same data with one target.

    Attributes:
      title: Suite, round and benchmark; the data for our entries; the target if there are several.
      kind: `training` or `inference`.
      entries: Entries by their source.
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


def with_target(title: str, target: EntryTarget, targets: Collection[EntryTarget]) -> str:
    """Name of a benchmark; the target follows where its entries have several."""
    return title if len(targets) < 2 else f"{title} to {ranking.target_words(target)}"


def boards(entries: Sequence[Entry], until: str | None = None) -> list[Board]:
    """Leaderboards of all benchmarks, training before inference."""
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


_DATA = {
    "CIFAR10": "CIFAR-10",
    "ImageNet": "ImageNet",
    "SQuAD": "SQuAD",
    "resnet": "ImageNet",
    "ssd": "COCO 2017",
    "maskrcnn": "COCO 2017",
}
"""By official benchmark, the published set that its entries train on, where a run can show it."""

_BEGIN_TRAINED = ("llama2_70b_lora", "llama31_405b")
"""Benchmarks whose rules give the parameters that training begins with."""


def _ours_among(official: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """Our runs of an official benchmark to its target, as entries of that benchmark.

    Of DAWNBench these are runs on its data, of MLPerf those of experiments that name the benchmark;
    they are not ranked where no run can show that its data are the benchmark's.
    """
    if not official or official[0].suite == "dawnjax" or official[0].kind != "training":
        return []
    benchmark, is_mlperf = official[0].benchmark, official[0].suite == "mlperf_training"
    ours = []
    for target in ranking.targets(official):
        for entry in entries:
            has_data = bool(entry.published) and entry.published == _DATA.get(benchmark)
            is_of = entry.official == benchmark if is_mlperf else has_data
            is_fresh = not entry.benchmark.endswith(FINE_TUNED) or benchmark in _BEGIN_TRAINED
            is_same = _is_same(entry.target, target, is_mlperf)
            if entry.suite == "dawnjax" and is_of and is_fresh and is_same:
                named = " ".join(filter(None, ["own run:", entry.benchmark, entry.variant]))
                unknown = f"nothing shows that its data, {entry.data}, are the benchmark's"
                ours.append(
                    dataclasses.replace(
                        entry,
                        benchmark=benchmark,
                        round=official[0].round,
                        target=target,
                        data="",
                        variant=named,
                        reasons=entry.reasons if has_data else entry.reasons | {"rank": unknown},
                    )
                )
    return ours


def _is_same(ours: EntryTarget, official: EntryTarget, is_mlperf: bool) -> bool:
    """True if a run's target is an official one, its first metric and all others.

    A benchmark of MLPerf with one metric has no name for it.
    """
    wanted = [_part(official), *sorted(map(_part, official.others))]
    given = [(ours.metric, ours.direction, ours.value)]
    given += sorted((other.metric, other.direction, other.value) for other in ours.others)
    scale = 100.0 if official.unit == "percent" else 1.0
    return len(given) == len(wanted) and all(
        (metric == name or (is_mlperf and not name))
        and direction == asked
        and value is not None
        and limit is not None
        # A fraction times 100 is seldom exact in binary.
        and abs(value * scale - limit) < 1e-6
        for (metric, direction, value), (name, asked, limit) in zip(given, wanted, strict=True)
    )


def _part(target: EntryTarget | FurtherTarget) -> tuple[str, str, float | None]:
    """Our name for an official metric, empty without one; direction and value."""
    known = KNOWN_METRICS.get(target.metric)
    return known.name if known else "", target.direction, target.value


def inference_section(all_boards: Sequence[Board]) -> Section | None:
    """Leaderboards by latency; None without inference entries."""
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
    """Leaderboards of training, and both tables that join all boards; None without a board."""
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
        "Our own runs stand among the entries of DAWNBench and MLPerf too, by our clock, which "
        "starts when all is compiled; those whose data are the benchmark's have a rank.",
        ranking.RULE,
        "The expected cost is that of all trials divided by the number that reached the target, at "
        "the price of the whole system. Entries that cannot be ranked stand at the end, with the "
        "reason.",
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
    """View of a leaderboard with both ranks; readable without the page's script."""
    records = board.by_time.records()
    reasons = Reasons()
    columns = [*_ranked_columns(board, records, reasons), *_described_columns(board, records)]
    return TableView(
        name="leaderboards_by_time",
        caption=f"{board.title}: {'training' if board.kind == 'training' else 'inference'}",
        heads=tuple(head for head, _ in columns),
        rows=tuple(tuple(cell(row) for _, cell in columns) for row in records),
        reasons=reasons.listed(),
        notes=_board_notes(board, records),
        total=len(records),
        sortable=len(records) >= LEAST_SORTED,
        dates=(
            tuple(str(row["date"] or "") for row in records) if len(records) >= LEAST_SORTED else ()
        ),
        header=1,
    )


_ColumnView = tuple[HeadView, Callable[[dict], CellView]]
"""A column's head, and the cell of a row."""


def _ranked_columns(
    board: Board, records: Sequence[dict], reasons: Reasons
) -> Iterator[_ColumnView]:
    by_cost = {_place(row): row for row in board.by_cost.records()}
    time_apart, cost_apart = _any_apart(records), _any_apart(list(by_cost.values()))
    training = board.kind == "training"

    def entry(row: dict) -> Entry:
        return board.entries[str(row["source"])]

    def remark(row: dict) -> str:
        return str(row["remark"] or "")

    def cost_remark(row: dict) -> str:
        return str(by_cost[_place(row)]["remark"] or row["price_source"] or "")

    def cost_rank(row: dict) -> CellView:
        is_priced = row["cost_usd"] is not None  # without a price, the cost itself says why
        mark = cost_remark(row) if is_priced and by_cost[_place(row)]["rank"] is None else ""
        return _rank_cell(by_cost[_place(row)], reasons.mark(mark), cost_apart)

    yield (
        HeadView("rank", "by time", number=True, rank="time"),
        lambda row: _rank_cell(row, reasons.mark(remark(row)), time_apart),
    )
    yield HeadView("model", "entry"), lambda row: _name_cell(entry(row))
    time_head = HeadView("time to accuracy", "95% interval", number=True)
    yield (
        time_head if training else HeadView("latency", number=True),
        lambda row: _timed(row, reasons, remark(row)),
    )
    if any(row["compile_seconds"] is not None for row in records):
        yield COMPILATION_HEAD, lambda row: compilation_cell(entry(row))
    if _any_priced(records):
        cost_head = HeadView("expected cost", number=True)
        yield (
            cost_head if training else HeadView("cost", "of 10 000", number=True),
            lambda row: _measured(row["cost_usd"], words.usd, reasons, cost_remark(row)),
        )
        yield HeadView("rank", "by cost", number=True, rank="cost"), cost_rank


def _described_columns(board: Board, records: Sequence[dict]) -> Iterator[_ColumnView]:
    yield HeadView("hardware"), lambda row: _text(hardware(board.entries[str(row["source"])]))
    if any(row["submitter"] for row in records):
        yield HeadView("submitter"), lambda row: _text(row["submitter"])
    yield HeadView("framework"), lambda row: _text(row["framework"])
    yield (
        HeadView("date"),
        lambda row: CellView(str(row["date"]), kind="date") if row["date"] else _text(""),
    )
    if board.kind == "training":
        yield (
            HeadView("trials", number=True),
            lambda row: number_cell(row["trials"], str(row["trials"])),
        )


def _board_notes(board: Board, records: Sequence[dict]) -> tuple[str, ...]:
    """Notes that the page shows nowhere else: remarks have letters, and the rule stands above."""
    notes = [note for note in board.by_time.notes if "remark" not in note and note != ranking.RULE]
    several = sum(row["rank"] is not None for row in records) > 1
    if board.kind == "training" and several and not _any_apart(records):
        notes.append("No rank is certain here: ranks are of the estimates alone.")
    if not _any_priced(records):
        whys = sorted({str(row["price_source"]) for row in records})
        notes.append("No cost is known: " + "; ".join(whys[:3]) + ".")
    return tuple(notes)


def _any_priced(records: Sequence[dict]) -> bool:
    return any(row["cost_usd"] is not None for row in records)


def cost_figure(board: Board, number: int) -> Figure | None:
    """Cost against time of a training benchmark; None for fewer than three entries with both."""
    rows = [row for row in board.by_time.records() if row["rank"] is not None]
    both = [row for row in rows if row["cost_usd"] and row["seconds"]]
    if board.kind != "training" or len(both) < 3:
        return None
    best, front = float("inf"), set()
    for row in both:  # from the fastest on
        if row["cost_usd"] < best:
            best = row["cost_usd"]
            front.add(_place(row))
    points = []
    for row in both:
        name, is_best = f"{row['rank']} {label(board.entries[row['source']])}", _place(row) in front
        points.append(
            plots.Point(
                row["seconds"],
                row["cost_usd"],
                name if is_best else "",
                0 if is_best else 1,
                row["rank"],
                name,
            )
        )
    x = svg.Axis("time to accuracy", words.duration, svg.time_ticks, log=True)
    y = svg.Axis("expected cost", words.usd, log=True)
    names = ("no other entry is both faster and cheaper", "another entry is faster and cheaper")
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
        caption="Numbers are ranks by time, as in the leaderboard. Lower left is better.",
        draw=lambda width: plots.draw_points(points, x, y, width, series_names=names),
        left_out=tuple(
            (str(row["source"]), str(row["price_source"] or "no price"))
            for row in rows
            if not (row["cost_usd"] and row["seconds"])
        ),
        tables=("leaderboards_by_time",),
    )


def _joined(all_boards: Sequence[Board], by: str) -> Table:
    """One table of all leaderboards; a benchmark's name is a cell and never a file name."""
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
    spans = [(row["rank_from"], row["rank_to"]) for row in records if row["rank_from"] is not None]
    return any(span != (1, len(spans)) for span in spans)


def _rank_cell(row: dict, mark: str, any_apart: bool) -> CellView:
    """Rank, over the range of ranks that the intervals allow."""
    rank, first, last = row["rank"], row["rank_from"], row["rank_to"]
    if rank is None:
        return CellView("not ranked", kind="null", mark=mark)
    span = f"{first}\N{EN DASH}{last}" if any_apart and first != last else ""
    return dataclasses.replace(number_cell(rank, str(rank), span), mark=mark)


def _timed(row: dict, reasons: Reasons, why: str) -> CellView:
    cell = _measured(row["seconds"], words.duration, reasons, why)
    if cell.kind != "number":
        return cell
    return dataclasses.replace(cell, small=interval(row, "seconds", Column("seconds", unit="s")))


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
