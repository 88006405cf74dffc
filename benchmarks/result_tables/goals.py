"""Goals, and the figures that meet or miss them."""

import dataclasses
import json
from collections.abc import Callable

from benchmarks.compared import (
    TOTAL,
    beside_peer,
    charges_imports,
    trial_ratios_with_and_without_disturbed,
)
from benchmarks.harness import Rounds
from benchmarks.result_tables import result_files
from benchmarks.result_tables.cells import machine, when
from benchmarks.result_tables.result_files import Record, Rows
from benchmarks.result_tables.steps import pytorch_settings
from dawnjax.statistics.interval import Interval, mean

MET, MISSED, UNDECIDED = "met", "**missed**", "undecided"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A measured value beside a goal.

    Attributes:
      estimate: Value with its interval, or with the range of few rounds.
      runs: Number of rounds or trials.
      against: The other side of the comparison.
      total: The comparison with compilation; empty where there is none.
    """

    estimate: Interval
    runs: str
    against: str = ""
    total: str = ""

    def __str__(self) -> str:
        """Value and ends, with the digits that the value needs."""
        value = self.estimate.value
        return self.estimate.text(0 if value >= 1000 else 3 if value >= 0.01 else 4)


@dataclasses.dataclass(frozen=True)
class Goal:
    """A goal, and the files whose figures meet or miss it.

    Attributes:
      pattern: Glob of the result files; each is a row.
      figure: Reads the figure from a result.
      least: Lower limit of the figure; None where `most` is the goal.
    """

    title: str
    pattern: str
    figure: Callable[[Record], Figure]
    least: float | None = None
    most: float | None = None

    def state(self, figure: Figure) -> str:
        """`met` or `missed` where the whole interval is on one side, else `undecided`."""
        limit = self.most if self.least is None else self.least
        estimate = figure.estimate
        assert limit is not None
        if estimate.level is None or estimate.low is None or estimate.high is None:
            return UNDECIDED
        if estimate.low < limit < estimate.high:
            return UNDECIDED
        is_below = estimate.high <= limit
        return MET if is_below == (self.least is None) else MISSED

    def needed(self) -> str:
        """The limit, with the side on which the figure must lie."""
        side, limit = ("at most", self.most) if self.least is None else ("at least", self.least)
        return f"{side} {limit:,g}"


def _rounds(facts: Record) -> tuple[Rounds, str]:
    rounds = Rounds.of(facts)
    return rounds, f"{len(rounds.first)} rounds"


def _ratio(field: str, against: str) -> Callable[[Record], Figure]:
    def figure(record: Record) -> Figure:
        rounds, runs = _rounds(record[field])
        return Figure(rounds.ratio, runs, against)

    return figure


def _ours(*path: str) -> Callable[[Record], Figure]:
    def figure(record: Record) -> Figure:
        for key in path:
            record = record[key]
        rounds, runs = _rounds(record)
        return Figure(mean(rounds.first), runs)

    return figure


def _step_speed(record: Record) -> Figure:
    """Our throughput over PyTorch's; on a CPU of the faster of our two ways to hold memory."""
    against = f"PyTorch, {pytorch_settings(record)}"
    if "network" in record:  # an older file, with times in place of throughputs
        rounds, runs = _rounds(record["float32"])
        return Figure(Rounds(rounds.second, rounds.first).ratio, runs, against)
    ours = max(
        (record["variants"].get(way, {}) for way in ("base", "memory_kept")),
        key=lambda way: way.get("units_per_second", 0.0),
    )
    rounds, runs = _rounds(ours["against_pytorch"])
    return Figure(rounds.ratio, runs, against)


def _step(field: str) -> Callable[[Record], Figure]:
    """Figure of our step alone, which is in proportion to its throughput."""

    def figure(record: Record) -> Figure:
        facts = record["variants"]["base"]
        scale = facts[field] / facts["units_per_second"]
        return Figure(mean(facts["rounds"]).scaled(scale), f"{len(facts['rounds'])} rounds")

    return figure


def _peer(record: Record) -> tuple[tuple[Interval, Interval], str, str]:
    """Record mode beside the one peer of its job that has runs."""
    [peer] = (peer for peer in record["peers"].values() if peer["runs"])
    compared = beside_peer(record["dawnjax"], peer)
    assert compared is not None
    ours = sum(len(part.get("seeds", [])) for part in record["dawnjax"])
    return compared, f"{ours} and {len(peer['runs'])} runs", f"`{peer['script']}`"


def _record_time(record: Record) -> Figure:
    (ratio, _), runs, peer = _peer(record)
    return Figure(ratio, runs, peer)


def _record_accuracy(record: Record) -> Figure:
    (_, difference), runs, peer = _peer(record)
    return Figure(difference, runs, peer)


def _trial_time(record: Record) -> Figure:
    theirs = record["pytorch"]["trials"]
    ratios = trial_ratios_with_and_without_disturbed(record["dawnjax"]["trials"], theirs)
    # A disturbed trial may take a hundred times as long, on either side.
    name = "time to accuracy, s"
    calm = f"{name}, without disturbed trials"
    *_, ratio = ratios.get(calm, ratios[name])
    total = ratios[TOTAL][-1].text()
    if charges_imports(theirs):
        total = f"at least {total}: PyTorch's total holds our imports"
    runs = f"{record['dawnjax']['num_trials']} and {record['pytorch']['num_trials']} trials"
    if calm in ratios:
        runs += ", without the disturbed ones"
    return Figure(ratio, runs, f"PyTorch, {pytorch_settings(record)}", total)


def _input_wait(record: Record) -> Figure:
    fractions = record["paced"]["input_wait_fractions"]
    return Figure(mean(fractions), f"{len(fractions)} rounds")


_SPEEDRUN = "record_cifar10_nvidia_h200_beside_speedrun.json"
_AIRBENCH = "record_cifar10_nvidia_h200.json"
_RESNET50 = "steps_resnet50_nvidia_h200.json"
_AMOEBANET = "steps_amoebanet_d_nvidia_h200.json"
_TRANSFORMER = "steps_transformer_big_nvidia_h200.json"
_TEXT = "steps_multi30k_transformer"
_RESIZED = _ratio("decode_for_training", "Pillow's RandomResizedCrop")
_HELP = _ours("commands", "dawnjax --help")
_ANALYSIS = _ours("commands", "import dawnjax.analysis")
GOALS = (
    Goal("CIFAR-10 in record mode: our time / the best peer's", _SPEEDRUN, _record_time, most=0.5),
    Goal("the same / that of the recipe's own program", _AIRBENCH, _record_time, most=0.5),
    Goal("our mean accuracy less the best peer's", _SPEEDRUN, _record_accuracy, least=0.0),
    Goal("the same less that of the recipe's own program", _AIRBENCH, _record_accuracy, least=0.0),
    Goal("ResNet-50 step, images/s", _RESNET50, _step("units_per_second"), least=12000),
    Goal("the same, times as fast as `torch.compile`", _RESNET50, _step_speed, least=2.0),
    Goal("AmoebaNet-D N6 F256 step / 7,800 images/s", _AMOEBANET, _step("share_of_limit"), 0.9),
    Goal("Transformer big step, MFU", _TRANSFORMER, _step("mfu"), least=0.55),
    Goal("the same, times as fast as compiled PyTorch with SDPA", _TRANSFORMER, _step_speed, 1.3),
    *(
        Goal(f"`{experiment}`: our time to accuracy / PyTorch's", files, _trial_time, most=most)
        for experiment, files, most in (
            ("digits", "digits_pytorch*.json", 0.67),
            ("movielens_ml100k_neumf", "recommendation_pytorch*.json", 1.0),
            ("wikipedia_bytes_small", "language_model_pytorch*.json", 1.0),
            ("multi30k_gnmt", "gnmt_pytorch*.json", 1.0),
            ("squad_small", "squad_pytorch*.json", 1.0),
        )
    ),
    Goal(
        "`digits` step, times PyTorch's speed",
        "steps_digits_cpu*.json",
        _step_speed,
        least=1.5,
    ),
    Goal(
        "CIFAR-10 record net, float32 step, times PyTorch's speed",
        "steps_record_net_float32_cpu*.json",
        _step_speed,
        least=0.9,
    ),
    Goal(
        "ResNet-18, float32 step, times PyTorch's speed",
        "steps_cifar10_resnet18_cpu*.json",
        _step_speed,
        least=0.9,
    ),
    Goal(
        "Multi30K Transformer, float32 step, times PyTorch's speed",
        f"{_TEXT}_cpu*.json",
        _step_speed,
        least=1.4,
    ),
    Goal(
        "the same in bfloat16, PyTorch under autocast (a yardstick of our own)",
        f"{_TEXT}_bfloat16_cpu*.json",
        _step_speed,
        least=1.0,
    ),
    Goal(
        "photograph to a square of 256, times Pillow's speed",
        "image_input.json",
        _ratio("decode", "Pillow"),
        least=1.6,
    ),
    Goal("the same to what a training step needs", "image_input.json", _RESIZED, least=1.6),
    Goal("prepared squares a second and core", "image_input.json", _ours("feed"), least=14000),
    Goal("input wait of a consumer of 12,000 images/s", "image_input.json", _input_wait, most=0.01),
    Goal("`dawnjax --help`, s", "start_up.json", _HELP, most=0.3),
    Goal("`import dawnjax.analysis`, s", "start_up.json", _ANALYSIS, most=0.5),
)


def goals(_: list[tuple[str, Record]]) -> Rows:
    """Each goal with each of its figures: met, missed or undecided."""
    head = (
        "goal | needed | measured (95 %) | state | with compilation | against | runs | hardware | "
    )
    head += "date; versions"
    rows: Rows = [list(head.split(" | "))]
    for goal in GOALS:
        title, needed = goal.title, goal.needed()
        for file in sorted(result_files.RESULTS.glob(goal.pattern)):
            record = json.loads(file.read_text())
            where = [machine(file.stem, record), when(record, "jax")]
            try:
                figure = goal.figure(record)
                state = goal.state(figure)
                cells = [str(figure), state, figure.total, figure.against, figure.runs]
            except (KeyError, ValueError):  # the file has no such figure
                cells = ["none: a side or a trial failed", MISSED, "", "", ""]
            rows.append([title, needed, *cells, *where])
            title = needed = ""
    return rows
