"""The leaderboards: each benchmark by time and by cost, and cost against time."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from dawnjax.analysis import leaderboard as ranking
from dawnjax.analysis.leaderboard import Leaderboard, Ranked
from dawnjax.machine.prices import PRICES
from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Cell, Column, Missing, Table, row_of
from dawnjax.report.tables import COMPILATION, mean_compile_seconds, scope
from dawnjax.tasks.metric import KNOWN_METRICS
from dawnjax.trials.group import OTHER, Entry
from dawnjax.trials.labels import hardware, label, labels_apart
from dawnjax.trials.ours import FINE_TUNED
from dawnjax.trials.target import Target

LEAST_SORTED = 4
"""A leaderboard of so many rows or more can be sorted and filtered."""


@dataclasses.dataclass(frozen=True)
class Board:
    """Leaderboard of one benchmark: entries on the same data with one target.

    Attributes:
      title: Suite, round and benchmark; the data for our entries; the target if there are several.
      kind: `training` or `inference`.
    """

    title: str
    kind: str
    ranking: Leaderboard

    @property
    def rows(self) -> list[Ranked]:
        return self.ranking.rows

    @property
    def is_ours(self) -> bool:
        return all(row.entry.suite == "dawnjax" for row in self.rows)

    @property
    def ranked(self) -> list[Ranked]:
        """Rows with a rank by time, the fastest first."""
        return [row for row in self.rows if row.rank is not None]


def with_target(title: str, target: Target, targets: Collection[Target]) -> str:
    """Name of a benchmark; the target follows where its entries have several."""
    return title if len(targets) < 2 else f"{title} to {target.words()}"


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
                board = ranking.leaderboard(ranked.values(), benchmark, until=until, kind=kind)
                if board.rows:
                    made.append(Board(with_target(name, target, targets), kind, board))
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

    They are not ranked where no run can show that its data are the benchmark's.
    """
    if not official or official[0].suite in ("dawnjax", OTHER) or official[0].kind != "training":
        return []
    ours = []
    for target in ranking.targets(official):
        of_target = dataclasses.replace(official[0], target=target)
        for entry in entries:
            if entry.suite == "dawnjax" and not _obstacle(entry, of_target):
                unknown = "" if _has_data(entry, of_target) else _unknown_data(entry)
                named = " ".join(filter(None, ["own run:", entry.benchmark, entry.variant]))
                ours.append(
                    dataclasses.replace(
                        entry,
                        benchmark=of_target.benchmark,
                        round=of_target.round,
                        target=target,
                        data="",
                        variant=named,
                        reasons=entry.reasons | ({"rank": unknown} if unknown else {}),
                    )
                )
    return ours


def _obstacle(entry: Entry, official: Entry) -> str:
    """Why our entry cannot stand on the board of an official entry; empty if it can.

    DAWNBench's boards take runs on the benchmark's data, MLPerf's take experiments that name the
    benchmark.
    """
    is_mlperf = official.suite == "mlperf_training"
    if is_mlperf and entry.official != official.benchmark:
        of = f"{entry.official}, but no entry here belongs to it" if entry.official else "none"
        return f"{_OTHER_BENCHMARK} is {of}"
    if not is_mlperf and not _has_data(entry, official):
        return f"{_OTHER_DATA}, {entry.data or 'which its log does not name'}"
    if entry.benchmark.endswith(FINE_TUNED) and official.benchmark not in _BEGIN_TRAINED:
        return f"it begins with trained parameters, which {official.benchmark} does not allow"
    if not _is_same(entry.target, official.target, is_mlperf):
        wanted, given = (target.words() for target in (official.target, entry.target))
        return f"its target is {given}, and {official.benchmark} asks for {wanted}"
    return ""


_OTHER_DATA = "no DAWNBench benchmark here uses its data"
_OTHER_BENCHMARK = "the mlperf_benchmark of its experiment"


def _has_data(entry: Entry, official: Entry) -> bool:
    return bool(entry.published) and entry.published == _DATA.get(official.benchmark)


def _unknown_data(entry: Entry) -> str:
    return f"nothing shows that its data, {entry.data}, are the benchmark's"


def why_none_is_comparable(entries: Sequence[Entry]) -> str:
    """Why none of our entries stands among the official ones; empty if one does, or none could."""
    training = [entry for entry in entries if entry.kind == "training"]
    official = [entry for entry in training if entry.suite not in ("dawnjax", OTHER)]
    whys: dict[str, str] = {}
    for entry in training if official else ():
        if entry.suite != "dawnjax":
            continue
        obstacles = {_obstacle(entry, other) for other in official}
        if "" in obstacles:
            if any(_has_data(entry, it) and not _obstacle(entry, it) for it in official):
                return ""
            obstacles = {_unknown_data(entry)}
        # That the target is another one says more than that other benchmarks have other data.
        far = (_OTHER_DATA, _OTHER_BENCHMARK)
        near = sorted(why for why in obstacles if not why.startswith(far))
        whys[entry.benchmark] = near[0] if near else ", and ".join(sorted(obstacles))
    said = "; ".join(f"{name}: {why}" for name, why in sorted(whys.items()))
    return f"Your runs cannot be compared with the official entries ({said})." if said else ""


def _is_same(ours: Target, official: Target, is_mlperf: bool) -> bool:
    """True if a run's target is an official one, its first metric and all others.

    MLPerf does not name the metric of a benchmark with only one.
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


def _part(target: Target) -> tuple[str, str, float | None]:
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
        lead=("Entries that reach the benchmark's quality, ranked by the latency of one example.",),
        blocks=tuple(map(board_table, chosen)),
    )


def leaderboards_section(all_boards: Sequence[Board], until: str | None = None) -> Section | None:
    """Leaderboards of official training benchmarks with two entries or more; None without any."""
    chosen = [
        board
        for board in all_boards
        if board.kind == "training" and len(board.rows) > 1 and not board.is_ours
    ]
    if not chosen:
        return None
    figures = [cost_figure(board, number) for number, board in enumerate(chosen, start=1)]
    lead = [
        "Ranked by time to accuracy: MLPerf entries by score, all others by expected time.",
        "Your own runs are listed among the DAWNBench and MLPerf entries, by DawnJAX's clock, "
        "which starts when everything is compiled. They have a rank if they ran on the "
        "benchmark's data.",
        "The expected cost is the cost of all trials divided by the number that reached the "
        "target, at the price of the whole system.",
    ]
    if until:
        lead.append(f"Only entries dated up to {until} are ranked.")
    return Section(
        name="leaderboards",
        title="Leaderboards",
        lead=tuple(lead),
        blocks=(*map(board_table, chosen), *(it for it in figures if it is not None)),
        folded=(_prices(),),
    )


def _prices() -> Table:
    columns = (
        Column("name", "name"),
        Column("usd_per_hour", "price", "USD/h", "number"),
        Column("unit", "of one"),
        Column("terms", "terms"),
        Column("seller", "seller"),
        Column("date", "from"),
        Column("source", "source"),
    )
    return Table(
        name="prices",
        title="Prices for entries that give none",
        columns=columns,
        rows=tuple(row_of(columns, price) for price in PRICES),
        notes=("An entry's own price takes precedence over these.",),
    )


def leaderboards_table(all_boards: Sequence[Board]) -> Table:
    """One table of all leaderboards; a benchmark's name is a cell and never a file name."""
    return Table(
        name="leaderboards",
        title="Leaderboards",
        columns=_columns("training"),
        rows=tuple(row for board in all_boards for row in _rows(board)),
        notes=(
            ranking.RULE,
            "For training, seconds are the time to accuracy and cost is the expected cost (for "
            "MLPerf entries, the cost of the score). For inference, they are the latency and the "
            "cost of 10,000 examples.",
        ),
    )


def board_table(board: Board) -> Table:
    """Leaderboard of one benchmark with both ranks."""
    notes = list(board.ranking.notes)
    ranked = len(board.ranked)
    is_open = board.kind == "training" and all(row.span == (1, ranked) for row in board.ranked)
    if is_open and ranked > 1:
        notes.append("No rank is certain here: ranks follow the estimates.")
    table = Table(
        name="leaderboards",
        title=f"{board.title}: {board.kind}",
        columns=_columns(board.kind),
        rows=tuple(_rows(board)),
        notes=tuple(notes),
        sortable=len(board.rows) >= LEAST_SORTED,
    )
    # One note says what a span below each rank would.
    spans = ("rank_low", "rank_high", "cost_rank_low", "cost_rank_high")
    return table.narrowed(lambda column: column.name not in spans) if is_open else table


def _columns(kind: str) -> tuple[Column, ...]:
    is_training = kind == "training"
    time = "time to accuracy" if is_training else "latency"
    return (
        Column("board", "benchmark", filed=True),
        Column("kind", "kind", filed=True),
        Column("rank", "rank", kind="rank"),
        Column("rank_low", "rank, from", kind="integer"),
        Column("rank_high", "rank, to", kind="integer"),
        Column("entry", "entry"),
        Column("model", "model", under="entry"),
        Column("remark", "remark", under="entry"),
        Column("source", "source", filed=True),
        Column("reached", "trials that reached"),
        Column("seconds", time, "s", "number"),
        Column("seconds_low", f"{time}, from", "s", "number"),
        Column("seconds_high", f"{time}, to", "s", "number"),
        Column("seconds_ends", f"{time}, the ends are"),
        COMPILATION,
        Column("cost_usd", "expected cost" if is_training else "cost of 10 000", "USD", "number"),
        Column("cost_rank", "rank by cost", kind="rank"),
        Column("cost_rank_low", "rank by cost, from", kind="integer"),
        Column("cost_rank_high", "rank by cost, to", kind="integer"),
        Column("price_source", "price", filed=True),
        Column("hardware", "hardware"),
        Column("submitter", "submitter"),
        Column("framework", "framework"),
        Column("date", "date", kind="date"),
        Column("target", "target", filed=True),
        Column("trials", "trials", kind="integer", filed=True),
    )


def _rows(board: Board) -> Iterable[tuple[Cell, ...]]:
    columns = _columns(board.kind)
    names = labels_apart([row.entry for row in board.rows])
    for row, name in zip(board.rows, names, strict=True):
        entry, interval = row.entry, row.interval
        is_priced = row.cost_usd is not None
        cells: dict[str, Cell] = {
            "board": board.title,
            "rank": Missing("", "not ranked") if row.rank is None else row.rank,
            "rank_low": row.span[0],
            "rank_high": row.span[1],
            "entry": name,
            # A run's model is its experiment's: only other programs' entries need its name.
            "model": "" if entry.suite == "dawnjax" else entry.model,
            "remark": "; ".join(filter(None, [row.why, ranking.scaled_score(entry)])),
            "seconds": row.seconds,
            "seconds_low": interval and interval.low,
            "seconds_high": interval and interval.high,
            "seconds_ends": interval.ends or None if interval else None,
            "compile_seconds": mean_compile_seconds(entry),
            "cost_usd": row.cost_usd if is_priced else Missing(row.why_no_cost),
            "cost_rank": Missing("", "not ranked") if row.cost_rank is None else row.cost_rank,
            "cost_rank_low": row.cost_span[0],
            "cost_rank_high": row.cost_span[1],
            "hardware": hardware(entry),
            "target": entry.target.words(),
            "trials": len(entry.trials) if entry.kind == "training" else None,
            "reached": _reached(entry),
        }
        if row.seconds is None:
            is_said = row.why in (words.NOT_REACHED, words.NO_TARGET, words.NO_MOMENT)
            cells["seconds"] = Missing("", row.why if is_said else words.NOT_KNOWN)
        yield row_of(columns, row, entry, **cells)


def _reached(entry: Entry) -> str:
    reached = sum(trial.reached for trial in entry.trials)
    return f"{reached} of {len(entry.trials)}" if entry.trials and entry.has_target else ""


def _time_and_cost(row: Ranked) -> str:
    seconds, cost = words.duration(row.seconds or 0.0), words.usd(row.cost_usd or 0.0)
    return f"{label(row.entry)}, {seconds} for {cost}"


def cost_figure(board: Board, number: int) -> Figure | None:
    """Cost against time of a training benchmark; None for fewer than three entries with both."""
    both = [row for row in board.ranked if row.cost_usd and row.seconds]
    if board.kind != "training" or len(both) < 3:
        return None
    best, points = float("inf"), []
    for row in both:  # from the fastest on
        seconds, cost, rank = row.seconds or 0.0, row.cost_usd or 0.0, row.rank or 0
        name, is_best = f"{rank} {label(row.entry)}", cost < best
        best = min(best, cost)
        series = 0 if is_best else 1
        points.append(plots.Point(seconds, cost, name if is_best else "", series, rank, name))
    x = svg.Axis("time to accuracy", words.duration, svg.time_ticks, log=True)
    y = svg.Axis("expected cost", words.usd, log=True)
    names = ("no other entry is both faster and cheaper", "another entry is faster and cheaper")
    fast, cheap = both[0], min(both, key=lambda row: row.cost_usd or 0.0)
    return Figure(
        name=f"cost-{number}",
        title=f"{board.title}: cost against time",
        summary=(
            f"{len(both)} entries. Fastest with a price: {_time_and_cost(fast)}. Cheapest: "
            f"{_time_and_cost(cheap)}."
        ),
        caption="Numbers are ranks by time, as in the leaderboard. Lower left is better.",
        draw=lambda width: plots.draw_points(points, x, y, width, series_names=names),
        left_out=tuple(
            (label(row.entry), row.price_source or "no price")
            for row in board.ranked
            if not (row.cost_usd and row.seconds)
        ),
        tables=("leaderboards",),
    )
